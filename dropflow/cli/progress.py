"""Progress by logical node while a session runs: bars on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from dropflow.clock import SystemClock
from dropflow.engine.statistics import NodeStatistics, Statistics
from dropflow.states import DropState

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["progress_for"]

_LINE_SECONDS = 5.0
_MOST_ROWS = 24
_BAR = 28
# Colours that stay apart for colour-blind eyes; the symbols say the same without colour.
_PARTS = (
    (DropState.COMPLETED, "green", "━"),
    (DropState.ERROR, "bold red", "✗"),
    (DropState.SKIPPED, "blue", "╌"),
    (DropState.CANCELLED, "magenta", "x"),
    (DropState.WRITING, "yellow", "▸"),
    (DropState.INITIALIZED, "dim", "─"),
)


class Watcher(Protocol):
    """Takes a fresh picture of the session."""

    def __call__(self, statistics: Statistics) -> None:
        """Show it."""
        ...


@contextmanager
def progress_for(*, quiet: bool) -> Iterator[Watcher]:
    """A watcher that suits standard error: live bars, lines, or silence."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda statistics: live.update(_table(statistics))
    else:
        yield _Lines()


class _Lines:
    """One line every few seconds, for logs; nothing for runs that are over sooner."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._next = self._clock.monotonic() + _LINE_SECONDS

    def __call__(self, statistics: Statistics) -> None:
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + _LINE_SECONDS
        share = 100 * statistics.settled / max(1, statistics.drops)
        sys.stderr.write(
            f"{statistics.seconds:6.0f} s  {statistics.settled:,} of {statistics.drops:,} drops ({share:.0f} %), "
            f"{_attempts(statistics)}, {statistics.rate:,.0f} a second\n"
        )
        sys.stderr.flush()


def _attempts(statistics: Statistics) -> str:
    """How many attempts run, and how many wait for a worker."""
    attempts = statistics.attempts
    return f"{attempts.running:,} running, {attempts.queued + attempts.ready:,} waiting for a worker"


def _table(statistics: Statistics) -> "Group":
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), show_header=False)
    caption = (
        f"{statistics.settled:,} of {statistics.drops:,} drops, {_attempts(statistics)}, "
        f"{statistics.rate:,.0f} a second, {statistics.seconds:.1f} s"
    )
    rows, hidden = _rows(statistics)
    for node in rows:
        table.add_row(escape(node.name), _bar(node), f"{node.settled:,}/{node.total:,}")
    if hidden:
        table.add_row(f"... and {hidden} more", "", "")
    return Group(table, Text(f" {caption}", style="dim"))


def _rows(statistics: Statistics) -> tuple[list[NodeStatistics], int]:
    """Applications first of all, and of many those that are busy: a screen has only so many lines."""
    shown = [node for node in statistics.nodes if node.is_app and not node.artificial] or list(statistics.nodes)
    if len(shown) <= _MOST_ROWS:
        return shown, 0
    busy = sorted(shown, key=lambda node: (not 0 < node.settled < node.total, node.settled == node.total))
    kept = {id(node) for node in busy[:_MOST_ROWS]}
    return [node for node in shown if id(node) in kept], len(shown) - _MOST_ROWS


def _bar(node: NodeStatistics) -> str:
    counts = [node.counts[state] for state, _, _ in _PARTS]
    parts = zip(_PARTS, _widths(counts, _BAR), strict=True)
    return "".join(f"[{colour}]{symbol * width}[/]" for (_, colour, symbol), width in parts if width)


def _widths(counts: Sequence[int], width: int) -> list[int]:
    """`width` cells shared among `counts`; whatever is not zero is seen, however small its share."""
    total = max(1, sum(counts))
    widths = [max(1, round(width * count / total)) if count else 0 for count in counts]
    while sum(widths) > width:
        widths[widths.index(max(widths))] -= 1
    if any(counts) and sum(widths) < width:
        widths[widths.index(max(widths))] += width - sum(widths)
    return widths
