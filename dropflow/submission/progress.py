"""How far sessions and transfers are, on standard error: bars on a terminal, a line every few seconds elsewhere."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from dropflow.clock import SystemClock
from dropflow.formatting import format_duration, format_rate, format_size, printable
from dropflow.states import UNKNOWN, DropState, SessionState

if TYPE_CHECKING:
    from rich.console import Group

    from dropflow.api.session_records import SessionDetail
    from dropflow.execution.statistics import NodeStatistics, Statistics

_LINE_SECONDS = 5.0
"""Seconds between two lines where there is no terminal."""
_MOST_ROWS = 24
"""Logical nodes with a bar, those that run first."""
_BAR_CHARACTERS = 28
"""Characters of a bar."""
_FILE_BYTES = 4096
"""Bytes that each file counts besides its own, so that the bar advances for small files."""
# Colours that colour-blind people can tell apart; the symbols mean the same without colour.
_PARTS = (
    (DropState.COMPLETED, "green", "━"),
    (DropState.ERROR, "bold red", "✗"),
    (DropState.SKIPPED, "blue", "╌"),
    (DropState.CANCELLED, "magenta", "x"),
    (DropState.WRITING, "yellow", "▸"),
    (DropState.INITIALIZED, "dim", "─"),
)

CountFile = Callable[[int, int], None]
"""Counts so many transferred files and bytes. Called from any thread."""


@contextmanager
def session_progress(*, quiet: bool) -> "Iterator[Callable[[Statistics], None]]":
    """Yield a function that shows the statistics of a session, as bars, as lines, or not at all."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        console = Console(file=_shown())
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda statistics: live.update(_table(statistics))
    else:
        due, shown = _Due(), _shown()

        def print_line(statistics: "Statistics") -> None:
            if due():
                share = 100 * statistics.settled // max(1, statistics.drops)
                shown.write(
                    f"{statistics.seconds:6.0f} s  {statistics.settled:,} of {statistics.drops:,} drops "
                    f"({share} %), {_attempts(statistics)}{_pace(statistics)}\n"
                )
                shown.flush()

        yield print_line


@contextmanager
def transfer_progress(total: int, size: int, *, quiet: bool) -> Iterator[CountFile]:
    """Yield a function that counts the files and bytes of a transfer, and show how many of them there are.

    Parameters
    ----------
    total, size : int
        Files and bytes of the whole transfer; 0 files if they are not known.
    """
    if quiet:
        yield lambda *_: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        counted = TextColumn("{task.fields[files]}")
        columns = (BarColumn(), counted, TransferSpeedColumn(), TimeRemainingColumn())
        with Progress("fetching", *columns, console=Console(file=_shown()), transient=True) as progress:
            # Each file counts a little besides its bytes, so that the bar advances for small and empty files too.
            task = progress.add_task("", total=(size + total * _FILE_BYTES) or None, files="")
            yield _Sum(
                lambda files, done: progress.update(
                    task, completed=done + files * _FILE_BYTES, files=_done(files, total, done, size)
                )
            ).add
    else:
        due, shown = _Due(), _shown()

        def print_line(files: int, done: int) -> None:
            if due():
                speed = f"{format_size(done / due.elapsed)}/s"
                rate = f", {format_rate(files / due.elapsed)}" if total else ""
                shown.write(f"{_done(files, total, done, size)}{rate}, {speed}\n")
                shown.flush()

        yield _Sum(print_line).add


