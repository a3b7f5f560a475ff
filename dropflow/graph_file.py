"""Physical graphs in files: reading and writing ``.dfg`` containers (`dropflow.graph.codec`)."""

import mmap as memory_map
import os
import secrets
import stat
from pathlib import Path

from dropflow.errors import BadFileError, StorageError
from dropflow.graph.codec import dump, is_dfg, parse
from dropflow.graph.physical import PhysicalGraph

__all__ = ["is_unfinished", "load", "save"]

_PART = ".part"
_HEAD = 8
"""Bytes by which `is_dfg` recognises a container."""


def save(graph: PhysicalGraph, path: Path) -> None:
    """Write a graph to a file. The file is replaced as a whole, or not touched if an error is raised.

    Raises
    ------
    StorageError
        The file cannot be written.
    BadGraphError
        See `dropflow.graph.codec.dump`.
    """
    buffers = dump(graph)
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}{_PART}")
    try:
        try:
            with part.open("xb") as file:
                file.writelines(buffers)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"the graph cannot be written: {error.strerror or error}", where=str(path)) from error


def is_unfinished(name: str, graph: str) -> bool:
    """Return whether a file of this name is what `save` leaves of a file named `graph` if its process is killed."""
    return name.startswith(f".{graph[:100]}.") and name.endswith(_PART)


def load(path: Path, *, mmap: bool = False) -> PhysicalGraph:
    """Read a graph from a file.

    Parameters
    ----------
    path : Path
        A regular file.
    mmap : bool
        Map the columns instead of reading them: pages are loaded when they are used, and shared between processes.

    Raises
    ------
    BadFileError
        There is no such file, it cannot be read, or it is not a valid container (see `dropflow.graph.codec.parse`).
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadFileError("not a regular file", where=str(path), hint="give a .dfg file")
        with path.open("rb") as file:
            # An empty or short file cannot be mapped, or is not a container: `parse` reports it.
            if not (mmap and is_dfg(file.read(_HEAD))):
                file.seek(0)
                return parse(file.read(), where=str(path))
            return parse(memoryview(memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_READ)), where=str(path))
    except OSError as error:
        raise BadFileError(f"the file cannot be read: {error.strerror or error}", where=str(path)) from error
