"""Which links of a graph are streams: those whose data are read while they are written."""

from dropflow.apps.registry import app_class
from dropflow.data.registry import store_for
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind

__all__ = ["streaming_links"]


def streaming_links(graph: PhysicalGraph) -> tuple[int, ...]:
    """Links (rows of the graph's) that the graph declares streaming and whose two ends can do it.

    The application must read as it comes (`dropflow.apps.api.App.streams`), the data must be of a class that can be
    read while it grows. Over all other links consumers get their data when they are complete.

    Raises
    ------
    UnknownComponentError, MissingDependencyError, BadParameterError
        As `dropflow.apps.registry.app_class` and `dropflow.data.registry.store_for`.
    """
    templates = graph.templates
    declared = [
        (row, templates[link.source], templates[link.target])
        for row, link in enumerate(graph.links)
        if link.streaming and templates[link.source].kind is Kind.DATA
    ]
    return tuple(row for row, data, app in declared if app_class(app).streams and store_for(data).growing is not None)
