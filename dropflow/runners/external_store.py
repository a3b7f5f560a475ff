"""Blobs of bytes at URLs of a store that the session and the workers of an engine reach, such as a bucket (fsspec)."""

import contextlib
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dropflow.data.remote import file_system, reach
from dropflow.errors import StorageError

_SECONDS = 100.0
"""Seconds that a store may take for one blob: less than a worker of an engine may take for one message."""
_log = logging.getLogger(__name__)
_NAME_TOKEN_BYTES = 8
"""Random bytes in the name of a folder or of a blob."""


def write_blob(url: str, data: bytes) -> None:
    """Write a blob.

    Raises
    ------
    StorageError
        The store does not take it.
    """
    _done(url, "written", lambda system, path: system.pipe_file(path, data))


def read_blob(url: str) -> bytes:
    """Return a blob.

    Raises
    ------
    StorageError
        It does not exist, or cannot be read.
    """
    data: bytes = _done(url, "read", lambda system, path: system.cat_file(path))
    return data


def remove_blobs(url: str) -> None:
    """Remove a blob, or all blobs below a directory, if they exist.

    Raises
    ------
    StorageError
        The store does not remove them.
    """

    def remove(system: Any, path: str) -> None:
        with suppress(FileNotFoundError):
            system.rm(path, recursive=True)

    _done(url, "removed", remove)


def _done(url: str, what: str, action: Callable[[Any, str], Any]) -> Any:
    """Return the result of an action, which is called with the file system of a URL and the path there."""
    try:
        return reach(url, what, lambda: action(*file_system(url)), seconds=_SECONDS)
    except StorageError as error:
        raise StorageError(error.text.removeprefix(f"{url} "), where=url, hint=error.hint) from error


class ContentStore:
    """Blobs of one session in a store. Its methods are called from any thread.

    Parameters
    ----------
    url : str
        URL of a directory there, which may exist.
    is_new : bool
        Whether to make a new directory for the session in it; a worker uses the directory of its session.
    """

    def __init__(self, url: str, *, is_new: bool = True) -> None:
        self.url = f"{url.rstrip('/')}/dropflow-{secrets.token_hex(_NAME_TOKEN_BYTES)}" if is_new else url

    def put(self, data: bytes) -> str:
        """Write a blob, and return its URL.

        Raises
        ------
        StorageError
            The store does not take it.
        """
        url = f"{self.url}/{secrets.token_hex(_NAME_TOKEN_BYTES)}"
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
        """Remove blobs from the store at a URL; blobs that cannot be removed are left there."""
        with contextlib.suppress(StorageError):
            remove_blobs(url)

    def close(self) -> None:
        """Remove all blobs; log blobs that cannot be removed."""
        try:
            remove_blobs(self.url)
        except StorageError as error:
            _log.warning("contents are left in %s: %s", self.url, error.text)
