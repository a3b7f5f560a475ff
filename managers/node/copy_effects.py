"""Carries out the decisions of `ContentCopies` and `Draining` about contents, for the sessions of a node.

Records on the disk list the copies of contents of other members, so that a later process of this node finds them.

::

    copies/<row>-<tag>-<view>.part/<name>   a copy
    copies/<row>.msgpack                    its record: the content, and the view in which it was made
    copies/held.msgpack                     the copies of earlier views that counted when the present view began

A record is written when the copy is complete, and before its owner gets a message. A copy counts in the view in which
it was made. In a later view it counts if it existed when that view began. If a drop runs again, its new content may
have other bytes, so its copies are removed then. A process that ends in between leaves records of an earlier view,
which do not count.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from dropflow.api.drop_records import ResultInfo
from dropflow.data.file import remove_part
from dropflow.data.storage_errors import storage_errors
from dropflow.data.workspace import Workspace
from dropflow.errors import DropflowError
from dropflow.execution.content_location import HERE, Handle
from dropflow.execution.session import Session
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.ids import drop_file_name
from dropflow.states import DropState, SessionState
from managers.messages import Content, CopyContents, Message
from managers.node.contents import here, portable, stamp_of
from managers.node.decisions.copies import HeldCopy
from managers.node.decisions.events import (
    ContentsRead,
    CopyWritten,
    DiscardCopies,
    OfferCopies,
    OffersRefused,
    ReadContents,
    TakeCopies,
)
from managers.node.directory import SessionDirectory, read_checksummed, write_checksummed
from managers.node.downloads import refuse_changed
from managers.owner_thread import MachineOwner
from managers.recovery.records import pack_column, unpack_column

_HELD = "held.msgpack"

Version = tuple[int, int]
"""Deployment and view of a session."""
RELEASED = "was released by a client after the end of the session"
"""Why a content does not exist any more."""


class _CopyRecord(msgspec.Struct, frozen=True):
    """One copy. The paths of its content are relative to the session directory if they are below it."""

    row: int
    version: Version
    copy: HeldCopy


class _HeldRows(msgspec.Struct, frozen=True):
    """The rows of the copies that existed when a view began: int32, packed."""

    version: Version
    rows: bytes


class CopyRecords:
    """The records of one session on this node. For any thread: each file is replaced as a whole.

    Parameters
    ----------
    directory : Path
        The session directory.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "copies"
        self._workspace = Workspace(str(directory), "")  # for paths, which do not contain the session's name

    def write(self, version: Version, row: int, copy: HeldCopy, *, durable: bool = False) -> None:
        """Record a copy that is complete.

        Raises
        ------
        StorageError
            The record cannot be written.
        """
        with storage_errors("make the directory", self._folder):
            self._folder.mkdir(exist_ok=True)
        record = _CopyRecord(row, version, msgspec.structs.replace(copy, handle=self._relative(copy.handle)))
        write_checksummed(self._path(row), record, durable=durable)

    def begin_view(self, version: Version, rows: Iterable[int]) -> None:
        """Record which copies of earlier views count in the view that begins, before its journal begins.

        Raises
        ------
        StorageError
            The record cannot be written.
        """
        if self._folder.exists():
            column = np.array(sorted(rows), dtype=np.int32)
            write_checksummed(self._folder / _HELD, _HeldRows(version, pack_column(column)))

    def moved(self, row: int, content: Handle) -> None:
        """Record that a copy has become a content, at another path: it is still found there if the view is undone.

        Raises
        ------
        StorageError
            The record cannot be written.
        """
        with suppress(DropflowError):
            record = read_checksummed(self._path(row), _CopyRecord)
            moved = msgspec.structs.replace(content, final=content.location)
            copy = msgspec.structs.replace(record.copy, handle=self._relative(moved))
            write_checksummed(self._path(row), msgspec.structs.replace(record, copy=copy))

    def forget(self, path: str) -> None:
        """Remove the record of the copy at a path, which was removed; never raises."""
        name = Path(path).parent.name.partition("-")[0]
        with suppress(DropflowError, OSError, ValueError):
            record = read_checksummed(self._path(int(name)), _CopyRecord)
            if self._absolute(record.copy.handle).location == path:
                self._path(int(name)).unlink(missing_ok=True)

    def read(self, version: Version) -> dict[int, HeldCopy]:
        """Return the copies that count in this view and exist, by row. Damaged records are left out."""
        rows: frozenset[int] = frozenset()
        with suppress(DropflowError):
            held = read_checksummed(self._folder / _HELD, _HeldRows)
            if held.version == version:
                rows = frozenset(unpack_column(held.rows, np.int32).tolist())
        copies: dict[int, HeldCopy] = {}
        for path in sorted(self._folder.glob("*.msgpack")):
            if path.name == _HELD:
                continue
            with suppress(DropflowError):
                record = read_checksummed(path, _CopyRecord)
                handle = self._absolute(record.copy.handle)
                refuse_changed(handle)
                is_counted = record.version == version or (record.version < version and record.row in rows)
                if is_counted and (not record.copy.stamp or stamp_of(handle.location) == record.copy.stamp):
                    copies[record.row] = msgspec.structs.replace(record.copy, handle=handle)
        return copies

    def _path(self, row: int) -> Path:
        return self._folder / f"{row}.msgpack"

    def _relative(self, handle: Handle) -> Handle:
        location, directory = handle.location, f"{self._workspace.directory}/"
        if location.startswith(directory):
            location = HERE + location[len(directory) :]
        return portable(msgspec.structs.replace(handle, location=location), self._workspace)

    def _absolute(self, handle: Handle) -> Handle:
        location = handle.location
        if location.startswith(HERE):
            location = f"{self._workspace.directory}/{location[len(HERE) :]}"
        return here(msgspec.structs.replace(handle, location=location), self._workspace)


