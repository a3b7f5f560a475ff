"""The directory of a session: where parts are written before they are committed, and where contents live after.

::

    <directory>/files/            file and directory drops with relative paths
                results/          contents of leaf drops that lived in memory
                logs/             one file a drop
                tmp/<drop>-<attempt>-<n>    uncommitted parts
                tmp/<drop>-<attempt>-<n>.part/   those that programs write, under their final base name
                tmp/shm           link to the session's directory in shared memory
                tmp/outside       temporary names beside targets elsewhere, one a line

Parts that must end outside the session directory are written under a hidden name beside their target, because a rename
is atomic only within one file system. The names are noted in ``tmp/outside`` first, so that whoever closes the session
can sweep up after a worker that was killed.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from dropflow.data.faults import storage
from dropflow.ids import safe_name

__all__ = ["PART_FOLDER", "Workspace"]

PART_FOLDER = ".part"
"""How the directories end that hold one part each."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Paths of one session. Making one touches no disk.

    Parameters
    ----------
    directory : str
        Absolute path of the session directory.
    session : str
        Session id.
    durable : bool
        Whether files are forced to the disk (fsync) before they are committed. A rename alone already survives the
        death of any process; this is for the loss of power, and costs milliseconds a file.
    """

    directory: str
    session: str
    durable: bool = False

    @property
    def files(self) -> Path:
        """Base of relative file drops and working directory of commands."""
        return Path(self.directory, "files")

    @property
    def results(self) -> Path:
        """Contents of leaf drops."""
        return Path(self.directory, "results")

    @property
    def logs(self) -> Path:
        """Output of drops."""
        return Path(self.directory, "logs")

    @property
    def tmp(self) -> Path:
        """Whatever is not committed."""
        return Path(self.directory, "tmp")

    @property
    def shared(self) -> Path:
        """Where contents too large for a message go: shared memory, or a directory on disk where there is none."""
        return Path(self.directory, "tmp", "shm")

    @property
    def outside(self) -> Path:
        """Register of temporary files and directories outside this one."""
        return Path(self.directory, "tmp", "outside")

    def prepare(self) -> None:
        """Make the directories; those that are there stay.

        Raises
        ------
        StorageError
            One of them cannot be made.
        """
        for path in (self.files, self.results, self.logs, self.tmp):
            with storage("make the directory", path):
                path.mkdir(parents=True, exist_ok=True)

    def part_name(self, drop: int, attempt: int, number: int | str) -> str:
        """Temporary path for one uncommitted part; touches no disk."""
        return f"{self.directory}/tmp/{drop}-{attempt}-{number}"  # noqa: S108 - our own tmp

    def part_name_beside(self, final: str, drop: int, attempt: int, number: int | str) -> str:
        """As `part_name`, on the file system of `final`, whose parent is made if it is missing.

        Raises
        ------
        StorageError
            Nothing can be written there.
        """
        parent = Path(final).parent
        path = parent / f".dropflow-{safe_name(self.session)}-{drop}-{attempt}-{number}"
        with storage("make the directory", parent):
            parent.mkdir(parents=True, exist_ok=True)
        with storage("write beside", final):
            self.tmp.mkdir(parents=True, exist_ok=True)
            with self.outside.open("a", encoding="utf-8") as register:
                register.write(f"{path}\n{path}{PART_FOLDER}\n")
        return str(path)

    def part_directory(self, name: str) -> str:
        """A directory for the part with the temporary path `name`, for programs that look at its base name.

        Raises
        ------
        StorageError
            It cannot be made.
        """
        path = name + PART_FOLDER
        try:
            os.mkdir(path)  # noqa: PTH102 - on the path of every part that a program writes: Path doubles its cost
        except OSError:
            with storage("make the directory", path):
                Path(path).mkdir(parents=True, exist_ok=True)
        return path

    def is_inside(self, path: str) -> bool:
        """Whether `path` (absolute, normal) lies in the session directory."""
        return path.startswith(self.directory + "/")
