"""What a waiting drop waits for, down to a drop that waits for no other, as lines for people."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from dropflow.graph.order import waiting_chain
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.states import DropState

__all__ = ["chain_lines"]

_FIRST, _LAST = 6, 3


def chain_lines(
    graph: PhysicalGraph,
    drop: int,
    states: npt.NDArray[np.uint8],
    reasons: Callable[[int], Sequence[str]],
    *,
    silent: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return a line for each drop of the chain from `drop` to its root, and the reasons of the root.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph.
    drop : int
        A row; the answer is empty unless it waits for another drop.
    states : array of uint8
        `DropState` of each drop.
    reasons : callable
        Returns why the root is not settled, by its row.
    silent : sequence of str
        Nodes that did not answer: their drops count as not settled.
    """
    chain = waiting_chain(graph, drop, states).tolist() if states[drop] <= DropState.WRITING else [drop]
    if len(chain) == 1:
        return ()
    lines = [_line(graph, row, states) for row in chain[1:]]
    if len(lines) > _FIRST + _LAST + 1:
        between = len(lines) - _FIRST - _LAST
        lines[_FIRST:-_LAST] = [f"  and so on, over {between} more drops"]
    if silent:
        lines.append(f"  {', '.join(silent)} did not answer, so that drops there may be further than this")
    return ("down to the root, it waits for:", *lines, *(f"  it is not settled: {one}" for one in reasons(chain[-1])))


def _line(graph: PhysicalGraph, row: int, states: npt.NDArray[np.uint8]) -> str:
    node = f" on {graph.places[graph.part[row]]}" if graph.places else ""
    name = graph.templates[graph.template[row]].name
    return f"  {name} ({oid(graph, row)}){node} is {DropState(states[row]).name}"
