"""Disks of simulated nodes: full, and after a loss of power, which keeps only what was forced to the disk.

Nodes write real files. While `SimulatedDisks` is entered, calls of the operating system for files below the directory
of a node go through it. It models what a disk may lose: the end of each file that was written since its last ``fsync``,
or the whole file. It does not model names: a rename of a file that was forced to the disk is never lost.
"""

import builtins
import errno
import io
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["SimulatedDisks"]

_WRITING = os.O_WRONLY | os.O_RDWR
_CREATING = os.O_CREAT | os.O_TRUNC


class SimulatedDisks:
    """The disks of all nodes of a cluster: each has a directory below `root`.

    Parameters
    ----------
    root : Path
        The directory of the cluster.
    chance : Random
        Decides what is lost.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self._root = f"{root}/"
        self._chance = chance
        self._full: set[str] = set()
        self._forced: dict[str, int] = {}
        """Size that is on the disk, by path, of the files that were written."""
        self._open: dict[int, str] = {}
        self._originals: list[tuple[Any, str, Any]] = []

    def fill(self, node: str) -> None:
        """Have every write of a node fail, as if its disk was full."""
        self._full.add(node)

    def free(self, node: str) -> None:
        """Make room on the disk of a node."""
        self._full.discard(node)

    def lose_power(self, node: str) -> None:
        """Lose what a node has not forced to the disk. Its process has ended."""
        for path in sorted(path for path in self._forced if self._node(path) == node):
            forced = self._forced.pop(path)
            with suppress(OSError):
                size = Path(path).stat().st_size
                if forced < size:
                    left = self._chance.randint(forced, size)
                    if left:
                        os.truncate(path, left)
                    else:
                        Path(path).unlink()

    def __enter__(self) -> Self:
        for module, name, wrapper in (
            (builtins, "open", self._wrap_open),
            (io, "open", self._wrap_open),
            (os, "open", self._wrap_descriptor),
            (os, "write", self._wrap_write),
            (os, "pwrite", self._wrap_write),
            (os, "mkdir", self._wrap_mkdir),
            (os, "fsync", self._wrap_fsync),
            (os, "fdatasync", self._wrap_fsync),
            (os, "replace", self._wrap_replace),
        ):
            original = getattr(module, name)
            self._originals.append((module, name, original))
            setattr(module, name, wrapper(original))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._originals:
            module, name, original = self._originals.pop()
            setattr(module, name, original)

    def _node(self, path: object) -> str:
        """Return the node that a path belongs to; empty for other paths."""
        text = path if isinstance(path, str) else os.fspath(path) if isinstance(path, os.PathLike) else ""
        return text[len(self._root) :].partition("/")[0] if text.startswith(self._root) else ""

    def _writing(self, path: Any) -> str:
        """Note that a file is written; return its path, or nothing if it is on no node."""
        node = self._node(path)
        if not node:
            return ""
        if node in self._full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self._forced.setdefault(str(path), 0)
        return str(path)

    # What replaces the functions of the operating system.

    def _wrap_open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def open_(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if "r" not in mode or "+" in mode:
                self._writing(file)
            return original(file, mode, *more, **options)

        return open_

    def _wrap_descriptor(self, original: Callable[..., int]) -> Callable[..., int]:
        def open_(path: Any, flags: int, *more: Any, **options: Any) -> int:
            writing = self._writing(path) if flags & _WRITING and flags & _CREATING else ""
            descriptor = original(path, flags, *more, **options)
            self._open.pop(descriptor, None)
            if writing:
                self._open[descriptor] = writing
            return descriptor

        return open_

    def _wrap_write(self, original: Callable[..., int]) -> Callable[..., int]:
        def write(descriptor: int, data: Any, *offset: int) -> int:
            path = self._open.get(descriptor)
            if path is not None and self._node(path) in self._full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return original(descriptor, data, *offset)

        return write

    def _wrap_mkdir(self, original: Callable[..., None]) -> Callable[..., None]:
        def mkdir(path: Any, *more: Any, **options: Any) -> None:
            if self._node(path) in self._full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            original(path, *more, **options)

        return mkdir

    def _wrap_fsync(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(descriptor: int) -> None:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if path in self._forced:
                self._forced[path] = os.fstat(descriptor).st_size
            elif not path.startswith(self._root):
                original(descriptor)

        return fsync

    def _wrap_replace(self, original: Callable[..., None]) -> Callable[..., None]:
        def replace(source: Any, target: Any, **options: Any) -> None:
            original(source, target, **options)
            if self._node(source) and str(source) in self._forced:
                self._forced[str(target)] = self._forced.pop(str(source))

        return replace
