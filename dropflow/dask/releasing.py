"""The thread that removes what nothing refers to any more: chunks of persisted collections, and their sessions.

Finalizers run in any thread and at any time, also in the middle of other finalizers: they only put a request into a
queue.
"""

import queue
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

__all__ = ["Releaser", "Remover", "releaser"]

_SECONDS = 10.0
"""How long the end of a scheduler, or of this process, waits until contents are removed."""


class Remover(Protocol):
    """Removes contents. What it raises is ignored: they stay until their session goes, or until a user deletes it."""

    def remove_contents(self, session: str, paths: Mapping[int, str]) -> None:
        """Remove contents of a session, by row, with their paths in its directory."""
        ...

    def remove_sessions(self, names: Sequence[str]) -> None:
        """Remove sessions with all their contents."""
        ...


class _Removal(NamedTuple):
    """What is to be removed: a content, or without a path the whole session."""

    remover: Remover
    session: str
    row: int
    path: str


class Releaser:
    """Removes contents and sessions in a thread: all at once that have come meanwhile."""

    def __init__(self) -> None:
        # Its `put` may interrupt itself.
        self._requests: queue.SimpleQueue[_Removal | threading.Event] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_run, args=(self._requests,), name="dask-release", daemon=True)
        self._thread.start()
        # Called at the end of the interpreter, after the finalizers of all sessions, which are made later.
        weakref.finalize(self, _flush, self._requests, self._thread)

    def release(self, remover: Remover, session: str, row: int = -1, path: str = "") -> None:
        """Have a content removed, or a session if there is no path. Does not wait; for any thread, and finalizers."""
        self._requests.put(_Removal(remover, session, row, path))

    def flush(self) -> None:
        """Wait until all that is requested is done, for ten seconds at most."""
        _flush(self._requests, self._thread)


def _flush(requests: "queue.SimpleQueue[_Removal | threading.Event]", thread: threading.Thread) -> None:
    if thread.is_alive() and threading.current_thread() is not thread:  # a fork has no threads
        done = threading.Event()
        requests.put(done)
        done.wait(_SECONDS)


def _run(requests: "queue.SimpleQueue[_Removal | threading.Event]") -> None:
    while True:
        found = [requests.get()]
        with suppress(queue.Empty):
            while True:
                found.append(requests.get_nowait())
        _remove([one for one in found if isinstance(one, _Removal)])
        for one in found:
            if isinstance(one, threading.Event):
                one.set()
        del found, one  # a remover is not kept until the next request


def _remove(requests: Sequence[_Removal]) -> None:
    """Remove contents, together for each session, and sessions, together for each remover."""
    sessions: dict[Remover, list[str]] = {}
    contents: dict[tuple[Remover, str], dict[int, str]] = {}
    for one in requests:
        if one.path:
            contents.setdefault((one.remover, one.session), {})[one.row] = one.path
        else:
            sessions.setdefault(one.remover, []).append(one.session)
    for (remover, session), paths in contents.items():
        if session not in sessions.get(remover, ()):
            with suppress(Exception):
                remover.remove_contents(session, paths)
    for remover, names in sessions.items():
        with suppress(Exception):
            remover.remove_sessions(names)


_LOCK = threading.Lock()
_FOUND: list[Releaser] = []


def releaser() -> Releaser:
    """Return the one of this process; the first call starts its thread."""
    with _LOCK:
        if not _FOUND:
            _FOUND.append(Releaser())
        return _FOUND[0]
