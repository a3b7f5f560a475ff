"""Rules for removing contents after use.

A content is released when the last consumer of its drop is done. Then:

* with `persist` set on the node it is kept;
* else with `expireAfterUse` set it is removed;
* else contents in memory are removed, and files only if `persist` was switched off and they are in the session
  directory.

Contents that existed before the session (inputs) are never removed, and leaves are never released.
"""

from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.engine.parameters import Unusable, convert, find, is_empty
from dropflow.graph.templates import Template

__all__ = ["is_removed", "removes_parent"]

_IN_MEMORY = ("bytes", "shm", "null")


def is_removed(
    template: Template, handle: Handle, workspace: Workspace, *, ours: bool, temporary: bool = False
) -> bool:
    """Whether the content is removed when its last consumer is done.

    Parameters
    ----------
    template : Template
        Node of the data drop.
    handle : Handle
        Its committed content.
    workspace : Workspace
        Directories of the session.
    ours : bool
        Whether the session wrote it.
    temporary : bool
        Whether it is in the session's ``tmp``, as large contents of memory drops are.
    """
    if not ours or template.persist is True:
        return False
    if temporary or handle.kind in _IN_MEMORY or _flag(template, "expireAfterUse"):
        return True
    return template.persist is False and workspace.is_inside(handle.location)


def removes_parent(template: Template) -> bool:
    """Whether the directory of a removed file is removed too, if it is empty."""
    return _flag(template, "delete_parent_directory")


def _flag(template: Template, name: str) -> bool:
    argument = find(template.arguments, name)
    if argument is None or is_empty(argument.value, "Boolean"):
        return False
    try:
        return bool(convert(argument.value, "Boolean"))
    except Unusable:
        return False
