"""Join of the contents that several producers wrote to one data drop."""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dropflow.data.memory import MemoryWriter
from dropflow.data.read_content import EMPTY, open_content, view
from dropflow.data.storage_errors import storage_errors
from dropflow.data.store import Slot
from dropflow.engine.api import Handle
from dropflow.errors import StorageError

__all__ = ["join"]

_BLOCK = 1 << 20


def join(parts: Sequence[Handle], slot: Slot) -> Handle:
    """Join the contents of `parts`, in their order, into one; the other parts are empty or removed.

    Bytes are joined, directories are merged. The result is text if all parts are.

    Parameters
    ----------
    parts : sequence of Handle
        What the producers wrote, in their order. Parts of kind ``null`` are ignored.
    slot : Slot
        Where a joined content in memory is written.

    Raises
    ------
    StorageError
        A directory would be joined to a file, two directories have a file of the same name, or writing failed.
    """
    contents = [part for part in parts if part.kind != "null"]
    if not contents:
        return parts[0] if parts else EMPTY
    if len(contents) == 1:
        return contents[0]
    folders = sum(part.kind == "directory" for part in contents)
    if folders and folders < len(contents):
        raise StorageError(
            f"{folders} of {len(contents)} producers of {slot.oid} wrote a directory, the others a file",
            hint="let all of them write the same kind of content",
        )
    if folders:
        return _merge(contents)
    return _append(contents) if contents[0].kind == "file" else _gather(contents, slot)


def _gather(parts: Sequence[Handle], slot: Slot) -> Handle:
    joined = MemoryWriter(slot)
    try:
        for part in parts:
            if part.size:
                joined.write(view(part), text=part.text)
        return joined.finish()
    except BaseException:
        joined.abandon()
        raise


def _append(parts: Sequence[Handle]) -> Handle:
    first, *rest = parts
    size, checksum = first.size, first.checksum
    with storage_errors("append to", first.location), Path(first.location).open("ab") as target:
        for part in rest:
            with open_content(part) as source:
                while block := source.read(_BLOCK):
                    target.write(block)
                    size += len(block)
                    checksum = zlib.crc32(block, checksum)
    return msgspec.structs.replace(first, size=size, checksum=checksum, text=all(part.text for part in parts))


def _merge(parts: Sequence[Handle]) -> Handle:
    first, *rest = parts
    for part in rest:
        for folder, folders, names in os.walk(part.location):
            target = Path(first.location, os.path.relpath(folder, part.location))
            with storage_errors("merge into", target):
                for name in folders:
                    (target / name).mkdir(exist_ok=True)
                for name in names:
                    if os.path.lexists(target / name):
                        raise StorageError(
                            f"two producers of {first.final or first.location} wrote '{name}'",
                            hint="use a different name for each producer, for example with {uid}",
                        )
                    Path(folder, name).rename(target / name)
    return msgspec.structs.replace(first, size=sum(part.size for part in parts))
