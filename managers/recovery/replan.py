"""The next view of a session from the reports of the members that go on: what runs again, and where drops go."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import DropflowError, ProtocolError
from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.continuation import must_run_again
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.reassign import excess_drops, may_move, reassign_together
from dropflow.graph.templates import Kind
from dropflow.sessions.retry import RETRY_REASON, causes_to_retry
from dropflow.states import DropState
from managers.deployment import Place
from managers.recovery.records import (
    NO_MEMBER,
    MemberReport,
    Refusal,
    RequestedChange,
    View,
    ViewDecision,
    pack_column,
    unpack_column,
)
from managers.recovery.vote import PlanView

_INITIALIZED, _COMPLETED = int(DropState.INITIALIZED), int(DropState.COMPLETED)
_ERROR, _SKIPPED, _CANCELLED = int(DropState.ERROR), int(DropState.SKIPPED), int(DropState.CANCELLED)


StateColumn = npt.NDArray[np.uint8]
BooleanColumn = npt.NDArray[np.bool_]
_ROUNDS = 5
"""Rounds in which speeds of nodes and costs of templates are estimated, each from the other."""
FloatColumn = npt.NDArray[np.float64]

# Completions that no member has seen, but that others imply.


def with_implied_completions(graph: PhysicalGraph, states: StateColumn, unknown: BooleanColumn) -> StateColumn:
    """Return the states, with COMPLETED for unknown drops that must have completed since a successor has.

    An application that tolerates neither failed nor skipped inputs and waits for all has completed only if each input
    had. So has a data drop that has one producer, or does not tolerate skipped ones. Without this, long paths inside of
    a lost node would run again although what they led to is there. If the content of such a drop is needed after all,
    it is found to be lost, and the drop runs again.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        `DropState` of every drop.
    unknown : bool array, shape (drops,)
        Drops whose state no member knows.
    """
    before = graph.predecessors
    inputs = np.diff(before.ptr)
    strict = np.array(
        [
            not template.block_skip
            and (template.kind is Kind.DATA or (template.effective_inputs <= 0 and template.error_threshold == 0.0))
            for template in graph.templates
        ],
        dtype=np.bool_,
    )[graph.template]
    strict |= (graph.kinds[graph.template] == np.uint8(Kind.DATA)) & (inputs == 1)
    implied_states = states.copy()
    first = strict & (implied_states == _COMPLETED)
    implied = np.zeros(graph.drops, dtype=np.bool_)
    implied[before.neighbour[np.repeat(first, inputs)]] = True
    waiting: list[int] = np.flatnonzero(implied & unknown).tolist()
    ptr, neighbour = before.ptr.data, before.neighbour.data
    state, is_open, implies = implied_states.data, unknown.copy().view(np.uint8).data, strict.view(np.uint8).data
    while waiting:
        drop = waiting.pop()
        if is_open[drop]:
            is_open[drop], state[drop] = 0, _COMPLETED
            if implies[drop]:
                waiting.extend(neighbour[ptr[drop] : ptr[drop + 1]])
    return implied_states


# How long drops take, and how fast members are, from the attempts that have succeeded: pure functions.

Durations = Mapping[int, tuple[int, float]]
"""Number of successful attempts on a member, and their seconds together, by template."""

_SLOWEST, _FASTEST = 0.05, 20.0
"""Limits on a speed in relation to the mean, so that a few odd attempts do not empty a member."""


class Speeds(NamedTuple):
    """Measured times of attempts, and how much work each member does in a second.

    Attributes
    ----------
    seconds : float array, shape (templates,)
        How long an attempt of each template takes at the mean speed; 0 for data. In the unit of the weights if nothing
        was measured.
    capacities : list of float
        How much of that each member does in a second.
    """

    seconds: FloatColumn
    capacities: list[float]


def measure(graph: PhysicalGraph, workers: Sequence[float], durations: Sequence[Durations]) -> Speeds:
    """Return how long attempts take, and the capacities of members.

    Parameters
    ----------
    graph : PhysicalGraph
        For the weights of its templates.
    workers : sequence of float
        Attempts that each member runs at a time.
    durations : sequence of mapping
        Measured seconds on each member.

    Notes
    -----
    Speeds follow from the durations of templates, and these from speeds, so both are improved in turn, from speeds that
    assume durations in proportion to weights. These stay decisive for templates that ran on one member only. Each
    template and each member counts as if it had one more attempt that took as long as expected.
    """
    weights = graph.template_seconds
    counts = np.zeros((len(durations), len(weights)))
    spent = np.zeros_like(counts)
    for member, of_member in enumerate(durations):
        for template, (count, seconds) in of_member.items():
            if 0 <= template < len(weights) and weights[template] > 0:
                counts[member, template], spent[member, template] = count, max(seconds, 0.0)
    cores = [max(worker, 1.0) for worker in workers]
    done = float((counts * weights).sum())
    if not (spent.sum() > 0 and done > 0):
        return Speeds(weights, cores)
    expected = weights * float(spent.sum()) / done
    speed = _speeds(counts, spent, expected)
    estimate = expected
    for _ in range(_ROUNDS):
        estimate = np.where(weights > 0, ((spent.T * speed).sum(axis=1) + expected) / (counts.sum(axis=0) + 1), 0.0)
        speed = _speeds(counts, spent, estimate)
    return Speeds(estimate, [core * float(factor) for core, factor in zip(cores, speed, strict=True)])


def _speeds(counts: FloatColumn, spent: FloatColumn, seconds: FloatColumn) -> FloatColumn:
    """Return the speed of each member, given how long each template takes at speed 1."""
    wanted, taken, attempts = (counts * seconds).sum(axis=1), spent.sum(axis=1), counts.sum(axis=1)
    mean = np.divide(wanted, attempts, out=np.zeros_like(wanted), where=attempts > 0)
    speed = np.divide(wanted + mean, taken + mean, out=np.ones_like(wanted), where=(taken + mean) > 0)
    limited: FloatColumn = np.clip(speed, _SLOWEST, _FASTEST)
    return limited


class _Known(NamedTuple):
    """The states and contents that the members that go on know together, by row of the whole graph.

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
        Number of a member that has a copy of the content, for drops of lost nodes and `rescued` ones.
    replaced : list of int
        Drops without a copy whose content another drop has replaced.
    rescued : bool array
        Completed drops of members that stay, whose content only `holder` has: it died with the process of its owner.
    """

    states: StateColumn
    available: BooleanColumn
    parts: list[tuple[int, int]]
    attempts: dict[int, int]
    causes: dict[int, int]
    holder: IntColumn
    replaced: list[int]
    rescued: BooleanColumn


def decide(
    graph: PhysicalGraph,
    plan: PlanView,
    *,
    retried: Collection[int] = (),
    repeated: Collection[int] = (),
    reason: str = "",
) -> ViewDecision:
    """Return the next view of a session: its members, the node of every drop, and what runs again.

    The members are those of the view that ends that have reported, without those that are to leave, and with those that
    are to join. Drops of the others go to members. The states of drops of lost nodes are known from events that their
    neighbours on members received, and from what follows from these. All other drops of lost nodes begin anew. A drop
    whose content a member has a copy of goes to that member, and does not run again. If that was asked for, drops that
    have not begun move as well; see `_Placement`.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph, as it is placed in the view that ends.
    plan : PlanView
        That view, the reports, and what was asked for.
    retried : collection of int
        Drops in ERROR that started an error, which are tried again, with all drops in ERROR because of them; and those
        of `repeated` that had attempts.
    repeated : collection of int
        Drops that settle again, whatever their outcome was, with all that depends on them.
    reason : str
        See `ViewDecision`.

    Raises
    ------
    ProtocolError
        No member has reported, or a report cannot be read or is not about this graph.
    """
    reported, owner = _members(graph, plan)
    reports = [_decoded(graph, place.node, plan.reports[place.node]) for place in reported]
    placement = _Placement(plan, reported, reports)
    known = _merge(graph, owner, reports, stays=placement.stays)
    requested, refused = _asked_for(graph, known, plan.changes)
    retried = {*retried, *requested}
    again = sorted({*_failed_because(known, retried), *repeated})
    known.states[again] = _INITIALIZED
    unknown = (owner == NO_MEMBER) & (known.states == _INITIALIZED)
    states = with_implied_completions(graph, known.states, unknown)
    # To its neighbours, a drop that was cancelled alone is one that failed.
    failed = np.where(states == _CANCELLED, np.uint8(_ERROR), states)
    kept = kept_drops(graph)
    reset = must_run_again(
        graph,
        failed.tobytes(),
        known.available,
        kept=kept,
        parts=known.parts,
        replaced=known.replaced,
    )
    runs = ~_is_settled(states) | reset
    has_not_begun = (known.states == _INITIALIZED) & ~unknown
    moved, new_owner = placement.place(
        graph,
        owner,
        known.holder,
        runs=runs,
        movable=may_move(graph, has_not_begun, _written(graph, known)),
        rescued=known.rescued & ~runs & _is_needed(graph, runs, kept),
    )
    taken_over = np.where(moved & ~runs, states, np.uint8(_INITIALIZED))
    gone = _is_read_file(graph) & (owner == NO_MEMBER) & (taken_over == _COMPLETED) & ~known.available
    is_moved, will_run = moved.view(np.uint8).data, runs.view(np.uint8).data
    return ViewDecision(
        view=_next_view(plan, placement),
        places=tuple(place.node for place in placement.members),
        placement=pack_column(new_owner.astype(np.uint16)),
        reset=pack_column(np.flatnonzero(reset).astype(np.int32)),
        taken_over=pack_column(taken_over) if moved.any() else b"",
        causes={drop: cause for drop, cause in known.causes.items() if taken_over[drop] in (_ERROR, _CANCELLED)},
        attempts={drop: last + will_run[drop] for drop, last in known.attempts.items() if is_moved[drop]},
        lost=dict(plan.lost),
        left=placement.left,
        joined=placement.joined,
        answered=tuple(change.id for change in plan.changes),
        refused=refused,
        is_forced=any(change.is_forced for change in plan.changes),
        repeated=pack_column(np.array(again, dtype=np.int32)) if again else b"",
        retried=tuple(sorted(retried)),
        reason=reason or (RETRY_REASON if requested else ""),
        gone=int(gone.sum()),
    )


def _next_view(plan: PlanView, placement: "_Placement") -> View:
    """Return the next view, with another witness if that was asked for."""
    view = msgspec.structs.replace(
        plan.view, number=plan.view.number + 1, members=placement.members, draining=placement.draining
    )
    for change in plan.changes:
        if change.witness is not None:
            view = msgspec.structs.replace(view, witnesses=(change.witness,), invitation=change.invitation)
    return view


def known_drops(graph: PhysicalGraph, plan: PlanView) -> tuple[StateColumn, dict[int, int]]:
    """Return the state of every drop as the reports have it together, and the cause of each one in ERROR.

    Those that no report is about are INITIALIZED. Raises as `decide`.
    """
    members, owner = _members(graph, plan)
    reports = [_decoded(graph, place.node, plan.reports[place.node]) for place in members]
    known = _merge(graph, owner, reports, stays=np.ones(len(members), dtype=np.bool_))
    return known.states, {drop: cause for drop, cause in known.causes.items() if known.states[drop] == _ERROR}


def _members(graph: PhysicalGraph, plan: PlanView) -> tuple[tuple[Place, ...], IntColumn]:
    """Return the members that go on, and the number of that which has each drop."""
    members = tuple(place for place in plan.view.members if place.node in plan.reports)
    if not members:
        raise ProtocolError("no member of the session has reported")
    numbers = {place.node: number for number, place in enumerate(members)}
    number_of_part = np.array([numbers.get(place, NO_MEMBER) for place in graph.places], dtype=np.int32)
    return members, number_of_part[graph.part]


def _failed_because(known: _Known, causes: Collection[int]) -> list[int]:
    """Return the drops in ERROR because of these causes, and those of them that were cancelled alone."""
    failed = (_ERROR, _CANCELLED)
    return [drop for drop, cause in known.causes.items() if cause in causes and known.states[drop] in failed]


def _asked_for(
    graph: PhysicalGraph, known: _Known, changes: Collection[RequestedChange]
) -> tuple[set[int], dict[str, Refusal]]:
    """Return the root causes that are to be tried again, and why the changes are refused that name others.

    Drops that a user has cancelled are tried again only if they are named.
    """
    causes: set[int] = set()
    refused: dict[str, Refusal] = {}
    failed = {drop: cause for drop, cause in known.causes.items() if known.states[drop] in (_ERROR, _CANCELLED)}
    unnamed = {drop: cause for drop, cause in failed.items() if known.states[cause] != _CANCELLED}
    for change in changes:
        if change.is_retrying:
            candidates = failed if change.drops else unnamed
            try:
                causes.update(causes_to_retry(graph, known.states, candidates, change.drops))
            except DropflowError as error:
                refused[change.id] = Refusal(error.text, error.hint)
    return causes, refused


class _Placement:
    """Members of the next view, and the drops of each of them.

    Drops of lost nodes and of those that leave move; of those that drain, what has not begun; and of all, if nodes join
    or the session is to be rebalanced, what has not begun and is more than the share of a member.

    Parameters
    ----------
    plan : PlanView
        The view that ends, and what was asked for.
    reported : tuple of Place
        Its members that have reported. Owners are numbered in their order, and then come those that join.
    reports : list of _Report
        Their reports.

    Attributes
    ----------
    members : tuple of Place
        Members of the next view.
    left : tuple of str
        Members that have reported and leave.
    joined : tuple of str
        Members that join.
    draining : tuple of str
        Members that get no drops.
    stays : bool array, shape (members that have reported,)
        Which of them stay.
    """

    def __init__(self, plan: PlanView, reported: tuple[Place, ...], reports: list["_Report"]) -> None:
        names = {place.node for place in reported}
        leave = {node for change in plan.changes for node in change.leave}
        joining = {place.node: place for change in plan.changes for place in change.add if place.node not in names}
        if names <= leave and not joining:
            leave = set()  # without a member the session would end
        self.stays = np.array([place.node not in leave for place in reported], dtype=np.bool_)
        staying = [number for number, place in enumerate(reported) if place.node not in leave]
        self._all_places = (*reported, *joining.values())
        self._reports = reports
        self._numbers = [*staying, *range(len(reported), len(self._all_places))]
        self.members = tuple(self._all_places[number] for number in self._numbers)
        self.joined = tuple(joining)
        self.left = tuple(place.node for place in reported if place.node in leave)
        drain = {*plan.view.draining, *(node for change in plan.changes for node in change.drain)}
        self.draining = tuple(place.node for place in self.members if place.node in drain)
        self._workers = {node: count for change in plan.changes for node, count in change.workers.items()}
        self._is_rebalancing = bool(joining) or any(change.is_rebalancing for change in plan.changes)

    def place(
        self,
        graph: PhysicalGraph,
        owner: IntColumn,
        holder: IntColumn,
        *,
        runs: BooleanColumn,
        movable: BooleanColumn,
        rescued: BooleanColumn,
    ) -> tuple[BooleanColumn, IntColumn]:
        """Return the drops that move, and the index in `members` of the owner of each drop.

        Parameters
        ----------
        owner : int array
            Number of the owner of each drop, or that of no member.
        holder : int array
            Number of a member with a copy of the content, for drops that leave their member, or that of no member.
        runs : bool array
            Drops that are not settled in the next view.
        movable : bool array
            Drops that may move although their member stays.
        rescued : bool array
            Drops that go to the member with the copy of their content although their member stays.
        """
        measured = self._measured(graph)
        work = np.where(runs, measured.seconds[graph.template], 0.0)
        free = [number for number in self._numbers if self._all_places[number].node not in self.draining]
        targets = free or self._numbers
        speed = [measured.capacities[number] for number in targets]
        goes = np.append(~self.stays, True)  # the last for drops without a member, whose number is -1
        is_left: BooleanColumn = goes[owner] | rescued
        stays = np.where(is_left, holder, owner)
        moved: BooleanColumn = stays == NO_MEMBER
        if self.draining and free:
            full = [number for number in self._numbers if self._all_places[number].node in self.draining]
            moved |= movable & np.isin(owner, full)
        if self._is_rebalancing:
            moved |= excess_drops(
                graph, np.where(moved, NO_MEMBER, stays), movable, work, members=targets, capacities=speed
            )
        placed = stays
        if moved.any():
            load = np.bincount(stays[~moved], weights=work[~moved], minlength=len(self._all_places))
            had = [float(load[number]) for number in targets]
            placed = reassign_together(graph, stays, moved, targets, had, capacities=speed, work=work, runs=runs)
            placed = self._where_able(graph, placed, moved & runs, targets, speed=speed, work=work)
        index = np.zeros(len(self._all_places), dtype=np.int32)
        index[self._numbers] = np.arange(len(self._numbers), dtype=np.int32)
        return moved | is_left, index[placed]

    def _where_able(
        self,
        graph: PhysicalGraph,
        placed: IntColumn,
        moved: BooleanColumn,
        targets: Sequence[int],
        *,
        speed: Sequence[float],
        work: FloatColumn,
    ) -> IntColumn:
        """Return a placement in which drops that move are on members that have what they need, if there are any.

        Those that join have not reported, and count as able.
        """
        refusing: dict[int, set[int]] = {}
        for number, report in enumerate(self._reports):
            for row in report.unable:
                refusing.setdefault(row, set()).add(number)
        for row, members in sorted(refusing.items()):
            able = [at for at, number in enumerate(targets) if number not in members]
            wrong = moved & (graph.template == row) & np.isin(placed, sorted(members))
            if able and wrong.any():
                load = np.bincount(placed[~wrong], weights=work[~wrong], minlength=len(self._all_places))
                numbers, powers = [targets[at] for at in able], [speed[at] for at in able]
                had = [float(load[number]) for number in numbers]
                placed = reassign_together(
                    graph, placed, wrong, numbers, had, capacities=powers, work=work, runs=np.ones_like(moved)
                )
        return placed

    def _measured(self, graph: PhysicalGraph) -> Speeds:
        """Return how fast each of all nodes is; those that join have the mean speed."""
        joining = self._all_places[len(self._reports) :]
        workers = [report.workers for report in self._reports]
        workers += [self._workers.get(place.node, 1.0) for place in joining]
        return measure(graph, workers, [*(report.durations for report in self._reports), *({} for _ in joining)])


def _is_needed(graph: PhysicalGraph, runs: BooleanColumn, kept: bytes) -> BooleanColumn:
    """Return which drops are results, or are read by a drop that runs."""
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    is_needed = np.frombuffer(kept, dtype=np.uint8) > 0
    is_needed[source[runs[out.neighbour]]] = True
    return is_needed


def _is_read_file(graph: PhysicalGraph) -> BooleanColumn:
    """Return which drops are files that an application writes, another one reads, and that stay by default only."""
    stays = [template.category in ("File", "Directory") and template.persist is None for template in graph.templates]
    is_file: BooleanColumn = np.array(stays, dtype=np.bool_)[graph.template]
    is_file &= (np.diff(graph.predecessors.ptr) > 0) & (np.diff(graph.successors.ptr) > 0)
    return is_file


def _written(graph: PhysicalGraph, known: "_Known") -> BooleanColumn:
    """Return the data that have a part already, or a producer that has completed."""
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    is_written = np.zeros(graph.drops, dtype=np.bool_)
    is_written[out.neighbour[known.states[source] == _COMPLETED]] = True
    is_written[[drop for _, drop in known.parts]] = True
    return is_written


def _decoded(graph: PhysicalGraph, member: str, report: bytes) -> "_Report":
    try:
        packed = msgspec.msgpack.decode(report, type=MemberReport)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"the report of node {member} cannot be read: {error}") from error
    rows = unpack_column(packed.rows, np.int32).astype(np.int32, copy=False)
    parts = unpack_column(packed.parts, np.int32).astype(np.int32, copy=False)
    unpacked = _Report(
        rows=rows,
        states=unpack_column(packed.states, np.uint8).astype(np.uint8, copy=False),
        available=unpack_column(packed.available, np.uint8).astype(np.bool_),
        parts=parts[: len(parts) // 2 * 2].reshape(-1, 2),
        attempts=packed.attempts,
        causes=packed.causes,
        copies=unpack_column(packed.copies, np.int32).astype(np.int32, copy=False),
        replaced=unpack_column(packed.replaced, np.int32).astype(np.int32, copy=False),
        workers=packed.workers,
        durations=packed.durations,
        unable=packed.unable,
    )
    others = np.array([*packed.attempts, *packed.causes], dtype=np.int64)
    named = np.concatenate([rows, parts, unpacked.copies, unpacked.replaced, others])
    is_outside = len(named) and (named.min() < 0 or named.max() >= graph.drops)
    if is_outside or not len(rows) == len(unpacked.states) == len(unpacked.available):
        raise ProtocolError(f"the report of node {member} is not about the graph {graph.name!r}")
    return unpacked


class _Report(NamedTuple):
    """A `MemberReport`, unpacked; `parts` has a row for each pair."""

    rows: npt.NDArray[np.int32]
    states: StateColumn
    available: BooleanColumn
    parts: npt.NDArray[np.int32]
    attempts: Mapping[int, int]
    causes: Mapping[int, int]
    copies: npt.NDArray[np.int32]
    replaced: npt.NDArray[np.int32]
    workers: float
    durations: Durations
    unable: tuple[int, ...]


def _merge(graph: PhysicalGraph, owner: IntColumn, reports: list[_Report], *, stays: BooleanColumn) -> _Known:
    """Return what the reports say together: the owner about its drops, neighbours about those of lost nodes.

    What a member that leaves has is not available any more.
    """
    nowhere = np.full(graph.drops, NO_MEMBER, dtype=np.int32)
    states, available = np.zeros(graph.drops, dtype=np.uint8), np.zeros(graph.drops, dtype=np.bool_)
    known = _Known(states, available, [], {}, {}, nowhere, [], np.zeros(graph.drops, dtype=np.bool_))
    is_data = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    lost_drop, neighbour_owner = _cut_edges(graph, owner)
    has_home = np.append(stays, False)  # the last for drops without a member
    for number, report in enumerate(reports):
        rows, is_own = report.rows, owner[report.rows] == number
        known.states[rows[is_own]] = report.states[is_own]
        known.available[rows[is_own]] = report.available[is_own] & stays[number]
        # Members that are not neighbours have rows of drops whose events they do not get.
        is_near = np.zeros(graph.drops, dtype=np.bool_)
        is_near[lost_drop[neighbour_owner == number]] = True
        is_new = is_near[rows] & _is_settled(report.states) & (known.states[rows] == _INITIALIZED)
        known.states[rows[is_new]] = report.states[is_new]
        here = report.parts[has_home[owner[report.parts[:, 1]]]] if stays[number] else report.parts[:0]
        known.parts.extend(zip(here[:, 0].tolist(), here[:, 1].tolist(), strict=True))
        if stays[number]:
            copied = report.copies[~has_home[owner[report.copies]] & is_data[report.copies]]
            known.holder[copied[known.holder[copied] == NO_MEMBER]] = number
        known.replaced.extend(report.replaced[owner[report.replaced] == number].tolist())
        for drop, attempt in report.attempts.items():
            known.attempts[drop] = max(attempt, known.attempts.get(drop, 1))
        for drop, cause in report.causes.items():
            known.causes.setdefault(drop, cause)
    # Only contents of completed drops are copied.
    has_copy = known.holder != NO_MEMBER
    known.states[has_copy] = _COMPLETED
    is_gone = is_data & (known.states == _COMPLETED) & ~known.available & has_home[owner]
    is_gone[known.replaced] = False
    for number in np.flatnonzero(stays).tolist():
        copied = reports[number].copies[is_gone[reports[number].copies]]
        new = copied[~known.rescued[copied]]
        known.holder[new], known.rescued[new] = number, True
    has_copy |= known.rescued
    known.available[has_copy] = True
    known.replaced[:] = [drop for drop in known.replaced if not has_copy[drop]]
    for cause in {cause for drop, cause in known.causes.items() if known.states[drop] == _ERROR}:
        if owner[cause] == NO_MEMBER and known.states[cause] == _INITIALIZED:
            # No member has a neighbour of it, but it has failed, since others have because of it.
            known.states[cause], known.causes[cause] = _ERROR, cause
    return known


def _cut_edges(graph: PhysicalGraph, owner: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the drop of a lost node, and the owner of the other end, of each edge between a lost node and a member."""
    out = graph.successors
    source = np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(out.ptr))
    from_lost, to_lost = owner[source] == NO_MEMBER, owner[out.neighbour] == NO_MEMBER
    down, up = from_lost & ~to_lost, to_lost & ~from_lost
    drops = np.concatenate([source[down], out.neighbour[up]])
    others = np.concatenate([owner[out.neighbour[down]], owner[source[up]]])
    return drops, others


def _is_settled(states: StateColumn) -> BooleanColumn:
    """Return which drops need not run."""
    is_settled: BooleanColumn = np.isin(states, (_COMPLETED, _ERROR, _SKIPPED, _CANCELLED))
    return is_settled
