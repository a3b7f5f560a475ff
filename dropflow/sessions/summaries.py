"""Summaries of a session for users, here or on a node: its failures, its logical nodes, and counts of its drops."""

from collections.abc import Sequence

import msgspec
import numpy as np

from dropflow.api.session_records import FailureInfo, LogicalNodeInfo, PartEnd
from dropflow.execution.statistics import (
    Attempts,
    FailureReport,
    NodeStatistics,
    Statistics,
    by_name,
)
from dropflow.failure import RootCause
from dropflow.graph.drop_counts import DropCounts
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState, SessionState

_SHARED = RootCause.__struct_fields__


def failure_info(report: FailureReport, node: str = "") -> FailureInfo:
    """Return the record of a root cause on a node; without `node`, in a run on this machine.

    If the cause is on another node, it has no `FailureInfo.node` and no text.
    """
    if node and not report.text:
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
    shared = {name: getattr(report, name) for name in _SHARED}
    return FailureInfo(**shared, node=node, has_log=bool(node and report.log))


def written_report(failure: FailureInfo, logs: str) -> FailureReport:
    """Return the report from which a failure on a node was made; `logs` is the directory of logs."""
    shared = {name: getattr(failure, name) for name in _SHARED}
    if not failure.node:  # only the node of the drop has the text
        shared["text"] = ""
    return FailureReport(**shared, log=logs if failure.has_log else "")


def running_by_node(statistics: Statistics, graph: PhysicalGraph, drops: Sequence[int]) -> list[int]:
    """Return how many of the drops that run belong to each logical node.

    The drops are the present ones, and the statistics may be a little older. So no more drops run than are in WRITING.
    """
    running = np.bincount(graph.template[list(drops)], minlength=len(statistics.nodes)).tolist()
    pairs = zip(running, statistics.nodes, strict=True)
    return [min(count, node.counts[DropState.WRITING]) for count, node in pairs]


def attempts_of(statistics: Statistics, running: Sequence[int], now: Attempts) -> Attempts:
    """Return where the attempts are. The attempts of applications add up to the applications in WRITING.

    Data with an attempt of their own, because they have initial values, are counted only while it runs.
    """
    pairs = zip(statistics.nodes, running, strict=True)
    waiting = sum(node.counts[DropState.WRITING] - count for node, count in pairs if node.is_app)
    ready = min(now.ready, waiting)
    return Attempts(running=sum(running), queued=waiting - ready, ready=ready)


def counts_of(statistics: Statistics, running: Sequence[int]) -> DropCounts:
    """Return the counts of the drops of a session: the sums over its logical nodes."""
    return statistics.count(running=sum(running), queued=sum(map(_queued, statistics.nodes, running)))


def _queued(node: NodeStatistics, running: int) -> int:
    return node.counts[DropState.WRITING] - running if node.is_app else 0


def logical_nodes(statistics: Statistics, running: Sequence[int] | None = None) -> tuple[LogicalNodeInfo, ...]:
    """Return the logical nodes that have drops here; `running` is how many drops of each run, None for none."""
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
            running=0 if running is None else running[order],
            counts=node.drop_counts()
            if running is None
            else node.drop_counts(running=running[order], queued=_queued(node, running[order])),
        )
        for order, node in enumerate(statistics.nodes)
        if node.total
    )


def part_end(node: str, statistics: Statistics, *, is_cancelled: bool) -> PartEnd:
    """Return how the part of a node ended; if it is cancelled, drops that are not settled count as cancelled."""
    nodes = statistics.nodes
    if is_cancelled:
        nodes = tuple(msgspec.structs.replace(summary, counts=_all_settled(summary.counts)) for summary in nodes)
    statistics = msgspec.structs.replace(statistics, nodes=nodes)
    running = [0] * len(nodes)
    return PartEnd(
        node=node,
        status=(SessionState.CANCELLED if is_cancelled else statistics.status).name,
        counts=counts_of(statistics, running),
        states=statistics.states,
        logical=logical_nodes(statistics, running),
    )


def _all_settled(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the number of drops in each state, with all drops that are not settled counted as cancelled."""
    settled = list(counts)
    for state in (DropState.INITIALIZED, DropState.WRITING):
        settled[DropState.CANCELLED] += settled[state]
        settled[state] = 0
    return tuple(settled)
