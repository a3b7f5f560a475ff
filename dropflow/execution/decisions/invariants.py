"""Invariants of a core between any two events. Reads the whole state: for tests, and for ``--debug``."""

from dropflow.errors import InternalError
from dropflow.execution.decisions.core import Core
from dropflow.graph.templates import Kind
from dropflow.states import DropState, SessionState


def check(core: Core) -> None:
    """Compare the core's counters with its drops, and its drops with each other.

    Raises
    ------
    InternalError
        Names the first invariant that does not hold.
    """
    graph = core.graph
    local = [drop for drop in range(graph.drops) if drop not in core.drops.remote]
    states = [core.drops.state(drop) for drop in range(graph.drops)]
    counts = [[0] * len(DropState) for _ in graph.templates]
    for drop in local:
        counts[graph.template[drop]][states[drop]] += 1
    _hold(counts == [list(row) for row in core.drops.counts], "the counts by template and state are those of the drops")
    failed = [0] * len(graph.templates)
    for drop in local:
        failed[graph.template[drop]] += states[drop] is DropState.ERROR and core.drops.cause(drop) == drop
    _hold(failed == core.drops.failed, "the drops that failed by template are those that are their own cause")
    unsettled = sum(not states[drop].is_terminal for drop in local)
    _hold(core.drops.unsettled == unsettled, "the number of open drops is that of drops in no terminal state")
    _hold(
        all(states[drop] is DropState.WRITING for drop in core.drops.running),
        "a drop whose attempt is with a runner is WRITING",
    )
    abroad = sum(not states[drop].is_terminal for drop in core.drops.remote)
    _hold(
        core.drops.unsettled_remote == abroad,
        "the number of drops awaited from other nodes is that of remote ones not settled",
    )
    _check_streaming(core, states)
    over = core.status.is_terminal
    if core.status in (SessionState.RUNNING, SessionState.PAUSED):
        _hold(
            unsettled + core.drops.unsettled_remote > 0,
            "a running session has a drop, here or elsewhere, that is not settled",
        )
        _check_progress(core, states)
    if core.status is SessionState.CANCELLING:
        _hold(
            unsettled == len(core.drops.running) > 0,
            "a session that is being cancelled waits for the end of attempts, and of nothing else",
        )
    _hold(not over or unsettled == 0, "nothing is open when the session is over")
    # If another node cannot get the content of a drop that completed here, this drop is the cause. When that node is
    # lost, its drops are here, and their cause is a drop that is complete, or runs again.
    causes = {DropState.ERROR, DropState.CANCELLED} | ({DropState.COMPLETED} if core.drops.remote else set())
    if core.drops.has_known_states:
        causes = set(DropState) - {DropState.SKIPPED}
    for drop, cause in core.drops.error_causes().items():
        is_cancelled = drop in core.drops.cancelled and states[drop] is DropState.CANCELLED
        _hold(states[drop] is DropState.ERROR or is_cancelled, f"drop {drop} has a cause and is in ERROR")
        known = 0 <= cause < graph.drops and cause not in core.drops.remote
        _hold(
            not known or states[cause] in causes,
            f"the cause of drop {drop} is itself in ERROR, or out of reach of another node",
        )


def _check_streaming(core: Core, states: list[DropState]) -> None:
    """Check that attempts that run ahead read inputs that are complete or open, and that open drops are WRITING."""
    before = core.graph.predecessors
    for drop, state in enumerate(states):
        _hold(
            not core.streaming.open_attempt(drop) or state is DropState.WRITING,
            f"drop {drop} is open and being written",
        )
        if core.streaming.is_ahead(drop):
            inputs = before.of(drop)
            ready = all(states[data] is DropState.COMPLETED or core.streaming.open_attempt(data) > 0 for data in inputs)
            _hold(drop in core.drops.running and ready, f"application {drop} runs ahead of inputs that it can read")
            _hold(
                core.drops.pending_inputs[drop] == core.streaming.open_inputs(drop),
                f"application {drop} waits for its open inputs only",
            )


def _check_progress(core: Core, states: list[DropState]) -> None:
    """Check that no drop waits for an event that cannot happen: one of its predecessors is not settled."""
    before = core.graph.predecessors
    for drop, state in enumerate(states):
        if state is not DropState.INITIALIZED or drop in core.drops.remote:
            continue
        waiting_for = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]]
        _hold(
            any(not states[other].is_terminal for other in waiting_for),
            f"drop {drop} waits for something that can still happen",
        )
        kind = core.graph.templates[core.graph.template[drop]].kind
        _hold(
            core.drops.pending_inputs[drop] > 0 or kind is Kind.DATA,
            f"application {drop} acts as soon as its inputs are in",
        )


def _hold(truth: bool, statement: str) -> None:  # noqa: FBT001 - an assertion reads best this way
    if not truth:
        raise InternalError(f"invariant broken: {statement}")
