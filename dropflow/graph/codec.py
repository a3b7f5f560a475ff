"""The `.dfg` container: a physical graph as one header and a few raw columns, the same on disk and on the wire.

::

    prologue   32 bytes  magic, version, flags, lengths and checksums of header and file (little-endian)
    header     msgpack   everything that is not a column, and a table of the columns
    columns              each on a multiple of 64 bytes, zeros between them

Columns are little-endian and can be used in place: `parse` copies nothing, neither from memory nor from a memory map.
Every byte is covered by a CRC-32 or must be zero, so that damage is always detected. `parse` also checks that all rows
refer to rows that exist. As in PNG, the magic starts with a byte that no text has and contains both line ends, so that
a file that went through a text transfer is recognised as broken.
"""

import hashlib
import mmap as memory_map
import os
import secrets
import stat
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadFileError, BadGraphError, StorageError
from dropflow.graph.physical import Adjacency, PhysicalGraph, faults
from dropflow.graph.templates import Link, Template

VERSION = 1
"""Version of the container. Other versions are not read."""

Buffer = bytes | bytearray | memoryview

_MAGIC = b"\x89DFG\r\n\x1a\n"
_PROLOGUE = struct.Struct("<8sHHIQII")
_SEALED = _PROLOGUE.size - 4
_ALIGNMENT_BYTES = 64
"""Bytes: the position of each column is a multiple of it."""
_BIG_INTEGER = 1
"""Code of the msgpack extension for integers beyond 64 bits: their decimal digits."""

_COLUMNS = {"template": "<i4", "instance": "<i4", "part": "<i4", "ptr": "<i8", "neighbour": "<i4", "link": "<i4"}
_PRIORITY_COLUMN = {"priority": "<i4"}
"""Only in graphs with priorities."""
_PLAN_COLUMNS = {"planned_begin": "<f4", "planned_end": "<f4"}
"""Only in graphs with a plan."""
_OID_COLUMNS = {"oid_ptr": "<i8", "oid_text": "|u1"}
_VERSION = b"dropflow graph 2\n"
_PART = ".part"
_HEAD = 8
"""Bytes by which `is_dfg` recognises a container."""


class _DfgColumn(msgspec.Struct, frozen=True):
    """Position of a column: its name, numpy type, first byte after the header, number of items and checksum."""

    name: str
    dtype: str
    offset: int
    items: int
    crc: int


class _DfgHeader(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    prefix: str
    templates: tuple[Template, ...]
    links: tuple[Link, ...]
    places: tuple[str, ...] = ()
    meta: dict[str, str] = {}
    columns: tuple[_DfgColumn, ...]


def is_dfg(head: bytes) -> bool:
    """Return whether a file that starts with these (at least 8) bytes is a `.dfg` container, of any version."""
    return head.startswith(_MAGIC)


def dump(graph: PhysicalGraph) -> list[memoryview]:
    """Return the container as buffers to be written one after the other. The columns are not copied.

    Raises
    ------
    BadGraphError
        A text of the graph has half of a surrogate pair.
    ValueError
        The graph is a slice whose rows are not in the order of the whole graph.
    """
    if graph.rank is not None:
        raise ValueError("the container has no column for ranks: write the whole graph instead of a slice")
    columns = {name: _little(column, name) for name, column in _columns_of(graph).items()}
    table, offset = [], 0
    for name, column in columns.items():
        offset = _aligned(offset)
        table.append(_DfgColumn(name, _type_of(name), offset, len(column), zlib.crc32(column.data)))
        offset += column.nbytes
    header = _pack(
        _DfgHeader(
            name=graph.name,
            prefix=graph.prefix,
            templates=graph.templates,
            links=graph.links,
            places=graph.places,
            meta=graph.meta,
            columns=tuple(table),
        )
    )
    start = _aligned(_PROLOGUE.size + len(header))
    sealed = _PROLOGUE.pack(_MAGIC, VERSION, 0, len(header), start + offset, zlib.crc32(header), 0)[:_SEALED]
    buffers = [sealed + struct.pack("<I", zlib.crc32(sealed)), header]
    end = _PROLOGUE.size + len(header)
    views = [memoryview(buffer) for buffer in buffers]
    for entry, column in zip(table, columns.values(), strict=True):
        views += [memoryview(bytes(start + entry.offset - end)), column.data.cast("B")]
        end = start + entry.offset + column.nbytes
    return [view for view in views if view.nbytes]


def parse(buffer: Buffer, *, where: str = "") -> PhysicalGraph:
    """Return the graph in a container. Its read-only columns are views of `buffer`, which must not change afterwards.

    Parameters
    ----------
    buffer : bytes-like
        The whole container.
    where : str
        Name of its file or sender, for messages.

    Raises
    ------
    BadFileError
        It is not a container, damaged, truncated, of another version, or refers to rows that do not exist.
    """
    view = memoryview(buffer)
    header, after = _read_header(view, where)
    columns = _read_columns(view, header, after, where)
    graph = PhysicalGraph(
        name=header.name,
        prefix=header.prefix,
        templates=header.templates,
        links=header.links,
        template=columns["template"],
        instance=columns["instance"],
        part=columns["part"],
        successors=Adjacency(ptr=columns["ptr"], neighbour=columns["neighbour"], link=columns["link"]),
        places=header.places,
        oids=_read_oids(columns, where),
        priority=columns.get("priority"),
        planned=(columns["planned_begin"], columns["planned_end"]) if "planned_begin" in columns else None,
        meta=header.meta,
    )
    wrong = faults(graph)
    if wrong:
        raise BadFileError(f"the graph in this file is not valid: {'; '.join(wrong)}", where=where)
    return graph


def _columns_of(graph: PhysicalGraph) -> dict[str, npt.NDArray[Any]]:
    out = graph.successors
    columns: dict[str, npt.NDArray[Any]] = {
        "template": graph.template,
        "instance": graph.instance,
        "part": graph.part,
        "ptr": out.ptr,
        "neighbour": out.neighbour,
        "link": out.link,
    }
    if graph.priority is not None:
        columns["priority"] = graph.priority
    if graph.planned is not None:
        columns["planned_begin"], columns["planned_end"] = graph.planned
    if graph.oids is not None:
        try:
            texts = [oid.encode() for oid in graph.oids]
        except UnicodeEncodeError as error:
            raise _not_unicode(error) from error
        ptr = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in texts], out=ptr[1:])
        columns |= {"oid_ptr": ptr, "oid_text": np.frombuffer(b"".join(texts), dtype=np.uint8)}
    return columns


