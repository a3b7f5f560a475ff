"""Blobs of bytes at URLs of a store that the session and the workers of an engine reach, such as a bucket (fsspec)."""

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from dropflow.errors import BadParameterError, MissingDependencyError, StorageError, install_hint
from dropflow.failure import summary_of

__all__ = [
    "ContentStore",
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


_LOG = logging.getLogger(__name__)

_TOKEN_BYTES = 8


class ContentStore:
    """Blobs of one session in a store. Its methods are called from any thread.

    Parameters
    ----------
    url : str
        Of a directory there, which may exist. The session has a new one in it.
    is_new : bool
        Whether to make that; a worker uses that of its session.
    """

    def __init__(self, url: str, *, is_new: bool = True) -> None:
        self.url = f"{url.rstrip('/')}/dropflow-{secrets.token_hex(_TOKEN_BYTES)}" if is_new else url

    def put(self, data: bytes) -> str:
        """Write a blob, and return its URL.

        Raises
        ------
        StorageError
            The store does not take it.
        """
        url = f"{self.url}/{secrets.token_hex(_TOKEN_BYTES)}"
        write_blob(url, data)
        return url

    def probe(self) -> None:
        """Write a blob, read it again, and remove it.

        Raises
        ------
        StorageError
            The store cannot be used from here.
        """
        data = self.url.encode()
        url = self.put(data)
        if read_blob(url) != data:
            raise StorageError("what was written there is not what is read", where=url)
        self.remove(url)

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