class CopyEffects:
    """Offers, fetches and removes copies, and lists the contents of a session.

    Parameters
    ----------
    owner : MachineOwner
        Gets events, and runs jobs.
    send : callable
        Sends a message to another node. If that node is lost, the view changes, and another node is asked.
    """

    def __init__(self, owner: MachineOwner, send: Callable[[str, Message], None]) -> None:
        self._owner = owner
        self._send = send

    def effects(self) -> dict[type, Callable[[Any], None]]:
        """Return the functions that carry out the actions, by type, in the owner's thread."""
        return {
            OfferCopies: self._offer,
            TakeCopies: self._take,
            DiscardCopies: self._discard,
            ReadContents: self._read,
        }

    def _offer(self, action: OfferCopies) -> None:
        hosted = action.hosted
        piece, exchange = hosted.piece, hosted.exchange

        def offer(live: Session) -> None:
            contents: list[Content] = []
            gone: dict[int, str] = {}
            for row in action.counts:
                drop = piece.local(row)
                handle = None if drop is None or not piece.is_own[drop] else live.content(drop)
                if handle is None:
                    gone[row] = "its content is not here"
                    continue
                content = exchange.contents.offer_copy(row, handle)
                if action.counts[row] or content.stamp:
                    contents.append(content)
                    hosted.copied.add(row)
            if gone:
                self._owner.post(OffersRefused(action.session, action.epoch, action.view, action.peer, gone))
            if contents:
                counts = tuple(action.counts[content.drop] for content in contents)
                message = CopyContents(action.session, action.epoch, action.view, tuple(contents), counts)
                self._send(action.peer, message)

        hosted.session.post(offer)

    def _read(self, action: ReadContents) -> None:
        piece = action.hosted.piece

        def read(live: Session) -> None:
            states, contents = live.core.drops.states, live.contents()
            drops = [drop for drop, content in contents.items() if piece.is_own[drop] and content.kind != "null"]
            rows = tuple(int(piece.drop[drop]) for drop in drops if states[drop] == DropState.COMPLETED)
            self._owner.post(ContentsRead(action.session, action.epoch, action.view, rows))

        action.hosted.session.post(read)

    def _take(self, action: TakeCopies) -> None:
        def done(taken: Mapping[int, Handle], failed: Mapping[int, str]) -> None:
            self._owner.post(CopyWritten(action.session, action.epoch, action.view, taken, failed))

        action.hosted.exchange.take_copies(action.peer, action.contents, done)

    def _discard(self, action: DiscardCopies) -> None:
        folder = f"{action.hosted.directory.path / 'copies'}/"
        paths = [copy.location for copy in action.copies if copy.location.startswith(folder)]

        def job() -> None:
            records = CopyRecords(action.hosted.directory.path)
            for path in paths:
                remove_part(path)
                records.forget(path)

        if paths:
            self._owner.work(job)