def _type_of(name: str) -> str:
    return (_COLUMNS | _PRIORITY_COLUMN | _PLAN_COLUMNS | _OID_COLUMNS)[name]


def _little(column: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(column, dtype=np.dtype(_type_of(name)))


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _pack(header: _DfgHeader) -> bytes:
    try:
        return pack(header)
    except UnicodeEncodeError as error:
        raise _not_unicode(error) from error


def pack(value: object) -> bytes:
    """Return a value as MessagePack. Integers beyond 64 bits are extensions, which `read_extension` reads."""
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:
        return msgspec.msgpack.encode(_wrapped(msgspec.to_builtins(value, builtin_types=(bytes,))))


def _not_unicode(error: UnicodeEncodeError) -> BadGraphError:
    around = ascii(error.object[max(0, error.start - 20) : error.start + 20])
    return BadGraphError(f"a text has half of a surrogate pair: ...{around}...", hint="remove that character")


def _wrapped(value: Any) -> Any:
    """Return the value with each integer beyond 64 bits as an extension."""
    if isinstance(value, dict):
        return {key: _wrapped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_wrapped(item) for item in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return msgspec.msgpack.Ext(_BIG_INTEGER, str(value).encode())
    return value


def read_extension(code: int, data: memoryview) -> int:
    """Return an integer from `pack`."""
    if code != _BIG_INTEGER:
        raise ValueError(f"unknown extension {code}")
    return int(bytes(data))


def _read_header(view: memoryview, where: str) -> tuple[_DfgHeader, int]:
    """Return the header, and the position after it."""
    if not view.nbytes:
        raise BadFileError("the file is empty", where=where, hint="was it written to the end?")
    head = bytes(view[: _PROLOGUE.size])
    if not is_dfg(head):
        raise BadFileError("this is not a .dfg file", where=where, hint="write one with `dropflow unroll -o FILE.dfg`")
    if len(head) < _PROLOGUE.size:
        raise _cut_off(where)
    _, version, flags, length, total, crc, seal = _PROLOGUE.unpack(head)
    if zlib.crc32(head[:_SEALED]) != seal:
        raise _damaged(where)
    if version != VERSION or flags:
        text = f"the file has version {version} of the .dfg format; this dropflow reads version {VERSION}"
        raise BadFileError(text, where=where, hint="use the dropflow that wrote it, or write it again")
    if view.nbytes < total:
        raise _cut_off(where)
    packed = view[_PROLOGUE.size : _PROLOGUE.size + length]
    if view.nbytes > total or packed.nbytes < length or zlib.crc32(packed) != crc:
        raise _damaged(where)
    try:
        header = msgspec.msgpack.decode(packed, type=_DfgHeader, ext_hook=read_extension)
    except (ValueError, RecursionError, TypeError) as error:
        # The checksum is right: another program wrote it like this.
        raise BadFileError(f"the header of the file cannot be read: {error}", where=where) from error
    return header, _PROLOGUE.size + length


def _cut_off(where: str) -> BadFileError:
    return BadFileError("the file is cut off", where=where, hint="copy or write it again")


def _damaged(where: str) -> BadFileError:
    return BadFileError("the file is damaged: a checksum is wrong", where=where, hint="copy or write it again")


def _read_columns(view: memoryview, header: _DfgHeader, after: int, where: str) -> dict[str, npt.NDArray[Any]]:
    names = [column.name for column in header.columns]
    wanted = dict(_COLUMNS)
    for optional in (_PRIORITY_COLUMN, _PLAN_COLUMNS, _OID_COLUMNS):
        wanted |= optional if next(iter(optional)) in names else {}
    if names != list(wanted):
        raise BadFileError(f"the file has the columns {names}", where=where, hint="use the dropflow that wrote it")
    columns: dict[str, npt.NDArray[Any]] = {}
    start, end = _aligned(after), 0
    if any(view[after:start]):
        raise _damaged(where)
    for entry in header.columns:
        dtype = np.dtype(wanted[entry.name])
        size = entry.items * dtype.itemsize
        first = start + entry.offset
        if entry.dtype != wanted[entry.name] or entry.items < 0 or entry.offset != _aligned(end):
            raise BadFileError(f"column {entry.name} has an impossible position", where=where)
        if first + size > view.nbytes:
            raise _cut_off(where)
        content = view[first : first + size]
        if any(view[start + end : first]) or zlib.crc32(content) != entry.crc:
            raise _damaged(where)
        end = entry.offset + size
        column = np.frombuffer(content, dtype=dtype).astype(dtype.newbyteorder("="), copy=False)
        column.flags.writeable = False
        columns[entry.name] = column
    if start + end != view.nbytes:
        raise _damaged(where)
    return columns


def _read_oids(columns: dict[str, npt.NDArray[Any]], where: str) -> tuple[str, ...] | None:
    if "oid_ptr" not in columns:
        return None
    ptr, text = columns["oid_ptr"], columns["oid_text"]
    if not len(ptr) or ptr[0] != 0 or ptr[-1] != len(text) or not (ptr[1:] >= ptr[:-1]).all():
        raise BadFileError("the pointers to the text ids are not ascending", where=where)
    joined = text.tobytes()
    try:
        return tuple(joined[start:stop].decode() for start, stop in pairwise(ptr.tolist()))
    except UnicodeDecodeError as error:
        raise BadFileError("a text id is not UTF-8", where=where) from error


# A digest of a graph, the same on every machine.


def digest(graph: PhysicalGraph) -> str:
    """Return the SHA-256 of ids, templates, links, columns and places of a graph, as 64 hexadecimal digits.

    Two graphs with the same digest have (except for collisions) the same drops in the same order, with the same text
    ids and parameters, the same edges, parts, places and priorities. The digest does not include the name of the graph,
    its `meta` notes, and the order of keys in JSON objects among the parameters.
    """
    shared = (graph.prefix, graph.templates, graph.links, graph.places, graph.oids)
    digester = hashlib.sha256(_VERSION)
    # JSON, because parameters may have integers of any size. The order of keys must not depend on the file.
    digester.update(msgspec.json.encode(shared, order="deterministic"))
    out = graph.successors
    columns: list[npt.NDArray[Any]] = [graph.template, graph.instance, graph.part, out.ptr, out.neighbour, out.link]
    # Absent from graphs without priorities, whose digests stay those of earlier versions.
    columns += [] if graph.priority is None else [graph.priority]
    for column in columns:
        little = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
        digester.update(len(little).to_bytes(8, "little"))
        digester.update(little.data)
    return digester.hexdigest()


# Physical graphs in files: reading and writing ``.dfg`` containers.


def save(graph: PhysicalGraph, path: Path) -> None:
    """Write a graph to a file. The file is replaced as a whole, or not touched if an error is raised.

    Raises
    ------
    StorageError
        The file cannot be written.
    BadGraphError
        See `dump`.
    """
    buffers = dump(graph)
    part = path.with_name(f".{path.name[:50]}.{secrets.token_hex(4)}{_PART}")
    try:
        try:
            with part.open("xb") as file:
                file.writelines(buffers)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"the graph cannot be written: {error.strerror or error}", where=str(path)) from error


def is_unfinished(name: str, graph: str) -> bool:
    """Return whether a file of this name is what `save` leaves of a file named `graph` if its process is killed."""
    return name.startswith(f".{graph[:50]}.") and name.endswith(_PART)


def load(path: Path, *, mmap: bool = False) -> PhysicalGraph:
    """Read a graph from a file.

    Parameters
    ----------
    path : Path
        A regular file.
    mmap : bool
        Map the columns instead of reading them: pages are loaded when they are used, and shared between processes.

    Raises
    ------
    BadFileError
        There is no such file, it cannot be read, or it is not a valid container (see `parse`).
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadFileError("not a regular file", where=str(path), hint="give a .dfg file")
        with path.open("rb") as file:
            # An empty or short file cannot be mapped, or is not a container: `parse` reports it.
            if not (mmap and is_dfg(file.read(_HEAD))):
                file.seek(0)
                return parse(file.read(), where=str(path))
            return parse(memoryview(memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_READ)), where=str(path))
    except OSError as error:
        raise BadFileError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
