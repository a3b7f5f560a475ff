"""Lines for people: how far sessions and transfers are, and how a session ended with which failures.

Progress goes to standard error: bars on a terminal, a line every few seconds elsewhere.
"""

import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dropflow.clock import SystemClock
from dropflow.errors import BadFileError, StorageError
from dropflow.formatting import few, format_duration, format_quiet, format_rate, format_size, plural, printable
from dropflow.graph.drop_counts import DropCounts, IncompleteDrop, failed_words
from dropflow.states import DropState, SessionState

if TYPE_CHECKING:
    from rich.console import Group

    from dropflow.api.session_records import FailureInfo
    from dropflow.execution.statistics import NodeStatistics, Statistics
    from dropflow.web.cause_groups import Cause

# Text for people: aligned columns, short lists, and commands to paste into a shell.


def columns(rows: Sequence[Sequence[object]], *, header: Sequence[str] = (), indent: str = "  ") -> Iterator[str]:
    """Yield `rows` as aligned columns, numbers to the right; every line starts with `indent`."""
    cells = [[_cell(value) for value in row] for row in rows]
    shown = [list(header), *cells] if header else cells
    if not shown:
        return
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    right = [bool(rows) and all(isinstance(row[column], int | float) for row in rows) for column in range(len(widths))]
    for row in shown:
        fitted = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        yield (indent + "  ".join(fitted)).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def shell_command(command: str, *names: str) -> str:
    """Return ``dropflow COMMAND NAME...`` quoted for a shell; names that begin with a dash come after ``--``."""
    marked = ["--", *names] if any(name.startswith("-") for name in names) else names
    return shlex.join(["dropflow", command, *marked])


_LINE_SECONDS = 5.0
_MOST_ROWS = 24
_BAR = 28
_FILE = 4096
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

        console = Console(stderr=True)
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda statistics: live.update(_table(statistics))
    else:
        due = _Due()

        def print_line(statistics: "Statistics") -> None:
            if due():
                share = 100 * statistics.settled // max(1, statistics.drops)
                sys.stderr.write(
                    f"{statistics.seconds:6.0f} s  {statistics.settled:,} of {statistics.drops:,} drops "
                    f"({share} %), {_attempts(statistics)}, {_rate(statistics)}\n"
                )
                sys.stderr.flush()

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
        with Progress("fetching", *columns, console=Console(stderr=True), transient=True) as progress:
            # Each file counts a little besides its bytes, so that the bar advances for small and empty files too.
            task = progress.add_task("", total=(size + total * _FILE) or None, files="")
            yield _Sum(
                lambda files, done: progress.update(
                    task, completed=done + files * _FILE, files=_done(files, total, done, size)
                )
            ).add
    else:
        due = _Due()

        def print_line(files: int, done: int) -> None:
            if due():
                speed = f"{format_size(done / due.elapsed)}/s"
                rate = f", {format_rate(files / due.elapsed)}" if total else ""
                sys.stderr.write(f"{_done(files, total, done, size)}{rate}, {speed}\n")
                sys.stderr.flush()

        yield _Sum(print_line).add


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


def _rate(statistics: "Statistics") -> str:
    """Return the average rate, or that no drop settles at the moment."""
    return format_quiet(statistics.quiet) if statistics.quiet else format_rate(statistics.rate)


def _table(statistics: "Statistics") -> "Group":
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    caption = (
        f"{statistics.settled:,} of {statistics.drops:,} drops, {_attempts(statistics)}, "
        f"{_rate(statistics)}, {format_duration(statistics.seconds)}"
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
    parts = zip(_PARTS, _widths(counts, _BAR), strict=True)
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


# How a session ended: its first line, and the causes of its failures.

_SHOWN_FAILURES = 10
_SHOWN_INCOMPLETE = 10
_DETAIL_LINES = 12


def headline(status: str, drops: int, seconds: float, states: Mapping[str, int], text: str = "") -> str:
    """Return the first line about a session: its status, time, and drops by state."""
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items() if count)
    text = beside_status(status, text)
    why = f"  {text}" if text else ""
    return f"{status}  {plural(drops, 'drop')} in {format_duration(seconds)}  ({counts or 'nothing to do'}){why}"


