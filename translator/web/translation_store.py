"""Translations on disk: one folder each, under a random id, within limits of number and size.

::

    <root>/lock                  held by the one process that uses the folder
    <root>/translations/<id>/    order.json, source, report.json, graph.dfg, log

The store reads sizes and ages of the files, not their content. All methods may be called from any thread.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from dropflow.errors import ConflictError, GoneError, StorageError, UsageError
from dropflow.files import private_directory


class TranslationStore:
    """The folder of a translator.

    Parameters
    ----------
    root : Path
        Created if it does not exist, readable by its owner only: graphs may be private.
    kept, kept_bytes : int
        Folders that are kept, and their size; the oldest finished ones are deleted.

    Raises
    ------
    ConflictError
        Another process uses the folder.
    StorageError
        It cannot be created or written.
    """

    def __init__(self, root: Path, *, kept: int, kept_bytes: int) -> None:
        self._folder = root / "translations"
        self._kept, self._kept_bytes = kept, kept_bytes
        self._sizes: dict[str, int] = {}
        # Guards the sizes, never the files: threads of the server add and remove, threads of the queue measure.
        self._mutex = threading.Lock()
        private_directory(root)
        private_directory(self._folder)
        try:
            self._lock: IO[bytes] = (root / "lock").open("ab")
        except OSError as error:
            raise StorageError(f"the folder cannot be used: {error.strerror}", where=str(root)) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            hint = "stop the other translator, or name another folder"
            raise ConflictError("another translator uses this folder", where=str(root), hint=hint) from error
        folders = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)
        self._sizes = {path.name: _size(path) for path in folders}

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all translations, the oldest first."""
        with self._mutex:
            return tuple(self._sizes)

    def path(self, identity: str) -> Path:
        """Return the folder of an id of this store."""
        return self._folder / identity

    def add(self, source: bytes | Path, order: bytes, *, busy: Iterable[str] = ()) -> str:
        """Store a source and its order, and make room for them.

        Parameters
        ----------
        source : bytes or Path
            Contents, or a file, which is linked.
        busy : iterable of str
            Ids that must not be deleted.

        Returns
        -------
        str
            128 random bits, as text that is safe in paths and URLs.

        Raises
        ------
        GoneError
            The file has been removed.
        StorageError
            The disk is full, or not writable.
        UsageError
            The source is larger than `kept_bytes`.
        """
        try:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
        except OSError as error:
            raise GoneError("the graph has been removed meanwhile", hint="translate it again") from error
        if size > self._kept_bytes:
            raise UsageError(f"the graph has {size:,} bytes, more than this translator keeps in all")
        identity = secrets.token_hex(16)
        # The folder of a source that is linked must not be deleted to make room for it.
        self._make_room(size, frozenset([*busy, *([source.parent.name] if isinstance(source, Path) else [])]))
        folder = self.path(identity)
        try:
            folder.mkdir(mode=0o700)
            (folder / "order.json").write_bytes(order)
            if isinstance(source, bytes):
                (folder / "source").write_bytes(source)
            else:
                os.link(source, folder / "source")
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise StorageError(f"the graph cannot be stored: {error.strerror}") from error
        with self._mutex:
            self._sizes[identity] = size
        return identity

    def measure(self, identity: str) -> None:
        """Update the size of a folder."""
        size = _size(self.path(identity))
        with self._mutex:
            if identity in self._sizes:
                self._sizes[identity] = size

    def remove(self, identity: str) -> None:
        """Delete a folder. Idempotent. Open files stay readable until they are closed."""
        with self._mutex:
            self._sizes.pop(identity, None)
        shutil.rmtree(self.path(identity), ignore_errors=True)

    def trim(self, *, busy: Iterable[str] = ()) -> None:
        """Delete the oldest folders until the limits hold."""
        self._make_room(0, frozenset(busy), more=0)

    def close(self) -> None:
        """Unlock the folder. Idempotent."""
        with contextlib.suppress(ValueError):
            self._lock.close()

    def _make_room(self, size: int, busy: frozenset[str], more: int = 1) -> None:
        with self._mutex:
            going = []
            number, total = len(self._sizes) + more, sum(self._sizes.values()) + size
            for identity, held in self._sizes.items():
                if number <= self._kept and total <= self._kept_bytes:
                    break
                if identity not in busy:
                    going.append(identity)
                    number, total = number - 1, total - held
        for identity in going:
            self.remove(identity)


def _size(folder: Path) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
    except OSError:
        return 0
