"""How a session that was stopped goes on: from what is left of it on its nodes to the deployment that continues it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.errors import ConflictError, GoneError
from dropflow.execution.decisions.continuation import StateColumn, has_attempts
from dropflow.formatting import few, plural
from dropflow.graph.codec import dump
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import with_placement
from dropflow.sessions.retry import Again, OutsideInputs, RepeatedDrops, choose
from dropflow.states import KEPT_STATES, DropState, SessionState
from managers.deployment import Deployment, Place
from managers.recovery.records import FEWEST_VOTERS, MemberReport, StoppedPart, View, ViewDecision, unpack_column
from managers.recovery.replan import decide, known_drops, with_implied_completions
from managers.recovery.vote import PlanView

_SHOWN_NODES = 5
"""Names of nodes in a message."""


@dataclass(frozen=True)
class _Copies:
    """The copies of a session, sorted by what they are good for.

    Attributes
    ----------
    newest : StoppedPart
        One of the latest view.
    counted : dict of str to StoppedPart
        By node: copies of members of the latest view that are of this view, or of the one before it.
    missing : dict of str to str
        The other members of the latest view, and why their copy does not count.
    older : tuple of str
        Nodes with a copy of an earlier view, which does not count.
    """

    newest: StoppedPart
    counted: Mapping[str, StoppedPart]
    missing: Mapping[str, str]
    older: tuple[str, ...]

    @property
    def deployment(self) -> Deployment:
        """The latest deployment."""
        assert self.newest.deployment is not None  # `is_over`
        return self.newest.deployment

    @property
    def members(self) -> tuple[Place, ...]:
        """Members of the latest view."""
        return _members(self.newest)

    @property
    def draining(self) -> tuple[str, ...]:
        """Members of the latest view that get no drops."""
        decision = self.newest.decision
        return () if decision is None else tuple(node for node in decision.view.draining if node in self.counted)

    @property
    def witnesses(self) -> tuple[Place, ...]:
        """Witnesses of the latest view."""
        decision = self.newest.decision
        return self.deployment.witnesses if decision is None else decision.view.witnesses


def newest_holders(session: str, parts: Sequence[StoppedPart]) -> list[str]:
    """Return the nodes with a copy of the latest view, from which the graph can be read.

    Raises
    ------
    ConflictError
        The session is not over on a node.
    GoneError
        No copy can be used.
    """
    running = sorted(part.node for part in parts if not part.is_over and not part.finding)
    if running:
        status = next(part.status for part in parts if part.node == running[0])
        raise ConflictError(
            f"session {session!r} is not over: it is {status} on {few(running, _SHOWN_NODES)}",
            hint="wait until it has ended, or cancel it first",
        )
    usable = [part for part in parts if part.is_over]
    if not usable:
        findings = "; ".join(part.finding for part in parts)
        raise GoneError(
            f"session {session!r} cannot be continued: {findings}",
            hint="put the files back; --ignore-damage reads a journal up to its damage, and helps with nothing else",
        )
    latest = max(part.version for part in usable)
    return sorted(part.node for part in usable if part.version == latest)


def plan_resumption(
    graph: PhysicalGraph,
    parts: Sequence[StoppedPart],
    request: ResumeRequest,
    nodes: Sequence[NodeInfo],
    *,
    now: float,
    after: int = 0,
    witness: Place | None = None,
) -> Deployment:
    """Return the deployment with which a session that was stopped goes on, on those of its nodes that are there.

    Parameters
    ----------
    graph : PhysicalGraph
        Its whole graph, as it was deployed.
    parts : sequence of StoppedPart
        The parts of the session on its nodes.
    request : ResumeRequest
        Whether failed drops are tried again, or drops are run again, and what is tolerated.
    nodes : sequence of NodeInfo
        All nodes.
    now : float
        Seconds since the epoch.
    after : int
        Greatest epoch of a session of this name that the caller knows.
    witness : Place or None
        A process that all nodes can reach, and that may vote about views of the session.

    Raises
    ------
    ConflictError
        The session is not over on a node; nothing is left to run; too many nodes are missing; or see
        `dropflow.sessions.local_run.retry`.
    GoneError
        No copy can be used.
    NotFoundError, AmbiguousError, UsageError
        See `dropflow.sessions.local_run.retry`.
    """
    alive = {node.name: node for node in nodes if node.state == "alive"}
    session = next((part.deployment.session for part in parts if part.deployment is not None), "")
    newest_holders(session, parts)
    copies = _sorted_copies(parts, alive)
    _refuse_minority(session, copies, request)
    plan, placed = _plan(graph, copies, alive, witness)
    decision, changed, note = _decided(placed, plan, copies, request, now)
    decision = _with_standby(decision, alive)
    before = copies.deployment
    return msgspec.structs.replace(
        before,
        epoch=max(int(now * 1e6), before.epoch + 1, after + 1),
        places=decision.view.members,
        witnesses=decision.view.witnesses,
        nodes=tuple(place.node for place in decision.view.members),
        notes=tuple(dict.fromkeys((*before.notes, *(note for part in parts for note in part.notes), note))),
        decision=msgspec.msgpack.encode(decision),
        view=decision.view.number,
        until=request.until,
        recomputed=sum(part.recomputed for part in copies.counted.values()),
        copies={node: part.version for node, part in copies.counted.items()},
        is_joining=False,
        started=0.0,
        dfg=b"".join(dump(with_placement(changed, graph.part, graph.places))),
    )


def _decided(
    placed: PhysicalGraph, plan: PlanView, copies: _Copies, request: ResumeRequest, now: float
) -> tuple[ViewDecision, PhysicalGraph, str]:
    """Return the next view of a session, its graph with the values that the request changes, and a note about both.

    Raises `ConflictError` if nothing is left to run, and as `dropflow.sessions.local_run.retry`.
    """
    session = copies.deployment.session
    states, causes = known_drops(placed, plan)
    pending = _pending(placed, copies)
    states[list(pending.drops)] = DropState.INITIALIZED
    if isinstance(request, RetryRequest) and (request.start or (request.code and not causes)):
        states = with_implied_completions(placed, states, _is_unknown(placed, states))
    again = _chosen(placed, states, causes, request, session)
    repeated = {*pending.drops, *again.repeated}
    decision = decide(
        placed,
        plan,
        retried={*pending.begun, *again.retried},
        repeated=repeated,
        reason=again.reason or _reason(copies),
    )
    is_reset = np.zeros(placed.drops, dtype=np.bool_)
    is_reset[unpack_column(decision.reset, np.int32)] = True
    if again.is_named:
        every = again._replace(repeated=tuple(repeated))
        every.refuse(placed, states, is_reset, _outside_inputs(copies), where=session)
    runs = is_reset | ~np.isin(states, [int(state) for state in KEPT_STATES])
    runs[unpack_column(decision.repeated, np.int32)] = True
    # Its nodes may have been lost after the last drop, and before the end of the session.
    is_cut_off = not causes and any(part.status == "FAILED" for part in copies.counted.values())
    if not runs.any() and not is_cut_off:
        raise ConflictError(
            f"session {session!r} has ended: nothing is left to run",
            hint="'dropflow retry' tries failed drops again" if causes else "its results are there: 'dropflow fetch'",
        )
    note = _note(
        copies,
        now,
        retried=0 if again.is_named else len(again.retried),
        again=len(again.repeated) if again.is_named else 0,
        kept=int(np.count_nonzero(~runs)),
        recomputed=int(np.count_nonzero(has_attempts(placed) & is_reset)),
    )
    return decision, again.graph, note


def _chosen(
    placed: PhysicalGraph, states: StateColumn, causes: Mapping[int, int], request: ResumeRequest, session: str
) -> Again:
    """Return which drops a retry runs again, with which values and code; none if it is not a retry."""
    if not isinstance(request, RetryRequest):
        return Again(placed)
    return choose(
        placed,
        states,
        causes,
        drops=request.drops,
        start=request.start,
        settings=request.settings,
        code=request.code,
        where=session if request.start else "",
        hint="'dropflow resume' continues one that was stopped",
    )


def _members(part: StoppedPart) -> tuple[Place, ...]:
    """Return the members of the view of a copy."""
    if part.decision is not None:
        return part.decision.view.members
    assert part.deployment is not None  # `is_over`
    return part.deployment.places


def _sorted_copies(parts: Sequence[StoppedPart], alive: Mapping[str, NodeInfo]) -> _Copies:
    usable = [part for part in parts if part.is_over]
    newest = max(usable, key=lambda part: (part.version, part.node))
    names = [place.node for place in _members(newest)]
    by_node = {part.node: part for part in parts}
    counted, missing = {}, {}
    for name in names:
        part = by_node.get(name)
        if part is None:
            missing[name] = "it has no copy of the session" if name in alive else "it does not answer"
        elif part.finding:
            missing[name] = part.finding
        elif name not in alive:
            missing[name] = "it does not answer"
        elif not _counts(part, newest):
            missing[name] = "its copy is older than those of others"
        else:
            counted[name] = part
    older = tuple(sorted(part.node for part in usable if part.node not in counted))
    return _Copies(newest, counted, missing, older)


def _counts(part: StoppedPart, newest: StoppedPart) -> bool:
    """Return whether the copy of a member is true: it has nothing later.

    That is so if its view is the latest one; and for the view before, too, since this node never began the latest one.
    """
    if part.version == newest.version:
        return True
    assert newest.deployment is not None  # `is_over`
    epochs = (newest.version[0], newest.deployment.copies.get(part.node, (0, 0))[0])
    return part.version[0] in epochs and part.view == newest.view - 1


def _refuse_minority(session: str, copies: _Copies, request: ResumeRequest) -> None:
    """Refuse if the nodes that are missing could have gone on by themselves."""
    voters = len(copies.members) + len(copies.witnesses)
    away = len(copies.missing) + len(copies.witnesses)
    could_go_on = bool(copies.missing) and voters >= FEWEST_VOTERS and away >= voters // 2 + 1
    if copies.counted and (request.without_missing or not could_go_on):
        return
    why = "; ".join(f"{node}: {reason}" for node, reason in copies.missing.items())
    raise ConflictError(
        f"session {session!r} may have gone on on nodes that are missing: {len(copies.counted)} of its "
        f"{len(copies.members)} nodes are there ({why})",
        hint="start the other nodes, and ask a manager above all of them; if they are switched off or gone for good, "
        + ("repeat this with --without-missing" if copies.counted else "submit the graph again"),
    )


def _plan(
    graph: PhysicalGraph, copies: _Copies, alive: Mapping[str, NodeInfo], witness: Place | None
) -> tuple[PlanView, PhysicalGraph]:
    """Return what is known, and the graph with each drop on the node whose copy knows it; on none if there is none."""
    names = sorted({"", *copies.counted})
    numbers = {name: number for number, name in enumerate(names)}
    owners = _owners(graph, copies.newest, numbers)
    for node, part in copies.counted.items():
        if part.version != copies.newest.version:
            is_known = _owners(graph, part, numbers) == numbers[node]
            owners[(owners == numbers[node]) & ~is_known] = numbers[""]
    members = tuple(
        Place(place.node, alive[place.node].links, alive[place.node].incarnation)
        for place in copies.members
        if place.node in copies.counted
    )
    reports = {
        node: part.report if part.version == copies.newest.version else _without_copies(part.report)
        for node, part in copies.counted.items()
    }
    witnesses = () if witness is None else (witness,)
    plan = PlanView(
        (0, 0), View(copies.newest.view, members, witnesses, copies.draining), reports, dict(copies.missing)
    )
    return plan, with_placement(graph, owners, names)


def _without_copies(report: bytes) -> bytes:
    """Return the report of a node that never began the latest view, in which contents may have been made again."""
    return msgspec.msgpack.encode(
        msgspec.structs.replace(msgspec.msgpack.decode(report, type=MemberReport), copies=b"")
    )


def _owners(graph: PhysicalGraph, part: StoppedPart, numbers: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """Return the number of the node of each drop in the view of a copy: that of "" for other nodes."""
    if part.decision is None:
        places, column = graph.places, graph.part
    else:
        places = part.decision.places
        column = unpack_column(part.decision.placement, np.uint16).astype(np.int32)
    number = np.array([numbers.get(place, numbers[""]) for place in places], dtype=np.int32)
    return number[column]


def _pending(placed: PhysicalGraph, copies: _Copies) -> RepeatedDrops:
    """Return the drops that the latest view has settle again, on nodes that never began it.

    The copies of these nodes still have the states and contents from before.
    """
    decision = copies.newest.decision
    late = [node for node, part in copies.counted.items() if part.version != copies.newest.version]
    if decision is None or not late:
        return RepeatedDrops()
    is_late = np.isin(placed.part, [row for row, place in enumerate(placed.places) if place in late])
    drops = unpack_column(decision.repeated, np.int32)
    repeated: list[int] = drops[is_late[drops]].tolist()
    return RepeatedDrops(drops=tuple(repeated), begun=tuple(drop for drop in decision.retried if is_late[drop]))


def _is_unknown(placed: PhysicalGraph, states: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return the drops of missing nodes: nothing is known of them."""
    is_missing = np.array([not place for place in placed.places], dtype=np.bool_)[placed.part]
    is_unknown: npt.NDArray[np.bool_] = is_missing & (states == DropState.INITIALIZED)
    return is_unknown


