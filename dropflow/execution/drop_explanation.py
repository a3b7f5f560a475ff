"""Why a drop is in its state: the drops that it waits for, or the cause."""

from collections.abc import Iterator, Sequence

import msgspec

from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_rules import effective_inputs
from dropflow.execution.decisions.events import KnownStates
from dropflow.execution.failure_table import Fault, fault_lines
from dropflow.formatting import few
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import label, oid
from dropflow.states import DropState, SessionState

_SHOWN_DROPS = 10
"""Drops in one list of an explanation."""
_RELEASED = "was released after its last consumer"


class Explanation(msgspec.Struct, frozen=True):
    """The state of one drop, and the reasons for it.

    Attributes
    ----------
    oid : str
    state : DropState
    waiting_for : tuple of int
        Predecessors that are not settled.
    cause : int or None
        The drop that started the error.
    lines : tuple of str
        Sentences with the reasons, most important first.
    """

    oid: str
    state: DropState
    waiting_for: tuple[int, ...]
    cause: int | None
    lines: tuple[str, ...]


def explain(core: Core, drop: int, faults: Sequence[Fault] = ()) -> Explanation:
    """Return why `drop` is in its state, and the infrastructure faults that it had before."""
    graph = core.graph
    template = graph.templates[graph.template[drop]]
    state, cause = core.drops.state(drop), core.drops.cause(drop)
    before = graph.predecessors
    inputs = before.of(drop)
    states = [core.drops.state(other) for other in inputs]
    waiting = tuple(other for other, known in zip(inputs, states, strict=True) if not known.is_terminal)
    noun = "application" if template.kind is Kind.APP else "data"
    lines = [f"{noun} drop of {template.name!r}, {state.name}"]
    if state is DropState.INITIALIZED and inputs:
        lines += _waiting(core, drop, inputs, waiting)
    elif state is DropState.WRITING:
        lines += _writing(core, drop, waiting)
    elif state is DropState.ERROR and cause is not None:
        own = cause == drop
        lines.append("it failed itself" if own else f"the error started at {oid(graph, cause)}" if cause >= 0 else "")
        errors, skips = states.count(DropState.ERROR), states.count(DropState.SKIPPED)
        if errors and not own and template.kind is Kind.APP:
            lines.append(
                f"of its {len(inputs)} inputs {errors} failed and {skips} were skipped; "
                f"it tolerates {template.error_threshold:g} % of failed inputs"
            )
    elif state is DropState.CANCELLED:
        lines.append("it was cancelled alone" if drop in core.drops.cancelled else "it was cancelled with its session")
    elif state is DropState.SKIPPED:
        skips = states.count(DropState.SKIPPED)
        lines += [f"{skips} of its {len(inputs)} predecessors were skipped"] if skips else []
        is_passed_on = 0 < skips < len(inputs) and not template.block_skip
        lines += ["with block_skip, it would go on with the others"] if is_passed_on else []
        lines.append(_first_skip(core, drop))
    is_given_up = cause == drop and bool(faults) and faults[-1].attempt == core.drops.attempt(drop)
    lines += fault_lines(faults[:-1] if is_given_up else faults)
    return Explanation(
        oid=oid(graph, drop), state=state, waiting_for=waiting, cause=cause, lines=tuple(line for line in lines if line)
    )


def _waiting(core: Core, drop: int, inputs: Sequence[int], waiting: Sequence[int]) -> Iterator[str]:
    template = core.graph.templates[core.graph.template[drop]]
    is_data = template.kind is Kind.DATA
    wanted = len(inputs) if is_data else effective_inputs(template.effective_inputs, len(inputs))
    errors, skips = core.drops.failed_inputs.get(drop, 0), core.drops.skipped_inputs.get(drop, 0)
    yield (
        f"waits for {core.drops.pending_inputs[drop]} of {wanted} {'producers' if is_data else 'inputs'}; "
        f"of those that reported, {errors} failed and {skips} were skipped"
    )
    yield from _states(core, waiting)


