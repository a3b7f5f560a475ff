"""The progress display of a session."""

import io
import re
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dropflow.api.session_records import SessionDetail
from dropflow.execution.statistics import Attempts, NodeStatistics, Statistics
from dropflow.states import DropState, SessionState
from dropflow.submission import progress
from dropflow.submission.progress import session_progress, transfer_progress


def node(name: str, **counts: int) -> NodeStatistics:
    """Return the statistics of one application."""
    return NodeStatistics(
        key=name,
        name=name,
        category="PyFuncApp",
        is_app=True,
        artificial=False,
        counts=tuple(counts.get(state.name, 0) for state in DropState),
    )


def statistics(*nodes: NodeStatistics, seconds: float = 2.0) -> Statistics:
    """Return the statistics of a session with these nodes."""
    settled = sum(item.settled for item in nodes)
    return Statistics(
        status=SessionState.RUNNING,
        seconds=seconds,
        drops=sum(item.total for item in nodes),
        settled=settled,
        rate=settled / seconds if seconds else 0.0,
        attempts=Attempts(running=sum(item.counts[DropState.WRITING] for item in nodes)),
        nodes=nodes,
    )


def shown(session: Statistics) -> list[str]:
    """Return the lines of the live table."""
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as caught:
        console.print(progress._table(session))
    return caught.get().splitlines()


def test_each_node_has_a_bar_with_its_states() -> None:
    """Completed, failed and running drops have different symbols, so that no colour is needed."""
    line = shown(statistics(node("Grid", COMPLETED=4, ERROR=2, WRITING=1, INITIALIZED=1)))[0]

    assert line.split()[0] == "Grid"
    assert re.search(r"━+✗+▸+─+", line)
    assert line.split()[-1] == "6/8"


def test_a_single_failure_is_visible() -> None:
    """A failed drop has a cell in the bar, however many drops there are."""
    assert "✗" in shown(statistics(node("Grid", COMPLETED=999_999, ERROR=1)))[0]


@given(st.lists(st.integers(0, 10**6), min_size=6, max_size=6).filter(any))
def test_bars_are_full_and_hide_nothing(counts: list[int]) -> None:
    """A bar has a constant width, and a cell for each state that occurs."""
    widths = progress._widths(counts, 28)

    assert sum(widths) == 28
    assert [width > 0 for width in widths] == [count > 0 for count in counts]


def test_the_caption_has_rate_and_time() -> None:
    """The last line sums up the session."""
    assert (
        "6 of 8 drops, 1 running, 0 waiting for a worker, 3.0/s, 2.00 s"
        in shown(statistics(node("Grid", COMPLETED=6, WRITING=1, INITIALIZED=1)))[-1]
    )


def watched(**fields: Any) -> str:
    """Return the caption of a session that runs on a manager since 100 s, with 6 of its 8 drops settled."""
    detail = SessionDetail(
        session="s", graph="g", status="RUNNING", drops=8, settled=6, running=1, seconds=100.0, usual_quiet=10.0
    )
    return shown(progress.statistics_of(msgspec.structs.replace(detail, **fields)))[-1]


def test_the_caption_has_the_recent_rate_and_the_time_left() -> None:
    """They are those of the session's page; its average rate would be 0.06/s."""
    assert "waiting for a worker, 2.0/s, about 1.00 s left, 1 min 40 s" in watched(rate=2.0, remaining=1.0)


def test_the_caption_has_how_long_no_drop_has_settled() -> None:
    """While the last drop waits, a rate would promise an end that does not come."""
    assert "1 running, 0 waiting for a worker, no drop settled for 3 min 05 s, 1 min 40 s" in watched(quiet=185.0)


def test_many_nodes_fit_on_the_screen() -> None:
    """Of a thousand nodes the busy ones are shown, and the rest is counted."""
    nodes = [node(f"n{number}", INITIALIZED=1) for number in range(1000)]
    nodes[700] = node("busy", COMPLETED=1, INITIALIZED=1)
    lines = shown(statistics(*nodes))

    assert len(lines) <= 30
    assert any("busy" in line for line in lines)
    assert any("976 more" in line for line in lines)


def test_names_are_not_markup() -> None:
    """The name of a node may contain square brackets."""
    assert "[red]x[/red]" in shown(statistics(node("[red]x[/red]", COMPLETED=1)))[0]


def test_without_a_terminal_there_is_a_line_every_five_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log does not get a line per event."""
    now = [100.0]
    monkeypatch.setattr(progress.SystemClock, "monotonic", lambda _: now[0])
    with session_progress(quiet=False) as show:
        for second in range(12):
            now[0] = 100.0 + second
            show(statistics(node("Grid", COMPLETED=second, INITIALIZED=12 - second), seconds=float(second)))

    assert [line.split()[2] for line in capsys.readouterr().err.splitlines()] == ["5", "10"]


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed."""
    with session_progress(quiet=True) as show:
        show(statistics(node("Grid", COMPLETED=1)))

    assert capsys.readouterr().err == ""


def test_a_terminal_has_live_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are on standard error."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with session_progress(quiet=False) as show:
        show(statistics(node("Grid", COMPLETED=6, INITIALIZED=2)))

    assert "Grid" in terminal.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_shown_goes_on_when_nobody_reads_it(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    """A session or transfer is not ended because its terminal, or the reader of its standard error, has gone."""
    now = [100.0]

    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(progress.SystemClock, "monotonic", lambda _: now[0])
    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setenv("TERM", "xterm")
    with session_progress(quiet=False) as show:
        for now[0] in (106.0, 112.0):
            show(statistics(node("Grid", COMPLETED=6, INITIALIZED=2)))
    with transfer_progress(2, 10, quiet=False) as count:
        for now[0] in (118.0, 124.0):
            count(1, 5)
