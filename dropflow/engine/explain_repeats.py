"""Why a drop of a session that continued ran again, or was kept."""

from collections.abc import Iterator

from dropflow.engine.events import KnownStates
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.states import DropState

__all__ = ["explain_repeat"]

_RELEASED = "was released after its last consumer"


def explain_repeat(graph: PhysicalGraph, known: KnownStates, drop: int) -> Iterator[str]:
    """Yield why a drop was kept, or ran again, when its session continued.

    Parameters
    ----------
    graph : PhysicalGraph
        What is executed.
    known : KnownStates
        What the session continued with.
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
    users = after.neighbour[after.ptr[data] : after.ptr[data + 1]].tolist()
    user = next((app for app in users if known.states[app] <= DropState.WRITING), None)
    need = "it is a result" if user is None else f"{oid(graph, user)} needs it"
    return f"its content {_gone(known, data)}, and {need}"


def _gone(known: KnownStates, data: int) -> str:
    return _RELEASED if data in known.released else "was lost"


def _wanted(graph: PhysicalGraph, known: KnownStates, app: int) -> str:
    """Return for which output an application runs again."""
    after = graph.successors
    outputs = after.neighbour[after.ptr[app] : after.ptr[app + 1]].tolist()
    output = next((data for data in outputs if known.states[data] <= DropState.WRITING), None)
    if output is None:
        return "what it wrote was lost"
    if output in known.reset:
        return f"the content of {oid(graph, output)} {_gone(known, output)}"
    return f"its part of {oid(graph, output)} was lost, which was not complete"
