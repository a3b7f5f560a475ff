"""Any content of a file gives a list of findings, and never an exception."""

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadFileError
from tests.translator.documents import errors, read, small, wide
from translator.formats import Reading, read_file
from translator.options import ReadOptions, UnrollOptions
from translator.parameters import fill
from translator.pipeline import examine
from translator.problem_codes import CODES
from translator.unroll import unroll
from translator.validate import validate


def _everything(content: Any) -> Reading:
    """Return the result of reading, filling and validating with all findings."""
    reading = read(content)
    if reading.graph is None:
        return reading
    graph, problems = fill(reading.graph, configuration="C", settings=["S.num_of_copies=2", "global.x=1"])
    return Reading(graph, (*reading.problems, *problems, *validate(graph)), reading.family)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the path to every place in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner_path for key, item in inner for inner_path in _paths(item, (*path, key)))]


_PATHS = [path for path in _paths(wide()) if path]
_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["S", "A", "D", "P", "in", "out", "Scatter", "Loop", "Memory", "{x}", "", "-1", "~", "/"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["id", "name", "fields", "value"]), st.integers(0, 3), max_size=2),
)


_CHANGES = st.lists(
    st.tuples(st.sampled_from(_PATHS), st.sampled_from(["delete", "replace", "repeat"]), _JUNK), min_size=1, max_size=4
)


def _mutated(content: Any, path: tuple[Any, ...], how: str, junk: Any) -> None:
    """Delete, replace or repeat the item at `path`, if it still exists."""
    *steps, last = path
    here = content
    for step in steps:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            return
    try:
        if how == "delete":
            del here[last]
        elif how == "repeat" and isinstance(here, list):
            here.append(copy.deepcopy(here[last]))
        else:
            here[last] = junk
    except (KeyError, IndexError, TypeError):
        return


@pytest.mark.slow
@settings(max_examples=300)
@given(_CHANGES)
def test_a_mutated_graph_gives_findings_and_never_an_exception(changes: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    """Keys deleted, types changed, items repeated: reading, filling and validating say so and go on.

    Every finding has a known code, and every pointer leads into the document or to what the user gave.
    """
    content = wide()
    for path, how, junk in changes:
        _mutated(content, path, how, junk)
    reading = _everything(content)

    for finding in reading.problems:
        assert finding.code in CODES
        assert finding.text
        if finding.where.startswith("/"):
            _follow(content, finding.where)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(_CHANGES)
def test_a_mutated_graph_without_errors_can_be_unrolled(changes: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    """A document either has a finding that is an error, or becomes a physical graph."""
    content = wide()
    for path, how, junk in changes:
        _mutated(content, path, how, junk)
    checked = examine(json.dumps(content).encode(), unroll_options=UnrollOptions(max_drops=2000, max_edges=5000))

    assert errors(checked.problems) or checked.outline is None or unroll(checked.outline).drops >= 0


_N, _L = "nodeDataArray", "linkDataArray"


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ((_N, 1, "fields", 0, "value"), -1, "LG020"),
        ((_N, 1, "fields", 0, "value"), "many", "LG020"),
        ((_N, 1, "fields", 0, "value"), 2.5, "LG020"),
        ((_N, 1, "fields", 0, "value"), "", "LG020"),
        ((_N, 1, "fields", 0, "value"), 10**12, "LG120"),
        ((_N, 0, "category"), "Memry", "LG030"),
        ((_N, 0, "id"), "S", "LG006"),
        ((_N, 2, "parentId"), "gone", "LG004"),
        ((_N, 1, "parentId"), "S", "LG005"),
        ((_L, 0, "to"), "gone", "LG003"),
        ((_L, 0, "toPort"), "gone", "LG010"),
        ((_L, 4, "closesLoop"), False, "LG061"),
        ((_L, 0, "from"), "P", "LG050"),
    ],
)
def test_each_fault_gives_its_code(path: tuple[Any, ...], value: Any, code: str) -> None:
    """One fault in a sound graph gives its finding, with a place and a text."""
    content = wide()
    assert errors(examine(json.dumps(content).encode()).problems) == []
    _mutated(content, path, "replace", value)
    findings = [finding for finding in examine(json.dumps(content).encode()).problems if finding.code == code]

    assert findings
    assert all(finding.text and finding.where for finding in findings) or code == "LG120"


def _follow(content: Any, pointer: str) -> None:
    """Walk along a JSON pointer; only its last step may be missing."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    here = content
    for place, step in enumerate(steps):
        key = int(step) if isinstance(here, list) and re.fullmatch(r"\d+", step) else step
        try:
            here = here[key]
        except (KeyError, IndexError, TypeError):
            assert place == len(steps) - 1, pointer
            return


@given(
    st.recursive(
        _JUNK,
        lambda inner: st.dictionaries(st.sampled_from(sorted({str(s) for p in _PATHS for s in p})), inner, max_size=5),
    )
)
def test_any_json_gives_findings_and_never_an_exception(content: Any) -> None:
    """Random JSON with the keys of a graph is read or refused, and never raises."""
    reading = _everything(content)

    assert reading.graph is not None or reading.problems


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(cut: float) -> None:
    """A file that is truncated at any place is an error."""
    data = json.dumps(small()).encode()

    assert errors(read(data[: int(len(data) * cut)]).problems) == ["LG001"]


# --- opening --------------------------------------------------------------------------------------------------------


def test_a_file_is_read_unchanged(tmp_path: Path) -> None:
    """Bytes come back unchanged."""
    path = tmp_path / "a.graph"
    path.write_bytes(b"\x00\xff")

    assert read_file(path) == b"\x00\xff"


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("folder", "this is a directory", "give a graph file"),
        ("graphs.graph", "there is no such file", "did you mean 'graph.graph'"),
        ("nowhere/x", "there is no such file", "no directory"),
        ("x" * 300, "cannot be read", ""),
        ("a\0b", "cannot be read", ""),
    ],
    ids=["directory", "misspelled", "no folder", "long name", "zero byte"],
)
def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path, name: str, text: str, hint: str) -> None:
    """Directories, missing files and impossible names give a BadFileError that names the path."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "graph.graph").touch()
    with pytest.raises(BadFileError, match=text) as caught:
        read_file(tmp_path / name)

    assert hint in caught.value.hint
    assert caught.value.where


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_an_error(tmp_path: Path) -> None:
    """A file without read permission raises an error that says so."""
    path = tmp_path / "a.graph"
    path.touch(mode=0)
    with pytest.raises(BadFileError, match="may not be read"):
        read_file(path)


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    """A file of a terabyte is refused without reading all of it, and the error has the limit."""
    path = tmp_path / "a.graph"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(BadFileError, match="more than the 1,000 bytes"):
        read_file(path, ReadOptions(max_bytes=1000))
