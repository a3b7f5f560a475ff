"""Why a drop is where it is: what it waits for, and what put it there."""

import msgspec

from dropflow.engine.core import Core
from dropflow.engine.rules import effective_inputs
from dropflow.graph.names import oid
from dropflow.graph.templates import Kind
from dropflow.states import DropState

__all__ = ["Explanation", "explain"]

_SHOWN = 10


class Explanation(msgspec.Struct, frozen=True):
    """What there is to say about one drop.

    Attributes
    ----------
    oid : str
    state : DropState
    waiting_for : tuple of int
        Predecessors that are not settled.
    cause : int or None
        The drop that started the error.
    lines : tuple of str
        The same in words, most important first.
    """

    oid: str
    state: DropState
    waiting_for: tuple[int, ...]
    cause: int | None
    lines: tuple[str, ...]


def explain(core: Core, drop: int) -> Explanation:
    """Explain the state of `drop` from what the core knows."""
    graph = core.graph
    template = graph.templates[graph.template[drop]]
    state, cause = core.state(drop), core.cause(drop)
    before = graph.predecessors
    inputs = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
    waiting = tuple(other for other in inputs if not core.state(other).is_terminal)
    noun = "application" if template.kind is Kind.APP else "data"
    lines = [f"{noun} drop of {template.name!r}, {state.name}"]
    errors, skips = core.told(drop)
    if state is DropState.INITIALIZED and inputs:
        wanted = (
            inputs if template.kind is Kind.DATA else range(effective_inputs(template.effective_inputs, len(inputs)))
        )
        what = "producers" if template.kind is Kind.DATA else "inputs"
        lines.append(
            f"waits for {core.awaited(drop)} of {len(wanted)} {what}; "
            f"of those that reported, {errors} failed and {skips} were skipped"
        )
        lines += [f"  {oid(graph, other)} is {core.state(other).name}" for other in waiting[:_SHOWN]]
        if len(waiting) > _SHOWN:
            lines.append(f"  and {len(waiting) - _SHOWN} more")
    elif state is DropState.WRITING:
        running = drop in core.running
        lines.append(f"attempt {core.attempt(drop)} is running" if running else "its parts are being put together")
    elif state is DropState.ERROR and cause is not None:
        own = cause == drop
        lines.append("it failed itself" if own else f"the error started at {oid(graph, cause)}" if cause >= 0 else "")
    elif state is DropState.SKIPPED:
        lines.append(f"{skips} of its {len(inputs)} predecessors were skipped" if skips else "its producer left it out")
    return Explanation(
        oid=oid(graph, drop), state=state, waiting_for=waiting, cause=cause, lines=tuple(line for line in lines if line)
    )
