"""The directory of a worker of an engine that cannot use that of the session, and what the session does with it.

The session sends inputs into it (`Put`), reads outputs and logs from it (`Get`), keeps outputs there that others will
read (`Move`), and removes what is not needed (`Remove`). If there is a store, large inputs are read from there
(`LoadBlob`), and large outputs written there (`SaveBlob`). Paths are relative to the directory, and nothing outside of
it is read or written. A piece is limited, so that neither side needs more memory for a large content than for a small
one.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dropflow.errors import DropflowError, StorageError
from dropflow.files import private_directory
from dropflow.runners.external_store import read_blob, write_blob
from dropflow.runners.listed_content import ContentEntry, ListedContent, listing_of

__all__ = [
    "PIECE_BYTES",
    "FilesReply",
    "Get",
    "LoadBlob",
    "Move",
    "Put",
    "Remove",
    "Request",
    "SaveBlob",
    "WorkerFiles",
    "room_below",
]


PIECE_BYTES = 4 << 20
"""Bytes of contents in one message."""
_LOCK = ".lock"
_NAME_BYTES = 8


class Put(msgspec.Struct, frozen=True, array_like=True, tag="put", gc=False):
    """Write a piece of a content. The first piece has its listing; with the last one, it is complete."""

    path: str
    offset: int
    data: bytes
    is_last: bool
    entries: tuple[ContentEntry, ...] = ()
    checksum: int = 0


class Get(msgspec.Struct, frozen=True, array_like=True, tag="get", gc=False):
    """Return a piece of a content."""

    path: str
    offset: int
    length: int


class LoadBlob(msgspec.Struct, frozen=True, array_like=True, tag="load", gc=False):
    """Write a piece of a content, as `Put` does, from a blob in the store."""

    path: str
    offset: int
    url: str
    is_last: bool
    entries: tuple[ContentEntry, ...] = ()
    checksum: int = 0


class SaveBlob(msgspec.Struct, frozen=True, array_like=True, tag="save", gc=False):
    """Write a piece of a content to a blob in the store."""

    path: str
    offset: int
    length: int
    url: str


class Move(msgspec.Struct, frozen=True, array_like=True, tag="move", gc=False):
    """Rename a content."""

    path: str
    target: str


class Remove(msgspec.Struct, frozen=True, array_like=True, tag="remove", gc=False):
    """Remove contents, if they are there."""

    paths: tuple[str, ...]


Request = Put | Get | LoadBlob | SaveBlob | Move | Remove


class FilesReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to several requests: what was read, in their order; or why one of them failed, and what to do."""

    pieces: tuple[bytes, ...] = ()
    problem: str = ""
    hint: str = ""


_decode = msgspec.msgpack.Decoder(tuple[Request, ...]).decode
_encode = msgspec.msgpack.Encoder().encode


