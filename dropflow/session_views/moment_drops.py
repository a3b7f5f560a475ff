"""A page of the drops of a session as they were at a moment."""

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template
from dropflow.graph.text_ids import oids, row_of
from dropflow.rest.session_records import DropInfo, DropPage, DropQuery
from dropflow.session_views.drop_filter import in_order, matching
from dropflow.states import UNKNOWN_STATE, DropState
from dropflow.times.attempts import AttemptColumns
from dropflow.times.moment_causes import size_at
from dropflow.times.moments import Moments

__all__ = ["drops_at"]

_Ints = npt.NDArray[np.int64]


def drops_at(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, query: DropQuery, missing: tuple[str, ...] = ()
) -> DropPage:
    """Return the drops that matched at the time of the query, with the sizes that attempts recorded.

    The node of a drop is that of its last attempt then, or the one that the graph names. Drops whose state is not known
    are left out.
    """
    states = moments.at(query.time)
    last, nodes = _last_attempts(attempts, graph.drops, query.time), (*attempts.nodes, *graph.places)
    has_run = last >= 0
    node = np.full(graph.drops, -1, np.int64) if not graph.places else graph.part.astype(np.int64) + len(attempts.nodes)
    node[has_run] = attempts.node[last[has_run]]
    number = np.ones(graph.drops, np.int64)
    number[has_run] = attempts.attempt[last[has_run]]
    runs = np.zeros(graph.drops, np.bool_)
    runs[has_run] = (attempts.began[last[has_run]] <= query.time) & (query.time < attempts.ended[last[has_run]])
    sizes = size_at(graph, attempts, query.time)
    is_known = states != UNKNOWN_STATE
    if query.node:
        is_known &= np.isin(node, [at for at, name in enumerate(nodes) if name == query.node])
    wanted = [query.row] if query.row >= 0 else []
    wanted += [-1 if (row := row_of(graph, query.oid)) is None else row] if query.oid else []
    for row in wanted:
        is_known &= np.arange(graph.drops) == row
    found = matching(graph, np.flatnonzero(is_known).astype(np.int32), states, query)
    match query.sort.removeprefix("-"):
        case "state":
            values = states[found].astype(np.int64)
        case "attempt":
            values = number[found]
        case "node":
            values = np.unique(np.array([*nodes, ""], dtype=object), return_inverse=True)[1][node[found]]
        case "size":
            values = sizes[found]
        case _:
            values = np.zeros(len(found), np.int64)
    found = in_order(graph, found, found, values, query)
    shown = found[query.offset : query.offset + query.limit]
    return DropPage(
        drops=tuple(
            _info(
                graph.templates[int(graph.template[row])],
                drop=row,
                oid=name,
                state=DropState(int(states[row])),
                node=(*nodes, "")[int(node[row])],
                attempt=int(number[row]),
                runs=bool(runs[row]),
                size=int(sizes[row]),
            )
            for row, name in zip(shown.tolist(), oids(graph, shown), strict=True)
        ),
        total=len(found),
        offset=query.offset,
        limit=query.limit,
        missing=missing,
        held=int(np.count_nonzero(states != UNKNOWN_STATE)),
        whole=graph.drops,
    )


def _last_attempts(attempts: AttemptColumns, drops: int, time: float) -> _Ints:
    """Return the row of the last attempt of each drop that was ready at a time; -1 without."""
    ready = np.flatnonzero(attempts.ready <= time)
    found = np.full(drops, -1, np.int64)
    ready = ready[np.lexsort((attempts.ready[ready], attempts.attempt[ready]))]
    found[attempts.drop[ready]] = ready  # of equal indices, the last one counts
    return found


def _info(
    template: Template, *, drop: int, oid: str, state: DropState, node: str, attempt: int, runs: bool, size: int
) -> DropInfo:
    is_app = template.kind is Kind.APP
    return DropInfo(
        drop=drop,
        oid=oid,
        name=template.name,
        key=template.key,
        category=template.category,
        is_app=is_app,
        state=state.name,
        node=node,
        attempt=attempt,
        size=size if size >= 0 else None,
        is_running=runs if is_app and state is DropState.WRITING else None,
    )
