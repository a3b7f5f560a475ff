"""Data drops whose contents earlier sessions have left."""

from pathlib import Path
from typing import Any

import pytest

from dropflow.data.registry import DATA_COMPONENTS, store_for
from dropflow.data.repository import KEPT_CONTENT, KeptContent, kept_contents_field
from dropflow.data.store import Slot, Store
from dropflow.data.workspace import Workspace
from dropflow.errors import BadGraphError, GoneError
from dropflow.graph.templates import Argument, Kind, Template

_EARLIER = KeptContent("earlier", 7, "g_x_0", "results/g_x_0.npy", 5, 9)


def _store(*arguments: Argument) -> Store:
    template = Template(
        key="x", name="x", kind=Kind.DATA, component=KEPT_CONTENT.dropclass, category="KeptContent", arguments=arguments
    )
    return store_for(template)


def _slot(sessions: Path) -> Slot:
    return Slot(Workspace(str(sessions / "later"), "later"), "g_y_0", 0, 0, 0)


def _written(path: Path, text: str = "hello") -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_a_content_is_read_where_it_is(tmp_path: Path) -> None:
    """The handle has the file of the earlier session, its size and its checksum."""
    path = _written(tmp_path / "earlier/results/g_x_0.npy")
    handle = _store(kept_contents_field({"g_y_0": _EARLIER})).initial(_slot(tmp_path))

    assert (handle.kind, handle.location, handle.size, handle.checksum) == ("file", str(path), 5, 9)


def test_a_copy_stands_in_for_a_content_of_another_node(tmp_path: Path) -> None:
    """It is found by the row of its drop; a file of another size is none."""
    _written(tmp_path / "earlier/results/g_x_0.npy", "hell")
    _written(tmp_path / "earlier/copies/70-tag-1.part/g_x_0")
    path = _written(tmp_path / "earlier/copies/7-tag-1.part/g_x_0")

    assert _store(kept_contents_field({"g_y_0": _EARLIER})).initial(_slot(tmp_path)).location == str(path)


def test_a_missing_content_is_named(tmp_path: Path) -> None:
    """The error has the drop, its session and what to do."""
    with pytest.raises(GoneError, match=r"the content of g_x_0 of session 'earlier' is not on this node any more"):
        _store(kept_contents_field({"g_y_0": _EARLIER})).initial(_slot(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        _EARLIER._replace(path="/etc/passwd"),
        _EARLIER._replace(path="results/../../other"),
        _EARLIER._replace(session="../earlier"),
        ("earlier", 7),
        None,
    ],
)
def test_a_content_outside_of_its_session_is_refused(tmp_path: Path, content: Any) -> None:
    """A graph names contents of sessions only, and no other files."""
    store = _store(Argument(name="contents", type="Object", value={"g_y_0": content}))
    with pytest.raises(BadGraphError, match=r"no valid content of an earlier session for drop g_y_0"):
        store.initial(_slot(tmp_path))


def test_a_node_without_contents_is_refused(tmp_path: Path) -> None:
    """The class is for programs: it is in no palette, and a node without the field is an error before anything runs."""
    assert KEPT_CONTENT not in DATA_COMPONENTS
    with pytest.raises(BadGraphError, match=r"node 'x' names no contents of earlier sessions"):
        _store().check_initial()
    with pytest.raises(BadGraphError, match=r"drop g_y_0 of 'x' has a producer"):
        _store().part(_slot(tmp_path))
