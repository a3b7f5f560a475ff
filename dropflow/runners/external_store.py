"""Blobs of bytes at URLs of a store that the session and the workers of an engine reach, such as a bucket (fsspec)."""

import contextlib
import itertools
import logging
import secrets
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dropflow.errors import BadParameterError, MissingDependencyError, StorageError, install_hint
from dropflow.failure import summary_of
from dropflow.runners.listed_content import ListedContent, identity_of

__all__ = [
    "BLOB_BYTES",
    "LEAST_BYTES",
    "ContentStore",
    "StoredContent",
    "check_store",
    "read_blob",
    "remove_blobs",
    "write_blob",
]


_HINT = "see that this host reaches the store, and has its credentials, in the environment or in fsspec's configuration"

_SECONDS = 100.0
"""How long a store may take for one blob: less than a worker of an engine may take for one message."""


def check_store(url: str) -> None:
    """Raise if contents cannot go by a URL. Does not try it.

    Raises
    ------
    BadParameterError
        It has no protocol, or one that fsspec does not know.
    MissingDependencyError
        fsspec, or its package for the protocol, is not installed.
    """
    protocol, separator, rest = url.partition("://")
    hint = "give a URL that all workers reach, such as s3://bucket/directory"
    if not (protocol and separator and rest):
        raise BadParameterError(f"{url!r} is not the URL of a store for contents", hint=hint)
    try:
        import fsspec  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingDependencyError(
            "contents by a URL need the package fsspec, which is not installed", hint=install_hint("fsspec")
        ) from error
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise MissingDependencyError(
            f"fsspec cannot use {protocol}:// yet: {summary_of(error)}",
            hint="install that package here and in the environment of the workers",
        ) from error
    except ValueError as error:
        raise BadParameterError(f"fsspec has no protocol {protocol!r} (in {url})", hint=hint) from error


def write_blob(url: str, data: bytes) -> None:
    """Write a blob.

    Raises
    ------
    StorageError
        The store does not take it.
    """
    _done(url, "written", lambda found, path: found.pipe_file(path, data))


def read_blob(url: str) -> bytes:
    """Return a blob.

    Raises
    ------
    StorageError
        It is not there, or cannot be read.
    """
    data: bytes = _done(url, "read", lambda found, path: found.cat_file(path))
    return data


def remove_blobs(url: str) -> None:
    """Remove a blob, or all below a directory of them, if they are there.

    Raises
    ------
    StorageError
        The store does not remove them.
    """

    def remove(found: Any, path: str) -> None:
        with suppress(FileNotFoundError):
            found.rm(path, recursive=True)

    _done(url, "removed", remove)


def _done(url: str, what: str, action: Callable[[Any, str], Any]) -> Any:
    """Return what an action gives with the file system of a URL, and the path there. fsspec keeps file systems.

    It runs in another thread: clients of stores have timeouts of several minutes, and different ones, or none.
    """
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            import fsspec  # noqa: PLC0415 - an extra

            found = fsspec.url_to_fs(url, **({"auto_mkdir": True} if url.startswith("file:") else {}))
            answer.set_result(action(*found))
        except BaseException as error:  # noqa: BLE001 - it is raised below
            answer.set_exception(error)

    threading.Thread(target=run, name="store", daemon=True).start()
    try:
        return answer.result(_SECONDS)
    except Exception as error:
        reason = summary_of(error) if answer.done() else f"the store did not answer in {_SECONDS:g} s"
        raise StorageError(f"it cannot be {what}: {reason}", where=url, hint=_HINT) from error


# Large contents of a session in a store that all workers of an engine reach by a URL.
#
# A content is stored once, in blobs of limited size, by the session or by the worker that made it.
# Workers read it from there. It is removed when the session has removed its own copy, and the rest at
# the end.

_LOG = logging.getLogger(__name__)

BLOB_BYTES = 16 << 20
LEAST_BYTES = 1 << 20
"""Smaller contents go through the engine, which takes less time than a request to a store."""
_SWEEP_BYTES = 1 << 30
_TOKEN_BYTES = 8


