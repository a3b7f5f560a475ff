"""Records of attempts as octets, as managers and pages exchange them: sections, one after another.

A section begins with two little-endian uint32, the lengths of its header and of its columns. The header is JSON, padded
with spaces. Each column begins at a multiple of eight bytes, so that a browser reads it as a typed array without a
copy.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import ProtocolError

TIMES_FILE = "times.dft"

RECORD = np.dtype(
    [
        ("drop", "<u4"),
        ("attempt", "<i2"),
        ("worker", "<u2"),
        ("ready", "<f8"),
        ("waited", "<f4"),
        ("queued", "<f4"),
        ("ran", "<f4"),
        ("committed", "<f4"),
        ("processor", "<f4"),
        ("memory", "<f4"),
        ("read", "<f4"),
        ("written", "<f4"),
    ]
)
"""One attempt.

``drop`` is its row in the whole graph; ``attempt`` its number, negative if it failed; ``worker`` the number of
its worker process, 0 for none; ``ready`` when it could begin, in seconds since the epoch. Then seconds: until it was
given to the runner, until it began, until it ended, and until its outputs were committed; and ``processor``, the
seconds of processor time, of its child processes too. ``memory`` is the largest resident memory of its process
meanwhile, in bytes, 0 if the process is not its own; ``read`` and ``written`` are the bytes of its inputs and outputs.
"""

RUNNING = np.dtype([("drop", "<u4"), ("template", "<u4"), ("worker", "<u2"), ("since", "<f8")])
"""One attempt that runs: row of its drop and of its template in the whole graph, and the number of its worker process.

``since`` is when it was given to the runner, in seconds since the epoch, 0 if that is not known. It began then, or when
the attempt before it on its worker process had ended.
"""
RECEIVED_FILE = "received.json"
_LENGTHS = np.dtype("<u4")
_PREFIX_BYTES = 8
"""Bytes of the two sizes before a section; sizes are multiples of it, so that columns are aligned."""
_NONE = np.zeros(0, RUNNING)

# The record of an attempt: when it was ready, was given out, began, ended and was committed, and what it used.


def read_times(path: Path) -> npt.NDArray[Any]:
    """Return the records of a session, of the type `RECORD`; none if there is no such file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    return np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], RECORD)


# What a node received from other nodes of a session: counted by its data plane, kept in a file beside the times.


class PeerReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and bytes that a node received from one other node.

    Attributes
    ----------
    node : str
        The other node.
    contents, size : int
        Contents that were transferred to the end, and all bytes that were transferred, also of others.
    shared_contents, shared_size : int
        Contents that were read where they are, on a file system that both nodes see, and their bytes.
    """

    node: str
    contents: int = 0
    size: int = 0
    shared_contents: int = 0
    shared_size: int = 0


class NodeReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and bytes that a node received from each of the others."""

    node: str = ""
    received: tuple[PeerReceipts, ...] = ()


def read_receipts(directory: Path) -> NodeReceipts:
    """Return what was kept in a session directory; nothing if there is no such file, or if it cannot be read."""
    try:
        return msgspec.json.decode((directory / RECEIVED_FILE).read_bytes(), type=NodeReceipts)
    except (OSError, msgspec.DecodeError):
        return NodeReceipts()


