"""Makes the record of a moment of a session from the times of its attempts and its present states."""

import numpy as np
import numpy.typing as npt

from dropflow.drop_counts import DropCounts, add_counts, count_drops
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.session_moment import CauseMoment, MomentQuery, NodeMoment, SessionMoment
from dropflow.states import DropState
from dropflow.times.attempts import AttemptColumns
from dropflow.times.moment_causes import causes_at, failed_at
from dropflow.times.moments import Moments

__all__ = ["session_moment"]

_STATES = len(DropState)
_MOST_CAUSES = 1000
_Ints = npt.NDArray[np.int64]


def session_moment(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, query: MomentQuery, missing: tuple[str, ...] = ()
) -> SessionMoment:
    """Return a session as it was at a moment."""
    states = moments.at(query.time)
    counts = _counts(graph, attempts, states, query.time)
    total = add_counts(counts)
    return SessionMoment(
        time=query.time,
        began=moments.start,
        ended=moments.end,
        drops=graph.drops,
        settled=total.settled,
        running=total.running,
        queued=total.queued,
        counts=total,
        logical=tuple(
            NodeMoment(key=template.key, name=template.name, drops=one.total, counts=one)
            for template, one in zip(graph.templates, counts, strict=True)
        ),
        states=states.tobytes() if query.states else b"",
        missing=missing,
        causes=_causes(graph, attempts, moments, states, query.time),
    )


def _causes(
    graph: PhysicalGraph, attempts: AttemptColumns, moments: Moments, states: npt.NDArray[np.uint8], time: float
) -> tuple[CauseMoment, ...]:
    """Return the root causes, the most harmful first."""
    causes = causes_at(graph, attempts, moments, states, time)
    rows, counts = np.unique(causes[causes >= 0], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_CAUSES]
    in_error = states == DropState.ERROR
    return tuple(
        CauseMoment(row=row, count=count, took_along=count - int(in_error[row]))
        for row, count in zip(rows[order].tolist(), counts[order].tolist(), strict=True)
    )


def _counts(
    graph: PhysicalGraph, attempts: AttemptColumns, states: npt.NDArray[np.uint8], time: float
) -> list[DropCounts]:
    """Return the numbers of drops of each logical node."""
    templates = len(graph.templates)
    known = states < _STATES
    table = np.bincount(graph.template[known].astype(np.int64) * _STATES + states[known], minlength=templates * _STATES)
    rows = graph.template[attempts.drop].astype(np.int64)
    is_open = states[attempts.drop] == DropState.WRITING
    runs = is_open & (attempts.began <= time) & (time < attempts.ended)
    waits = is_open & (attempts.ready <= time) & (time < attempts.began)
    own = failed_at(attempts, graph.drops, time)
    failed = np.bincount(graph.template[own & (states == DropState.ERROR)], minlength=templates)
    running, queued = (np.bincount(rows[which], minlength=templates) for which in (runs, waits))
    return [
        count_drops(
            {state.name: int(number) for state, number in zip(DropState, line, strict=True) if number},
            failed=int(failed[row]),
            running=int(running[row]),
            queued=int(queued[row]),
        )
        for row, line in enumerate(table.reshape(templates, _STATES))
    ]
