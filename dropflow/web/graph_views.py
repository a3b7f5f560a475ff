"""The picture of a physical graph for the pages of managers and of the translator: its drawing, edges and selections.

`GraphViews` answers the requests of ``static/graph.js`` about one source of graphs. Drawings are kept, since all
watchers of a session ask for the same ones.
"""

import gzip
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from dropflow.api.routes import Request, Response, Route
from dropflow.errors import HttpError, NotFoundError
from dropflow.formatting import plural
from dropflow.graph import order
from dropflow.graph.drawing.draw import Grouping, draw
from dropflow.graph.drawing.packing import pack_drawing, pack_edges, pack_selection
from dropflow.graph.logical_drawing import draw_logical
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.text_ids import oid, oids, row_of

_OCTETS = "application/octet-stream"
_MOST_GRAPHS = 4
"""Graphs that are kept in memory."""
_MOST_ANSWERS = 16
"""Answers that are kept in memory."""
_ROWS = r"^([0-9]{0,10},)*[0-9]{0,10}$"
"""Rows of drops or constructs, with commas between."""
_MOST_NAMES = 500
"""Drops whose names one request gets."""
_T = TypeVar("_T")
_BY_DROP = {
    "upstream": (order.upstream, "what {} depends on"),
    "downstream": (order.downstream, "what depends on {}"),
}
_BY_STATE = {
    "failure": (order.taken_along, "what the failure of {} took along"),
    "waiting": (order.waits_for, "what {} waits for"),
    "chain": (order.waiting_chain, "a chain of drops that {} waits for"),
}


class DrawingQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How drops are grouped, about how wide the drawing is for its height, and the open and closed constructs."""

    by: Grouping = "construct"
    aspect: Literal["0.6", "1.0", "1.7", "2.5"] = "1.7"
    open: Annotated[str, Meta(max_length=4000, pattern=_ROWS)] = ""
    closed: Annotated[str, Meta(max_length=4000, pattern=_ROWS)] = ""

    @property
    def wanted(self) -> dict[int, bool]:
        """Whether a construct is open, by its row."""
        return dict.fromkeys(_rows(self.open), True) | dict.fromkeys(_rows(self.closed), False)


class SelectionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The drops to highlight: those of one kind of relation to `drop`, or those that match `text` or `key`."""

    of: Literal["upstream", "downstream", "failure", "waiting", "chain", "critical", "text", "key", "oid"]
    drop: Annotated[int, Meta(ge=0, le=2**31)] = 0
    text: Annotated[str, Meta(max_length=1024)] = ""


class NamesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of drops whose ids are wanted, with commas between."""

    drops: Annotated[str, Meta(max_length=8000, pattern=_ROWS)] = ""


class GraphSource(msgspec.Struct, frozen=True, kw_only=True):
    """One graph.

    Attributes
    ----------
    key : tuple
        Equal for equal graphs.
    read : callable
        Returns the graph.
    states : callable or None
        Returns the present state of each drop, by row; None before deployment.
    island : callable
        Returns the island of a node.
    executed : callable
        Returns the drops of the critical path as executed; none before anything has run.
    """

    key: tuple[object, ...]
    read: Callable[[], PhysicalGraph]
    states: Callable[[], npt.NDArray[np.uint8]] | None = None
    island: Callable[[], Mapping[str, str]] = dict
    executed: Callable[[], IntColumn] = lambda: np.zeros(0, dtype=np.int32)


class _Kept:
    """The latest values by key. A value may be made twice if two threads need it at the same moment."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[object, Any] = OrderedDict()

    def get(self, key: object, make: Callable[[], _T]) -> _T:
        value: _T | None = self._values.get(key)
        if value is None:
            value = self._values[key] = make()
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


