"""Progress of a transfer of many files on standard error: a bar on a terminal, a line now and then elsewhere."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dropflow.cli.tables import readable_bytes
from dropflow.clock import SystemClock

__all__ = ["Count", "transfer_progress"]

_LINE_SECONDS = 5.0

Count = Callable[[int], None]
"""Counts one file of so many bytes. Called from any thread."""


@contextmanager
def transfer_progress(total: int, *, quiet: bool) -> Iterator[Count]:
    """Yield what counts the files of a transfer of `total`, and shows how many there are."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[size]}")
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("fetching", total=total, size="")
            yield _Counted(lambda done, size: progress.update(task, completed=done, size=readable_bytes(size))).count
    else:
        clock = SystemClock()
        began = clock.monotonic()
        due = [began + _LINE_SECONDS]

        def show(files: int, size: int) -> None:
            now = clock.monotonic()
            if now >= due[0]:
                due[0] = now + _LINE_SECONDS
                rate = files / (now - began)
                sys.stderr.write(f"{files:,} of {total:,} files, {readable_bytes(size)}, {rate:,.0f} a second\n")
                sys.stderr.flush()

        yield _Counted(show).count


class _Counted:
    """Sums that several threads add to."""

    def __init__(self, show: Callable[[int, int], object]) -> None:
        self._lock = threading.Lock()
        self._files = self._bytes = 0
        self._show = show

    def count(self, size: int) -> None:
        """Add one file."""
        with self._lock:
            self._files += 1
            self._bytes += size
            self._show(self._files, self._bytes)
