"""Records about a session on this node that clients get: rows, details, counts, results."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.drop_counts import DropCounts, add_counts
from dropflow.engine.api import Handle
from dropflow.engine.core import Core
from dropflow.engine.events import KnownStates, row_of_foreign
from dropflow.engine.explain import explain
from dropflow.engine.explain_repeats import explain_repeat
from dropflow.engine.faults import Fault
from dropflow.engine.reports import FailureReport
from dropflow.engine.statistics import Attempts, NodeStatistics, Statistics, by_name
from dropflow.errors import UsageError
from dropflow.graph.physical import Adjacency, PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import drops_named, oid, oids, row_of
from dropflow.ids import drop_file_name
from dropflow.rest.schema import (
    DropDetail,
    DropInfo,
    DropPage,
    DropQuery,
    FailureInfo,
    LogicalNodeInfo,
    Neighbour,
    PageQuery,
    ResultInfo,
)
from dropflow.states import DropState

__all__ = [
    "attempts_of",
    "counts_of",
    "detail_of",
    "failure_info",
    "logical_nodes",
    "page",
    "results",
    "running_by_node",
    "totals",
]

_PARAMETER = 2000
_CODE = 64 * 1024

T = TypeVar("T")


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

    def reports(self) -> Sequence[FailureReport]:
        """Return all root causes so far."""
        ...

    def faults(self, drop: int) -> Sequence[Fault]:
        """Return the infrastructure faults of a drop, oldest first."""
        ...


Running = Collection[int] | None
"""The rows of drops whose attempts run now; None if that is not known, as in a session that is over."""


class SessionCaller(Protocol):
    """A session that runs here, or ran before."""

    def call(self, function: Callable[[Any], T]) -> T:
        """Return what `function` returns for its `LiveSession`, in the session's thread."""
        ...


def running_by_node(statistics: Statistics, graph: PhysicalGraph, drops: Sequence[int]) -> list[int]:
    """Return how many of the drops that run belong to each logical node.

    The drops are those of now, and statistics may be a little older: no more run than are in WRITING.
    """
    found = np.bincount(graph.template[list(drops)], minlength=len(statistics.nodes)).tolist()
    pairs = zip(found, statistics.nodes, strict=True)
    return [min(count, node.counts[DropState.WRITING]) for count, node in pairs]


def attempts_of(statistics: Statistics, running: Sequence[int], now: Attempts) -> Attempts:
    """Return where the attempts are: those of applications add up to the ones in WRITING of the same statistics.

    Data that have an attempt of their own, as they have initial values, are counted only while it runs.
    """
    pairs = zip(statistics.nodes, running, strict=True)
    waiting = sum(node.counts[DropState.WRITING] - count for node, count in pairs if node.is_app)
    ready = min(now.ready, waiting)
    return Attempts(running=sum(running), queued=waiting - ready, ready=ready)


def counts_of(statistics: Statistics, running: Sequence[int]) -> DropCounts:
    """Return the drops of a session by what has become of them: the sums over its logical nodes."""
    return add_counts(map(_counts, statistics.nodes, running))


def _counts(node: NodeStatistics, running: int) -> DropCounts:
    return node.drop_counts(running=running, queued=node.counts[DropState.WRITING] - running if node.is_app else 0)


def logical_nodes(statistics: Statistics, running: Sequence[int]) -> tuple[LogicalNodeInfo, ...]:
    """Return the logical nodes that have drops here; `running` has how many run of each."""
    return tuple(
        LogicalNodeInfo(
            key=node.key,
            name=node.name,
            category=node.category,
            is_app=node.is_app,
            artificial=node.artificial,
            drops=node.total,
            states=by_name(node.counts),
            order=order,
            running=running[order],
            counts=_counts(node, running[order]),
        )
        for order, node in enumerate(statistics.nodes)
        if node.total
    )


def totals(statistics: Statistics) -> dict[str, int]:
    """Return the number of drops by the name of their state, without zeros."""
    return by_name([sum(column) for column in zip(*(node.counts for node in statistics.nodes), strict=True)])


