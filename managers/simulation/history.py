"""Histories of sessions: what was committed, read and acknowledged, when and in which view; and a checker.

A history is recorded from a simulated cluster or from real processes. The checker is a
pure function over it, in the manner of Jepsen: it does not know how nodes agree, only what users rely on. Records are
in the order of their times; those of one moment are in the order in which they happened.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from dropflow.data.repository import LocalRepository
from dropflow.engine.api import Handle, Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Template
from dropflow.graph.text_ids import oid

__all__ = [
    "Acknowledged",
    "Committed",
    "Found",
    "Gone",
    "Promised",
    "Read",
    "Record",
    "Recorder",
    "Revoked",
    "check_history",
    "content_bytes",
    "digest",
    "digest_of",
]


class _Record(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Something that happened at a time, on a node, in a view of a session.

    Attributes
    ----------
    time : float
        Seconds.
    node, session : str
        Where, and in which session. A `Gone` without a session concerns all of them.
    view : int
        Of the session on that node.
    """

    time: float
    node: str
    session: str = ""
    view: int = 0


class _ContentRecord(_Record, frozen=True, kw_only=True):
    """Something that happened to the content of a data drop.

    Attributes
    ----------
    drop : str
        Its id.
    digest : str
        Of the content.
    """

    drop: str
    digest: str


class Committed(_ContentRecord, frozen=True, kw_only=True):
    """A content became that of a drop."""


class Revoked(_ContentRecord, frozen=True, kw_only=True):
    """A commit was undone before anything could read it: another output of the attempt could not be stored."""


class Read(_ContentRecord, frozen=True, kw_only=True):
    """An attempt started to read a content."""


class Acknowledged(_ContentRecord, frozen=True, kw_only=True):
    """The session ended as FINISHED on a node, with this content as a result."""


class Found(_ContentRecord, frozen=True, kw_only=True):
    """The content is there when the history ends."""


class Promised(_Record, frozen=True, kw_only=True):
    """A node promised to commit nothing more in its view, and reported its state."""


class Gone(_Record, frozen=True, kw_only=True):
    """A node lost what it had, because its process ended or it left the session, or a session was deleted."""


Record = Committed | Revoked | Read | Acknowledged | Found | Promised | Gone


@dataclass
class _Seen:
    """What a history says up to some record."""

    contents: set[tuple[str, str, str]] = field(default_factory=set)
    """Session, drop and digest of all commits."""
    commits: dict[tuple[str, int, str], Committed] = field(default_factory=dict)
    """By session, view and drop."""
    reads: dict[tuple[str, int, str], Read] = field(default_factory=dict)
    """The first, by session, view and drop."""
    promises: dict[tuple[str, str], Promised] = field(default_factory=dict)
    """The latest, by session and node."""
    results: dict[tuple[str, str, str], Acknowledged] = field(default_factory=dict)
    """Acknowledged results that must be there, by session, node and drop."""
    found: set[tuple[str, str, str, str]] = field(default_factory=set)
    """Session, node, drop and digest of the contents that are there."""


def check_history(history: Iterable[Record], *, is_complete: bool = True) -> list[str]:
    """Return what is wrong with a history, as sentences; an empty list if nothing is.

    * No attempt reads a content that was not committed before.
    * No two attempts read different contents of one drop in one view.
    * No drop is committed twice in one view of its session.
    * No node commits in a view after it has promised not to.
    * No acknowledged result is gone while the process of its node lives.

    Parameters
    ----------
    history : iterable of Record
        In the order of time.
    is_complete : bool
        Whether the history ends with a `Found` for everything that is there. Otherwise the last rule is not checked.
    """
    seen, wrong = _Seen(), list[str]()
    for record in history:
        found = _check(record, seen)
        if found:
            wrong.append(f"{record.time:.3f} s: {found}")
    for (session, node, drop), result in seen.results.items():
        if is_complete and (session, node, drop, result.digest) not in seen.found:
            wrong.append(f"result {drop} of session {session} on {node}, acknowledged at {result.time:.3f} s, is gone")
    return wrong


def _check(record: Record, seen: _Seen) -> str:  # noqa: C901, PLR0912 - one case for each kind of record
    """Add a record to what is known; return what is wrong with it."""
    match record:
        case Committed():
            return _check_commit(record, seen)
        case Revoked():
            seen.commits.pop((record.session, record.view, record.drop), None)
        case Read():
            if (record.session, record.drop, record.digest) not in seen.contents:
                return f"{record.node} reads a content of drop {record.drop} that was not committed"
            first = seen.reads.setdefault((record.session, record.view, record.drop), record)
            if first.digest != record.digest:
                return f"{record.node} reads another content of drop {record.drop} than {first.node} did in this view"
        case Promised():
            seen.promises[record.session, record.node] = record
        case Acknowledged():
            seen.results[record.session, record.node, record.drop] = record
        case Found():
            seen.found.add((record.session, record.node, record.drop, record.digest))
        case Gone():
            for session, node, drop in list(seen.results):
                if node == (record.node or node) and session == (record.session or session):
                    del seen.results[session, node, drop]
            for session, node in list(seen.promises):
                if node == record.node and session == (record.session or session):
                    del seen.promises[session, node]
    return ""


