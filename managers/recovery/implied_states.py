"""Completions that no member has seen, but that others imply."""

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState

__all__ = ["with_implied_completions"]

_COMPLETED = np.uint8(DropState.COMPLETED)

StateColumn = npt.NDArray[np.uint8]
BooleanColumn = npt.NDArray[np.bool_]


def with_implied_completions(graph: PhysicalGraph, states: StateColumn, unknown: BooleanColumn) -> StateColumn:
    """Return the states, with COMPLETED for unknown drops that must have completed since a successor has.

    An application that tolerates neither failed nor skipped inputs and waits for all has completed only if each input
    had. So has a data drop that has one producer, or does not tolerate skipped ones. Without this, long
    paths inside of a lost node would run again although what they led to is there. If the content of such a drop is
    needed after all, it is found to be lost, and the drop runs again.

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
            not one.block_skip and (one.kind is Kind.DATA or (one.effective_inputs <= 0 and one.error_threshold == 0.0))
            for one in graph.templates
        ],
        dtype=np.bool_,
    )[graph.template]
    strict |= (graph.kinds[graph.template] == np.uint8(Kind.DATA)) & (inputs == 1)
    found = states.copy()
    first = strict & (found == _COMPLETED)
    implied = np.zeros(graph.drops, dtype=np.bool_)
    implied[before.neighbour[np.repeat(first, inputs)]] = True
    waiting: list[int] = np.flatnonzero(implied & unknown).tolist()
    ptr, neighbour = before.ptr.data, before.neighbour.data
    state, is_open, implies = found.data, unknown.copy().view(np.uint8).data, strict.view(np.uint8).data
    completed = int(_COMPLETED)
    while waiting:
        drop = waiting.pop()
        if is_open[drop]:
            is_open[drop], state[drop] = 0, completed
            if implies[drop]:
                waiting.extend(neighbour[ptr[drop] : ptr[drop + 1]])
    return found