def _outside_inputs(copies: _Copies) -> OutsideInputs:
    parts = copies.counted.values()
    return OutsideInputs(
        missing=frozenset(row for part in parts for row in part.missing_inputs),
        changed=frozenset(row for part in parts for row in part.changed_inputs),
        replaced=frozenset(row for part in parts for row in part.replaced_inputs),
    )


def _reason(copies: _Copies) -> str:
    was_cancelled = any(part.status == SessionState.CANCELLED.name for part in copies.counted.values())
    return "the session was cancelled" if was_cancelled else "the nodes of the session were stopped"


def _with_standby(decision: ViewDecision, alive: Mapping[str, NodeInfo]) -> ViewDecision:
    """Return a decision with members that hold no drops, if there are enough nodes to survive the loss of one then."""
    members = decision.view.members
    names = {place.node for place in members}
    others = sorted(name for name in alive if name not in names)
    wanted = max(FEWEST_VOTERS - len(members), 0)
    if len(others) < wanted - len(decision.view.witnesses):
        others = []
    more = tuple(Place(name, alive[name].links, alive[name].incarnation) for name in others[:wanted])
    return msgspec.structs.replace(decision, view=msgspec.structs.replace(decision.view, members=members + more))


def _note(copies: _Copies, now: float, *, retried: int, again: int, kept: int, recomputed: int) -> str:
    """Return what is shown about the continuation: when, what is kept, what runs again, and what is missing."""
    what = "tried again" if retried else "run again" if again else "resumed"
    parts = [f"{plural(kept, 'drop')} kept"]
    if retried:
        parts.append(f"{plural(retried, 'failed drop')} tried again")
    if again:
        parts.append(f"{plural(again, 'drop')} run again as was asked for")
    if recomputed:
        parts.append(f"{plural(recomputed, 'completed drop')} run again because contents are lost")
    parts += [f"without node {node} ({why})" for node, why in copies.missing.items()]
    older = [node for node in copies.older if node not in copies.missing]
    if older:
        parts.append(f"older copies on {few(older, _SHOWN_NODES)} were left out")
    return f"{what} at {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S UTC}: {', '.join(parts)}"