def _check_commit(record: Committed, seen: _Seen) -> str:
    promise = seen.promises.get((record.session, record.node))
    key = record.session, record.view, record.drop
    before = seen.commits.setdefault(key, record)
    seen.contents.add((record.session, record.drop, record.digest))
    if promise is not None and record.view <= promise.view:
        return f"{record.node} commits drop {record.drop} in view {record.view}, which it promised to end"
    if before is not record:
        return f"{record.node} commits drop {record.drop} in view {record.view}, and {before.node} did before"
    return ""


# Records the history of the sessions of simulated nodes, and how often each task ran.


class _Time(Protocol):
    @property
    def time(self) -> float:
        """Seconds since some moment."""
        ...


class Recorder:
    """The history of all sessions of a cluster.

    Parameters
    ----------
    time : object with `time`
        Such as `managers.simulation.virtual_time.Simulation`.

    Attributes
    ----------
    history : list of Record
        What happened.
    starts : Counter of (str, str)
        Attempts that were started, by session and id of the drop; without those that failed.
    """

    def __init__(self, time: _Time) -> None:
        self.history: list[Record] = []
        self.starts: Counter[tuple[str, str]] = Counter()
        self._time = time
        self._views: dict[tuple[str, str], int] = {}
        self._passed: dict[tuple[str, str, str, int], tuple[str, Handle]] = {}
        """By attempt of a chain: what it has read before that was committed."""

    @property
    def time(self) -> float:
        """Seconds of virtual time."""
        return self._time.time

    def view(self, node: str, session: str) -> int:
        """Return the view in which a node has a session."""
        return self._views.get((node, session), 0)

    def enter_view(self, node: str, session: str, view: int) -> None:
        """Note that a node continues a session in a view."""
        self._views[node, session] = view

    def started(self, node: str, session: str, task: Task) -> None:
        """Note that an attempt starts, and what it reads.

        One that follows another in a chain counts from the commit of what it wrote: it may be stopped before the other
        one counts.
        """
        if task.follows:
            (read,) = task.inputs
            assert read.handle is not None  # noqa: S101 - what follows is not begun without its input
            self._passed[node, session, task.oid, task.attempt] = read.oid, read.handle
            return
        # A former process, or one in an earlier view, may have had an attempt of this number in a chain.
        self._passed.pop((node, session, task.oid, task.attempt), None)
        self.starts[session, task.oid] += 1
        for one in task.inputs:
            if one.handle is not None and one.handle.kind != "stream":
                self._note(Read, node, session, one.oid, one.handle)

    def failed(self, session: str, task: Task) -> None:
        """Note that an attempt failed by itself: it does not count as a start."""
        if not task.follows:
            self.starts[session, task.oid] -= 1

    def lost(self, node: str, session: str, drop: str, attempt: int) -> None:
        """Note that the result of an attempt was lost with its worker: it does not count as a start."""
        if (node, session, drop, attempt) not in self._passed:
            self.starts[session, drop] -= 1

    def recorded(
        self, repository: LocalRepository, graph: PhysicalGraph, *, node: str, session: str
    ) -> LocalRepository:
        """Return a repository that notes what is committed.

        What an attempt of a chain has read counts when what it wrote does: then that must have been committed.
        """
        before = graph.predecessors

        def note(kind: type[Committed | Revoked], drop: int, handle: Handle) -> None:
            self._note(kind, node, session, oid(graph, drop), handle)

        def note_passed(drop: int, attempt: int) -> None:
            for producer in before.of(drop):
                if read := self._passed.pop((node, session, oid(graph, producer), attempt), None):
                    self._note(Read, node, session, *read)
                    self.starts[session, oid(graph, producer)] += 1

        return cast("LocalRepository", _RecordedRepository(repository, note, note_passed))

    def _note(self, kind: type[Committed | Revoked | Read], node: str, session: str, drop: str, handle: Handle) -> None:
        view = self.view(node, session)
        self.history.append(
            kind(time=self.time, node=node, session=session, view=view, drop=drop, digest=digest_of(handle))
        )


class _RecordedRepository:
    """A `LocalRepository` that calls `note` with commits; all else is passed on."""

    def __init__(self, repository: LocalRepository, note: Any, note_passed: Any) -> None:
        self._repository = repository
        self._note = note
        self._note_passed = note_passed
        self._is_assembling = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._repository, name)

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Commit, and note it."""
        self._note_passed(drop, attempt)
        content = self._repository.commit(drop, attempt, template, part)
        self._note(Committed, drop, content)
        return content

    def assemble(self, drop: int, template: Template, parts: Sequence[Handle]) -> Handle:
        """Assemble, and note the commit."""
        content = self._repository.assemble(drop, template, parts)
        self._note(Committed, drop, content)
        return content

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Keep a result; if that fails, its commit is undone."""
        try:
            return self._repository.keep_result(drop, oid, template, handle)
        except BaseException:
            self._note(Revoked, drop, handle)
            raise

    def revoke(self, drop: int, handle: Handle) -> None:
        """Revoke a commit, and note it."""
        self._note(Revoked, drop, handle)
        self._repository.revoke(drop, handle)


def content_bytes(handle: Handle) -> bytes:
    """Return the bytes of a content."""
    return Path(handle.location).read_bytes() if handle.kind in ("file", "shm") else handle.body


def digest_of(handle: Handle) -> str:
    """Return the digest of a content that can be read."""
    try:
        return digest(content_bytes(handle))
    except OSError:
        return "unreadable"


def digest(content: bytes) -> str:
    """Return the digest of bytes."""
    return f"{zlib.crc32(content):08x}"
