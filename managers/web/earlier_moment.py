"""A session as it was at a moment, for its page: numbers, logical nodes, failures and results."""

from collections.abc import Sequence

import msgspec
import numpy as np

from dropflow.rest.operation_records import FailureQuery
from dropflow.rest.session_moment import MomentQuery, SessionMoment
from dropflow.rest.session_records import FailureInfo, ResultInfo, SessionDetail
from dropflow.states import DropState
from managers.api import Manager

__all__ = ["as_it_was"]

_SHOWN = 100


def as_it_was(
    manager: Manager, detail: SessionDetail, results: Sequence[ResultInfo], time: float
) -> tuple[SessionDetail, tuple[ResultInfo, ...]]:
    """Return a session and its results as they were at a time."""
    moment = manager.moment(detail.session, MomentQuery(time=time, states=True))
    rows = ",".join(str(cause.row) for cause in moment.causes[:_SHOWN])
    failures = manager.failures(detail.session, FailureQuery(rows=rows)).failures if rows else ()
    return _detail_at(detail, moment, failures), _results_at(results, moment)


def _detail_at(detail: SessionDetail, moment: SessionMoment, failures: Sequence[FailureInfo]) -> SessionDetail:
    """Return a session with the numbers of a moment, and with those of its root causes that had failed by then.

    Lost nodes are not among them: when a node was lost is not recorded.
    """
    counts = {node.key: node.counts for node in moment.logical}
    known = {failure.row: failure for failure in failures if failure.drop}
    causes = [
        msgspec.structs.replace(known[cause.row], count=cause.count, took_along=cause.took_along)
        for cause in moment.causes
        if cause.row in known
    ]
    return msgspec.structs.replace(
        detail,
        settled=moment.settled,
        running=moment.running,
        queued=moment.queued,
        ready=0,
        counts=moment.counts,
        seconds=max(moment.time - moment.began, 0.0),
        rate=0.0,
        remaining=None,
        quiet=0.0,
        logical=tuple(
            msgspec.structs.replace(node, counts=counts.get(node.key, node.counts)) for node in detail.logical
        ),
        failures=tuple(causes),
    )


def _results_at(results: Sequence[ResultInfo], moment: SessionMoment) -> tuple[ResultInfo, ...]:
    """Return the results that were complete at a moment, which has the states of all drops."""
    states = np.frombuffer(moment.states, np.uint8)
    return tuple(one for one in results if one.drop < len(states) and states[one.drop] == DropState.COMPLETED)
