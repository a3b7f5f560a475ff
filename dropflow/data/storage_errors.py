"""Errors of the operating system as `StorageError`, with the path and what to do."""

import errno
import hashlib
import os
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dropflow.errors import AppError, BadFileError, StorageError, UsageError
from dropflow.files import DISK_FULL, content_digest

_BLOCK_BYTES = 1 << 20
"""Bytes that are read at once for a checksum."""
_KINDS = (
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_HINTS = {
    errno.ENOENT: "it was removed or renamed by another program, or never written",
    errno.EACCES: "give this user access, or choose another place",
    errno.EPERM: "give this user access, or choose another place",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.ENOTDIR: "a part of the path is a file: choose another place",
    errno.EISDIR: "there is a directory of that name: choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_ALMOST_FULL = 1_000_000
"""Bytes. A program that fails to write a block may leave less than the block."""

# The checksum of a file. Commands compare files with it, so this module imports nothing large.


def checksum_of(path: str) -> int:
    """Return the CRC-32 of a regular file, read in blocks, or of a directory: see `tree_of`."""
    return tree_of(path)[1] if os.path.isdir(path) else _file_checksum(path)  # noqa: PTH112 - text, once a file


def _file_checksum(path: str) -> int:
    checksum = 0
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - text, once a file
        while block := stream.read(_BLOCK_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum


def tree_of(root: str) -> tuple[int, int]:
    """Return the bytes of all files below a directory, and the `tree_checksum` of it. Links are not followed."""
    size = 0

    def entries() -> Iterator[tuple[str, int, str]]:
        nonlocal size
        for name, path, status in below(root):
            content = ""
            if stat.S_ISREG(status.st_mode):
                size += status.st_size
                content = file_entry(status.st_mode, _file_checksum(path) if status.st_size else 0)
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)  # noqa: PTH115 - text, once a file
            yield name, stat.S_IFMT(status.st_mode), content

    checksum = tree_checksum(entries())
    return size, checksum


def tree_checksum(entries: Iterable[tuple[str, int, str]]) -> int:
    """Return the CRC-32 of a tree, which is never 0.

    It is that of the names below a directory in the order of `below`, each with its kind and, of a file, `file_entry`,
    or the target of a link.
    """
    checksum = 0
    for entry in entries:
        checksum = zlib.crc32(repr(entry).encode(errors="surrogateescape"), checksum)
    return checksum or 1


def file_entry(mode: int, checksum: int) -> str:
    """Return what a tree has of a file: whether it can be executed, and the CRC-32 of its bytes.

    Other bits of modes and times are left out: copies on other hosts have their own.
    """
    return f"{bool(mode & stat.S_IXUSR)} {checksum}"


def below(folder: str, inside: str = "") -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield name, path and state of everything below a directory, in the order of the names."""
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        yield f"{inside}{entry.name}", entry.path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from below(entry.path, f"{inside}{entry.name}/")


# Errors for FIFOs, sockets and devices in place of regular files.
#
# Opening one may wait forever, and a rename onto one destroys it.


def refuse_special(final: str) -> None:
    """Raise if the content at a path would replace a FIFO, a socket or a device. Follows links and opens nothing.

    Raises
    ------
    BadFileError
        The path is a FIFO, a socket or a device.
    """
    try:
        kind = _kind_of(os.stat(final).st_mode)  # noqa: PTH116 - text, once a file drop
    except OSError:
        return  # nothing is there, or writing will raise the same error
    if kind:
        raise BadFileError(
            f"{final} is {kind}, and a content would replace it",
            hint="name a regular file, or one that does not exist; an application that writes to a FIFO or a device "
            "opens it by itself, and a NULL data drop takes output that is not kept",
        )


def refuse_made(path: str, mode: int) -> None:
    """Raise if a program made neither a file nor a directory at the path of its output.

    Raises
    ------
    AppError
        Says what it is.
    """
    kind = _kind_of(mode)
    if kind:
        raise AppError(
            f"the program left {kind} at the path of its output, {path}, where a file or directory is expected",
            hint="write the content into a file there",
        )


def refuse_reading(path: str, mode: int) -> None:
    """Raise if a content is a FIFO, a socket or a device: it may have no end, and cannot be read twice.

    Raises
    ------
    UsageError
        Says what it is.
    """
    kind = _kind_of(mode)
    if kind:
        raise UsageError(
            f"{path} is {kind}, which may have no end and cannot be read twice",
            hint="let the application read from its path: give the port the encoding 'path'",
        )


def _kind_of(mode: int) -> str:
    """Return the kind of a special file by its mode; empty for regular files and directories."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")


def storage_error(doing: str, path: str | Path, error: OSError) -> StorageError:
    """Return the `StorageError` for an `OSError` while `doing` something to `path`.

    If the disk is full, the hint has the free space.
    """
    reason = error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0, "")
    if error.errno in DISK_FULL:
        hint = f"{_free(path)} left on that file system: make room, or choose another place"
    return StorageError(f"cannot {doing} {path}: {reason}", hint=hint)


def failed_program_hint(directory: Path) -> str:
    """Return where to look after a program ended with an error; if the disk of its outputs is full, that it is."""
    try:
        is_full = shutil.disk_usage(directory).free < _ALMOST_FULL
    except OSError:
        is_full = False
    log = "see the drop's log"
    return f"{log}; {_free(directory)} left on the file system of {directory}: make room there" if is_full else log


@contextmanager
def storage_errors(doing: str, path: str | Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `StorageError` with `path`.

    Raises
    ------
    StorageError
        In place of any `OSError` of the block.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(doing, path, error) from error


def _free(path: str | Path) -> str:
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return f"{shutil.disk_usage(place).free / 1e6:,.1f} MB"
    except OSError:
        return "nothing"


# Digests of contents, to compare them between hosts.


def fingerprint(path: str | Path) -> str:
    """Return the digest of a file's bytes, or of the names and contents below a directory, in hexadecimal.

    Raises
    ------
    StorageError
        It cannot be read.
    """
    with storage_errors("read", path):
        if not os.path.isdir(path):  # noqa: PTH112 - once a file
            with open(path, "rb") as stream:  # noqa: PTH123 - text, once a file
                return hashlib.file_digest(stream, content_digest).hexdigest()
        digester = content_digest()
        for name, kind, content in _entries(Path(path)):
            digester.update(repr((name, kind, content)).encode(errors="surrogateescape"))
        return digester.hexdigest()


def _entries(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the name, kind and digest (or link target) of everything below a directory, sorted by name."""
    for name, path, status in below(str(root)):
        if stat.S_ISLNK(status.st_mode):
            yield name, "link", os.readlink(path)  # noqa: PTH115 - text, once a file
        elif stat.S_ISDIR(status.st_mode):
            yield name, "directory", ""
        else:
            yield name, "file", fingerprint(path)
