"""Results that clients have released after the end of their session: they are removed, and answers leave them out."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from dropflow.data.storage_errors import storage_errors

__all__ = ["RELEASED", "ReleasedContents"]

RELEASED = "was released by a client after the end of the session"
"""Why a content is not left."""


class _Released(msgspec.Struct, frozen=True):
    """One request: the deployment whose contents it is about, and the rows of the whole graph."""

    epoch: int
    rows: tuple[int, ...]


class ReleasedContents:
    """The record of the released results of one session on this node.

    For any thread and without a lock: a request is one line, which one write appends. A line that the end of the
    machine has cut off does not count.

    Parameters
    ----------
    directory : Path
        The session directory.
    epoch : int
        The deployment of the session. If it is continued, its contents are others.
    """

    def __init__(self, directory: Path, epoch: int) -> None:
        self._path = directory / "released.jsonl"
        self._epoch = epoch

    def rows(self) -> frozenset[int]:
        """Return the rows of the whole graph that were released."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return frozenset()
        found: set[int] = set()
        for line in filter(None, lines):
            with suppress(msgspec.DecodeError):
                one = msgspec.json.decode(line, type=_Released)
                found.update(one.rows if one.epoch == self._epoch else ())
        return frozenset(found)

    def add(self, rows: Collection[int]) -> None:
        """Record that the contents of rows are released. They are to be removed after that.

        Raises
        ------
        StorageError
            The directory cannot be written.
        """
        line = msgspec.json.encode(_Released(self._epoch, tuple(rows)))
        with storage_errors("write", self._path), self._path.open("ab", buffering=0) as stream:
            stream.write(b"\n" + line + b"\n")