def failure_info(report: FailureReport, node: str) -> FailureInfo:
    """Return a root cause as this node has it. One of another node has no `FailureInfo.node` and no text."""
    if not report.text:
        return FailureInfo(
            drop=report.drop or f"#{report.row}",
            name=report.name or f"drop in row {report.row}",
            node="",
            code="",
            kind="",
            text="it failed on another node, which has the reason",
            count=report.count,
            took_along=report.took_along,
            row=report.row,
        )
    return FailureInfo(
        drop=report.drop,
        name=report.name,
        node=node,
        code=report.code,
        kind=report.kind,
        text=report.text,
        hint=report.hint,
        detail=report.detail,
        count=report.count,
        took_along=report.took_along,
        attempts=report.attempts,
        has_log=bool(report.log),
        drops=report.drops,
        row=report.row,
    )


def page(session: SessionCaller, piece: Slice, query: DropQuery, *, whole: int, running: Running = None) -> DropPage:
    """Return a page of the drops of this node; `whole` is the number of drops that the session has on all nodes."""
    held = int(piece.is_own.sum())
    if query.node and query.node != piece.node:
        return DropPage(drops=(), total=0, offset=query.offset, limit=query.limit, held=held, whole=whole)
    states = np.frombuffer(session.call(lambda live: bytes(live.core.drops.states)), dtype=np.uint8)
    matching = _named(piece, query)
    if query.state:
        wanted = [DropState[name].value for name in _state_names(query.state)]
        matching &= np.isin(states, wanted)
    graph = piece.graph
    if query.key:
        rows = [row for row, template in enumerate(graph.templates) if template.key == query.key]
        matching &= np.isin(graph.template, rows)
    if query.name:
        is_named = np.zeros_like(matching)
        is_named[drops_named(graph, query.name)] = True
        matching &= is_named
    found = piece.order[matching[piece.order]]
    if query.text:
        wanted_text = query.text.lower()
        by_name = np.array([wanted_text in template.name.lower() for template in graph.templates], dtype=np.bool_)
        names = oids(graph, found)
        hits = by_name[graph.template[found]]
        hits |= np.fromiter((wanted_text in name.lower() for name in names), dtype=np.bool_, count=len(names))
        found = found[hits]
    if query.ending:
        names = oids(graph, found)
        found = found[np.fromiter((name.endswith(query.ending) for name in names), dtype=np.bool_, count=len(names))]
    shown = found[query.offset : query.offset + query.limit].tolist()
    facts = session.call(lambda live: {row: (live.core.drops.attempt(row), live.content(row)) for row in shown})
    names = oids(graph, np.array(shown, dtype=np.int32))
    drops = tuple(
        _info(piece, row, int(states[row]), *facts[row], name=name, running=running)
        for row, name in zip(shown, names, strict=True)
    )
    return DropPage(drops=drops, total=len(found), offset=query.offset, limit=query.limit, held=held, whole=whole)


def _named(piece: Slice, query: DropQuery) -> npt.NDArray[np.bool_]:
    """Return which own drops have the row and the id of the query, shape (drops here,)."""
    matching = piece.is_own.copy()
    wanted = [piece.local(query.row)] if query.row >= 0 else []
    if query.oid:
        wanted.append(row_of(piece.graph, query.oid))
    for row in wanted:
        is_that = np.zeros_like(matching)
        if row is not None:
            is_that[row] = True
        matching &= is_that
    return matching


def _state_names(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in DropState.__members__]
    if unknown:
        raise UsageError(
            f"there is no state {unknown[0]!r}", where="state", hint=f"one of {', '.join(DropState.__members__)}"
        )
    return names


def _info(
    piece: Slice, row: int, state: int, attempt: int, handle: Handle | None, *, name: str, running: Running
) -> DropInfo:
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


