"""Pages of the list of drops that a session has on this node: filtered, and in the order that a query wants."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dropflow.api.records import DropInfo, DropPage, DropQuery
from dropflow.engine.api import Handle
from dropflow.engine.core import Core
from dropflow.engine.events import KnownStates
from dropflow.engine.failure_table import Fault
from dropflow.engine.statistics import FailureReport, RankedCauses
from dropflow.graph.physical import IntColumn
from dropflow.graph.slices import Slice
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oids, row_of
from dropflow.states import DropState
from dropflow.web.views import in_order, matching

__all__ = ["LiveSession", "Running", "SessionCaller", "drop_info", "page"]

T = TypeVar("T")

Running = Collection[int] | None
"""The rows of drops whose attempts run now; None if that is not known, as in a session that is over."""


class FailureReports(Protocol):
    """Root causes of a session; see `dropflow.engine.failure_table.FailureTable`, which has those of one that runs."""

    @property
    def lost_count(self) -> int:
        """The number of lost nodes, which are the first reports."""
        ...

    def causes(self) -> RankedCauses:
        """Return the drops that are root causes, without lost nodes."""
        ...

    def reports(self, start: int = 0, stop: int | None = None) -> Sequence[FailureReport]:
        """Return root causes, lost nodes first, then those that put the most drops in ERROR."""
        ...

    def reports_in(self, rows: Sequence[int]) -> Sequence[FailureReport]:
        """Return the root causes among drops, whose rows are those in the whole graph."""
        ...


class LiveSession(Protocol):
    """The parts of `dropflow.engine.session.Session` that views read, in the session's own thread."""

    @property
    def core(self) -> Core:
        """State of the engine."""
        ...

    @property
    def known(self) -> KnownStates | None:
        """With which states it continued, if it did."""
        ...

    def content(self, drop: int) -> Handle | None:
        """Return the content of a data drop if it has one."""
        ...

    @property
    def failure_table(self) -> FailureReports:
        """The root causes so far."""
        ...

    def faults(self, drop: int) -> Sequence[Fault]:
        """Return the infrastructure faults of a drop, oldest first."""
        ...


class SessionCaller(Protocol):
    """A session that runs here, or ran before."""

    def call(self, function: Callable[[Any], T]) -> T:
        """Return what `function` returns for its `LiveSession`, in the session's thread."""
        ...


def page(session: SessionCaller, piece: Slice, query: DropQuery, *, whole: int, running: Running = None) -> DropPage:
    """Return a page of the drops of this node; `whole` is the number of drops that the session has on all nodes."""
    held = int(piece.is_own.sum())
    if query.node and query.node != piece.node:
        return DropPage(drops=(), total=0, offset=query.offset, limit=query.limit, held=held, whole=whole)
    states = np.frombuffer(session.call(lambda live: bytes(live.core.drops.states)), dtype=np.uint8)
    is_named, graph = _named(piece, query), piece.graph
    found = matching(graph, piece.order[is_named[piece.order]], states, query)
    found = in_order(graph, found, piece.drop[found], _values(session, found, states, query.sort), query)
    shown = found[query.offset : query.offset + query.limit].tolist()
    facts = session.call(lambda live: {row: (live.core.drops.attempt(row), live.content(row)) for row in shown})
    names = oids(graph, np.array(shown, dtype=np.int32))
    drops = tuple(
        drop_info(piece, row, int(states[row]), *facts[row], name=name, running=running)
        for row, name in zip(shown, names, strict=True)
    )
    return DropPage(drops=drops, total=len(found), offset=query.offset, limit=query.limit, held=held, whole=whole)


def _values(
    session: SessionCaller, found: IntColumn, states: npt.NDArray[np.uint8], sort: str
) -> npt.NDArray[np.int64] | None:
    """Return what drops are sorted by, if it is not in the graph. They are all on one node."""
    rows = found.tolist()
    match sort.removeprefix("-"):
        case "state":
            return states[found].astype(np.int64)
        case "attempt":
            return np.array(session.call(lambda live: [live.core.drops.attempt(row) for row in rows]), dtype=np.int64)
        case "size":
            handles = session.call(lambda live: [live.content(row) for row in rows])
            sizes = [-1 if handle is None or handle.size is None else handle.size for handle in handles]
            return np.array(sizes, dtype=np.int64)
    return None


def _named(piece: Slice, query: DropQuery) -> npt.NDArray[np.bool_]:
    """Return which own drops have the row and the id of the query, shape (drops here,)."""
    found = piece.is_own.copy()
    wanted = [piece.local(query.row)] if query.row >= 0 else []
    if query.oid:
        wanted.append(row_of(piece.graph, query.oid))
    for row in wanted:
        is_that = np.zeros_like(found)
        if row is not None:
            is_that[row] = True
        found &= is_that
    return found


def drop_info(
    piece: Slice, row: int, state: int, attempt: int, handle: Handle | None, *, name: str, running: Running
) -> DropInfo:
    """Return the row of a drop in the list; `name` is its id."""
    template = piece.graph.templates[piece.graph.template[row]]
    is_app = template.kind is Kind.APP
    is_active = is_app and state == DropState.WRITING
    return DropInfo(
        drop=int(piece.drop[row]),
        oid=name,
        name=template.name,
        key=template.key,
        category=template.category,
        is_app=is_app,
        state=DropState(state).name,
        node=piece.node,
        attempt=attempt,
        size=None if handle is None else handle.size,
        is_running=None if running is None or not is_active else row in running,
    )
