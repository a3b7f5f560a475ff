"""Which nodes of a graph may be in a chain that runs as one unit (`dropflow.graph.chains`)."""

from dropflow.apps.registry import app_class
from dropflow.data.registry import store_for
from dropflow.errors import DropflowError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template

__all__ = ["fusible_templates"]


def fusible_templates(graph: PhysicalGraph) -> tuple[int, ...]:
    """Return the groups of `dropflow.graph.chains.follower_column`, one for each template.

    Data are handed on if they are in memory. Applications are in a group if they run in the same place: those that
    compute in one, those that only wait in another. Services, ranks of MPI jobs, what takes part in a stream, and
    classes that are not installed here are in none.
    """
    streamed = {row for link in graph.links if link.streaming for row in (link.source, link.target)}
    return tuple(0 if row in streamed else _group(template) for row, template in enumerate(graph.templates))


def _group(template: Template) -> int:
    try:
        if template.kind is Kind.DATA:
            return int(store_for(template).hands_over)
        app = app_class(template)
    except DropflowError:
        return 0
    is_rank = any(axis.kind == "mpi" for axis in template.axes)
    return 0 if is_rank or not app.fuses else 2 if app.waits else 1
