"""Paths of contents in messages between nodes, relative to the directory that the session has on each."""

from pathlib import Path

import msgspec

from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import StorageError

__all__ = ["here", "portable"]

_RELATIVE = "./"


def portable(handle: Handle, workspace: Workspace) -> Handle:
    """Return `handle` with a `final` path that means the same on every node."""
    if not handle.final.startswith(f"{workspace.directory}/"):
        return handle
    relative = handle.final[len(workspace.directory) + 1 :]
    return msgspec.structs.replace(handle, final=_RELATIVE + relative)


def here(handle: Handle, workspace: Workspace) -> Handle:
    """Return the handle that another node sent, with the `final` path that it has here.

    Raises
    ------
    StorageError
        The path leaves the session's directory, or is not a path.
    """
    if "\0" in handle.final:
        raise StorageError(f"{handle.final!r} is not a path")
    if not handle.final.startswith(_RELATIVE):
        return handle
    final = f"{workspace.directory}/{handle.final[len(_RELATIVE) :]}"
    if ".." in Path(final).parts:
        raise StorageError(f"the path {handle.final!r} leaves the directory of the session")
    return msgspec.structs.replace(handle, final=final)
