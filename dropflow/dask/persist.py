"""Chunks of persisted collections: references to contents of sessions, which are removed when nothing refers to them.

`PersistedChunk` is a node of dask graphs. It has the place of a value, and never the value: it can be copied, pickled
and put into any graph. A scheduler that has the place gives the reference to a session, which reads the content where
it is; in any other scheduler, also dask's own, the chunk is a task that fetches the value.

All chunks of one computation share a `PersistedSession`, and all copies of one chunk a `Hold`. When the last copy is
gone, a thread (`releasing`) removes the content, and with the last chunk the session, so that no garbage collection
waits for a manager. A content that was computed again (`lost_chunks`) is in another session: then the hold has that.
"""

import queue
import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from dask.task_spec import GraphNode

from dropflow.errors import GoneError

if TYPE_CHECKING:
    from dropflow.dask.lost_chunks import Recipe

_SECONDS = 10.0
"""Seconds that the end of a scheduler, or of this process, waits until contents are removed."""
_LOCK = threading.Lock()
PERSIST_AGAIN = "persist the collection again"
_HOLDS_LOCK = threading.Lock()
"""Two threads that unpickle the same chunk must get one hold: the end of another one would remove the content."""
_SESSIONS: "weakref.WeakValueDictionary[tuple[str, str], PersistedSession]" = weakref.WeakValueDictionary()
"""All sessions that chunks of this process refer to, so that chunks that are unpickled share them."""

# The thread that removes what nothing refers to any more: chunks of persisted collections, and their sessions.
#
# Finalizers run in any thread and at any time, also in the middle of other finalizers: they only put a request into a
# queue.


class Remover(Protocol):
    """Removes contents. What it raises is ignored: they stay until their session goes, or until a user deletes it."""

    def remove_contents(self, session: str, paths: Mapping[int, str]) -> None:
        """Remove contents of a session, by row, with their paths in its directory."""
        ...

    def remove_sessions(self, names: Sequence[str]) -> None:
        """Remove sessions with all their contents."""
        ...


class _Removal(NamedTuple):
    """A content that is to be removed; without a path, the whole session."""

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
        """Request the removal of a content, or of a session without a path; do not wait. Any thread may call this."""
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
        waiting = [requests.get()]
        with suppress(queue.Empty):
            while True:
                waiting.append(requests.get_nowait())
        _remove([request for request in waiting if isinstance(request, _Removal)])
        for request in waiting:
            if isinstance(request, threading.Event):
                request.set()
        del waiting, request  # a remover is not kept until the next request


def _remove(requests: Sequence[_Removal]) -> None:
    """Remove contents, together for each session, and sessions, together for each remover."""
    sessions: dict[Remover, list[str]] = {}
    contents: dict[tuple[Remover, str], dict[int, str]] = {}
    for request in requests:
        if request.path:
            contents.setdefault((request.remover, request.session), {})[request.row] = request.path
        else:
            sessions.setdefault(request.remover, []).append(request.session)
    for (remover, session), paths in contents.items():
        if session not in sessions.get(remover, ()):
            with suppress(Exception):
                remover.remove_contents(session, paths)
    for remover, names in sessions.items():
        with suppress(Exception):
            remover.remove_sessions(names)


_FOUND: list[Releaser] = []


def releaser() -> Releaser:
    """Return the one of this process; the first call starts its thread."""
    with _LOCK:
        if not _FOUND:
            _FOUND.append(Releaser())
        return _FOUND[0]


class LostContentsError(GoneError):
    """Contents of a session are not there any more, although nothing has released them; `rows` are their drops."""

    code = "DF123"

    def __init__(self, text: str, *, rows: Collection[int], where: str = "", hint: str = "") -> None:
        super().__init__(text, where=where, hint=hint)
        self.rows = frozenset(rows)


class ChunkPlace(NamedTuple):
    """The place of the content of a drop.

    Attributes
    ----------
    oid : str
        Text id of the data drop in its session.
    node : str
        The node that has it; empty on this machine.
    path : str
        Relative to the directory of the session there.
    size, checksum : int
        Bytes, and CRC-32 (0 if it is not known).
    """

    oid: str
    node: str
    path: str
    size: int
    checksum: int


class ChunkSource(Protocol):
    """A place that holds sessions with chunks: a manager, or a directory of this machine."""

    @property
    def address(self) -> str:
        """Address of the manager, or path of the directory."""
        ...

    def read(self, session: str, places: Mapping[int, ChunkPlace]) -> Mapping[int, Any]:
        """Return the values of drops of a session, by row.

        Raises
        ------
        LostContentsError
            Some are not there any more.
        DropflowError
            They cannot be read.
        """
        ...


