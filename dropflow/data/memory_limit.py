"""A repository that keeps contents of memory drops in memory up to a limit; those that come after go to the disk."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from dropflow.data.repository import LocalRepository
from dropflow.data.storage_errors import storage_errors
from dropflow.engine.api import Handle
from dropflow.graph.templates import Template

__all__ = ["MemoryLimitedRepository"]

_SMALL = 4096
"""Bytes of a content in its handle below which it does not count, and stays there: a file would take as much."""


class MemoryLimitedRepository(LocalRepository):
    """A `LocalRepository` with a limit for the bytes of its contents in shared memory and in handles.

    The writers of contents, in worker processes, write to the disk while there is a file that says so, so that the
    limit is exceeded by what they are writing at most.

    Parameters
    ----------
    *arguments, **options :
        Of `LocalRepository`.
    limit : int
        Bytes.
    """

    def __init__(self, *arguments: Any, limit: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit = limit
        self._sizes: dict[int, int] = {}
        """Bytes in memory of each drop that counts."""
        self.held = 0
        """Sum of them."""
        self._is_full = False
        self._in_memory = f"{self.workspace.shared}/"

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Make `part` the content of a drop, as a `LocalRepository` does. If memory is full, it goes to the disk.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        content = super().commit(drop, attempt, template, part)
        if content.kind == "bytes" and content.size >= _SMALL and self.held + content.size > self._limit:
            path = self.workspace.part_name(drop, attempt, "large")
            with storage_errors("write", path):
                Path(path).write_bytes(content.body)
            return msgspec.structs.replace(content, kind="shm", body=b"", location=path)
        if (content.kind == "bytes" and content.size >= _SMALL) or content.location.startswith(self._in_memory):
            self._count(drop, content.size)
        return content

    def release(self, drop: int, template: Template, handle: Handle) -> bool:
        """Remove the content after its last use, as a `LocalRepository` does."""
        is_removed = super().release(drop, template, handle)
        if is_removed:
            self._count(drop, 0)
        return is_removed

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Move a content that is in memory to ``results/``, as a `LocalRepository` does."""
        self._count(drop, 0)
        return super().keep_result(drop, oid, template, handle)

    def revoke(self, drop: int, handle: Handle) -> None:
        """Remove a committed content, as a `LocalRepository` does."""
        self._count(drop, 0)
        super().revoke(drop, handle)

    def _count(self, drop: int, size: int) -> None:
        """Count the bytes of a drop, and tell writers whether memory is full."""
        self.held += size - self._sizes.pop(drop, 0)
        if size:
            self._sizes[drop] = size
        is_full = self.held >= self._limit
        if is_full != self._is_full:
            self._is_full = is_full
            with suppress(OSError):  # without the file, contents go to shared memory, and from a full one to the disk
                if is_full:
                    Path(self.workspace.full).touch()
                else:
                    Path(self.workspace.full).unlink(missing_ok=True)
