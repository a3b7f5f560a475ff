"""Files of this host: forced to the disk, private, locked, compared by digest; what known formats begin with."""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import gethostname
from types import TracebackType
from typing import BinaryIO, Self

from dropflow.errors import BadFileError, ConflictError, NotFoundError, StorageError

FITS_START, NPY_START, HDF5_START = b"SIMPLE  =", b"\x93NUMPY", b"\x89HDF\r\n\x1a\n"
PNG_START, PARQUET_START, ZIP_START = b"\x89PNG\r\n\x1a\n", b"PAR1", b"PK\x03\x04"
"""The first bytes of files of these formats."""
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")
"""A directory with one of these is a zarr store."""
PICKLE_PROTOCOL = 5
"""Version of the format of pickles: the first one with buffers that are not copied."""
_PRIVATE_MODE = 0o700
"""Mode of a new directory, which only its owner may read, write and search."""
_MADE = "user.dropflow"
"""Extended attribute of a directory among files of users that dropflow made."""
_FICLONE = 0x40049409
"""Linux request of ioctl: a file shares the blocks of another one until one of them is changed (btrfs, XFS)."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk, or of the part of it that a user may fill, that is full."""
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def force_to_disk(path: str) -> None:
    """Wait until the content of a file, or the names in a directory, are on the disk.

    Raises
    ------
    OSError
        The disk reports an error.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Directories that other users of this host cannot create or write to before dropflow does.


def make_directories(path: Path) -> None:
    """Create `path` and its missing parents, each with mode 0700 whatever the umask is. Idempotent.

    Raises
    ------
    OSError
        One of them cannot be made.
    """
    for missing in [each for each in (*reversed(path.parents), path) if not each.exists()]:
        missing.mkdir(mode=_PRIVATE_MODE, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def private_directory(path: Path) -> Path:
    """Create `path` with mode 0700 and missing parents, and return it; use a directory that exists if it is safe.

    A link to a directory counts as that directory.

    Raises
    ------
    StorageError
        It cannot be created, another user owns it, or every user may write to it.
    """
    try:
        make_directories(path)
        status = path.stat()
    except OSError as error:
        hint = "choose another directory"
        raise StorageError(f"the directory cannot be made: {error.strerror}", where=str(path), hint=hint) from error
    user = os.geteuid()
    # The superuser may use directories of other users: a container does that on volumes of its host.
    if user and status.st_uid not in (user, 0):
        hint = "choose another directory, such as a new one below it"
        raise StorageError("the directory belongs to another user", where=str(path), hint=hint)
    if status.st_mode & stat.S_IWOTH:
        raise StorageError(
            "every user of this host can write to the directory", where=str(path), hint=f"chmod o-w {path}"
        )
    return path


def private_opener(path: str, flags: int) -> int:
    """Open a file, as the `opener` of `open`, too; one that is made has mode 0600 whatever the umask is."""
    return os.open(path, flags, 0o600)


def make_once(path: Path, make: Callable[[Path], object]) -> None:
    """Make a file that is complete as soon as its path exists; of several processes that make it, one succeeds.

    Parameters
    ----------
    make : callable
        Makes the file at another path in the same directory.

    Raises
    ------
    OSError
        It cannot be made.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        make(aside)
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def behind_link(path: Path) -> Path:
    """Return the file that a symbolic link leads to, so that this is written and the link stays; others as they are."""
    return path.resolve() if path.is_symlink() and path.is_file() else path