class PersistedSession:
    """The contents that one computation has left, for all chunks that refer to them.

    Parameters
    ----------
    source : ChunkSource
        What holds it.
    name : str
        Name of the session.
    places : mapping of int to ChunkPlace
        Its contents, by row of its graph.
    remover : Remover, optional
        Removes what no chunk refers to any more. Without one everything stays.
    """

    def __init__(
        self,
        source: ChunkSource,
        name: str,
        places: Mapping[int, ChunkPlace],
        remover: Remover | None = None,
    ) -> None:
        self.source = source
        self.name = name
        self.places = dict(places)
        self.why_gone = ""
        """Why its contents cannot be read any more; empty as long as they can."""
        self._release: Callable[..., None] = _nothing if remover is None else partial(releaser().release, remover)
        self._end = weakref.finalize(self, self._release, name)
        self._holds: weakref.WeakValueDictionary[int, Hold] = weakref.WeakValueDictionary()
        self._replaced: set[PersistedSession] = set()
        """Sessions whose contents were computed again in this one: pickles of chunks have their names."""
        _SESSIONS[source.address, name] = self

    def hold(self, row: int) -> "Hold":
        """Return what keeps a content as long as it exists: the same object for all that refer to the row."""
        with _HOLDS_LOCK:
            known = self._holds.get(row)
            if known is None:
                known = self._holds[row] = Hold(self, row)
            return known

    def adopt(self, row: int, hold: "Hold") -> None:
        """Let a hold of another session, whose content is lost, keep a content of this one."""
        with _HOLDS_LOCK:
            self._holds[row] = hold
            self._replaced.add(hold.where[0])
            hold.where = self, row

    def holds_on(self, nodes: Collection[str]) -> "list[Hold]":
        """Return what keeps the contents of this session that are on some nodes."""
        with _HOLDS_LOCK:
            holds = list(self._holds.items())
        return [hold for row, hold in holds if hold.where == (self, row) and self.places[row].node in nodes]

    def let_go(self, row: int) -> None:
        """Request the removal of a content without references; do not wait. From any thread or finalizer."""
        place = self.places.get(row)
        # When the session is removed, so are its contents.
        if place is not None and self._end.alive:
            self._release(self.name, row, place.path)

    def close(self, reason: str) -> None:
        """Request the removal of contents that chunks refer to; `reason` is for those who use the chunks later."""
        self.why_gone = self.why_gone or reason
        self._end()

    def check(self, key: Hashable) -> None:
        """Raise if the contents were released.

        Raises
        ------
        GoneError
            They were.
        """
        if self.why_gone:
            text = f"the chunk {key!r} of session {self.name!r} at {self.source.address} is gone: {self.why_gone}"
            raise GoneError(text, hint=PERSIST_AGAIN)

    def read(self, rows: Mapping[int, Hashable]) -> Mapping[int, Any]:
        """Return the values of drops, by row.

        Parameters
        ----------
        rows : mapping of int to key
            The drops, and their keys for messages.

        Raises
        ------
        GoneError
            They were released.
        LostContentsError
            Some were lost.
        DropflowError
            They cannot be read.
        """
        for key in rows.values():
            self.check(key)
        return self.source.read(self.name, {row: self.places[row] for row in rows})


class Hold:
    """Keeps one content of a session: it is removed with the last chunk that refers to it.

    Attributes
    ----------
    where : tuple of PersistedSession and int
        The session, and the drop. One attribute, because a thread may replace it while others read it.
    origin : tuple of weak reference to Recipe and key, or None
        How it was computed. It can be computed again as long as a chunk refers to the recipe, or tasks that need it.
    """

    __slots__ = ("__weakref__", "origin", "where")

    def __init__(self, session: PersistedSession, row: int) -> None:
        self.where = session, row
        self.origin: tuple[weakref.ref[Recipe], Hashable] | None = None

    def __del__(self) -> None:
        session, row = self.where
        session.let_go(row)


def are_there_chunks() -> bool:
    """Return whether this process has chunks of persisted collections."""
    return len(_SESSIONS) > 0


