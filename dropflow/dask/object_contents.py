"""Contents of drops that are Python objects of this process: values of dask's keys, passed by reference."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dropflow.errors import InternalError
from dropflow.execution.content_location import Handle
from dropflow.graph.templates import Template


class ObjectHandle(Handle, frozen=True, kw_only=True, gc=True, eq=False):
    """A content that is an object: the handle refers to it, and nothing else does.

    Attributes
    ----------
    value : object
        The content, or a `dropflow.dask.values.HeldValue` that has it.
    """

    value: Any = None


class ObjectRepository:
    """The `dropflow.execution.interfaces.ContentRepository` of objects. It stores nothing: a content is in its handle.

    Parameters
    ----------
    wanted : collection of int
        Drops whose contents are results: they are not removed after their last use.
    on_release : callable
        Called with each drop whose content is removed after its last use.
    """

    def __init__(self, wanted: Collection[int], on_release: Callable[[int], object] = lambda _: None) -> None:
        self._wanted = frozenset(wanted)
        self._on_release = on_release

    def adopt(self, contents: Mapping[int, Handle]) -> None:
        """Do nothing: no contents outlive a process."""

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Return the part: it becomes the content as it is."""
        return part

    def assemble(self, drop: int, template: Template, parts: Sequence[Handle]) -> Handle:
        """Raise: no value has several producers."""
        raise InternalError(f"drop {drop} of {template.key} has {len(parts)} parts, and values are not joined")

    def is_replaced(self, drop: int, handle: Handle) -> bool:
        """Return False: nothing is written twice."""
        return False

    def discard(self, part: Handle) -> None:
        """Do nothing: the object goes with its handle."""

    def discard_attempt(self, drop: int, attempt: int) -> None:
        """Do nothing: no attempt leaves anything outside of its result."""

    def release(self, drop: int, template: Template, handle: Handle) -> bool:
        """Return whether the content is to be removed: it is, unless it is a result."""
        if drop in self._wanted:
            return False
        self._on_release(drop)
        return True

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Return the content as it is."""
        return handle

    def revoke(self, drop: int, handle: Handle) -> None:
        """Do nothing: the object goes with its handle."""

    def confirm(self) -> None:
        """Do nothing: there is no directory that could be lost."""


def size_of(value: object) -> int:
    """Return the bytes of an array or another object that knows its size; 0 for others."""
    try:
        size = getattr(value, "nbytes", 0)
        return size if isinstance(size, int) and size > 0 else 0
    except Exception:  # noqa: BLE001 - an attribute of an object of a user may raise anything
        return 0
