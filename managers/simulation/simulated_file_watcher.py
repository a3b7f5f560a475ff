"""A file watcher without a thread: it looks when it is told that something may have been written."""

import select
from collections.abc import Callable

from managers.simulation.virtual_time import SimulatedProcess

__all__ = ["SimulatedFileWatcher"]


class SimulatedFileWatcher:
    """As `managers.node.file_watcher.FileWatcher`, in a simulated process.

    Parameters
    ----------
    process : SimulatedProcess
        In its time the functions are called.
    """

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._functions: dict[int, Callable[[], None]] = {}
        self._is_due = False

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` when `descriptor` is found to be readable."""
        self._functions[descriptor] = on_readable
        self.look_soon()

    def unwatch(self, descriptor: int) -> None:
        """Stop watching. Unknown descriptors are ignored."""
        self._functions.pop(descriptor, None)

    def look_soon(self) -> None:
        """Look at all descriptors in the next event."""
        if self._functions and not self._is_due:
            self._is_due = True
            self._process.call_later(0.0, self._look)

    def _look(self) -> None:
        self._is_due = False
        # In the order in which they were watched: the numbers of descriptors differ between runs.
        for descriptor, on_readable in list(self._functions.items()):
            if descriptor in self._functions and _is_readable(descriptor):
                on_readable()


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
