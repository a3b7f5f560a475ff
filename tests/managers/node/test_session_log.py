"""Pages of the log of a session on one node, and merged from several."""

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.api.logs import LogLine, LogPage, LogQuery
from dropflow.execution import drop_log
from dropflow.execution.decisions.events import Assembled, Failed, Finished
from dropflow.execution.drop_log import DropLog
from dropflow.failure import Failure
from dropflow.testing.drawing import draw
from managers.composite.log_merging import merge_log_pages
from managers.node import session_log
from managers.node.session_log import FailureLog, SessionLogs
from tests.fake_manager import FakeManager
from tests.regular_graphs import fan
from tests.virtual_clock import VirtualClock

Read = Callable[[LogQuery], LogPage]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """The clock of printed text."""
    virtual_clock = VirtualClock()
    monkeypatch.setattr(drop_log, "_CLOCK", virtual_clock)
    return virtual_clock


def _reader(folder: Path, clock: VirtualClock) -> Read:
    logs = SessionLogs(clock)
    return lambda query: logs.page(str(folder), "n", query, lambda drop: f"name of {drop}")


def _write(folder: Path, drop: str, *texts: str) -> None:
    log = DropLog(str(folder), drop, 100_000)
    for text in texts:
        log.write(text)
    log.close()


def _older(read: Read, query: LogQuery) -> list[list[LogLine]]:
    """Return all pages, from the last one back to the first."""
    return _pages(read, query, "is_first", "older", "before")


def _newer(read: Read, query: LogQuery) -> list[list[LogLine]]:
    """Return all pages, from that after the query's position on to the last one."""
    return _pages(read, query, "is_last", "newer", "after")


def _pages(read: Read, query: LogQuery, is_end: str, cursor: str, position: str) -> list[list[LogLine]]:
    """Return the pages up to the one that has `is_end`; `cursor` of each is `position` of the next query."""
    pages = []
    while True:
        page = read(query)
        pages.append(list(page.lines))
        if getattr(page, is_end):
            return pages
        assert getattr(page, cursor) != getattr(query, position)
        query = msgspec.structs.replace(query, **{position: getattr(page, cursor)})


def test_pages_have_lines_with_time_level_drop_and_node(tmp_path: Path, clock: VirtualClock) -> None:
    """Printed lines have the time when they were printed and the level OUTPUT, log messages their own of both."""
    log = DropLog(str(tmp_path), "a", 100_000)
    log.write("printed \x1b[31mred\x1b[0m\tand\x07 more\n")
    log.line("WARNING", "careful", clock.now() + 5)
    log.close()
    clock.advance(6.0)
    page = _reader(tmp_path, clock)(LogQuery())

    assert [(line.level, line.text, line.drop, line.name, line.node) for line in page.lines] == [
        ("OUTPUT", "printed red\tand more", "a", "name of a", "n"),
        ("WARNING", "careful", "a", "name of a", "n"),
    ]
    assert [round(line.time - clock.now()) for line in page.lines] == [-6, -1]
    assert (page.is_first, page.is_last) == (True, True)


def test_lines_are_filtered(tmp_path: Path, clock: VirtualClock) -> None:
    """By text, least level, drop, id and node; a traceback has the level of its error."""
    for drop in ("one", "two"):
        log = DropLog(str(tmp_path), drop, 100_000)
        log.write("Hello\n")
        log.line("DEBUG", "detail", clock.now())
        log.line("ERROR", "failed", clock.now(), detail="Traceback\n  here")
        log.close()
        clock.advance(1.0)
    read = _reader(tmp_path, clock)

    def texts(**query: str) -> list[str]:
        return [line.text for line in read(LogQuery(**query)).lines]  # type: ignore[arg-type]

    assert texts(oid="one") == ["Hello", "detail", "failed", "Traceback", "  here"]
    assert texts(drop="TWO", level="INFO") == ["Hello", "failed", "Traceback", "  here"]
    assert texts(drop="name of one", level="ERROR") == ["failed", "Traceback", "  here"]
    assert texts(text="hello") == ["Hello", "Hello"]
    assert texts(node="elsewhere") == texts(drop="three") == []


