"""Large contents of a session in a store that all workers of an engine reach by a URL.

A content is stored once, in blobs of limited size, by the session or by the worker that made it. Workers read it from
there. It is removed when the session has removed its own copy, and the rest at the end.
"""

import contextlib
import itertools
import logging
import secrets
import threading
import zlib
from concurrent.futures import Future
from dataclasses import dataclass

from dropflow.engine.external.blobs import read_blob, remove_blobs, write_blob
from dropflow.engine.external.listed_content import ListedContent, identity_of
from dropflow.errors import StorageError

__all__ = ["BLOB_BYTES", "LEAST_BYTES", "ContentStore", "StoredContent"]

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
