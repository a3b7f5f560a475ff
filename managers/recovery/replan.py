"""The next view of a session from the reports of the members that go on: what runs again, and where drops go."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.engine.content_table import kept_drops
from dropflow.engine.recovery import must_run_again
from dropflow.errors import ProtocolError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.reassignment import app_weights, reassign
from dropflow.graph.templates import Kind
from dropflow.states import DropState
from managers.recovery.events import PlanView
from managers.recovery.implied_states import with_implied_completions
from managers.recovery.records import MemberReport, View, ViewDecision, pack_column, unpack_column

__all__ = ["decide", "explain_decision"]

_INITIALIZED, _COMPLETED = int(DropState.INITIALIZED), int(DropState.COMPLETED)
_ERROR, _SKIPPED = int(DropState.ERROR), int(DropState.SKIPPED)
_NO_MEMBER = -1

BooleanColumn = npt.NDArray[np.bool_]
StateColumn = npt.NDArray[np.uint8]
IntColumn = npt.NDArray[np.int32]


class _Known(NamedTuple):
    """What the members that go on know together, by row of the whole graph.

    Attributes
    ----------
    states : uint8 array
        State of each drop. INITIALIZED for drops of lost nodes that no member knows to be settled.
    available : bool array
        Data drops whose content their owner has.
    parts : list of (int, int)
        Producers, and drops of members whose part by that producer is there.
    attempts : dict of int to int
        Greatest known attempt, where it is not the first.
    causes : dict of int to int
        Causes of drops in ERROR.
    holder : int32 array
        Number of a member that has a copy of the content, for drops of lost nodes.
    """

    states: StateColumn
    available: BooleanColumn
    parts: list[tuple[int, int]]
    attempts: dict[int, int]
    causes: dict[int, int]
    holder: IntColumn


def decide(graph: PhysicalGraph, plan: PlanView) -> ViewDecision:
    """Return the next view of a session: its members, the node of every drop, and what runs again.

    The members are those of the view that ends that have reported. Drops of the others go to members. What is known of
    these drops is what their neighbours on members were told, and what follows from that: the others begin anew. A drop
    whose content a member has a copy of goes to that member, and does not run again.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph, as it is placed in the view that ends.
    plan : PlanView
        That view, and the reports.

    Raises
    ------
    ProtocolError
        No member has reported, or a report cannot be read or is not about this graph.
    """
    members = tuple(place for place in plan.view.members if place.node in plan.reports)
    if not members:
        raise ProtocolError("no member of the session has reported")
    names = tuple(place.node for place in members)
    numbers = {name: number for number, name in enumerate(names)}
    number_of_part = np.array([numbers.get(place, _NO_MEMBER) for place in graph.places], dtype=np.int32)
    owner: IntColumn = number_of_part[graph.part]
    known = _merge(graph, owner, [_decoded(graph, name, plan.reports[name]) for name in names])
    unknown = (owner == _NO_MEMBER) & (known.states == _INITIALIZED)
    states = with_implied_completions(graph, known.states, unknown)
    reset = must_run_again(graph, states.tobytes(), known.available, kept=kept_drops(graph), parts=known.parts)
    runs = ~_is_settled(states) | reset
    moved = owner == _NO_MEMBER
    stays = np.where(moved, known.holder, owner)
    anywhere = stays == _NO_MEMBER
    work = np.where(runs, app_weights(graph), 0.0)
    load = np.bincount(stays[~anywhere], weights=work[~anywhere], minlength=len(names)).tolist()
    placement = reassign(graph, stays, anywhere, range(len(names)), load, work=work) if anywhere.any() else stays
    taken_over = np.where(moved & ~runs, states, np.uint8(_INITIALIZED))
    is_moved, will_run = moved.view(np.uint8).data, runs.view(np.uint8).data
    return ViewDecision(
        view=View(plan.view.number + 1, members, plan.view.witnesses),
        places=names,
        placement=pack_column(placement.astype(np.uint16)),
        reset=pack_column(np.flatnonzero(reset).astype(np.int32)),
        taken_over=pack_column(taken_over) if moved.any() else b"",
        causes={drop: cause for drop, cause in known.causes.items() if taken_over[drop] == _ERROR},
        attempts={drop: last + will_run[drop] for drop, last in known.attempts.items() if is_moved[drop]},
        lost=dict(plan.lost),
    )


def explain_decision(graph: PhysicalGraph, decision: ViewDecision) -> str:
    """Return a sentence about a decision, for people.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph, as it is placed in the view before.
    """
    placement = unpack_column(decision.placement, np.uint16)
    clauses = []
    for node, why in decision.lost.items():
        was_there = np.array([place == node for place in graph.places], dtype=np.bool_)[graph.part]
        counts = np.bincount(placement[was_there], minlength=len(decision.places)).tolist()
        shares = [f"{name} ({count})" for name, count in zip(decision.places, counts, strict=True) if count]
        drops = _counted(sum(counts), "drop")
        goes = f"{drops} {'goes' if sum(counts) == 1 else 'go'} to {_listed(shares)}" if shares else "it had no drops"
        clauses.append(f"node {node} is lost ({why}): {goes}")
    again = len(unpack_column(decision.reset, np.int32))
    if again:
        runs = "runs" if again == 1 else "run"
        clauses.append(f"{_counted(again, 'completed drop')} {runs} again because their contents were lost")
    return "; ".join(clauses) or "no node is lost, and nothing runs again"


def _decoded(graph: PhysicalGraph, member: str, report: bytes) -> "_Report":
    try:
        packed = msgspec.msgpack.decode(report, type=MemberReport)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the report of node {member} cannot be read: {error}") from error
    rows = unpack_column(packed.rows, np.int32).astype(np.int32, copy=False)
    parts = unpack_column(packed.parts, np.int32).astype(np.int32, copy=False)
    found = _Report(
        rows=rows,
        states=unpack_column(packed.states, np.uint8).astype(np.uint8, copy=False),
        available=unpack_column(packed.available, np.uint8).astype(np.bool_),
        parts=parts[: len(parts) // 2 * 2].reshape(-1, 2),
        attempts=packed.attempts,
        causes=packed.causes,
        copies=unpack_column(packed.copies, np.int32).astype(np.int32, copy=False),
    )
    others = np.array([*packed.attempts, *packed.causes], dtype=np.int64)
    named = np.concatenate([rows, parts, found.copies, others])
    is_outside = len(named) and (named.min() < 0 or named.max() >= graph.drops)
    if is_outside or not len(rows) == len(found.states) == len(found.available):
        raise ProtocolError(f"the report of node {member} is not about the graph {graph.name!r}")
    return found


class _Report(NamedTuple):
    """A `MemberReport`, unpacked; `parts` has a row for each pair."""

    rows: npt.NDArray[np.int32]
    states: StateColumn
    available: BooleanColumn
    parts: npt.NDArray[np.int32]
    attempts: Mapping[int, int]
    causes: Mapping[int, int]
    copies: npt.NDArray[np.int32]


def _merge(graph: PhysicalGraph, owner: IntColumn, reports: list[_Report]) -> _Known:
    """Return what the reports say together: the owner about its drops, neighbours about those of lost nodes."""
    nowhere = np.full(graph.drops, _NO_MEMBER, dtype=np.int32)
    known = _Known(np.zeros(graph.drops, dtype=np.uint8), np.zeros(graph.drops, dtype=np.bool_), [], {}, {}, nowhere)
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    lost_drop, neighbour_owner = _cut_edges(graph, owner)
    for number, report in enumerate(reports):
        rows, is_own = report.rows, owner[report.rows] == number
        known.states[rows[is_own]] = report.states[is_own]
        known.available[rows[is_own]] = report.available[is_own]
        # Others than neighbours keep rows of drops that they hear nothing about.
        is_near = np.zeros(graph.drops, dtype=np.bool_)
        is_near[lost_drop[neighbour_owner == number]] = True
        is_new = is_near[rows] & _is_settled(report.states) & (known.states[rows] == _INITIALIZED)
        known.states[rows[is_new]] = report.states[is_new]
        here = report.parts[owner[report.parts[:, 1]] != _NO_MEMBER]
        known.parts.extend(zip(here[:, 0].tolist(), here[:, 1].tolist(), strict=True))
        copied = report.copies[(owner[report.copies] == _NO_MEMBER) & is_data[report.copies]]
        known.holder[copied[known.holder[copied] == _NO_MEMBER]] = number
        for drop, attempt in report.attempts.items():
            known.attempts[drop] = max(attempt, known.attempts.get(drop, 1))
        for drop, cause in report.causes.items():
            known.causes.setdefault(drop, cause)
    # Only contents of completed drops are copied.
    has_copy = known.holder != _NO_MEMBER
    known.states[has_copy], known.available[has_copy] = _COMPLETED, True
    for cause in {cause for drop, cause in known.causes.items() if known.states[drop] == _ERROR}:
        if owner[cause] == _NO_MEMBER and known.states[cause] == _INITIALIZED:
            # No member has a neighbour of it, but it has failed, since others have because of it.
            known.states[cause], known.causes[cause] = _ERROR, cause
    return known


def _cut_edges(graph: PhysicalGraph, owner: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the drop of a lost node, and the owner of the other end, of each edge between a lost node and a member."""
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    from_lost, to_lost = owner[source] == _NO_MEMBER, owner[out.neighbour] == _NO_MEMBER
    down, up = from_lost & ~to_lost, to_lost & ~from_lost
    drops = np.concatenate([source[down], out.neighbour[up]])
    others = np.concatenate([owner[out.neighbour[down]], owner[source[up]]])
    return drops, others


def _is_settled(states: StateColumn) -> BooleanColumn:
    """Return which drops need not run. Other terminal states come from sessions that have been given up."""
    found: BooleanColumn = (states == _COMPLETED) | (states == _ERROR) | (states == _SKIPPED)
    return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
