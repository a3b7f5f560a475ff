"""Copies of results that a node serves after the end of a session, in place of nodes that are gone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dropflow.errors import DropflowError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.ids import drop_file_name
from dropflow.rest.session_records import ResultInfo
from dropflow.states import SessionState
from managers.node.copy_records import CopyRecords
from managers.node.held_copies import HeldCopy
from managers.node.session_directory import SessionDirectory

__all__ = ["copied_results", "served_copies"]


class _Session(Protocol):
    directory: SessionDirectory
    is_certain: bool

    @property
    def state(self) -> SessionState:
        """State of the session on this node."""
        ...


def served_copies(session: _Session) -> Mapping[int, HeldCopy]:
    """Return the copies that can be served, by row of the whole graph.

    There are none while the session runs, when its owners serve all contents; and none if it is not certain that this
    node was there at the end, since contents may have been made again on others.
    """
    if not session.state.is_terminal or not session.is_certain or not (session.directory.path / "copies").exists():
        return {}
    try:
        version = session.directory.version()
    except DropflowError:
        return {}
    return CopyRecords(session.directory.path).read(version)


def copied_results(
    graph: PhysicalGraph, copies: Mapping[int, HeldCopy], directory: Path, node: str
) -> tuple[ResultInfo, ...]:
    """Return the copies of results of other nodes, which may be gone.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph, as it was placed at the end.
    """
    after, found = graph.successors.ptr, []
    for row in sorted(copies):
        template, copy = graph.templates[graph.template[row]], copies[row].handle
        is_result = after[row] == after[row + 1] or template.persist or bool(copy.final)
        owner = graph.places[graph.part[row]]
        if template.kind is not Kind.DATA or not is_result or owner == node:
            continue
        path = Path(copy.final) if copy.final else directory / "results" / drop_file_name(oid(graph, row))
        found.append(
            ResultInfo(
                drop=row,
                oid=oid(graph, row),
                name=template.name,
                node=node,
                path=str(path.relative_to(directory) if path.is_relative_to(directory) else path),
                size=copy.size,
                checksum=copy.checksum or None,
                is_directory=copy.kind == "directory",
                owner=owner,
            )
        )
    return tuple(found)