def detail_of(
    session: SessionCaller, piece: Slice, row: int, logs: Path, query: PageQuery, *, running: Running = None
) -> DropDetail:
    """Return everything about one drop, with the page `query` of its neighbours; `running` as in `page`."""
    graph = piece.graph
    template = graph.templates[graph.template[row]]
    before, after = graph.predecessors, graph.successors
    ins, outs = _window(before, row, query), _window(after, row, query)

    def look(live: LiveSession) -> tuple[Sequence[str], int, Handle | None, FailureReport | None, bytes]:
        core = live.core
        cause = core.drops.cause(row)
        reports = [] if cause is None else [one for one in live.reports() if one.row == _global(piece, cause)]
        lines = explain(core, row, live.faults(row)).lines
        if live.known is not None:
            lines = (*lines, *explain_repeat(graph, live.known, row))
        states = bytes(core.drops.states)
        return lines, core.drops.attempt(row), live.content(row), reports[0] if reports else None, states

    reasons, attempt, handle, failure, states = session.call(look)
    name = oid(graph, row)
    is_app = template.kind is Kind.APP
    links = graph.links

    def neighbour(other: int, port: str) -> Neighbour:
        return Neighbour(
            drop=int(piece.drop[other]),
            oid=oid(graph, other),
            name=graph.templates[graph.template[other]].name,
            state=DropState(states[other]).name,
            node=graph.places[graph.part[other]],
            port=port,
        )

    info = _info(piece, row, states[row], attempt, handle, name=name, running=running)
    return DropDetail(
        **{field: getattr(info, field) for field in DropInfo.__struct_fields__},
        reasons=tuple(reasons),
        failure=None if failure is None else failure_info(failure, piece.node),
        inputs=tuple(
            neighbour(other, links[link].target_port if is_app else links[link].source_port)
            for other, link in zip(before.neighbour[ins].tolist(), before.link[ins].tolist(), strict=True)
        ),
        outputs=tuple(
            neighbour(other, links[link].source_port if is_app else links[link].target_port)
            for other, link in zip(after.neighbour[outs].tolist(), after.link[outs].tolist(), strict=True)
        ),
        input_count=int(before.ptr[row + 1] - before.ptr[row]),
        output_count=int(after.ptr[row + 1] - after.ptr[row]),
        has_log=(logs / f"{drop_file_name(name)}.log").exists(),
        has_data=not is_app and handle is not None and handle.kind != "null",
        parameters={argument.name: _text(argument.value) for argument in template.arguments},
    )


def _window(edges: Adjacency, row: int, query: PageQuery) -> slice:
    """Return where a page of the neighbours of a drop is among all of them."""
    first, end = int(edges.ptr[row]), int(edges.ptr[row + 1])
    start = min(first + query.offset, end)
    return slice(start, min(start + query.limit, end))


def _global(piece: Slice, cause: int) -> int:
    return int(piece.drop[cause]) if cause >= 0 else row_of_foreign(cause)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    limit = _CODE if "\n" in text else _PARAMETER
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def results(piece: Slice, contents: Mapping[int, Handle], directory: Path) -> tuple[ResultInfo, ...]:
    """Return the results: the contents of leaves, and all files that stay."""
    graph = piece.graph
    is_leaf = np.diff(graph.successors.ptr) == 0
    is_root = np.diff(graph.predecessors.ptr) == 0
    found = []
    for row in sorted(contents, key=piece.drop.data.__getitem__):
        handle = contents[row]
        template = graph.templates[graph.template[row]]
        if not piece.is_own[row] or handle.kind in ("null", "url"):
            continue
        is_file = handle.kind in ("file", "directory")
        path = Path(handle.location)
        inside = path.is_relative_to(directory)
        if not (is_leaf[row] or template.persist or is_file) or (is_root[row] and not inside):
            continue  # consumed by other drops, or an input of the graph
        if is_file:
            where = str(path.relative_to(directory)) if inside else str(path)
        else:
            where = f"results/{drop_file_name(oid(graph, row))}"
        found.append(
            ResultInfo(
                drop=int(piece.drop[row]),
                oid=oid(graph, row),
                name=template.name,
                node=piece.node,
                path=where,
                size=handle.size,
                is_directory=handle.kind == "directory",
            )
        )
    return tuple(found)
