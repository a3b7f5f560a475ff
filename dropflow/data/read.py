"""Reading the contents of handles (`dropflow.execution.content_location.Handle`)."""

import filecmp
import io
import mmap
import os
import stat
import zlib
from typing import BinaryIO

from dropflow.data.remote import open_remote
from dropflow.data.storage_errors import refuse_reading, storage_error
from dropflow.errors import StorageError, UsageError
from dropflow.execution.content_location import Handle

EMPTY = Handle()
"""The empty content, in memory."""

NULL = Handle(kind="null")
"""The content of a drop that never has one."""

_IN_PLACE = ("bytes", "null")


def view(handle: Handle) -> memoryview:
    """Return the whole content: a view of the body, or of the mapped file, without a copy; or what is at its URL.

    Raises
    ------
    UsageError
        The content is a directory, a FIFO, a socket or a device.
    StorageError
        It cannot be read.
    """
    if handle.kind in _IN_PLACE:
        return memoryview(handle.body)
    if handle.kind == "url":
        with open_remote(handle) as remote:
            return memoryview(remote.read())
    path = _path(handle)
    try:
        with open_file(path) as stream:
            if not os.fstat(stream.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise storage_error("read", path, error) from error


def read(handle: Handle) -> bytes:
    """Return the whole content as bytes.

    Raises
    ------
    UsageError
        The content is a directory, a FIFO, a socket or a device.
    StorageError
        It cannot be read.
    """
    return handle.body if handle.kind in _IN_PLACE else bytes(view(handle))


def open_content(handle: Handle) -> BinaryIO:
    """Return a binary stream over the content; close it after use.

    Raises
    ------
    UsageError
        The content is a directory, a FIFO, a socket or a device.
    StorageError
        It cannot be opened.
    """
    if handle.kind in _IN_PLACE:
        return io.BytesIO(handle.body)
    if handle.kind == "url":
        return open_remote(handle)
    path = _path(handle)
    try:
        return open_file(path)
    except OSError as error:
        raise storage_error("read", path, error) from error


def open_file(path: str) -> io.BufferedReader:
    """Open a regular file for reading. Never waits, not even for the writer of a FIFO.

    Raises
    ------
    UsageError
        It is a FIFO, a socket or a device.
    OSError
        It cannot be opened.
    """
    stream = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: PTH123, SIM115 - see view
    try:
        refuse_reading(path, os.fstat(stream.fileno()).st_mode)
    except BaseException:
        stream.close()
        raise
    return stream


def verify(handle: Handle) -> None:
    """Compare the content with the size and checksum of the time when it was written.

    Directories, devices and contents without size and checksum are not compared.

    Raises
    ------
    StorageError
        It is damaged, was changed later, or cannot be read.
    """
    if handle.kind in ("null", "directory", "url") or not (handle.size or handle.checksum):
        return
    content = view(handle)
    if len(content) != handle.size:
        actual = f"{len(content)} bytes where {handle.size} were written"
    elif handle.checksum and zlib.crc32(content) != handle.checksum:
        actual = f"CRC-32 {zlib.crc32(content):08x} where {handle.checksum:08x} was written"
    else:
        return
    raise StorageError(
        f"{handle.location or 'content in memory'} has {actual}",
        hint="it was changed after its commit, or the storage is failing",
    )


def is_same(path: str, other: str) -> bool:
    """Return whether two files have the same bytes, or two directories the same files. Links are compared by target.

    Raises
    ------
    OSError
        One of them cannot be read.
    """
    kinds = {stat.S_IFMT(os.lstat(tree).st_mode) for tree in (path, other)}
    if len(kinds) > 1:
        return False
    if os.path.islink(path):  # noqa: PTH114 - text, as everywhere here
        return os.readlink(path) == os.readlink(other)  # noqa: PTH115
    if not os.path.isdir(path):  # noqa: PTH112
        return filecmp.cmp(path, other, shallow=False)
    names = set(os.listdir(path))  # noqa: PTH208
    return names == set(os.listdir(other)) and all(is_same(f"{path}/{name}", f"{other}/{name}") for name in names)  # noqa: PTH208


def measure(path: str) -> int:
    """Return the bytes of a file, or of all files below a directory, where links are not followed."""
    if not os.path.isdir(path):  # noqa: PTH112 - see view
        return os.stat(path).st_size  # noqa: PTH116 - see view
    total = 0
    for folder, _, names in os.walk(path):
        total += sum(os.lstat(f"{folder}/{name}").st_size for name in names)
    return total


def _path(handle: Handle) -> str:
    if handle.kind == "directory":
        raise UsageError(
            f"{handle.location} is a directory, which cannot be read as bytes",
            hint="use its path: give the port the encoding 'path'",
        )
    return handle.location
