"""Graphs, runs and failures as notebooks show them."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import dropflow
from dropflow import Graph, app
from dropflow.formatting import last_lines
from dropflow.graph.notebook import MOST_SHAPES, failure_html, logical_svg, session_html

_HOSTILE = "<script>alert('x')</script>\" onload=\"x\x00\n&amp;"


@app
def numbers(count: int) -> list[int]:
    """Return the first numbers."""
    return list(range(count))


@app
def refuse(x: int) -> int:
    """Fail, after some lines in the log."""
    for line in range(30):
        sys.stdout.write(f"line {line}\n")
    raise ValueError(f"<b>{x}</b> is refused")


class _Tags(HTMLParser):
    """The tags and attributes of a text; every tag that is opened must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _graph(name: str = "shown") -> Graph:
    with Graph(name) as graph, graph.each(numbers(2), copies=2, name="Both") as number:
        graph.call(refuse.options(name=_HOSTILE.replace("\x00", "").replace("\n", "")), number)
    return graph


def test_a_graph_is_shown_as_a_picture_of_its_nodes() -> None:
    """Each node is a box with its name, each construct a frame, each edge an arrow; the SVG is well-formed."""
    physical = _graph().translate().graph
    keys = [template.key for template in physical.templates]
    picture = ET.fromstring(logical_svg(physical, {keys[0]: {"COMPLETED": 1, "ERROR": 1}}))  # noqa: S314 - ours
    space = "{http://www.w3.org/2000/svg}"

    assert len(picture.findall(f"{space}g")) == len(physical.templates)
    assert len(picture.findall(f"{space}rect")) == 1
    assert len([one for one in picture.findall(f"{space}path") if one.get("class") == "df-e"]) == len(physical.links)
    assert _graph()._repr_html_() == physical._repr_html_()
    assert {"script", "link", "iframe"}.isdisjoint(_Tags(physical._repr_html_()).tags)
    assert not [name for name in _Tags(physical._repr_html_()).attributes if name.startswith("on")]


def test_a_graph_that_cannot_be_translated_shows_its_problems() -> None:
    """A notebook shows why there is no picture, and no traceback."""
    graph = Graph("unfilled")
    with graph.each(graph.call(numbers, 3), copies=graph.parameter("copies", type="Integer")):
        graph.call(numbers, 1)

    assert "copies" in graph._repr_html_()
    assert "<svg" not in graph._repr_html_()


def test_a_large_graph_has_no_picture() -> None:
    """A picture with thousands of boxes would be of no use, and slow."""
    builder = dropflow.GraphBuilder("large")
    for number in range(MOST_SHAPES + 1):
        builder.data(f"d{number}")

    assert logical_svg(builder.build()) == ""
    assert "no picture" in builder.build()._repr_html_()


@pytest.mark.slow
def test_a_run_shows_its_failures(tmp_path: Path) -> None:
    """The root cause with its error, traceback and the end of its log, escaped."""
    shown = _graph().run(runner="processes", workers=1, directory=tmp_path / "run")._repr_html_()

    assert "ValueError: &lt;b&gt;0&lt;/b&gt; is refused" in shown
    assert "line 29" in shown
    assert "line 3\n" not in shown
    assert "FAILED" in shown
    assert {"script", "b>0"}.isdisjoint(_Tags(shown).tags)


@pytest.mark.parametrize("link", ["javascript:alert(1)", 'http://localhost/"><script>'])
def test_hostile_texts_are_escaped(link: str) -> None:
    """Names, errors, logs and addresses cannot add elements, attributes or scripts."""
    failure = failure_html(
        _HOSTILE, _HOSTILE, code=_HOSTILE, text=_HOSTILE, hint=_HOSTILE, detail=_HOSTILE, count=3, log=_HOSTILE
    )
    states = {_HOSTILE: 1, "ERROR": 2}
    shown = session_html(
        _HOSTILE, status=_HOSTILE, states=states, drops=3, seconds=1.0, failures=[failure] * 12, link=link
    )
    tags = _Tags(shown)

    assert "script" not in tags.tags
    assert tags.attributes <= {"class", "style", "href", "rel", "title", "role", "aria-label", "open"}
    assert 'href="javascript' not in shown
    assert "and 2 more causes" in shown
    assert "\x00" not in shown


def test_only_the_last_lines_of_a_log_are_shown() -> None:
    """Twenty lines, also if the first bytes are half a character."""
    assert last_lines(b"\xa4" + b"".join(b"%d\n" % number for number in range(50))).splitlines()[0] == "30"


class _Shown:
    def __init__(self) -> None:
        self.views: list[Any] = []

    def __call__(self, view: Any, *, display_id: bool) -> "_Shown":
        assert display_id
        self.views.append(view)
        return self

    def update(self, view: Any) -> None:
        self.views.append(view)


def test_a_session_of_a_cluster_is_shown_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """The display is updated with each version of the session until it is over; both forms are in the bundle."""
    from dropflow.builder import results  # noqa: PLC0415 - patched here

    shown = _Shown()
    monkeypatch.setattr(results, "notebook_display", lambda: shown)
    physical = _graph().translate().graph
    session = results.SubmittedGraph(_Client(), "lively", physical)  # type: ignore[arg-type] - answers what is asked

    assert session.show() is session
    bundles = [view._repr_mimebundle_() for view in shown.views]
    assert ["RUNNING" in bundle["text/html"] for bundle in bundles] == [True, True, False]
    assert "FINISHED" in bundles[-1]["text/html"]
    assert "lively" in bundles[-1]["text/plain"]
    assert "FINISHED" in session._repr_html_()


class _Client:
    """A manager that has three versions of a session."""

    url = "http://127.0.0.1:1"

    def __init__(self) -> None:
        self.version = 0

    def session(self, session: str) -> object:
        from dropflow.api.session_records import SessionDetail  # noqa: PLC0415 - with its test

        self.version += 1
        over = self.version > 2
        return SessionDetail(
            session=session,
            graph="shown",
            status="FINISHED" if over else "RUNNING",
            epoch=1,
            version=self.version,
            drops=9,
            settled=self.version,
            states={"COMPLETED": self.version},
            created=1.0,
            started=1.0,
            finished=2.0 if over else 0.0,
            seconds=1.0,
        )

    def watch(self, session: str, *, version: int, seconds: float) -> object:
        assert (version, seconds > 0) == (self.version, True)
        return self.session(session)
