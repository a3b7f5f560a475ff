"""Histories of sessions: what was committed and read, when and in which view.

A history is recorded from a simulated cluster or from real processes; ``tests/managers/simulation`` adds what ends and
is found, and checks it. Records are in the order of their times; those of one moment are in the order in which they
happened.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from dropflow.data.repository import LocalRepository
from dropflow.execution.content_location import Handle
from dropflow.execution.tasks import Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Template
from dropflow.graph.text_ids import oid


class HistoryEvent(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Something that happened at a time, on a node, in a view of a session.

    Attributes
    ----------
    time : float
        Seconds.
    node, session : str
        Where, and in which session.
    view : int
        View of the session on that node.
    """

    time: float
    node: str
    session: str = ""
    view: int = 0


class ContentEvent(HistoryEvent, frozen=True, kw_only=True):
    """Something that happened to the content of a data drop.

    Attributes
    ----------
    drop : str
        Its id.
    digest : str
        Digest of the content.
    """

    drop: str
    digest: str


class Committed(ContentEvent, frozen=True, kw_only=True):
    """A content became that of a drop."""


class Revoked(ContentEvent, frozen=True, kw_only=True):
    """A commit was undone before anything could read it: another output of the attempt could not be stored."""


class Read(ContentEvent, frozen=True, kw_only=True):
    """An attempt started to read a content."""


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
    history : list of HistoryEvent
        The events in their order.
    starts : Counter of (str, str)
        Attempts that were started, by session and id of the drop; without those that failed.
    """

    def __init__(self, time: _Time) -> None:
        self.history: list[HistoryEvent] = []
        self.starts: Counter[tuple[str, str]] = Counter()
        self._time = time
        self._views: dict[tuple[str, str], int] = {}
        self._passed: dict[tuple[str, str, str, int], tuple[str, Handle]] = {}
        """Contents that an attempt of a chain has read before they were committed, by attempt."""

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
            assert read.handle is not None  # what follows is not begun without its input
            self._passed[node, session, task.oid, task.attempt] = read.oid, read.handle
            return
        # A former process, or one in an earlier view, may have had an attempt of this number in a chain.
        self._passed.pop((node, session, task.oid, task.attempt), None)
        self.starts[session, task.oid] += 1
        for task_input in task.inputs:
            if task_input.handle is not None and task_input.handle.kind != "stream":
                self._note(Read, node, session, task_input.oid, task_input.handle)

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
