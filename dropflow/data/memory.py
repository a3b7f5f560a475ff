"""Memory drops: small contents are in the `Handle`, large ones in shared memory.

A content of up to `SMALL` bytes is sent in messages. A larger one is copied once into shared memory, where every
process of this machine can read it; it uses no memory of the session's process. For a single reader this is not faster
(`benchmarks/data.py` measures it). It saves one copy for each further reader, and memory in processes between.

Shared memory is a mapped file in a directory of tmpfs. The segments of the standard library cannot be used: before
Python 3.13 they are removed by the first process that exits after attaching. If tmpfs is full, the content moves to
disk. If most of the memory that this process may use is in use, the content is written there from the beginning.
"""

import ast
import base64
import binascii
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

from dropflow.data.file import FileWriter, remove_part
from dropflow.data.read import EMPTY, NULL
from dropflow.data.storage_errors import storage_errors
from dropflow.data.store import IO, ContentWriter, Slot, common
from dropflow.errors import BadParameterError
from dropflow.execution.content_location import Handle
from dropflow.files import PICKLE_PROTOCOL
from dropflow.graph.components import TEXT_TYPES, Component, Parameter, Port, Unset, Unusable, convert_field, expand
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.host.memory import host_memory

_BASE_NAME = Parameter(
    name="base_name",
    default="data_base",
    parameter_type="ComponentParameter",
    description="Module of the class in DALiuGE. EAGLE wants it on data of this category; it is not used.",
)

NULL_DROP = Component(
    name="NULL",
    kind=Kind.DATA,
    category="Data",
    dropclass="dlg.data.drops.data_base.NullDROP",
    aliases=("dlg.data.drops.NullDROP", "dlg.drop.NullDROP", "dlg.data.drops.null.NullDROP", "dfms.drop.NullDROP"),
    description="Passes events on and discards data written to it.",
    parameters=(_BASE_NAME, *common(persists=False)),
    ports=IO,
)

END = Component(
    name="End",
    kind=Kind.DATA,
    category="Data",
    dropclass="dlg.data.drops.data_base.EndDROP",
    aliases=("dlg.drop.EndDROP", "dlg.data.drops.EndDROP"),
    description="Marks the end of a branch of the graph; keeps nothing.",
    parameters=(_BASE_NAME, *common(persists=False)),
    ports=IO,
)
_PICKLE_START = b"\x80"
_SHOWN_CHARACTERS = 60
"""Characters of a value in a message."""
SMALL = 64 * 1024
"""Largest size in bytes of a content in its handle."""
_PYDATA = Parameter(
    name="pydata",
    type="Object",
    default=None,
    description="Initial content of a drop without producers, read according to its type.",
)
MEMORY = Component(
    name="Memory",
    kind=Kind.DATA,
    category="Memory",
    dropclass="dlg.data.drops.memory.InMemoryDROP",
    aliases=("dlg.data.drops.InMemoryDROP", "dlg.drop.InMemoryDROP", "dfms.drop.InMemoryDROP"),
    description="Content in memory, removed after its last consumer unless it persists. Leaves are kept as results.",
    parameters=(_PYDATA, *common(persists=False)),
    ports=IO,
)
PYTHON_OBJECT = Component(
    name="PythonObject",
    kind=Kind.DATA,
    category="PythonObject",
    dropclass="dlg.data.drops.memory.PythonObjectDROP",
    aliases=("dlg.data.drops.memory.PythonObject", "dlg.data.drops.PythonObjectDROP"),
    description="A Python object, made by a constructor and used by member functions.",
    parameters=(
        _PYDATA,
        Parameter(
            name="base_name", parameter_type="ComponentParameter", description="Dotted name of the object's class."
        ),
        *common(persists=False),
    ),
    ports=(*IO, Port(name="self", usage="InputOutput", type="Object.self", encoding="dill", description="The object.")),
)
SHARED_MEMORY = Component(
    name="SharedMemory",
    kind=Kind.DATA,
    category="SharedMemory",
    dropclass="dlg.data.drops.memory.SharedMemoryDROP",
    aliases=(
        "dlg.data.drops.SharedMemoryDROP",
        "dlg.drop.SharedMemoryDROP",
        "dlg.data.drops.plasma.PlasmaDROP",
        "dlg.data.drops.plasma.PlasmaFlightDROP",
    ),
    description="Content in shared memory, which programs on the same machine can map by its path. Plasma drops of "
    "older graphs are these, too: there is no Plasma store any more.",
    parameters=(
        Parameter(
            name="pydata",
            type="Object",
            default=None,
            description="Initial content of a drop without producers, read according to its type.",
        ),
        *common(persists=False),
    ),
    ports=IO,
)