@contextlib.contextmanager
def replacing(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends without an exception; else `path` stays as it is.

    Readers see the content before, or all of the new one. What is not a regular file, such as a device, is written
    in place.

    Parameters
    ----------
    mode : int, optional
        Mode of the new file, for any umask.

    Raises
    ------
    OSError
        It cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    aside = path.with_name(f".{path.name[:50]}.{secrets.token_hex(4)}")  # four bytes for each character
    try:
        with open(aside, "xb", opener=None if mode is None else private_opener) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file as `replacing` does."""
    with replacing(path, mode=mode) as file:
        file.write(content)


def mark_made(folder: str) -> None:
    """Note at a directory that dropflow made it, so that it may be replaced later; not all file systems can."""
    with contextlib.suppress(OSError):
        os.setxattr(folder, _MADE, b"1")


def is_made(folder: str) -> bool:
    """Return whether a directory has the note of `mark_made`."""
    try:
        return bool(os.getxattr(folder, _MADE))
    except OSError:
        return False


def replace_directory(
    final: str, place: Callable[[], object], *, aside: Callable[[], str], kept: str, is_own: bool, is_directory: bool
) -> tuple[str, bool]:
    """Replace a directory by what `place` moves there; it comes back if that fails.

    Parameters
    ----------
    final : str
        The directory.
    place : callable
        Moves the new content to `final`.
    aside : callable
        Returns the path for a directory that the caller removes.
    kept : str
        The path for one that dropflow did not make, which stays; with a number if there is something.
    is_own : bool
        Whether it is known that dropflow made it; else it has the note of `mark_made`.
    is_directory : bool
        Whether the new content is a directory.

    Returns
    -------
    tuple of str and bool
        Where the former directory is, and whether to remove it.

    Raises
    ------
    BadFileError
        A file would replace a directory that dropflow did not make.
    """
    is_own = is_own or is_made(final)
    if not is_own and not is_directory:
        raise replaced_by_file(final)
    names = (f"{kept}-{number}" if number else kept for number in itertools.count())
    former = aside() if is_own else next(name for name in names if not os.path.lexists(name))
    os.replace(final, former)  # noqa: PTH105 - text, as of all places of contents
    try:
        place()
    except BaseException:
        if not os.path.lexists(final):
            os.replace(former, final)  # noqa: PTH105
        raise
    return former, is_own


def replaced_by_file(directory: str) -> BadFileError:
    """Return the error for a directory that dropflow did not make, at the path of a file."""
    return BadFileError(
        f"{directory} is a directory, and a file would replace it with all that is in it",
        hint="name a file that is in it, or remove it first",
    )


def shares_blocks(new: int, old: int) -> bool:
    """Let an empty file share the blocks of another one, by their descriptors; return whether the file system can."""
    try:
        fcntl.ioctl(new, _FICLONE, old)
    except OSError:
        return False
    return True


# The lock of a session directory: at most one process works in it.

LOCK, GRAPH_FILE, REUSE_LOG = "lock", "graph.dfg", "reused.jsonl"
"""Names of files in a session directory: its lock, its physical graph, and which results earlier runs have given."""
JOURNAL, SUMMARY, END = "journal.dfj", "summary.json", "end.msgpack"
"""Its journal, how it ended for people and programs, and how its part on a node ended."""


def refuse_other_directory(directory: Path) -> None:
    """Raise if there is no session in a directory.

    Raises
    ------
    NotFoundError
        There is none.
    """
    if not (directory / GRAPH_FILE).exists():
        raise NotFoundError(
            "there is no run in this directory" if directory.is_dir() else "there is no such directory",
            where=str(directory),
            hint="give the directory of a run: the argument of --keep, or one below dropflow-runs; --to URL names the "
            "manager of a session",
        )


class SessionLock:
    """Held while a process works in a session directory; the system releases it when the process ends, however it ends.

    It is a lock of the whole file (``flock``), which worker processes do not inherit. On a file system without such
    locks there is none, and nothing keeps two processes apart.

    Parameters
    ----------
    directory : Path
        The session directory, which exists.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / LOCK
        self._descriptor = -1

    @staticmethod
    def is_held(directory: Path) -> bool:
        """Return whether a process works in a session directory; without such locks, one that was killed too."""
        try:
            with (directory / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def __enter__(self) -> Self:
        """Acquire the lock.

        Raises
        ------
        ConflictError
            Another process has it.
        StorageError
            The file cannot be made.
        """
        while self._descriptor < 0:
            try:
                self._descriptor = self._acquire()
            except OSError as error:
                raise StorageError(
                    f"the lock of the session cannot be made: {error.strerror}", where=str(self._path)
                ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the file and release the lock."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1

    def _acquire(self) -> int:
        """Return the descriptor with the lock; -1 if the process that had it has just removed the file."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            try:
                while not _locks(descriptor):
                    pass
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise ConflictError(
                    f"another process is at work in it{f': {holder}' if holder else ''}",
                    where=str(self._directory),
                    hint="wait until it ends, or stop it",
                ) from None
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
            if not os.path.lexists(self._path) or not os.path.samestat(os.fstat(descriptor), self._path.stat()):
                os.close(descriptor)
                return -1
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {gethostname()}\n".encode(), 0)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        return descriptor


def _locks(descriptor: int) -> bool:
    """Lock a file; return False if `SessionLock.is_held` just had its lock, which it shares.

    Raises
    ------
    OSError
        A process works with it (`BlockingIOError`), or the file system has no such locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    return True


def content_digest() -> hashlib.blake2b:
    """Return a new BLAKE2b digest of 16 bytes, by which contents are compared between hosts."""
    return hashlib.blake2b(digest_size=16)
