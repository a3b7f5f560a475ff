"""The files of the next view of a session, beside the present ones until its journal begins.

The rename of its journal is the moment from which a session is in its next view. Before it, the files that belong to
the present journal are untouched, so a process that ends then leaves the session as it was. After it, the files of the
next view are moved to the place of the present ones, by this process or by a later one.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from dropflow.data.storage_errors import storage_errors
from dropflow.engine.journal import is_blank, read
from dropflow.errors import DropflowError
from managers.deployment import Deployment
from managers.node.checksummed_file import read_checksummed, write_checksummed
from managers.recovery.records import ViewDecision

__all__ = ["DEPLOYMENT", "GRAPH", "VIEW", "NextView", "SavedView"]

DEPLOYMENT, GRAPH, VIEW = "deployment.json", "graph.dfg", "view.msgpack"
"""Names of the files that belong to a view."""

_REPLACED = ("end.msgpack", "summary.json")
"""What a session that is deployed again has from its end before."""

T = TypeVar("T")


class SavedView(msgspec.Struct, frozen=True):
    """A view of a session, and the rows of the slice before it."""

    decision: ViewDecision
    rows: bytes


class NextView:
    """The subdirectory with the files of the next view.

    Parameters
    ----------
    path : Path
        Directory of the session.
    journal : Path
        Its journal.
    """

    def __init__(self, path: Path, journal: Path) -> None:
        self._present = path
        self._path = path / "next"
        self._journal = journal
        self._is_read = False
        """Whether this process reads these files, which it has written."""

    def has(self, name: str) -> bool:
        """Return whether there is a file of the next view that this process has written."""
        return self._is_read and (self._path / name).exists()

    def read(self, name: str, read_file: Callable[[Path], T]) -> T:
        """Read a file: that of the next view if this process has written it, else the present one."""
        if self.has(name):
            with suppress(DropflowError):  # it is being moved to its place
                return read_file(self._path / name)
        return read_file(self._present / name)

    def save(self, view: SavedView, deployment: Deployment | None) -> None:
        """Write the files of the next view.

        Parameters
        ----------
        deployment : Deployment or None
            With the bytes of the graph, if the session is deployed again.

        Raises
        ------
        StorageError
            They cannot be written.
        """
        with storage_errors("write", self._path):
            self._path.mkdir(exist_ok=True)
            if deployment is not None and (self._present / GRAPH).read_bytes() != deployment.dfg:
                (self._path / GRAPH).write_bytes(deployment.dfg)
        write_checksummed(self._path / VIEW, view)
        if deployment is not None:
            write_checksummed(self._path / DEPLOYMENT, deployment.without_graph())
        self._is_read = True

    def settle(self) -> None:
        """Put the files in the place of the present ones if the journal is that of the next view.

        What belongs to the end of the earlier deployment is removed, if the session is deployed again. Nothing is done
        otherwise. Idempotent, also if a process ends in it.

        Raises
        ------
        BadFileError, StorageError
            The files cannot be read or moved.
        """
        if not self._path.exists() or is_blank(self._journal):
            return
        header, _ = read(self._journal)
        again, view = self._path / DEPLOYMENT, self._path / VIEW
        if again.exists():
            has_begun = read_checksummed(again, Deployment).epoch == header.epoch
        else:
            has_begun = view.exists() and read_checksummed(view, SavedView).decision.view.number == header.view
        if not has_begun:
            return
        with storage_errors("write", self._present):
            for name in _REPLACED if again.exists() else ():
                (self._present / name).unlink(missing_ok=True)
            for name in (GRAPH, VIEW, DEPLOYMENT):  # while the last one is there, this is not done
                if (self._path / name).exists():
                    (self._path / name).replace(self._present / name)
        self.discard()

    def discard(self) -> None:
        """Remove the files, and the beginning of a journal that did not replace the present one."""
        self._is_read = False
        shutil.rmtree(self._path, ignore_errors=True)
        with suppress(OSError):
            self._journal.with_name(f"{self._journal.name}.new").unlink(missing_ok=True)
