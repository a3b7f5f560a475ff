"""The journal: every event of a session, in the order in which the core processed them. Replaying it gives its state.

A file is a magic number with the version of the format, a header, and entries. Header and entries are frames: twelve
bytes (length, CRC-32 of the body, CRC-32 of these eight bytes; little endian) and a MessagePack array. An entry is one
batch of events, with the contents that were committed for it: where they are, their size and checksum. So a later
process finds what this one has committed. An incomplete last frame, which a crash can leave, is ignored.
"""

import os
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from dropflow.errors import BadFileError, StorageError
from dropflow.execution.content_location import ContentRecord, Handle
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_rules import INFRASTRUCTURE_RETRIES
from dropflow.execution.decisions.events import (
    Abort,
    Assembled,
    Begin,
    Cancel,
    Event,
    Failed,
    Finished,
    KnownStates,
    Lost,
    Release,
)
from dropflow.execution.failure_table import Fault
from dropflow.failure import Failure
from dropflow.files import force_to_disk
from dropflow.graph.physical import PhysicalGraph

_FAMILY = b"DFJ"
_VERSION = b"2"
_FRAME = struct.Struct("<III")
_SEALED = 8
"""Bytes at the beginning of a frame. The third number of the frame is their checksum."""

T = TypeVar("T")


class JournalHeader(msgspec.Struct, frozen=True):
    """First frame of a journal: the session, and the arguments of its core besides the graph."""

    session: str
    graph: str
    """Digest of the graph (`dropflow.graph.codec`); empty if it was not computed."""
    started: float
    streams: tuple[int, ...] = ()
    """Links whose data can be read by their consumers while it is written."""
    epoch: int = 0
    """Deployment of the session, where managers deployed it."""
    infrastructure_retries: int = INFRASTRUCTURE_RETRIES
    """How many infrastructure faults each drop may have."""
    view: int = 0
    """View of the session, where managers deployed it."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One batch of a journal.

    Attributes
    ----------
    events : tuple of Event
        Events that the core processed.
    contents : dict of int to ContentRecord
        Contents that were committed before these events, by drop.
    failures : dict of int to Failure
        Why drops of other nodes count as failed here. Their events do not contain this.
    """

    events: tuple[Event, ...]
    contents: dict[int, ContentRecord] = {}
    failures: dict[int, Failure] = {}


class Journal:
    """Writes a journal. Used by the session's thread only.

    If a full disk prevents the write of an entry, it is written before the next one. The file never has a gap.

    Parameters
    ----------
    path : Path
        The file.
    header : JournalHeader
        Its first frame.
    replaces : bool
        Whether there is a journal of an earlier process. It stays until the first entry of this one is written, and is
        then replaced by a rename: at any moment, one of them is complete.
    durable : bool
        Whether each entry is forced to the disk (fsync) before the session goes on, so that it survives the loss of
        power.

    Raises
    ------
    StorageError
        From any method, when the file cannot be written.
    """

    def __init__(self, path: Path, header: JournalHeader, *, replaces: bool = False, durable: bool = False) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._path = path
        self._beside = path.with_name(f"{path.name}.new") if replaces else None
        self._durable = durable
        self._has_entries = False
        self._is_named = False
        self._directory = f"{path.absolute().parent}/"
        self._size = 0
        self._pending = bytearray(_FAMILY + _VERSION + self._frame(header))
        try:
            self._file = os.open(self._beside or path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._failed(error) from error
        try:
            self._flush()
        except BaseException:
            os.close(self._file)
            raise

    def append(
        self,
        events: Sequence[Event],
        contents: Mapping[int, Handle] | None = None,
        failures: Mapping[int, Failure] | None = None,
    ) -> None:
        """Append a batch of events. The operating system has it then, so it is kept if this process is killed."""
        directory = self._directory
        records = {drop: ContentRecord.of(handle, directory) for drop, handle in (contents or {}).items()}
        self._pending += self._frame((events, records, failures or {}))
        self._has_entries = True
        self._flush()

    def close(self) -> None:
        """Write the pending entries and close the file. Idempotent."""
        if self._file < 0:
            return
        try:
            self._flush()
        finally:
            os.close(self._file)
            self._file = -1

    def _frame(self, content: object) -> bytes:
        body = self._encoder.encode(content)
        sealed = _FRAME.pack(len(body), zlib.crc32(body), 0)[:_SEALED]
        return sealed + zlib.crc32(sealed).to_bytes(4, "little") + body

    def _flush(self) -> None:
        try:
            while self._pending:
                written = os.pwrite(self._file, self._pending, self._size)
                self._size += written
                del self._pending[:written]
            if self._durable:
                os.fdatasync(self._file)
            if self._beside is not None and self._has_entries:
                self._beside.replace(self._path)
                self._beside = None
                self._is_named = False
            if self._durable and not self._is_named:
                force_to_disk(self._directory)  # also the names of the files that were made before
                self._is_named = True
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"the journal cannot be written: {error.strerror}", where=str(self._path))