def room_below(base: str) -> int:
    """Return how many bytes a worker may keep in a directory below `base`: half of what is free, at least 1."""
    with contextlib.suppress(OSError):
        return max(shutil.disk_usage(base or tempfile.gettempdir()).free // 2, 1)
    return 1


class WorkerFiles:
    """A new private directory with ``files``, ``logs``, ``tmp`` and ``contents``, as long as this object is open.

    Those that other processes left, because they were killed, are removed: their locks are free.

    Parameters
    ----------
    base : str
        Where it is made; empty for the directory of temporary files.

    Raises
    ------
    StorageError
        It cannot be made.
    """

    def __init__(self, base: str = "") -> None:
        parent = private_directory(Path(base or tempfile.gettempdir(), f"dropflow-{os.geteuid()}"))
        _sweep(parent)
        path = parent / secrets.token_hex(_NAME_BYTES)
        self.path = str(path)
        self._open: dict[str, ListedContent] = {}
        try:
            path.mkdir(0o700)
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in ("files", "logs", "tmp", "contents"):
                (path / name).mkdir()
        except OSError as error:
            raise StorageError(f"the directory cannot be made: {error.strerror}", where=self.path) from error

    def serve(self, data: bytes) -> bytes:
        """Process requests in their order up to the first that fails; return the `FilesReply`, encoded."""
        pieces: list[bytes] = []
        for request in _decode(data):
            try:
                self._serve(request, pieces)
            except OSError as error:
                where = error.filename or getattr(request, "path", self.path)
                return _encode(
                    FilesReply(problem=f"{where}: {error.strerror or error}", hint="see the disk of that host")
                )
            except DropflowError as error:
                return _encode(FilesReply(problem=f"{error.where}: {error.text}", hint=error.hint))
        return _encode(FilesReply(tuple(pieces)))

    def relative(self, path: str) -> str:
        """Return a path in this directory relative to it; another one as it is.

        Examples
        --------
        A file ``files/x`` that this directory has becomes ``files/x`` in the directory of the session.
        """
        return path.removeprefix(f"{self.path}/")

    def absolute(self, path: str) -> str:
        """Return where a relative path is; an absolute one as it is."""
        return path if path.startswith("/") else f"{self.path}/{path}"

    def listing(self, path: str) -> tuple[ContentEntry, ...]:
        """Return the listing of a content in this directory.

        Raises
        ------
        StorageError
            It is not there, or elsewhere.
        """
        place = self._at(self.relative(path))
        try:
            entries = listing_of(place)
        except OSError as error:
            raise StorageError(f"what an application wrote cannot be read: {error.strerror}", where=path) from error
        self._open[place] = ListedContent(place, entries)
        return entries

    def close(self) -> None:
        """Remove the directory. Idempotent."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def _serve(self, request: Request, pieces: list[bytes]) -> None:
        if isinstance(request, Put):
            self._put(request)
        elif isinstance(request, LoadBlob):
            data = read_blob(request.url)
            self._put(Put(request.path, request.offset, data, request.is_last, request.entries, request.checksum))
        elif isinstance(request, Get):
            pieces.append(self._piece(request))
        elif isinstance(request, SaveBlob):
            write_blob(request.url, self._piece(request))
        elif isinstance(request, Move):
            self._move(self._at(request.path), self._at(request.target))
        else:
            for path in request.paths:
                self._remove(self._at(path))

    def _piece(self, request: Get | SaveBlob) -> bytes:
        path = self._at(request.path)
        content = self._open.get(path) or ListedContent(path, listing_of(path))
        return content.read(request.offset, request.length)

    def _put(self, put: Put) -> None:
        path = self._at(put.path)
        content = self._open.get(path)
        if not put.offset:
            self._remove(path)
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)  # noqa: PTH103, PTH120 - text
            content = self._open[path] = ListedContent(path, put.entries)
            content.begin()
        elif content is None:
            raise StorageError("a piece of a content came before its beginning", where=path)
        content.write(put.offset, put.data)
        if put.is_last:
            del self._open[path]
            content.finish(put.checksum)

    def _move(self, path: str, target: str) -> None:
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)  # noqa: PTH103, PTH120 - text
        os.rename(path, target)  # noqa: PTH104
        self._remove(path)  # what is known of it, and its folder

    def _remove(self, path: str) -> None:
        self._open.pop(path, None)
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - text
            shutil.rmtree(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder not in (self.path, *(f"{self.path}/{name}" for name in ("files", "logs", "tmp", "contents"))):
            with contextlib.suppress(OSError):  # others use it
                os.rmdir(folder)  # noqa: PTH106

    def _at(self, path: str) -> str:
        parts = path.split("/")
        if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in path:
            raise StorageError("a path is not in the directory of the worker", where=path)
        return f"{self.path}/{path}"


def _sweep(parent: Path) -> None:
    """Remove the directories of processes that have ended."""
    with contextlib.suppress(OSError):
        for path in _names(parent):
            with contextlib.suppress(OSError):
                descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(descriptor)


def _names(parent: Path) -> Sequence[Path]:
    return [path for path in parent.iterdir() if path.is_dir() and not path.is_symlink()]
