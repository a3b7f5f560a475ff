"""Memory drops: content that travels in the `Handle` while it is small, and in shared memory when it is large.

A content of up to `SMALL` bytes travels in messages. A larger one is copied once into shared memory, where every
process of this machine reads it, and takes no memory of the session's own process. For a single reader that is no
faster (`benchmarks/data.py` measures it): what it saves is one copy for each further reader, and memory where
everything passes through.

Shared memory is a file in a directory of tmpfs that we map ourselves: the standard library's segments are
removed by the first process that exits after attaching, before Python 3.13. When tmpfs is full the content moves to
the disk, and the reader does not notice.
"""

import os
import zlib

from dropflow.data.data_parameters import IO, common
from dropflow.data.file_writer import FileWriter, remove_part
from dropflow.data.initial_value import initial_value
from dropflow.data.read_content import EMPTY
from dropflow.data.storage_errors import storage_errors
from dropflow.data.store import ContentWriter, Slot
from dropflow.engine.api import Handle
from dropflow.engine.component import Component, Parameter
from dropflow.graph.templates import Kind, Template

__all__ = ["MEMORY", "PYTHON_OBJECT", "SMALL", "MemoryStore", "MemoryWriter"]

SMALL = 64 * 1024
"""Bytes up to which a content travels in its handle."""

_PYDATA = Parameter(
    name="pydata",
    type="Object",
    default=None,
    description="Initial content of a drop without producers; its type says how it is read.",
)

MEMORY = Component(
    name="Memory",
    kind=Kind.DATA,
    category="Memory",
    dropclass="dlg.data.drops.memory.InMemoryDROP",
    aliases=("dlg.data.drops.InMemoryDROP", "dlg.drop.InMemoryDROP", "dfms.drop.InMemoryDROP"),
    description="Content in memory, gone after its last consumer unless it persists. Leaves are kept as results.",
    parameters=(_PYDATA, *common(persists=False)),
    ports=IO,
)

PYTHON_OBJECT = Component(
    name="PythonObject",
    kind=Kind.DATA,
    category="PythonObject",
    dropclass="dlg.data.drops.memory.PythonObjectDROP",
    aliases=("dlg.data.drops.memory.PythonObject", "dlg.data.drops.PythonObjectDROP"),
    description="A Python object on its way from the function that makes it to the member functions that use it.",
    parameters=(_PYDATA, *common(persists=False)),
    ports=IO,
)


class MemoryWriter:
    """Content on its way into memory.

    Parameters
    ----------
    slot : Slot
        What it is for.
    small : int
        Bytes up to which it stays in the handle.
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
            Neither shared memory nor the disk has room.
        """
        if self._file is not None:
            return self._file.write(data, text=text)
        block = bytes(data)
        if self._size + len(block) > self._small:
            self._spill(self._shared_path())
            return self.write(block, text=text)
        self._blocks.append(block)
        self._size += len(block)
        self._text = self._text and text
        return len(block)

    def path(self) -> str:
        """A temporary file; what is there at the end of the attempt becomes the content."""
        if self._file is None:
            self._spill(self._disk_path())
        assert self._file is not None  # noqa: S101 - _spill sets it, which mypy cannot see
        return self._file.path()

    def finish(self) -> Handle:
        """The content, in the handle if it is small."""
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
        """Forget it."""
        self._blocks.clear()
        if self._file is not None:
            self._file.abandon()

    def _spill(self, path: str) -> None:
        overflow = None if path == self._disk_path() else self._disk_path
        self._file = FileWriter(path, kind="shm", overflow=overflow)
        if self._size:
            self._file.write(b"".join(self._blocks), text=self._text)
        self._blocks.clear()

    def _shared_path(self) -> str:
        slot = self._slot
        shared = str(slot.workspace.shared)
        # What is kept is written where it stays: the commit then is a rename, and copies nothing.
        # The repository makes the directory of shared memory; without one (tests, tools) the disk will do.
        if slot.kept or not os.path.isdir(shared):  # noqa: PTH112 - text
            return self._disk_path()
        return f"{shared}/{slot.drop}-{slot.attempt}-{slot.number}"

    def _disk_path(self) -> str:
        slot = self._slot
        return slot.workspace.part_name(slot.drop, slot.attempt, slot.number)


class MemoryStore:
    """Contents in memory, initially as the parameter `pydata` of one template says."""

    persists = False
    is_directory = False
    encoding = ""
    shared_name = ""
    unwritten: Handle | None = EMPTY
    small = SMALL

    def __init__(self, template: Template) -> None:
        self._template = template

    def part(self, slot: Slot) -> ContentWriter:
        """A buffer that moves to shared memory when it grows."""
        return MemoryWriter(slot, self.small)

    def growing(self, slot: Slot) -> FileWriter:
        """A file on the disk, for who reads it while it grows finds it in the page cache, and it may outgrow memory."""
        return FileWriter(slot.workspace.part_name(slot.drop, slot.attempt, slot.number), kind="shm")

    def initial(self, slot: Slot) -> Handle:
        """The value of `pydata`; see `dropflow.data.initial_value`.

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
        """Any parameters will do: `pydata` matters only to drops without producers (see `check_initial`)."""

    def check_initial(self) -> None:
        """Refuse a `pydata` that does not fit its type."""
        initial_value(self._template)