def read(path: Path) -> tuple[JournalHeader, Iterator[Entry]]:
    """Return the header and the entries of a journal, up to an incomplete last frame.

    Raises
    ------
    BadFileError
        The file is not a journal, has another version, or is damaged before its end. Iterating over the entries may
        raise it too.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadFileError(f"the journal cannot be read: {error.strerror}", where=str(path)) from error
    magic = data[: len(_FAMILY) + len(_VERSION)]
    if not magic.startswith(_FAMILY):
        raise BadFileError("not a dropflow journal", where=str(path))
    if magic != _FAMILY + _VERSION:
        raise BadFileError(
            f"the journal has version {magic[len(_FAMILY) :].decode(errors='replace')} of the format; "
            f"this dropflow reads version {_VERSION.decode()}",
            where=str(path),
            hint="use the dropflow that wrote it",
        )
    frames = _frames(data, path)
    first = next(frames, None)
    if first is None:
        raise BadFileError("the journal ends inside its header", where=str(path))
    return _decoded(msgspec.msgpack.Decoder(JournalHeader), first, path), _entries(frames, path)


def _entries(frames: Iterator[bytes], path: Path) -> Iterator[Entry]:
    decoder = msgspec.msgpack.Decoder(Entry)
    for frame in frames:
        yield _decoded(decoder, frame, path)


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", frame: bytes, path: Path) -> T:
    try:
        return decoder.decode(frame)
    except (ValueError, RecursionError) as error:
        # The checksum is right, so another program or another version of dropflow wrote it.
        raise BadFileError(f"the journal has an unknown entry: {error}", where=str(path)) from error


def _frames(data: bytes, path: Path) -> Iterator[bytes]:
    offset = len(_FAMILY) + len(_VERSION)
    while offset + _FRAME.size <= len(data):
        length, checksum, seal = _FRAME.unpack_from(data, offset)
        if zlib.crc32(data[offset : offset + _SEALED]) != seal:
            if not any(data[offset:]):
                return  # after a crash, a file system may leave zeros where data was not written
            raise BadFileError("the journal is damaged before its end", where=str(path))
        body = data[offset + _FRAME.size : offset + _FRAME.size + length]
        offset += _FRAME.size + length
        if len(body) < length:
            return
        if zlib.crc32(body) != checksum:
            if offset >= len(data):
                return
            raise BadFileError("the journal is damaged before its end", where=str(path))
        yield body


@dataclass
class ReplayedSession:
    """The state of a session after its journal was replayed.

    Attributes
    ----------
    core : Core
        The core after all events.
    failures : dict of int to Failure
        The last failure of each drop.
    faults : dict of int to list of Fault
        The infrastructure faults of drops, oldest first.
    contents : dict of int to ContentRecord
        All contents that were committed, by drop.
    released : set of int
        Drops whose content was released after its last consumer.
    header : JournalHeader
        First frame of the journal.
    known : KnownStates or None
        The states at the beginning of the journal, if the session continued an earlier one; else None.
    skipped : dict of int to tuple of int
        Outputs that applications chose to skip.
    aborted : set of int
        Drops whose attempt was stopped because the session was given up.
    """

    core: Core
    header: JournalHeader
    failures: dict[int, Failure] = field(default_factory=dict)
    faults: dict[int, list[Fault]] = field(default_factory=dict)
    contents: dict[int, ContentRecord] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    known: KnownStates | None = None
    skipped: dict[int, tuple[int, ...]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    @property
    def missing(self) -> dict[int, float]:
        """Share of missing data when a content was made, if not 0, by drop."""
        return {drop: record.missing for drop, record in self.contents.items() if record.missing}

    @property
    def started(self) -> float:
        """Time at which the journal was begun, in seconds since the epoch."""
        return self.header.started

    @property
    def interrupted(self) -> Collection[int]:
        """Drops whose attempt was with a runner at the end of the journal, or when the session was given up."""
        return self.aborted | self.core.drops.running

    def add(self, entry: Entry) -> None:
        """Process the next entry."""
        for drop, record in entry.contents.items():
            self.contents.pop(drop, None)
            self.contents[drop] = record  # in the order of the commits
        self.failures.update(entry.failures)
        for event in entry.events:
            if isinstance(event, Failed | Assembled) and event.failure is not None:
                self.failures[event.drop] = event.failure
                if isinstance(event, Failed) and event.failure.infrastructure:
                    self.faults.setdefault(event.drop, []).append(Fault(event.attempt, event.failure))
            elif isinstance(event, Finished) and event.skipped:
                self.skipped[event.drop] = event.skipped
            elif isinstance(event, Begin) and event.known is not None:
                self.known = event.known
                self.skipped.update(event.known.skipped)
        is_given_up = any(isinstance(event, Cancel | Lost) for event in entry.events)
        actions = self.core.handle(entry.events)
        self.released.update(action.drop for action in actions if isinstance(action, Release))
        if is_given_up:
            self.aborted |= {action.drop for action in actions if isinstance(action, Abort)}


def is_blank(path: Path) -> bool:
    """Return whether there is no journal, or its process ended before the header was written."""
    try:
        with path.open("rb") as file:
            magic, head = file.read(len(_FAMILY) + len(_VERSION)), file.read(_FRAME.size)
            if not (_FAMILY + _VERSION).startswith(magic):
                return False
            return len(head) < _FRAME.size or path.stat().st_size < file.tell() + int(_FRAME.unpack(head)[0])
    except FileNotFoundError:
        return True
    except OSError as error:
        raise BadFileError(f"the journal cannot be read: {error.strerror}", where=str(path)) from error


def replay(graph: PhysicalGraph, path: Path, *, remote: Iterable[int] = (), cut: bool = False) -> ReplayedSession:
    """Replay a journal through a fresh core, and return the state of its session.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that was executed.
    path : Path
        The journal.
    remote : collection of int
        Drops that live on other nodes.
    cut : bool
        Whether a journal that is damaged before its end is replayed up to the damage.

    Raises
    ------
    BadFileError
        See `read`.
    """
    header, entries = read(path)
    core = Core(graph, remote=remote, streams=header.streams, infrastructure_retries=header.infrastructure_retries)
    replayed = ReplayedSession(core, header)
    try:
        for entry in entries:
            replayed.add(entry)
    except BadFileError:
        if not cut:
            raise
    return replayed
