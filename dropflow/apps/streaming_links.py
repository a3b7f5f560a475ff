"""The links of a graph whose data are read while they are written."""

from dropflow.apps.registry import app_class
from dropflow.data.registry import store_for
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind

__all__ = ["streaming_links"]


def streaming_links(graph: PhysicalGraph) -> tuple[int, ...]:
    """Return the rows of the links that the graph declares as streaming and whose two ends support it.

    The application must set `dropflow.apps.api.App.streams`, and the data class must be readable while it grows. Over
    all other links, consumers get complete data.

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