@settings(max_examples=40, deadline=None)
@given(
    written=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.floats(0, 1)), min_size=1, max_size=25),
    limit=st.integers(1, 7),
    most=st.integers(1, 5),
    text=st.sampled_from(["", "1", "b"]),
)
def test_pages_together_are_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[tuple[str, int, float]],
    limit: int,
    most: int,
    text: str,
) -> None:
    """Back to the first, or on to the last; also when each request may search few parts only."""
    folder, clock, patch = tmp_path_factory.mktemp("logs"), VirtualClock(), pytest.MonkeyPatch()
    patch.setattr(drop_log, "_CLOCK", clock)
    patch.setattr(session_log, "_MOST_PARTS", most)
    with patch.context():
        wanted = []
        for number, (drop, lines, pause) in enumerate(written):
            rows = [f"{drop} {number} {line}" for line in range(lines)]
            _write(folder, drop, *(f"{row}\n" for row in rows))
            wanted += [row for row in rows if text in row]
            clock.advance(pause)
        clock.advance(1.0)
        read = _reader(folder, clock)
        back = _older(read, LogQuery(limit=limit, text=text))
        on = _newer(read, LogQuery(limit=limit, text=text, after="n:-1"))
        end = read(LogQuery())
    patch.undo()

    assert [line.text for page in reversed(back) for line in page] == wanted
    assert [line.text for page in on for line in page] == wanted
    assert all(len(page) <= limit for page in (*back, *on))
    assert read(LogQuery(after=end.newer)).lines == ()


def test_who_follows_gets_each_line_once(tmp_path: Path, clock: VirtualClock) -> None:
    """A part to which more may be added is shown when it is settled; a line without an end when it has one."""
    read = _reader(tmp_path, clock)
    log = DropLog(str(tmp_path), "a", 100_000)
    cursor, texts = read(LogQuery()).newer or "n:-1", list[str]()
    for text in ("one\n", "two\nthr", "ee\n", "four"):
        log.write_bytes(text.encode())
        page = read(LogQuery(after=cursor))
        cursor, texts = page.newer, [*texts, *(line.text for line in page.lines)]
        clock.advance(0.04)
    log.close()
    clock.advance(1.0)
    page = read(LogQuery(after=cursor))

    assert [*texts, *(line.text for line in page.lines)] == ["one", "two", "three", "four"]


_LINES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["x", "y"])), max_size=20)


@settings(max_examples=150, deadline=None)
@given(nodes=st.lists(_LINES, min_size=1, max_size=3), limit=st.integers(1, 6), text=st.sampled_from(["", "x"]))
def test_merged_pages_are_the_log_of_all_nodes(nodes: list[list[tuple[int, str]]], limit: int, text: str) -> None:
    """Back and on, all lines of all nodes are there once, and none is before an older one."""
    managers = []
    for number, lines in enumerate(nodes):
        manager = FakeManager(name=f"n{number}")
        manager.add(fan(4), "s")
        manager.print_lines(
            "s",
            [
                LogLine(time=float(time), node=manager.name, drop="d", name="", level="INFO", text=what, at=0)
                for time, what in sorted(lines)
            ],
        )
        managers.append(manager)

    def read(query: LogQuery) -> LogPage:
        return merge_log_pages([manager.session_log("s", query) for manager in managers], query)

    wanted = sorted(
        (float(time), f"n{number}", what) for number, lines in enumerate(nodes) for time, what in lines if text in what
    )
    back = [line for page in reversed(_older(read, LogQuery(limit=limit, text=text))) for line in page]
    on = [line for page in _newer(read, LogQuery(limit=limit, text=text, after="-:-1")) for line in page]
    for lines_read in (back, on):
        assert sorted((line.time, line.node, line.text) for line in lines_read) == wanted
        assert [line.time for line in lines_read] == sorted(line.time for line in lines_read)


def test_a_node_that_does_not_answer_is_named() -> None:
    """Its position is kept, so that its lines follow when it answers again."""
    query = LogQuery(after="a:3,b:5")
    page = merge_log_pages([LogPage(newer="a:4")], query, ["b"])

    assert (page.newer, page.missing) == ("a:4,b:5", ("b",))


BOOM = Failure(code="DF105", kind="ValueError", text="boom")


def test_failures_are_logged_with_session_drop_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    """The log of a node names the session, drop and attempt of each failure, and its cause."""
    with caplog.at_level(logging.INFO):
        FailureLog(draw("A -> b"), "s").on_events([Finished(0, 1), Failed(0, 2, BOOM), Assembled(1, BOOM)])
    logged = [(record.session, record.drop, record.attempt) for record in caplog.records]  # type: ignore[attr-defined]

    assert logged == [("s", "drawing_A_0", 2), ("s", "drawing_b_0", 1)]
    assert all("DF105 boom" in record.getMessage() for record in caplog.records)


def test_a_log_has_a_limited_number_of_failures(caplog: pytest.LogCaptureFixture) -> None:
    """After a hundred failures the log notes once that there are more."""
    log = FailureLog(draw("A"), "s")
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            log.on_events([Failed(0, 1, BOOM)] * 10)

    assert len(caplog.records) == 101
    assert "more drops failed" in caplog.records[-1].getMessage()