class GraphViews:
    """Answers for all graphs of a server. May be used from any thread."""

    def __init__(self) -> None:
        self._graphs = _Kept(_MOST_GRAPHS)
        self._answers = _Kept(_MOST_ANSWERS)

    def routes(self, page: Route, source: Callable[[Request], GraphSource]) -> list[Route]:
        """Return the route of the page of a graph, and those of what its script asks for.

        Parameters
        ----------
        page : Route
            The page; the others are below its path, and as public as it is.
        source : callable
            Returns the graph that a request is about.
        """
        below = partial(Route, method="GET", public=page.public, tag=page.tag)
        octets = partial(below, gives=_OCTETS)
        return [
            page,
            octets(
                path=f"{page.path}/drawing",
                handler=lambda call: self.drawing(source(call), call),
                summary="Where its boxes and drops are.",
                query=DrawingQuery,
            ),
            below(
                path=f"{page.path}/logical",
                handler=lambda call: self.logical(source(call)),
                summary="Its logical graph.",
            ),
            octets(
                path=f"{page.path}/edges", handler=lambda call: self.edges(source(call), call), summary="Its edges."
            ),
            octets(
                path=f"{page.path}/selection",
                handler=lambda call: self.selection(source(call), call),
                summary="Drops to be shown apart.",
                query=SelectionQuery,
            ),
            below(
                path=f"{page.path}/names",
                handler=lambda call: self.names(source(call), call),
                summary="Ids of drops.",
                query=NamesQuery,
            ),
        ]

    def drawing(self, source: GraphSource, call: Request) -> Response:
        """Return where the boxes and drops of a graph are."""
        query: DrawingQuery = call.query

        def make() -> bytes:
            graph = self._graph(source)
            islands = source.island() if query.by == "island" else {}
            names = tuple(islands.get(node, node) for node in graph.places)
            return pack_drawing(
                graph, draw(graph, query.by, wanted=query.wanted, islands=names, aspect=float(query.aspect))
            )

        return self._answer((source.key, query), make, call)

    def logical(self, source: GraphSource) -> Response:
        """Return the drawing of the logical graph."""
        drawing = self._answers.get((source.key, "logical"), lambda: draw_logical(self._graph(source)))
        return Response(body=msgspec.to_builtins(drawing))

    def edges(self, source: GraphSource, call: Request) -> Response:
        """Return the edges of a graph."""
        return self._answer((source.key, "edges"), lambda: pack_edges(self._graph(source)), call)

    def selection(self, source: GraphSource, call: Request) -> Response:
        """Return drops to be shown apart."""
        graph, query = self._graph(source), call.query
        if query.drop >= graph.drops and query.of not in ("critical", "text", "key", "oid"):
            raise NotFoundError(f"there is no drop in row {query.drop}: the graph has {graph.drops:,} drops")
        drops, title = _selected(graph, query, source)
        return Response(body=pack_selection(drops, title), content_type=_OCTETS)

    def names(self, source: GraphSource, call: Request) -> Response:
        """Return the ids of drops, in their order."""
        graph = self._graph(source)
        rows = _rows(call.query.drops)[:_MOST_NAMES]
        if any(row >= graph.drops for row in rows):
            raise NotFoundError(f"there is no drop in row {max(rows)}: the graph has {graph.drops:,} drops")
        return Response(body={"names": oids(graph, np.array(rows, dtype=np.int32))})

    def _graph(self, source: GraphSource) -> PhysicalGraph:
        return self._graphs.get(source.key, source.read)

    def _answer(self, key: object, make: Callable[[], bytes], call: Request) -> Response:
        headers = (("Vary", "Accept-Encoding"), ("Cache-Control", "no-cache"))
        if "gzip" not in call.headers.get("Accept-Encoding", ""):
            return Response(body=self._answers.get((key, "plain"), make), content_type=_OCTETS, headers=headers)
        packed = self._answers.get((key, "gzip"), lambda: gzip.compress(make(), compresslevel=1, mtime=0))
        return Response(body=packed, content_type=_OCTETS, headers=(*headers, ("Content-Encoding", "gzip")))


def _selected(graph: PhysicalGraph, query: SelectionQuery, source: GraphSource) -> tuple[IntColumn, str]:
    """Return the drops that a query selects, and what they are.

    Raises
    ------
    HttpError
        409: it needs states, and the graph is not deployed.
    """
    if query.of in _BY_TEXT:
        drops = _BY_TEXT[query.of](graph, query.text)
        return drops, plural(len(drops), "drop") + (f" with {query.text!r} in id or name" if query.of == "text" else "")
    if query.of == "critical":
        path = source.executed()
        if len(path):
            return path, "critical path, as executed so far"
        return order.critical(graph), "critical path, by the estimates of the graph"
    name = _name(graph, query.drop)
    if query.of in _BY_DROP:
        find, title = _BY_DROP[query.of]
        return find(graph, query.drop), title.format(name)
    if source.states is None:
        raise HttpError(409, "the drops of this graph have no states", hint="deploy it")
    find_in, title = _BY_STATE[query.of]
    return find_in(graph, query.drop, source.states()[: graph.drops]), title.format(name)


def _exactly(graph: PhysicalGraph, text: str) -> IntColumn:
    row = row_of(graph, text)
    return np.array([] if row is None else [row], dtype=np.int32)


_BY_TEXT = {"text": order.matching, "key": order.of_template, "oid": _exactly}


def _name(graph: PhysicalGraph, drop: int) -> str:
    template = graph.templates[graph.template[drop]]
    tail = oid(graph, drop).rpartition("_")[2] if graph.oids is None and template.axes else ""
    return f"{template.app_name or template.name} {tail.partition('-')[2]}".rstrip()


def _rows(text: str) -> list[int]:
    return [int(piece) for piece in text.split(",") if piece]
