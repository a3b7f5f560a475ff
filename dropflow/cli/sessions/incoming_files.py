"""Write contents that managers send into a directory: each file is complete, or it is not there.

No path that a manager sends leads out of the directory. Incomplete files are in a hidden directory inside of it. Large
ones stay there if they break off, and the next command continues them; it removes the others.
"""

import fcntl
import os
import secrets
import shutil
import stat
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from dropflow.api.contents_answer import UNFINISHED, ContentBegin
from dropflow.api.drop_records import ResultInfo
from dropflow.data.storage_errors import checksum_of, fingerprint
from dropflow.errors import BadFileError, MissingDependencyError, StorageError
from dropflow.files import content_digest, is_made, mark_made, private_directory, replace_directory, replaced_by_file

_WORTH_KEEPING = 1 << 20
"""Bytes of a content from which on its beginning is kept when it breaks off."""
_BLOCK_BYTES = 1 << 20
"""Bytes that are read at once from a file whose download goes on."""
_PART = ".part"


class KeptPart(NamedTuple):
    """The beginning of a content that broke off: how much is here, and the checksum with which the content began."""

    size: int = 0
    checksum: int = 0


class ResultDirectory:
    """A directory into which one thread writes contents.

    Raises
    ------
    OSError
        It cannot be written.
    StorageError
        Other users can change the files.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real_root = root.resolve()
        self._unfinished = root / UNFINISHED
        self._safe: set[Path] = set()
        self._token = secrets.token_hex(8)
        self._count = 0
        root.mkdir(parents=True, exist_ok=True)
        # All commands that write here share the lock of the directory; one that is alone removes incomplete files.
        self._shared = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._clear_if_alone()
        with suppress(OSError):
            fcntl.flock(self._shared, fcntl.LOCK_SH)
        private_directory(self._unfinished)
        self._parts = _own_parts(self._unfinished)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for part in self._parts.values():
            os.close(part.file)
        self._clear_if_alone()
        os.close(self._shared)

    def has(self, path: PurePosixPath, result: ResultInfo) -> bool:
        """Return whether the file or directory at this path has the size and checksum of a result."""
        if result.checksum is None:
            return False
        target = f"{self.root}/{path}"
        try:
            status = os.lstat(target)
            is_like_it = stat.S_ISDIR(status.st_mode) or (
                stat.S_ISREG(status.st_mode) and status.st_size == result.size
            )
            return is_like_it and checksum_of(target) == result.checksum
        except OSError:
            return False

    def refusal(self, path: PurePosixPath, result: ResultInfo) -> BadFileError | None:
        """Return the error of a result that is a file, if a directory that dropflow did not make is at this path."""
        target = f"{self.root}/{path}"
        is_kept = not result.is_directory and os.path.isdir(target) and not os.path.islink(target)  # noqa: PTH112, PTH114
        return replaced_by_file(target) if is_kept and not is_made(target) else None

    def digest(self, path: PurePosixPath, result: ResultInfo) -> str:
        """Return the digest of what is at this path, if the result has no checksum; else ""."""
        target = self.root / path
        if result.checksum is not None or target.is_symlink() or not target.exists():
            return ""
        try:
            if not target.is_dir() and target.stat().st_size != result.size:
                return ""
            return fingerprint(target)
        except (OSError, StorageError):
            return ""

    def kept(self, path: PurePosixPath) -> KeptPart:
        """Return what is here of the content that belongs at this path, and broke off; no bytes if there is nothing."""
        part = self._parts.get(_part_key(path))
        return KeptPart() if part is None else KeptPart(os.fstat(part.file).st_size, part.checksum)

    def discard_parts(self) -> None:
        """Remove the beginnings of contents that broke off."""
        for part in self._parts.values():
            os.close(part.file)
            part.path.unlink(missing_ok=True)
        self._parts.clear()

    def begin(self, path: PurePosixPath, record: ContentBegin) -> "IncomingFile":
        """Return the incomplete file for the content that belongs at this path.

        Raises
        ------
        BadFileError
            A link in the directory leads out of it, or the content begins at a byte that is not the next one.
        OSError
            It cannot be written.
        """
        target = self.root / path
        if target.parent not in self._safe:
            if not target.parent.resolve().is_relative_to(self._real_root):
                raise BadFileError("a link in the directory leads out of it", where=str(target.parent))
            target.parent.mkdir(parents=True, exist_ok=True)
            self._safe.add(target.parent)
        part = self._parts.pop(_part_key(path), None)
        if part is not None and part.checksum != record.checksum:
            os.close(part.file)
            part.path.unlink(missing_ok=True)
            part = None
        if part is None and record.checksum is not None and (record.size or 0) >= _WORTH_KEEPING:
            part = _new_part(self._unfinished / f"{_part_key(path)}-{record.checksum:08x}{_PART}", record.checksum)
        if part is None:
            self._count += 1
            unfinished = self._unfinished / f"{self._token}-{self._count}"
            file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            part = _Part(unfinished, file, 0)
        incoming = IncomingFile(target, part, is_directory=record.is_directory)
        if record.offset or part.path.suffix == _PART:
            incoming.resume(record.offset)
        return incoming

    def keep(self, path: PurePosixPath, incoming: "IncomingFile") -> None:
        """Keep a file that broke off for a continuation; close and remove one that cannot be continued."""
        part = incoming.part
        if part.path.suffix == _PART and incoming.size:
            self._parts[_part_key(path)] = part
        else:
            incoming.close()

    def _clear_if_alone(self) -> None:
        """Remove what no command continues or writes."""
        with suppress(OSError):
            fcntl.flock(self._shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in self._unfinished.iterdir():
                if path.suffix != _PART:
                    _remove(path)
            self._unfinished.rmdir()


class _Part(NamedTuple):
    """An incomplete file, and its file descriptor; `checksum` is the one with which the content began."""

    path: Path
    file: int
    checksum: int


class IncomingFile:
    """One content that is being written; `size` is how many bytes of it are here."""

    def __init__(self, target: Path, part: _Part, *, is_directory: bool) -> None:
        self.size = 0
        self.part = part
        self._target = target
        self._is_directory = is_directory
        self._checksum = 0
        self._is_open = True

    def resume(self, offset: int) -> None:
        """Continue after the first `offset` bytes of the file, and remove the others.

        Raises
        ------
        BadFileError
            There are fewer bytes.
        """
        os.lseek(self.part.file, 0, os.SEEK_SET)
        while self.size < offset and (block := os.read(self.part.file, min(_BLOCK_BYTES, offset - self.size))):
            self._checksum = zlib.crc32(block, self._checksum)
            self.size += len(block)
        if self.size < offset:
            self.close()
            raise BadFileError(f"the content begins at byte {offset:,}, but only {self.size:,} bytes are here")
        os.ftruncate(self.part.file, offset)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self._checksum = zlib.crc32(data, self._checksum)
        self.size += len(data)
        done = os.write(self.part.file, data)
        while done < len(data):
            done += os.write(self.part.file, memoryview(data)[done:])

    def finish(self, wanted: int) -> str:
        """Move the content to its path, if `wanted` is the checksum of its bytes.

        Returns
        -------
        str
            Where the directory is that was there before, if dropflow did not make it; else "".

        Raises
        ------
        BadFileError
            The checksum differs, a directory cannot be unpacked, or a file would replace a directory that dropflow
            did not make.
        """
        if self._checksum != wanted:
            self.close()
            raise BadFileError("the content was damaged on its node or during the transfer", hint="fetch it again")
        self._close()
        content, kept = self.part.path, ""
        if self._is_directory:
            content = self._unpacked()
            mark_made(str(content))
        try:
            os.rename(content, self._target)  # noqa: PTH104 - one system call, for each of many files
        except OSError:
            if not os.path.lexists(content) or not os.path.lexists(self._target):
                raise
            kept = self._replace(content)
        if self._is_directory:
            _remove(self.part.path)
        return kept

    def _replace(self, content: Path) -> str:
        """Replace what a rename does not: a directory that is not empty, or anything else by a directory."""
        former, is_own = replace_directory(
            str(self._target),
            lambda: content.rename(self._target),
            aside=lambda: f"{self.part.path}.former",
            kept=f"{self._target}.before-fetch",
            is_own=self._target.is_symlink() or not self._target.is_dir(),
            is_directory=self._is_directory,
        )
        if is_own:
            _remove(Path(former))
        return "" if is_own else former

    def close(self) -> None:
        """Remove the incomplete file; idempotent."""
        self._close()
        _remove(self.part.path)
        if self._is_directory:
            _remove(self._folder)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.part.file)

    @property
    def _folder(self) -> Path:
        return self.part.path.with_name(f"{self.part.path.name}.d")

    def _unpacked(self) -> Path:
        import tarfile  # most results are files

        if not hasattr(tarfile, "data_filter"):
            raise MissingDependencyError(
                "this Python cannot unpack directories safely",
                hint="use Python 3.11.4 or newer, or run fetch elsewhere",
            )
        try:
            with tarfile.open(self.part.path) as archive:
                archive.extractall(self._folder, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise BadFileError(f"the directory cannot be unpacked: {error}") from error
        return self._folder


def _part_key(path: PurePosixPath) -> str:
    digest = content_digest()
    digest.update(os.fsencode(path))
    return digest.hexdigest()


def _new_part(path: Path, checksum: int) -> _Part | None:
    """Return an incomplete file that can be continued; None if another command writes it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError:
        pass  # a file system without locks
    return _Part(path, file, checksum)


def _own_parts(directory: Path) -> dict[str, _Part]:
    """Return the incomplete files that this command may continue, by the digest of their path."""
    parts: dict[str, _Part] = {}
    for path in sorted(directory.glob(f"*{_PART}")):
        key, _, checksum = path.stem.partition("-")
        with suppress(OSError, ValueError):
            part = _new_part(path, int(checksum, 16))
            before = parts.pop(key, None)
            if before is not None:
                os.close(before.file)
                before.path.unlink(missing_ok=True)
            if part is not None:
                parts[key] = part
    return parts


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
