"""The directory of a session, with uncommitted and committed contents.

::

    <directory>/files/            file and directory drops with relative paths
                results/          contents of leaf drops that lived in memory
                logs/             one file for each drop
                copies/           copies of contents of other nodes of the session, one directory for each drop
                tmp/<drop>-<attempt>-<tag>-<n>    uncommitted contents
                tmp/<drop>-<attempt>-<tag>-<n>.part/   those that programs write, with their final base name
                tmp/shm           link to the session's directory in shared memory
                tmp/outside       list of private directories beside targets elsewhere, and of objects in stores

Contents with a final path outside the session directory are written beside it, because a rename is atomic only within
one file system. Other users may be able to write there, too: therefore each such content is in its own directory, which
only this user can enter, with a name that cannot be guessed. ``tmp`` is private in the same way. The directories are
listed in ``tmp/outside`` before they are made, so that the repository that closes the session can remove those that a
killed worker left.

The *tag* is another one for each process that works in the directory. Workers outlive a process that is killed by up to
a second, in which they may write and remove uncommitted contents, while the next process runs attempts with the same
numbers: the first one had not recorded that it had begun them.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dropflow.data.storage_errors import storage_errors
from dropflow.files import private_directory
from dropflow.ids import safe_name

BESIDE = ".dropflow-"
"""Beginning of the names of directories that hold a content beside its target."""

PART_FOLDER = ".part"
"""End of the names of directories that hold one content each."""

STREAM_FOLDER = ".stream"
"""End of the names of directories that hold a stream."""

_PRIVATE_MODE = 0o700
"""Mode of a directory that only its owner may read, write and search."""
_PART_TOKEN_BYTES = 8
"""Random bytes in the name of an uncommitted content beside its final path."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - shared memory, in a directory with mode 0700
_PREFIX = "dropflow"
_RESERVE = 16
"""Shared memory is not used if less than one part in this many is free."""
REMOVED = ".removed-"
"""Beginning of the names of directories that are being removed."""
_REMOVED_TOKEN_BYTES = 8
"""Random bytes in the name of a directory that is to be removed."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Paths of one session. Making one does not access the disk.

    Parameters
    ----------
    directory : str
        Absolute path of the session directory.
    session : str
        Session id.
    durable : bool
        Whether files are forced to disk (fsync) before they are committed. A rename alone survives the death of any
        process; this also survives the loss of power, and takes milliseconds for each file.
    tag : str
        In the names of uncommitted contents.
    is_detached : bool
        Whether contents are committed on another host, so that all uncommitted ones are in ``tmp``.
    """

    directory: str
    session: str
    durable: bool = False
    tag: str = ""
    is_detached: bool = False

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
    def copies(self) -> Path:
        """Copies of contents that other nodes own."""
        return Path(self.directory, "copies")

    @property
    def tmp(self) -> Path:
        """Uncommitted contents."""
        return Path(self.directory, "tmp")

    @property
    def shared(self) -> Path:
        """Directory of contents that are too large for a message: in shared memory, or on disk if there is none."""
        return Path(self.directory, "tmp", "shm")

    @property
    def full(self) -> str:
        """File that is there while no more contents are to be written to `shared`."""
        return f"{self.shared}/.full"

    @property
    def outside(self) -> Path:
        """List of temporary directories outside this one."""
        return Path(self.directory, "tmp", "outside")

    def prepare(self) -> None:
        """Make the directories that do not exist.

        Raises
        ------
        StorageError
            One of them cannot be made.
        """
        for path in (self.files, self.results, self.logs):
            with storage_errors("make the directory", path):
                path.mkdir(parents=True, exist_ok=True)
        self._make_tmp()

    def part_name(self, drop: int, attempt: int, number: int | str) -> str:
        """Return a temporary path for one uncommitted content. Does not access the disk."""
        return f"{self.directory}/tmp/{drop}-{attempt}-{self._prefix}{number}"  # noqa: S108 - our own tmp

    def shared_part_name(self, drop: int, attempt: int, number: int) -> str:
        """Return a temporary path in `shared` for one uncommitted content. Does not access the disk."""
        return f"{self.shared}/{drop}-{attempt}-{self._prefix}{number}"

    def parts_of(self, folder: Path, drop: int, attempt: int) -> list[str]:
        """Return what is in `folder` under names of `part_name` of one attempt, without its streams.

        Raises
        ------
        OSError
            The folder cannot be read.
        """
        prefix = f"{drop}-{attempt}-{self._prefix}"
        with os.scandir(folder) as entries:
            parts = [entry.path for entry in entries if entry.name.startswith(prefix)]
        return [path for path in parts if not path.endswith(STREAM_FOLDER)]

    def part_beside(self, final: str) -> str:
        """Return a temporary path on the file system of `final`, and make a missing parent directory.

        Below the session directory, and for what is committed on another host, that is a path in `tmp`. Elsewhere it is
        the base name of `final` in a new directory beside it, which no other user can enter or make in advance.

        Raises
        ------
        StorageError
            Nothing can be written there.
        """
        token = secrets.token_hex(_PART_TOKEN_BYTES)
        if self.is_detached or self.is_inside(final):
            return f"{self.directory}/tmp/{token}"  # noqa: S108 - our own tmp
        parent, _, name = final.rpartition("/")
        folder = f"{parent}/{BESIDE}{safe_name(self.session)}-{token}{PART_FOLDER}"
        with storage_errors("make the directory", parent):
            Path(parent or "/").mkdir(parents=True, exist_ok=True)
        self.note_outside(folder)
        with storage_errors("write beside", final):
            os.mkdir(folder, _PRIVATE_MODE)  # noqa: PTH102 - as in part_directory
        return f"{folder}/{name}"

    def note_outside(self, place: str) -> None:
        """Record an uncommitted content elsewhere before it is made, so that it is removed if this process is killed.

        Raises
        ------
        StorageError
            It cannot be recorded.
        """
        self._make_tmp()
        with storage_errors("write", self.outside), self.outside.open("a", encoding="utf-8") as register:
            register.write(f"{place}\n")

    def part_directory(self, name: str) -> str:
        """Make a directory for the temporary path `name`, for programs that use the base name of a file.

        Raises
        ------
        StorageError
            It cannot be made.
        """
        folder = name.rpartition("/")[0]
        if folder.endswith(PART_FOLDER):
            return folder  # made beside the target already
        path = name + PART_FOLDER
        try:
            os.mkdir(path)  # noqa: PTH102 - called for every file of a program: Path doubles its cost
        except OSError:
            with storage_errors("make the directory", path):
                Path(path).mkdir(parents=True, exist_ok=True)
        return path

    @property
    def _prefix(self) -> str:
        return f"{self.tag}-" if self.tag else ""

    def _make_tmp(self) -> None:
        """Make `tmp`, or check that no other user can have written to it.

        Raises
        ------
        StorageError
            It cannot be made, or is not private.
        """
        private_directory(self.tmp)

    def is_on_other_node(self, path: str) -> bool:
        """Return whether `path` is in the directory that the session has on another node, which this one sees."""
        return not self.is_inside(path) and os.path.basename(self.directory) in path.split("/")  # noqa: PTH119 - text

    def is_inside(self, path: str) -> bool:
        """Return whether `path` (absolute, normal) is in the session directory."""
        return path.startswith(self.directory + "/")


