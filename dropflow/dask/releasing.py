"""The thread that removes what nothing refers to any more: sessions with chunks of persisted collections.

Finalizers run in any thread and at any time, also in the middle of other finalizers: they only put a name into a queue.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress

__all__ = ["Releaser", "Remove", "releaser"]

Remove = Callable[[Sequence[str]], None]
"""Removes sessions, by name. What it raises is ignored: the contents stay until a user deletes them."""

_SECONDS = 10.0
"""How long the end of a scheduler, or of this process, waits until contents are removed."""

_Request = tuple[Remove, str] | threading.Event


class Releaser:
    """Removes sessions in a thread: all at once that have come meanwhile."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()  # its `put` may interrupt itself
        self._thread = threading.Thread(target=_run, args=(self._requests,), name="dask-release", daemon=True)
        self._thread.start()
        # Called at the end of the interpreter, after the finalizers of all sessions, which are made later.
        weakref.finalize(self, _flush, self._requests, self._thread)

    def release(self, remove: Remove, name: str) -> None:
        """Have a session removed. Does not wait; for any thread, and for finalizers."""
        self._requests.put((remove, name))

    def flush(self) -> None:
        """Wait until all that is requested is done, for ten seconds at most."""
        _flush(self._requests, self._thread)


def _flush(requests: "queue.SimpleQueue[_Request]", thread: threading.Thread) -> None:
    if thread.is_alive() and threading.current_thread() is not thread:  # a fork has no threads
        done = threading.Event()
        requests.put(done)
        done.wait(_SECONDS)


def _run(requests: "queue.SimpleQueue[_Request]") -> None:
    while True:
        found = [requests.get()]
        with suppress(queue.Empty):
            while True:
                found.append(requests.get_nowait())
        names: dict[Remove, list[str]] = {}
        for one in found:
            if not isinstance(one, threading.Event):
                names.setdefault(one[0], []).append(one[1])
        for remove, sessions in names.items():
            with suppress(Exception):
                remove(sessions)
        for one in found:
            if isinstance(one, threading.Event):
                one.set()


_LOCK = threading.Lock()
_FOUND: list[Releaser] = []


def releaser() -> Releaser:
    """Return the one of this process; the first call starts its thread."""
    with _LOCK:
        if not _FOUND:
            _FOUND.append(Releaser())
        return _FOUND[0]