# Null drops: events without content.


class NullWriter:
    """Discards a content."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._path = ""

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Discard `data`."""
        return len(data)

    def path(self) -> str:
        """Return a temporary path, which is removed. Not ``/dev/null``, which a program might replace."""
        if not self._path:
            slot = self._slot
            self._path = slot.workspace.part_name(slot.drop, slot.attempt, slot.number)
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return self._path

    def finish(self) -> Handle:
        """Return the handle of no content."""
        self.abandon()
        return NULL

    def abandon(self) -> None:
        """Remove what a program wrote."""
        if self._path:
            remove_part(self._path)


class NullStore:
    """Data drops without contents."""

    persists = False
    hands_over = True
    is_directory = False
    encoding = ""
    shared_name = ""
    unwritten: Handle | None = NULL
    growing = None

    def __init__(self, template: Template) -> None:
        self._template = template

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer that discards."""
        return NullWriter(slot)

    def initial(self, slot: Slot) -> Handle:
        """Return the handle of no content."""
        return NULL

    def check(self) -> None:
        """Accept all parameters."""

    def check_initial(self) -> None:
        """Accept all parameters."""


# The initial content of a memory drop: its parameter `pydata`, read according to its type.
#
# ====================  ==============================================================================================
# type                  content
# ====================  ==============================================================================================
# String, Password      the text itself
# Integer, Float, ...   the value, pickled, so that ports with ``pickle`` or ``dill`` receive it typed
# Json, list, dict      the value of the JSON text or Python literal, pickled
# Object, Object.x      base64 of a pickle (how EAGLE stores objects), else a Python literal, else the text itself
# raw                   base64, else the text itself
# eval                  a Python literal, pickled; never evaluated
# ====================  ==============================================================================================
#
# No value, blank text and ``None`` are the empty content; for text types the empty text.


def initial_value(template: Template) -> tuple[bytes, bool]:
    """Return the bytes of the initial content, and whether they are text.

    Parameters
    ----------
    template : Template
        Node of a memory drop without producers.

    Raises
    ------
    BadParameterError
        The value does not fit its type.
    """
    argument = template.argument("pydata")
    if argument is None:
        return b"", False
    kind = argument.type.strip().lower()
    try:
        value = expand(argument.value)
        if value is None or (isinstance(value, str) and value.strip() in ("", "None")):
            return b"", kind in TEXT_TYPES
        return _content(value, kind)
    except Unusable as problem:
        raise BadParameterError(
            f"parameter 'pydata' is {argument.value!r:.{_SHOWN_CHARACTERS}}, expected {problem}",
            where=template.name,
            fields=("pydata",),
            hint=f"correct the value, or its type {_type(argument)}",
            of_host=isinstance(problem, Unset),
        ) from problem


def _content(value: Any, kind: str) -> tuple[bytes, bool]:
    if kind in TEXT_TYPES:
        return str(value).encode(), True
    if kind == "raw" and isinstance(value, str):
        return _unbase64(value) or value.encode(), False
    if kind.startswith("object") and isinstance(value, str):
        return _object(value)
    if kind == "eval" and isinstance(value, str):
        return _pickled(_literal(value)), False
    converted = convert_field(value, kind)
    return (converted.encode(), True) if isinstance(converted, str) else (_pickled(converted), False)


def _object(text: str) -> tuple[bytes, bool]:
    body = _unbase64(text)
    if body.startswith(_PICKLE_START):
        return body, False
    try:
        return _pickled(_literal(text)), False
    except Unusable:
        return text.encode(), True


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise Unusable("a Python literal (code is not evaluated)") from None


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=PICKLE_PROTOCOL)


def _type(argument: Argument) -> str:
    return argument.type or "String"


class MemoryWriter:
    """Writes a content to memory.

    Parameters
    ----------
    slot : Slot
        Slot of the content.
    small : int
        Largest size in bytes in the handle.
    """

    def __init__(self, slot: Slot, small: int = SMALL) -> None:
        self._slot = slot
        self._small = small
        self._blocks: list[bytes] = []
        self._size = 0
        self._text = True
        self._file: FileWriter | None = None

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append.

        Raises
        ------
        StorageError
            Shared memory and the disk are full.
        """
        if self._file is not None:
            return self._file.write(data, text=text)
        if self._size + memoryview(data).nbytes > self._small:
            self._spill(self._shared_path())
            return self.write(data, text=text)
        block = bytes(data)
        self._blocks.append(block)
        self._size += len(block)
        self._text = self._text and text
        return len(block)

    def path(self) -> str:
        """Return a temporary path; the file there at the end of the attempt becomes the content."""
        if self._file is None:
            self._spill(self._disk_path())
        assert self._file is not None  # _spill sets it, which mypy cannot see
        return self._file.path()

    def finish(self) -> Handle:
        """Return the content, in the handle if it is small."""
        if self._file is None:
            if not self._size:
                return EMPTY
            body = b"".join(self._blocks)
            return Handle(body=body, size=len(body), checksum=zlib.crc32(body), text=self._text)
        handle = self._file.finish()
        if handle.kind == "directory" or handle.size > self._small:
            return handle
        with storage_errors("read back", handle.location), open(handle.location, "rb") as stream:  # noqa: PTH123 - text path
            body = stream.read()
        remove_part(handle.location)
        return Handle(body=body, size=len(body), checksum=zlib.crc32(body), text=handle.text)

    def abandon(self) -> None:
        """Discard the content."""
        self._blocks.clear()
        if self._file is not None:
            self._file.abandon()

    def _spill(self, path: str) -> None:
        overflow = None if path == self._disk_path() else self._disk_path
        self._file = FileWriter(path, kind="shm", overflow=overflow, shielded=self._slot.shielded)
        if self._size:
            self._file.write(b"".join(self._blocks), text=self._text)
        self._blocks.clear()

    def _shared_path(self) -> str:
        slot = self._slot
        # A content that is kept is written to disk, so that its commit is a rename and no copy. The repository makes
        # the directory in shared memory; without a repository (tests, tools) the disk is used.
        workspace = slot.workspace
        if slot.kept or not os.path.isdir(workspace.shared) or os.path.exists(workspace.full):  # noqa: PTH110, PTH112 - text
            return self._disk_path()
        if host_memory().pressure():
            return self._disk_path()
        return slot.workspace.shared_part_name(slot.drop, slot.attempt, slot.number)

    def _disk_path(self) -> str:
        slot = self._slot
        return slot.workspace.part_name(slot.drop, slot.attempt, slot.number)