# The directory of a session in shared memory, and the removal of directories that dead sessions left.
#
# Its name identifies its owner: ``dropflow-<pid namespace>-<pid>-<start time>-<session>``. When a session starts, it
# removes the directories of sessions whose process has ended. Process ids are reused, and differ between containers
# that share ``/dev/shm``; therefore the name has the start time and the namespace, and only directories of processes in
# the same namespace are removed.


def claim_shared_memory(session: str, root: Path = SHARED_MEMORY) -> Path | None:
    """Make the directory of `session` in shared memory. Returns None if there is no shared memory, or it is full."""
    try:
        status = os.statvfs(root)
        if status.f_bavail * _RESERVE < status.f_blocks:
            return None
        owner = f"{_namespace()}-{os.getpid()}-{_started(os.getpid())}"
        path = root / f"{_PREFIX}-{owner}-{safe_name(session)}"
        number = 0
        while path.exists():  # a second repository of the same session in this process
            number += 1
            path = root / f"{_PREFIX}-{owner}-{safe_name(session)}.{number}"
        path.mkdir(mode=0o700)
    except OSError:
        return None
    return path


def release_shared_memory(path: Path) -> None:
    """Remove a directory in shared memory with all its files; never raises."""
    shutil.rmtree(path, ignore_errors=True)


def sweep_shared_memory(root: Path = SHARED_MEMORY) -> list[Path]:
    """Remove the directories of this user's sessions whose process has ended. Returns the removed directories."""
    removed = []
    started = cache(_started)  # a process may have thousands of sessions
    try:
        prefix = f"{_PREFIX}-{_namespace()}-"
        with os.scandir(root) as entries:
            folders = [entry for entry in entries if entry.name.startswith(prefix)]
        for entry in folders:
            if _is_dead(entry.name, started) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                release_shared_memory(Path(entry))
                removed.append(Path(entry))
    except OSError:
        pass  # no shared memory, another session swept first, or it cannot be known whether a process has ended
    return removed


def _is_dead(name: str, started: Callable[[int], str]) -> bool:
    pieces = name.split("-", 4)
    if len(pieces) < 5 or not pieces[2].isdecimal():
        return False
    return started(int(pieces[2])) != pieces[3]


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - a link that must be followed to its inode


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if there is no such process.

    Raises
    ------
    OSError
        This process lacks a descriptor or memory, so that it cannot know.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return ""
    # The second field, the name in parentheses, may contain blanks; the start is the 22nd.
    return fields.rpartition(")")[2].split()[19]


# Removal of directories that others may be reading: they disappear as a whole.
#
# A directory is renamed before anything in it is removed, so a process that finds its path unchanged knows that it was
# whole until then.


def remove_directory(path: Path) -> None:
    """Remove a directory with all that is in it. Idempotent.

    Raises
    ------
    OSError
        It cannot be removed, and is at its path with what is left.
    """
    removed = _set_aside(path)
    if removed is None:
        return
    try:
        shutil.rmtree(removed)
    except OSError:
        with suppress(OSError):
            os.rename(removed, path)  # noqa: PTH104 - as below
        raise


def discard_directory(path: Path) -> None:
    """Remove a directory, and of what is in it as much as can be removed; never raises."""
    removed: Path | None = path
    with suppress(OSError):
        removed = _set_aside(path)
    if removed is not None:
        shutil.rmtree(removed, ignore_errors=True)


def remove_rest(parent: Path) -> None:
    """Remove what processes have left that ended while they removed a directory in `parent`; never raises."""
    with suppress(OSError):
        for path in parent.glob(f"{REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)


def _set_aside(path: Path) -> Path | None:
    """Rename a directory that is to be removed, and return its new path; None if there is none."""
    removed = path.with_name(REMOVED + secrets.token_hex(_REMOVED_TOKEN_BYTES))
    try:
        os.rename(path, removed)  # noqa: PTH104 - once a directory
    except FileNotFoundError:
        return None
    return removed