def beside_status(status: str, text: str) -> str:
    """Return the text about a session without what its status says: ``CANCELLED  enough``."""
    return text.removeprefix("cancelled").removeprefix(": ") if status == SessionState.CANCELLED.name else text


def count_lines(counts: DropCounts) -> Iterator[str]:
    """Yield how many drops failed, were taken along, and are lost, if that is more than the lines of causes say."""
    if counts.took_along or counts.lost:
        yield f"  {failed_words(counts)}"


def failure_lines(
    failures: "Sequence[FailureInfo]",
    *,
    log: "Callable[[FailureInfo], str]",
    unlisted: int = 0,
    more: str = "",
) -> Iterator[str]:
    """Yield the first ten root causes: the drop, its node, the error, a hint, and where its log is.

    Failures that `Cause` puts together are one entry. The causes that are not printed are
    counted, with the place that lists all of them.

    Parameters
    ----------
    log : callable
        Returns where the log of a failed drop is, or the command that prints it; empty if there is none.
    unlisted : int
        Drops in error because of causes that are not among `failures`.
    more : str
        Where all causes are listed.
    """
    if not failures and unlisted <= 0:
        return
    from dropflow.web.cause_groups import causes

    groups = causes(failures)
    for group in groups[:_SHOWN_FAILURES]:
        yield from _cause_lines(group, log(group.first) if group.first.drop else "")
    if len(groups) > _SHOWN_FAILURES:
        yield f"... and {plural(len(groups) - _SHOWN_FAILURES, 'more kind')} of failures"
    if unlisted > 0:
        yield f"... and {plural(unlisted, 'drop')} in error because of other causes"
    if more and (len(groups) > _SHOWN_FAILURES or unlisted > 0):
        yield f"all causes: {more}"


def session_failure_lines(
    failures: "Sequence[FailureInfo]", session: str, *, unlisted: int = 0, url: str = ""
) -> Iterator[str]:
    """Yield the root causes of a session, whose page is at `url`, with the commands that print logs."""
    yield from failure_lines(
        failures,
        log=lambda failure: shell_command("log", session, failure.drop) if failure.has_log else "",
        unlisted=unlisted,
        more=url and f"{url}/causes",
    )


def _cause_lines(cause: "Cause", log: str) -> Iterator[str]:
    first = cause.first
    if first.drop:
        others = f", took {plural(first.took_along, 'drop')} along" if first.took_along else ""
        what = f"failed: {cause.name} ({first.drop})"
        if cause.rest:
            others = f" and {plural(len(cause.rest), 'other')} alike"
            others += f", took {plural(cause.took_along, 'drop')} along" if cause.took_along else ""
    else:
        others = f", and {plural(first.count, 'drop')} with it" if first.count else ""
        is_stored = first.code in (StorageError.code, BadFileError.code)  # stored data of the node is damaged or gone
        what = f"failed: {first.name}" if is_stored or not first.node else f"lost: node {first.name}"
    where = f" on {first.node}" if first.node and first.drop else ""
    tries = f", after {first.attempts} attempts" if first.attempts > 1 else ""
    yield f"  {what}{where}{others}{tries}"
    yield f"    {first.code} {cause.text}"
    if cause.is_varied:
        yield f"    the first of them: {first.text}"
    if first.hint:
        yield f"    {first.hint}"
    yield from (f"    with {line}" for line in first.inputs)
    yield from (f"    | {line}" for line in first.detail.splitlines()[-_DETAIL_LINES:])
    if log:
        yield f"    log: {log}"
    if cause.rest:
        yield f"    alike: {few([failure.drop for failure in cause.rest])}"


def incomplete_lines(incomplete: Sequence[IncompleteDrop]) -> Iterator[str]:
    """Yield the first results that are made from less than all of their data."""
    for one in incomplete[:_SHOWN_INCOMPLETE]:
        yield f"{one.name} ({one.drop}) is made from {100 * one.fraction:.3g} % of its data"
    if len(incomplete) > _SHOWN_INCOMPLETE:
        yield f"... and {plural(len(incomplete) - _SHOWN_INCOMPLETE, 'more result')}, see --output json"