class MemoryStore:
    """Contents in memory, with the initial value in the parameter `pydata` of one template."""

    persists = False
    hands_over = True
    is_directory = False
    encoding = ""
    shared_name = ""
    unwritten: Handle | None = EMPTY
    small = SMALL

    def __init__(self, template: Template) -> None:
        self._template = template

    def part(self, slot: Slot) -> ContentWriter:
        """Return a writer that moves to shared memory when it grows."""
        return MemoryWriter(slot, self.small)

    def growing(self, slot: Slot) -> FileWriter:
        """Return a writer to disk: a growing file is in the page cache, and may become larger than memory."""
        path = slot.workspace.part_name(slot.drop, slot.attempt, slot.number)
        return FileWriter(path, kind="shm", shielded=slot.shielded)

    def initial(self, slot: Slot) -> Handle:
        """Return the value of `pydata`.

        Raises
        ------
        BadParameterError
            It does not fit its type.
        """
        body, text = initial_value(self._template)
        if not body:
            return Handle(text=True) if text else EMPTY
        part = self.part(slot)
        part.write(body, text=text)
        return part.finish()

    def check(self) -> None:
        """Accept all parameters: `pydata` is used only by drops without producers (see `check_initial`)."""

    def check_initial(self) -> None:
        """Raise if `pydata` does not fit its type."""
        initial_value(self._template)


# Shared memory drops: memory drops whose content is always in shared memory, also if it is small.
#
# For programs that map the content themselves: with the encoding ``path`` a port gives the file.


class SharedMemoryStore(MemoryStore):
    """Contents in shared memory."""

    small = 0