class PersistedChunk(GraphNode):  # type: ignore[misc]  # dask has no annotations
    """A value of a persisted collection, as a node of a dask graph: a reference to the content of a drop.

    Parameters
    ----------
    key : key
        In the graph.
    session : PersistedSession
        The session whose drop has the content.
    row : int
        The drop.
    shape : tuple of int, optional
        Shape of the value, if it is an array, as far as it is known.
    dtype : numpy.dtype, optional
        Its data type.
    recipe : Recipe, optional
        The tasks that compute it again if it is lost.
    """

    __slots__ = ("dtype", "hold", "recipe", "shape")
    key: Hashable
    _dependencies: frozenset[Hashable]

    def __init__(
        self,
        key: Hashable,
        session: PersistedSession,
        row: int,
        shape: tuple[int, ...] | None = None,
        dtype: np.dtype[Any] | None = None,
        *,
        recipe: "Recipe | None" = None,
    ) -> None:
        self.key = key  # type: ignore[misc]  # a slot of dask
        self._dependencies = frozenset()  # type: ignore[misc]
        self.hold = session.hold(row)
        self.shape = shape
        self.dtype = dtype
        self.recipe = recipe

    @property
    def where(self) -> tuple[PersistedSession, int]:
        """The session whose drop has the content, and the drop, at this moment."""
        return self.hold.where

    @property
    def session(self) -> PersistedSession:
        """The session whose drop has the content."""
        return self.hold.where[0]

    @property
    def row(self) -> int:
        """The drop."""
        return self.hold.where[1]

    @property
    def place(self) -> ChunkPlace:
        """The place of the content, if it is known."""
        session, row = self.hold.where
        return session.places[row]

    @property
    def nbytes(self) -> int:
        """Bytes of the content."""
        return self.place.size

    @property
    def block_fusion(self) -> bool:
        """True: tasks that read the chunk are not fused with it, so that it stays a node of the graph."""
        return True

    def renamed(self, key: Hashable) -> "PersistedChunk":
        """Return the same chunk under another key."""
        return self.described(key, self.shape, self.dtype)

    def described(self, key: Hashable, shape: tuple[int, ...] | None, dtype: np.dtype[Any] | None) -> "PersistedChunk":
        """Return the same chunk under another key, with a shape and a data type."""
        return PersistedChunk(key, *self.where, shape, dtype, recipe=self.recipe)

    def copy(self) -> "PersistedChunk":
        """Return an equal node."""
        return self.renamed(self.key)

    def substitute(self, subs: Mapping[Hashable, Any], key: Hashable | None = None) -> "PersistedChunk":
        """Return the node under another key: it depends on no other one."""
        return self if key is None or key == self.key else self.renamed(key)

    def __call__(self, values: object = ()) -> Any:
        """Return the value, fetched from where it is, or computed again if it is lost.

        Raises
        ------
        GoneError
            It was released, or is lost.
        DropflowError
            It cannot be read.
        """
        from dropflow.dask.lost_chunks import read_chunks  # noqa: PLC0415 - it imports this module

        return read_chunks({self.key: self})[self.key]

    def __dask_tokenize__(self) -> tuple[object, ...]:
        session, row = self.where
        return type(self).__name__, session.source.address, session.name, row, self.key

    def __reduce__(self) -> Any:
        session, row = self.where
        where = session.source.address, session.name, row
        return _unpickled, (self.key, where, tuple(session.places[row]), (self.shape, self.dtype))

    def __repr__(self) -> str:
        place = self.place
        kind = f" {self.dtype}{list(self.shape)}" if self.shape is not None and self.dtype is not None else ""
        where = f" on {place.node}" if place.node else ""
        return f"<PersistedChunk {self.key!r}:{kind} {place.size} bytes, {place.oid} of {self.session.name}{where}>"


def _unpickled(
    key: Hashable, where: tuple[str, str, int], place: tuple[Any, ...], kind: tuple[Any, Any]
) -> PersistedChunk:
    """Return a chunk; in the process that made it, one that keeps the content."""
    address, name, row = where
    session = _SESSIONS.get((address, name))
    if session is None:
        from dropflow.dask.chunk_sources import source_at  # noqa: PLC0415 - only in other processes

        session = PersistedSession(source_at(address), name, {})
    session.places.setdefault(row, ChunkPlace(*place))
    chunk = PersistedChunk(key, session, row, *kind)
    chunk.recipe = None if chunk.hold.origin is None else chunk.hold.origin[0]()
    return chunk


def close_all(sessions: Iterable[PersistedSession], reason: str) -> None:
    """Remove the contents of sessions although chunks refer to them; wait for that, ten seconds at most."""
    open_sessions = list(sessions)
    for session in open_sessions:
        session.close(reason)
    if open_sessions:
        releaser().flush()


def _nothing(*_: object) -> None:
    """Remove nothing: another process owns the session, or it is to stay."""
