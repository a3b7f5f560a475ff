"""How long a content lives.

A content is released when the last consumer of its drop is done. What happens then:

* `persist` set on the node: it stays;
* else `expireAfterUse` set: it goes;
* else contents in memory go, and files go only when `persist` was switched off and they are in the session directory.

Contents that were there before the session (inputs) are never removed, and leaves are never released.
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
    """Whether the content goes when its last consumer is done.

    Parameters
    ----------
    template : Template
        Of the data drop.
    handle : Handle
        Its committed content.
    workspace : Workspace
        Of the session.
    ours : bool
        Whether the session wrote it.
    temporary : bool
        Whether it lives in the session's ``tmp``, as large contents of memory drops do.
    """
    if not ours or template.persist is True:
        return False
    if temporary or handle.kind in _IN_MEMORY or _flag(template, "expireAfterUse"):
        return True
    return template.persist is False and workspace.is_inside(handle.location)


def removes_parent(template: Template) -> bool:
    """Whether the directory of a removed file is to go with it, if it is empty."""
    return _flag(template, "delete_parent_directory")


def _flag(template: Template, name: str) -> bool:
    argument = find(template.arguments, name)
    if argument is None or is_empty(argument.value, "Boolean"):
        return False
    try:
        return bool(convert(argument.value, "Boolean"))
    except Unusable:
        return False