class _Shown:
    """A stream that is written as long as it can be: who closes the terminal does not end what it shows."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _shown() -> TextIO:
    return cast(TextIO, _Shown(sys.stderr))


def _done(files: int, total: int, done: int, size: int) -> str:
    """Return how much of a transfer is done."""
    if not total:
        return format_size(done)
    return f"{files:,} of {total:,} files, {format_size(done)} of {format_size(size)}"


class _Due:
    """Whether the next line is due: every five seconds, so that short commands print none."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._next = self._began + _LINE_SECONDS

    def __call__(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next = now + _LINE_SECONDS
        return True

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._began


class _Sum:
    """The files and bytes that several threads have transferred."""

    def __init__(self, show: Callable[[int, int], object]) -> None:
        self._lock = threading.Lock()
        self._files = self._bytes = 0
        self._show = show

    def add(self, files: int, size: int) -> None:
        """Add files and bytes."""
        with self._lock:
            self._files += files
            self._bytes += size
            self._show(self._files, self._bytes)


def _attempts(statistics: "Statistics") -> str:
    """Return how many attempts run, and how many wait for a worker."""
    attempts = statistics.attempts
    return f"{attempts.running:,} running, {attempts.queued + attempts.ready:,} waiting for a worker"


def _pace(statistics: "Statistics") -> str:
    """Return the rate and the time left, each after a comma, or that no drop settles at the moment."""
    rate = f", {format_rate(statistics.rate)}" if statistics.rate else ""
    return f"{rate}, {statistics.time_left}" if statistics.time_left else rate


def _table(statistics: "Statistics") -> "Group":
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    caption = (
        f"{statistics.settled:,} of {statistics.drops:,} drops, {_attempts(statistics)}"
        f"{_pace(statistics)}, {format_duration(statistics.seconds)}"
    )
    rows, hidden = _rows(statistics)
    for node in rows:
        table.add_row(escape(printable(node.name)), _bar(node), f"{node.settled:,}/{node.total:,}")
    if hidden:
        table.add_row(f"... and {hidden} more", "", "")
    return Group(table, Text(f" {caption}", style="dim"))


def _rows(statistics: "Statistics") -> "tuple[list[NodeStatistics], int]":
    """Return the logical nodes to show, and how many are hidden: applications, and of many the busy ones."""
    shown = [node for node in statistics.nodes if node.is_app and not node.artificial] or list(statistics.nodes)
    if len(shown) <= _MOST_ROWS:
        return shown, 0
    busy = sorted(shown, key=lambda node: (not 0 < node.settled < node.total, node.settled == node.total))
    kept = {id(node) for node in busy[:_MOST_ROWS]}
    return [node for node in shown if id(node) in kept], len(shown) - _MOST_ROWS


def _bar(node: "NodeStatistics") -> str:
    counts = [node.counts[state] for state, _, _ in _PARTS]
    parts = zip(_PARTS, _widths(counts, _BAR_CHARACTERS), strict=True)
    return "".join(f"[{colour}]{symbol * width}[/]" for (_, colour, symbol), width in parts if width)


def _widths(counts: Sequence[int], width: int) -> list[int]:
    """Return `width` cells shared among `counts`; each count above zero gets at least one cell."""
    total = max(1, sum(counts))
    widths = [max(1, round(width * count / total)) if count else 0 for count in counts]
    while sum(widths) > width:
        widths[widths.index(max(widths))] -= 1
    if any(counts) and sum(widths) < width:
        widths[widths.index(max(widths))] += width - sum(widths)
    return widths


def statistics_of(detail: "SessionDetail") -> "Statistics":
    """Return the session in the form that the progress display takes."""
    from dropflow.execution.statistics import Attempts, NodeStatistics, Statistics

    return Statistics(
        status=SessionState.RUNNING if detail.status == UNKNOWN else SessionState[detail.status],
        seconds=detail.seconds,
        drops=detail.drops,
        settled=detail.settled,
        attempts=Attempts(running=detail.running, queued=detail.queued, ready=detail.ready),
        rate=detail.rate,
        nodes=tuple(
            NodeStatistics(
                key=node.key,
                name=node.name,
                category=node.category,
                is_app=node.is_app,
                artificial=node.artificial,
                counts=tuple(node.states.get(state.name, 0) for state in DropState),
            )
            for node in detail.logical
        ),
        time_left=detail.time_left,
    )
