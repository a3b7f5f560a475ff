"""Draws logical graphs for tests: a few letters a node, constructs as context managers."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dropflow.failure import Severity
from dropflow.graph.order import critical_path, longest_before
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import index_of
from translator.graph_sizes import graph_sizes
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.options import UnrollOptions
from translator.unroll import GraphOutline, outline_of, unroll

_SIZES = {
    "Scatter": "num_of_copies",
    "Loop": "num_of_iter",
    "Gather": "num_of_inputs",
    "GroupBy": "group_key",
}


class Drawing:
    """A logical graph under construction; names serve as ids.

    >>> drawing = Drawing()
    >>> with drawing.scatter("s", 3, app="split"):
    ...     _ = drawing.data("part")
    >>> _ = drawing.data("whole").link("whole", "split").link("split", "part")
    """

    def __init__(self, name: str = "drawing") -> None:
        self.name = name
        self.nodes: list[LogicalNode] = []
        self.links: list[LogicalLink] = []
        self._around: list[str] = []

    def data(self, name: str, category: str = "Memory", **values: Any) -> "Drawing":
        """Add a data node in the construct that is open."""
        return self._node(name, category, NodeKind.DATA, values)

    def app(self, name: str, category: str = "DALiuGEApp", **values: Any) -> "Drawing":
        """Add an application in the construct that is open."""
        return self._node(name, category, NodeKind.APP, {**self.application(name), **values})

    def application(self, name: str) -> dict[str, Any]:
        """Return the fields of an application."""
        return {"dropclass": "dlg.apps.simple.SleepApp"}

    def link(
        self, *names: str, aware: bool = False, closes: bool = False, ports: tuple[str, str] = ("", "")
    ) -> "Drawing":
        """Link nodes in a chain."""
        for source, target in itertools.pairwise(names):
            self.links.append(
                LogicalLink(
                    source=source,
                    target=target,
                    source_port=ports[0],
                    target_port=ports[1],
                    loop_aware=aware,
                    closes_loop=closes,
                    pointer=f"/linkDataArray/{len(self.links)}",
                )
            )
        return self

    @contextmanager
    def construct(
        self, category: str, name: str, size: Any = None, *, app: str = "", out: str = "", **values: Any
    ) -> Iterator[None]:
        """Open a construct; `app` and `out` name its input and output application."""
        values |= {} if size is None else {_SIZES[category]: size}
        self._node(name, category, NodeKind.CONSTRUCT, values)
        for embedded, role in ((app, Role.INPUT), (out, Role.OUTPUT)):
            if embedded:
                fields = _fields(embedded, self.application(embedded))
                self.nodes.append(
                    LogicalNode(
                        id=embedded,
                        name=embedded,
                        category="DALiuGEApp",
                        kind=NodeKind.APP,
                        embedded_in=name,
                        role=role,
                        key=embedded,
                        fields=fields,
                        pointer=f"/nodeDataArray/{len(self.nodes)}",
                    )
                )
        self._around.append(name)
        yield
        self._around.pop()

    def scatter(self, name: str, size: Any, *, app: str = "", out: str = "") -> Any:
        """Open a scatter."""
        return self.construct("Scatter", name, size, app=app, out=out)

    def loop(self, name: str, size: Any, *, app: str = "", out: str = "") -> Any:
        """Open a loop."""
        return self.construct("Loop", name, size, app=app, out=out)

    def gather(self, name: str, width: Any = None, *, app: str = "", out: str = "") -> Any:
        """Open a gather."""
        return self.construct("Gather", name, width, app=app, out=out)

    def groupby(self, name: str, keys: Any = None, *, app: str = "") -> Any:
        """Open a group-by."""
        return self.construct("GroupBy", name, keys, app=app)

    def mkn(self, name: str, m: Any, k: Any, n: Any = 1, *, app: str = "", out: str = "") -> Any:
        """Open an MKN."""
        return self.construct("MKN", name, app=app, out=out, m=m, k=k, n=n)

    def graph(self) -> LogicalGraph:
        """The graph drawn so far."""
        return LogicalGraph(name=self.name, family="drawing", nodes=tuple(self.nodes), links=tuple(self.links))

    def _node(self, name: str, category: str, kind: NodeKind, values: dict[str, Any]) -> "Drawing":
        self.nodes.append(
            LogicalNode(
                id=name,
                name=name,
                category=category,
                kind=kind,
                parent=self._around[-1] if self._around else None,
                key=name,
                fields=_fields(name, values),
                pointer=f"/nodeDataArray/{len(self.nodes)}",
            )
        )
        return self


def _fields(node: str, values: dict[str, Any]) -> tuple[Field, ...]:
    """Fields from keywords; a value that is a Field already, such as a port, is kept."""
    return tuple(
        value if isinstance(value, Field) else Field(id=f"{node}.{name}", name=name, value=value)
        for name, value in values.items()
    )


# What tests want to see of an unrolled drawing: counts, edges by name, ports, codes of problems.


def outlined(drawing: Drawing, **options: object) -> GraphOutline:
    """The outline of a drawing."""
    return outline_of(drawing.graph(), UnrollOptions(**options))  # type: ignore[arg-type]


def counts(drawing: Drawing) -> tuple[int, int]:
    """Numbers of drops and edges."""
    graph = unroll(outlined(drawing))
    return graph.drops, graph.edges


def edges(drawing: Drawing, source: str, target: str, **options: object) -> list[tuple[tuple[int, ...], ...]]:
    """Index tuples at both ends of every edge between the instances of two nodes."""
    graph = unroll(outlined(drawing, **options))
    return [
        (index_of(graph, one), index_of(graph, other))
        for one, other, _ in _rows(graph)
        if (_key(graph, one), _key(graph, other)) == (source, target)
    ]


def ports(drawing: Drawing, source: str, target: str) -> list[tuple[str, str]]:
    """Ports of the links between two nodes."""
    graph = outlined(drawing)
    return [
        (link.source_port, link.target_port)
        for link in graph.links
        if (graph.templates[link.source].key, graph.templates[link.target].key) == (source, target)
    ]


def codes(drawing: Drawing, **options: object) -> list[str]:
    """Codes of everything found."""
    return [finding.code for finding in outlined(drawing, **options).problems]


def errors(drawing: Drawing, **options: object) -> list[str]:
    """Codes of the errors found."""
    problems = outlined(drawing, **options).problems
    return [finding.code for finding in problems if finding.severity is Severity.ERROR]


def _rows(graph: PhysicalGraph) -> list[tuple[int, int, int]]:
    sources = np.repeat(np.arange(graph.drops), np.diff(graph.successors.ptr))
    columns = (sources, graph.successors.neighbour, graph.successors.link)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _key(graph: PhysicalGraph, drop: int) -> str:
    return graph.templates[graph.template[drop]].key


def check_sizes(graph: LogicalGraph) -> None:
    """Compare sizes with what is computed from the unrolled graph."""
    outline = outline_of(graph)
    sizes = graph_sizes(graph, outline)
    unrolled = unroll(outline)
    apps = [template for template in outline.templates if template.kind is Kind.APP]
    assert (sizes.drops, sizes.edges) == (unrolled.drops, unrolled.edges)
    assert sizes.critical_path == pytest.approx(critical_path(unrolled).length if unrolled.drops else 0)
    seconds = np.array([template.weight if template.kind is Kind.APP else 0.0 for template in unrolled.templates])[
        unrolled.template
    ]
    assert sizes.work == pytest.approx(seconds.sum()) or any(app.cpus > 1 for app in apps)
    areas = sum((phase.end - phase.start) * phase.running for phase in sizes.phases)
    assert areas == pytest.approx(seconds.sum())
    if unrolled.drops:
        start = longest_before(unrolled, seconds)
        for phase in sizes.phases:
            middle = (phase.start + phase.end) / 2
            assert phase.running == int(((start < middle) & (start + seconds > middle)).sum())