@dataclass(frozen=True)
class StoredContent:
    """A content in the store.

    Attributes
    ----------
    url : str
        The directory of its blobs, which are named 0, 1, 2...
    path : str
        Where the session has it.
    size : int
        Its bytes.
    checksum : int
        CRC-32 of all its bytes.
    """

    url: str
    path: str
    size: int
    checksum: int


class ContentStore:
    """The contents of one session in a store. Its methods are called from any thread.

    Parameters
    ----------
    url : str
        Of a directory there, which may exist. The session has a new one in it.
    """

    def __init__(self, url: str) -> None:
        self.url = f"{url.rstrip('/')}/dropflow-{secrets.token_hex(_TOKEN_BYTES)}"
        self._numbers = itertools.count(1)
        # Guards what is below: contents are stored and read in several threads of the relay at a time.
        self._lock = threading.Lock()
        self._contents: dict[int, Future[StoredContent]] = {}
        self._unswept, self._sweep_after = 0, _SWEEP_BYTES

    def new_url(self) -> str:
        """Return the URL for a content that will be stored."""
        return f"{self.url}/{next(self._numbers)}"

    def probe(self) -> tuple[str, int]:
        """Write a blob and read it again; return its URL and size, so that workers can do the same.

        Raises
        ------
        StorageError
            The store cannot be used from here.
        """
        url, data = f"{self.url}/probe", self.url.encode()
        write_blob(url, data)
        if read_blob(url) != data:
            raise StorageError("what was written there is not what is read", where=url)
        return url, len(data)

    def stored(self, identity: int, content: ListedContent) -> StoredContent:
        """Return where a content is in the store, after it has been written there if necessary.

        Raises
        ------
        OSError, StorageError
            It cannot be read here, or not be written there.
        """
        with self._lock:
            future = self._contents.get(identity)
            is_ours = future is None
            if future is None:
                future = self._contents[identity] = Future()
        if is_ours:
            try:
                future.set_result(self._write(content))
            except BaseException as error:
                with self._lock:
                    self._contents.pop(identity, None)
                future.set_exception(error)
                raise
            self._sweep(content.size)
        return future.result()

    def add(self, identity: int, stored: StoredContent) -> None:
        """Note a content that a worker has written to the store."""
        future: Future[StoredContent] = Future()
        future.set_result(stored)
        with self._lock:
            self._contents[identity] = future
        self._sweep(stored.size)

    def forget(self, identity: int) -> None:
        """Forget a content, which is stored again when it is needed."""
        with self._lock:
            found = self._contents.pop(identity, None)
        if found is not None and found.done():
            self.remove(found.result().url)

    def remove(self, url: str) -> None:
        """Remove what is in the store at a URL; what cannot be removed is left there."""
        with contextlib.suppress(StorageError):
            remove_blobs(url)

    def close(self) -> None:
        """Remove everything; what cannot be removed is logged."""
        try:
            remove_blobs(self.url)
        except StorageError as error:
            _LOG.warning("contents are left in %s: %s", self.url, error.text)

    def _write(self, content: ListedContent) -> StoredContent:
        url, checksum = self.new_url(), 0
        for number, offset in enumerate(range(0, content.size, BLOB_BYTES)):
            data = content.read(offset, min(BLOB_BYTES, content.size - offset))
            checksum = zlib.crc32(data, checksum)
            write_blob(f"{url}/{number}", data)
        return StoredContent(url, content.path, content.size, checksum)

    def _sweep(self, added: int) -> None:
        """Remove what the session has removed or changed, after as many bytes were added as half of what was kept."""
        with self._lock:
            self._unswept += added
            if self._unswept <= self._sweep_after:
                return
            known = {identity: one.result() for identity, one in self._contents.items() if one.done()}
            gone = {identity: one for identity, one in known.items() if not _is_there(one.path, identity)}
            for identity in gone:
                del self._contents[identity]
            kept = sum(one.size for identity, one in known.items() if identity not in gone)
            self._unswept, self._sweep_after = 0, max(_SWEEP_BYTES, kept // 2)
        for one in gone.values():
            self.remove(one.url)


def _is_there(path: str, identity: int) -> bool:
    try:
        return identity_of(path) == identity
    except OSError:
        return False
