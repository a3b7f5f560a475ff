"""The files that drops have written: no drop overwrites the file of another, or finds what it wrote before."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from dropflow.data.file import remove_part
from dropflow.data.read import is_same
from dropflow.data.workspace import Workspace
from dropflow.errors import ConflictError
from dropflow.execution.content_location import Handle
from dropflow.execution.decisions.events import Event
from dropflow.execution.session import Instrument
from dropflow.graph.order import Precedence
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import index_of, oid


class FileOwners:
    """The owners (drops) of each path that the session has written on this node.

    A path has several owners when they wrote the same content. A drop may replace the content of drops that it depends
    on, as the iterations of a loop do. The content of a drop that runs again after others that depend on it have
    replaced its content is put aside.

    Parameters
    ----------
    graph : PhysicalGraph or None
        The graph of the drops; without it no drop depends on another.
    """

    def __init__(self, graph: PhysicalGraph | None) -> None:
        self._graph = graph
        self._of: dict[str, tuple[int, ...]] = {}
        self._folders: set[str] = set()
        """The directories around these paths."""

    def before(self, drop: int, part: Handle) -> tuple[int, ...] | None:
        """Return the owners of the path of `part` that stay owners after its commit: they wrote the same content.

        None if the path belongs to a drop that depends on this one, so that the content has to go elsewhere.

        Raises
        ------
        ConflictError
            Another drop wrote a different content there, or a directory around it or a content in it, and this one does
            not depend on it.
        OSError
            The present content cannot be read.
        """
        for path in self._overlapping(part):
            apart = [owner for owner in self._of[path] if owner != drop and not self._gives_way(owner, drop)]
            if apart:
                raise ConflictError(
                    f"{part.final} overlaps with {path}, which has been written by {self._name(apart[0])} already",
                    hint="give each drop a name of its own, outside of the directories of others",
                )
        others = [owner for owner in self._of.get(part.final, ()) if owner != drop]
        if not others or not os.path.lexists(part.final):
            return ()
        if is_same(part.location, part.final):
            return tuple(others)
        kept = [owner for owner in others if not self._gives_way(owner, drop)]
        unordered = [owner for owner in kept if not self._precedes(drop, owner)]
        if unordered:
            raise ConflictError(
                f"{part.final} has been written by {self._name(unordered[0])} already, with another content",
                hint="give each drop its own name, with {auto} or {uid} in it; or collect the contents first "
                "and write them once",
            )
        return None if kept else ()

    def add(self, path: str, drop: int, beside: tuple[int, ...]) -> None:
        """Record that `drop` wrote `path`, and that the drops `beside` wrote the same content."""
        self._of[path] = (*beside, drop)
        folder = path.rpartition("/")[0]
        while folder and folder not in self._folders:
            self._folders.add(folder)
            folder = folder.rpartition("/")[0]

    def of(self, path: str) -> tuple[int, ...]:
        """Return the owners of `path`."""
        return self._of.get(path, ())

    def is_replaced(self, path: str, drop: int) -> bool:
        """Return whether another drop has written `path` since `drop` did."""
        owners = self._of.get(path)
        return owners is not None and drop not in owners

    def is_only(self, path: str, drop: int) -> bool:
        """Return whether `drop` is the only owner of `path`, and no drop has written in it."""
        return self._of.get(path) == (drop,) and path not in self._folders

    def leave(self, path: str, drop: int) -> None:
        """Record that `drop` does not need `path` any more."""
        owners = self._of.get(path)
        if owners:
            left = tuple(owner for owner in owners if owner != drop)
            if left:
                self._of[path] = left
            else:
                del self._of[path]

    def remove(self, path: str) -> None:
        """Record that `path` was removed after its last use: what others wrote there before stays replaced."""
        self._of[path] = ()

    def _overlapping(self, part: Handle) -> Iterator[str]:
        """Yield the written directories that a content would be in, and what it would replace as a directory."""
        folder = part.final.rpartition("/")[0]
        while folder:
            if folder in self._of:
                yield folder
            folder = folder.rpartition("/")[0]
        if part.kind == "directory" and os.path.isdir(part.final):  # noqa: PTH112 - text, once a content
            yield from [path for path in self._of if path.startswith(f"{part.final}/")]

    def _gives_way(self, owner: int, drop: int) -> bool:
        graph = self._graph
        if graph is not None and graph.predecessors.ptr[owner] == graph.predecessors.ptr[owner + 1]:
            return True  # no application wrote it: an empty file was made
        return self._precedes(owner, drop)

    def _precedes(self, first: int, second: int) -> bool:
        graph = self._graph
        if graph is None:
            return False
        rows = graph.template
        return self._precedence.holds(
            int(rows[first]), index_of(graph, first), int(rows[second]), index_of(graph, second)
        )

    @cached_property
    def _precedence(self) -> Precedence:
        assert self._graph is not None  # see _precedes
        return Precedence(self._graph.templates, self._graph.links)

    def _name(self, drop: int) -> str:
        return f"drop {drop}" if self._graph is None else oid(self._graph, drop)


class RemoveOutdated(Instrument):
    """Removes outdated contents as soon as the journal of the session that continues has replaced the earlier one.

    Before that, a process that ends must leave the session as it was. Files elsewhere than in the session directory
    stay until they are replaced, as in a session that begins.

    Parameters
    ----------
    workspace : Workspace
        Directories of the session.
    outdated : iterable of Handle
        The contents.
    kept : iterable of Handle
        Contents that stay. What is at their place, in one of them, or around one, stays, too.
    """

    def __init__(self, workspace: Workspace, outdated: Iterable[Handle], kept: Iterable[Handle]) -> None:
        inside = f"{workspace.directory}/"
        places = {handle.location for handle in outdated if handle.location.startswith(inside)}
        stay = {handle.location for handle in kept if handle.location}
        around = {str(folder) for place in stay for folder in Path(place).parents}
        self._places = {
            place for place in places - stay - around if not any(str(folder) in stay for folder in Path(place).parents)
        }
        self._new_journal = Path(workspace.directory, "journal.dfj.new")

    def on_events(self, events: Sequence[Event]) -> None:
        """Remove them with the first events, which are in the journal now."""
        del events
        places, self._places = self._places, set()
        if not places or self._new_journal.exists():
            return
        for place in places:
            remove_part(place)