# Copies of results that a node serves after the end of a session, in place of lost nodes.


class _Session(Protocol):
    directory: SessionDirectory
    is_certain: bool

    @property
    def state(self) -> SessionState:
        """State of the session on this node."""
        ...


def served_copies(session: _Session) -> Mapping[int, HeldCopy]:
    """Return the copies that can be served, by row of the whole graph.

    There are none while the session runs, because the owners serve all contents then. There are none if this node may
    have been lost before the end, because contents may have been made again on other nodes.
    """
    if not session.state.is_terminal or not session.is_certain or not (session.directory.path / "copies").exists():
        return {}
    try:
        version = session.directory.version()
    except DropflowError:
        return {}
    return CopyRecords(session.directory.path).read(version)


def copied_results(
    graph: PhysicalGraph, copies: Mapping[int, HeldCopy], directory: Path, node: str
) -> tuple[ResultInfo, ...]:
    """Return the copies of results of other nodes, which may be lost.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph, with its placement at the end.
    """
    after, results = graph.successors.ptr, []
    for row in sorted(copies):
        template, copy = graph.templates[graph.template[row]], copies[row].handle
        is_result = after[row] == after[row + 1] or template.persist or bool(copy.final)
        owner = graph.places[graph.part[row]]
        if template.kind is not Kind.DATA or not is_result or owner == node or not (copy.size or copy.final):
            continue
        path = Path(copy.final) if copy.final else directory / "results" / drop_file_name(oid(graph, row))
        results.append(
            ResultInfo(
                drop=row,
                oid=oid(graph, row),
                name=template.name,
                node=node,
                path=str(path.relative_to(directory) if path.is_relative_to(directory) else path),
                size=copy.size,
                checksum=copy.checksum or None,
                is_directory=copy.kind == "directory",
                owner=owner,
                missing=copy.missing,
            )
        )
    return tuple(results)


# Results that clients have released after the end of their session: they are removed, and answers leave them out.


class _Released(msgspec.Struct, frozen=True):
    """One request: the deployment of the contents, and the rows of the whole graph."""

    epoch: int
    rows: tuple[int, ...]


class ReleasedContents:
    """The record of the released results of one session on this node.

    For any thread and without a lock: a request is one line, which one write appends. A line that the end of the
    machine has cut off does not count.

    Parameters
    ----------
    directory : Path
        The session directory.
    epoch : int
        The deployment of the session. After a continuation, the session has other contents.
    """

    def __init__(self, directory: Path, epoch: int) -> None:
        self._path = directory / "released.jsonl"
        self._epoch = epoch

    def rows(self) -> frozenset[int]:
        """Return the rows of the whole graph that were released."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return frozenset()
        rows: set[int] = set()
        for line in filter(None, lines):
            with suppress(msgspec.DecodeError):
                record = msgspec.json.decode(line, type=_Released)
                rows.update(record.rows if record.epoch == self._epoch else ())
        return frozenset(rows)

    def add(self, rows: Collection[int]) -> None:
        """Record that the contents of rows are released. The caller removes them afterwards.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        line = msgspec.json.encode(_Released(self._epoch, tuple(rows)))
        with storage_errors("write", self._path), self._path.open("ab", buffering=0) as stream:
            stream.write(b"\n" + line + b"\n")
