"""Paths of contents, as they are told to other nodes: the session's directory is another one there."""

from pathlib import Path

import msgspec

from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import StorageError

__all__ = ["here", "portable"]

_RELATIVE = "./"


def portable(handle: Handle, workspace: Workspace) -> Handle:
    """`handle` with a `final` path that means the same on every node."""
    if not handle.final.startswith(f"{workspace.directory}/"):
        return handle
    relative = handle.final[len(workspace.directory) + 1 :]
    return msgspec.structs.replace(handle, final=_RELATIVE + relative)


def here(handle: Handle, workspace: Workspace) -> Handle:
    """What another node told, with the `final` path that it has here.

    Raises
    ------
    StorageError
        It leaves the session's directory, or is none.
    """
    if "\0" in handle.final:
        raise StorageError(f"{handle.final!r} is no path")
    if not handle.final.startswith(_RELATIVE):
        return handle
    final = f"{workspace.directory}/{handle.final[len(_RELATIVE) :]}"
    if ".." in Path(final).parts:
        raise StorageError(f"the path {handle.final!r} leaves the directory of the session")
    return msgspec.structs.replace(handle, final=final)