class TimesSection(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one node, from number `first` on.

    Attributes
    ----------
    node : str
        Its name.
    first : int
        Number of the first record; those before it were not asked for.
    total : int
        Records that the node has.
    missing : str
        Why there are no records of the node: it did not answer. Empty if it did.
    records : array of `RECORD`
    running : array of `RUNNING`
        The attempts that run now.
    now : float
        The time of the node, in seconds since the epoch; 0 if nothing runs.
    received : NodeReceipts
        Counts of the contents that the node received from others so far.
    busy_with : tuple of str
        The other sessions that the workers of the node are busy with, if attempts of this one wait and none runs.
    """

    node: str
    records: npt.NDArray[Any]
    first: int = 0
    total: int = 0
    missing: str = ""
    running: npt.NDArray[Any] = _NONE
    now: float = 0.0
    received: NodeReceipts = NodeReceipts()
    busy_with: tuple[str, ...] = ()


def pack_columns(header: Mapping[str, object], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return one section: a header, which gets a list of the columns, and the columns."""
    listed, body, offset = [], [], 0
    for name, column in columns.items():
        data = np.ascontiguousarray(column).tobytes()
        listed.append({"name": name, "type": column.dtype.str, "offset": offset, "length": len(column)})
        padded = -(-len(data) // _PREFIX_BYTES) * _PREFIX_BYTES
        body.append(data.ljust(padded, b"\0"))
        offset += padded
    text = msgspec.json.encode({**header, "columns": listed})
    text = text.ljust(-(-len(text) // _PREFIX_BYTES) * _PREFIX_BYTES, b" ")
    return np.array([len(text), offset], _LENGTHS).tobytes() + text + b"".join(body)


def pack_times(section: TimesSection) -> bytes:
    """Return the records of one node as a section with a column for each field, and those of attempts that run."""
    header: dict[str, object] = {
        "node": section.node,
        "first": section.first,
        "total": section.total,
        "missing": section.missing,
    }
    columns = {name: section.records[name] for name in RECORD.names or ()}
    if section.received.received:
        header["received"] = section.received
    if section.busy_with:
        header["busy_with"] = section.busy_with
    if len(section.running):
        header["now"] = section.now
        columns |= {f"running_{name}": section.running[name] for name in RUNNING.names or ()}
    return pack_columns(header, columns)


def read_sections(chunks: Iterable[bytes], *, where: str = "") -> Iterator[TimesSection]:
    """Yield the sections of records of a download.

    Raises
    ------
    ProtocolError
        The bytes are not such sections, or end early.
    """
    data = memoryview(b"".join(chunks))
    while data:
        try:
            section, size = _read_section(data)
        except (ValueError, TypeError, KeyError, msgspec.DecodeError) as error:
            hint = "is it a dropflow manager of the same version?"
            raise ProtocolError(f"the times of attempts cannot be read: {error}", where=where, hint=hint) from error
        data = data[size:]
        yield section


class _Column(msgspec.Struct):
    name: str
    type: str
    offset: int
    length: int

    def read(self, body: memoryview) -> npt.NDArray[Any]:
        return np.frombuffer(body, np.dtype(self.type), self.length, self.offset)


class _Header(msgspec.Struct):
    node: str
    columns: list[_Column]
    first: int = 0
    total: int = 0
    missing: str = ""
    now: float = 0.0
    received: NodeReceipts = NodeReceipts()
    busy_with: tuple[str, ...] = ()


def _read_section(data: memoryview) -> tuple[TimesSection, int]:
    """Return the first section, and its size in bytes."""
    header_size, body_size = np.frombuffer(data[:_PREFIX_BYTES], _LENGTHS).tolist()
    end = _PREFIX_BYTES + header_size
    if end + body_size > len(data):
        raise ValueError("they end early")
    header = msgspec.json.decode(data[_PREFIX_BYTES:end], type=_Header)
    columns = {column.name: column.read(data[end : end + body_size]) for column in header.columns}
    records = np.zeros(len(columns["drop"]), RECORD)
    for name in RECORD.names or ():
        records[name] = columns[name]
    running = np.zeros(len(columns.get("running_drop", ())), RUNNING)
    for name in RUNNING.names or () if len(running) else ():
        running[name] = columns[f"running_{name}"]
    section = TimesSection(
        node=header.node,
        first=header.first,
        total=header.total,
        missing=header.missing,
        records=records,
        running=running,
        now=header.now,
        received=header.received,
        busy_with=header.busy_with,
    )
    return section, end + body_size
