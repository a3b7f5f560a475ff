"""The result store at an address that fsspec reaches, such as a bucket, for hosts without a common directory.

It has the files of a result store in a directory (`dropflow.reuse.result_store`) under the same names. Each host keeps
copies of what it has read and written there, and asks here for what it lacks. Object stores show a content when it is
complete; others may show a part of it, which has another size, so that it counts as missing and is written again.
"""

import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dropflow.clock import SystemClock
from dropflow.data.remote import CHANGE_TIMES, COMMIT_SECONDS, check_url, file_system, reach
from dropflow.errors import StorageError
from dropflow.files import content_digest

_T = TypeVar("_T")
_PAUSE_SECONDS = 60.0
"""How long nothing is asked of a store that has failed: otherwise each application would wait until that is known."""


class RemoteFile(NamedTuple):
    """A file of the store: its size in bytes, and when it was written, as text that sorts."""

    name: str
    kind: str
    size: int
    written: str


class RemoteResultStore:
    """The files at an address. Its methods are called from any thread.

    Raises
    ------
    BadParameterError, MissingDependencyError
        fsspec does not know the protocol, or its package is not installed.
    """

    def __init__(self, address: str) -> None:
        check_url(address)
        self.address = address.rstrip("/")
        self._failed: tuple[float, StorageError] | None = None

    def fetch(self, kind: str, name: str, path: str) -> bool:
        """Copy a file to a path, where it appears at once; return whether it is there.

        Raises
        ------
        StorageError
            The store cannot be reached.
        """
        part = f"{path}.{secrets.token_hex(8)}"

        def get(system: Any, there: str) -> bool:
            try:
                system.get_file(there, part)
            except FileNotFoundError:
                return False
            return True

        try:
            if not self._reach("read", kind, name, get, seconds=0.0 if kind == "contents" else COMMIT_SECONDS):
                return False
            Path(part).rename(path)
        finally:
            Path(part).unlink(missing_ok=True)
        return True

    def size(self, kind: str, name: str) -> int | None:
        """Return the size of a file; None if it is not there. Raises as `fetch`."""

        def info(system: Any, there: str) -> int | None:
            system.invalidate_cache()
            try:
                return int(system.info(there)["size"] or 0)
            except FileNotFoundError:
                return None

        return self._reach("read", kind, name, info)

    def put(self, kind: str, name: str, path: str) -> None:
        """Copy a local file there. Raises as `fetch`."""
        limit = 0.0 if kind == "contents" else COMMIT_SECONDS
        self._reach("written", kind, name, lambda system, there: system.put_file(path, there), seconds=limit)

    def remove(self, kind: str, name: str) -> None:
        """Remove a file, if it is there. Raises as `fetch`."""

        def remove(system: Any, there: str) -> None:
            with suppress(FileNotFoundError):
                system.rm_file(there)

        self._reach("removed", kind, name, remove)

    def files(self) -> list[RemoteFile]:
        """Return all files, those that were written first in front. Raises as `fetch`."""

        def find(system: Any, there: str) -> list[RemoteFile]:
            system.invalidate_cache()
            entries = system.find(there, detail=True)
            return [
                RemoteFile(path.rpartition("/")[2], path.split("/")[-3], int(info["size"] or 0), _written(info))
                for path, info in entries.items()
                if path.removeprefix(there).count("/") == 3
            ]

        return sorted(self._reach("read", "", "", find), key=lambda file: file.written)

    def digest(self, name: str) -> str:
        """Return the digest of a content. Raises as `fetch`."""

        def read(system: Any, there: str) -> str:
            with system.open(there, "rb") as stream:
                return hashlib.file_digest(stream, content_digest).hexdigest()

        return self._reach("read", "contents", name, read, seconds=0.0)

    def _reach(
        self, what: str, kind: str, name: str, action: Callable[[Any, str], _T], *, seconds: float = COMMIT_SECONDS
    ) -> _T:
        if self._failed is not None and SystemClock().monotonic() < self._failed[0]:
            raise self._failed[1]
        url = f"{self.address}/{kind}/{name[:2]}/{name}" if kind else self.address
        try:
            return reach(url, what, lambda: action(*file_system(url)), seconds=seconds)
        except StorageError as error:
            self._failed = SystemClock().monotonic() + _PAUSE_SECONDS, error
            raise


def _written(info: dict[str, Any]) -> str:
    # Files are not changed here, so the time at which one was created does if there is no other.
    time = next((info[name] for name in (*CHANGE_TIMES, "created") if info.get(name)), "")
    return f"{time:020.6f}" if isinstance(time, float | int) else str(time)