def _writing(core: Core, drop: int, waiting: Sequence[int]) -> Iterator[str]:
    if core.streaming.is_ahead(drop):
        yield (
            f"attempt {core.drops.attempt(drop)} reads inputs that are still being written; "
            "its result counts when they are complete"
        )
        yield from _states(core, waiting)
    elif drop in core.drops.running:
        is_stopping = core.status is SessionState.CANCELLING
        yield f"attempt {core.drops.attempt(drop)} is {'being stopped' if is_stopping else 'running'}"
    elif attempt := core.streaming.open_attempt(drop):
        yield f"attempt {attempt} of its producer writes it, and consumers may read what is written"
    else:
        yield "its parts are being assembled"
    uncounted = core.drops.uncounted_attempts.get(drop, 0)
    if uncounted:
        yield (
            f"{uncounted} of its attempts do not count as tries: they were stopped, their inputs were withdrawn, "
            "or their outputs were lost"
        )


def _first_skip(core: Core, drop: int) -> str:
    """Return which application chose to skip what leads to a skipped drop, and which of its outputs it did not skip.

    A node may not know that application: then it names the drop of another node that the skip came from.
    """
    graph, path, before = core.graph, drop, core.graph.predecessors
    while skipped := [other for other in before.of(path) if core.drops.state(other) is DropState.SKIPPED]:
        path = skipped[0]
    if not before.of(path):
        return "" if path == drop else f"the skip came from {label(graph, path)!r} ({oid(graph, path)})"
    app = before.of(path)[0]
    kept = [label(graph, data) for data in graph.successors.of(app) if core.drops.state(data) is not DropState.SKIPPED]
    shown = few([repr(name) for name in kept]) or "none of its outputs"
    return f"{label(graph, app)!r} ({oid(graph, app)}) chose {shown}, and skipped {label(graph, path)!r}"


def _states(core: Core, drops: Sequence[int]) -> Iterator[str]:
    for other in drops[:_SHOWN_DROPS]:
        yield f"  {oid(core.graph, other)} is {core.drops.state(other).name}"
    if len(drops) > _SHOWN_DROPS:
        yield f"  and {len(drops) - _SHOWN_DROPS} more"


# Why a drop of a session that continued ran again, or was kept.


def explain_repeat(graph: PhysicalGraph, known: KnownStates, drop: int) -> Iterator[str]:
    """Yield why a drop was kept, or ran again, when its session continued.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed.
    known : KnownStates
        The states with which the session continued.
    drop : int
        The drop.
    """
    if drop in known.reset:
        is_data = graph.kinds[graph.template[drop]] == Kind.DATA
        loss = _lost(graph, known, drop) if is_data else _wanted(graph, known, drop)
        yield f"it was completed when {known.reason}, and ran again: {loss}"
    elif known.states[drop] > DropState.WRITING:
        yield f"it was {DropState(known.states[drop]).name} already when {known.reason}, and is kept"
        if drop in known.lost:
            is_released = drop in known.released
            yield f"its content {_RELEASED if is_released else 'was lost then, but is not needed any more'}"
    elif known.uncounted_attempts.get(drop):
        yield f"attempt {known.attempts[drop] - 1} does not count as a try: {known.reason}"


def _lost(graph: PhysicalGraph, known: KnownStates, data: int) -> str:
    """Return why a content has to be made again."""
    after = graph.successors
    users = after.of(data)
    user = next((app for app in users if known.states[app] <= DropState.WRITING), None)
    need = "it is a result" if user is None else f"{oid(graph, user)} needs it"
    return f"its content {_gone(known, data)}, and {need}"


def _gone(known: KnownStates, data: int) -> str:
    return _RELEASED if data in known.released else "was lost"


def _wanted(graph: PhysicalGraph, known: KnownStates, app: int) -> str:
    """Return which output is the reason that an application runs again."""
    after = graph.successors
    outputs = after.of(app)
    output = next((data for data in outputs if known.states[data] <= DropState.WRITING), None)
    if output is None:
        return "its outputs were lost"
    if output in known.reset:
        return f"the content of {oid(graph, output)} {_gone(known, output)}"
    return f"its part of {oid(graph, output)} was lost, which was not complete"
