"""What must run again after contents are lost.

A session that lost contents, or its process, continues by beginning a fresh core with known states
(`dropflow.engine.continuation`): those that it had, except for drops that are *reset* because their content, or their
part of one, is gone and still needed. Nothing changes the counters of a core that runs.

Everything here is pure: what is available is the caller's to find out.
"""

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from dropflow.engine.drop_rules import effective_inputs
from dropflow.engine.events import NO_CAUSE, KnownStates
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.states import DropState

_WRITING, _COMPLETED, _ERROR, _SKIPPED = DropState.WRITING, DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED

BooleanColumn = npt.NDArray[np.bool_]


def must_run_again(
    graph: PhysicalGraph,
    states: bytes | bytearray,
    available: BooleanColumn,
    *,
    kept: bytes,
    parts: Collection[tuple[int, int]] = (),
    replaced: Collection[int] = (),
) -> BooleanColumn:
    """Return the completed drops that must run again so that the session can go on: the fewest.

    An application that is not settled needs the content of each of its completed inputs. A completed data drop that is
    needed, or kept as a result, is reset if its content is not available. A data drop that is reset or not settled
    needs what each of its completed producers writes to it, so those that have no part available are reset, and need
    their own inputs. Drops in ERROR or SKIPPED stay as they are, and so do contents that are available.

    Parameters
    ----------
    graph : PhysicalGraph
        What is executed.
    states : bytes, shape (drops,)
        `DropState` of every drop. What is neither COMPLETED, ERROR nor SKIPPED counts as not settled.
    available : bool array, shape (drops,)
        Data drops whose content is at hand.
    kept : bytes, shape (drops,)
        1 for data drops whose content is a result, from `dropflow.engine.content_table.kept_drops`.
    parts : collection of (int, int)
        Producers and drops that are not settled, where the producer need not write again: its part is at hand, or it
        chose to skip the drop.
    replaced : collection of int
        Data drops whose content another drop has replaced, as the next iteration of a loop does with its file. They
        are no results any more. If something needs them after all, they are made again from what is available.

    Returns
    -------
    bool array, shape (drops,)

    Notes
    -----
    The least fixed point of these rules, found upwards from the drops that are not settled, in time linear in drops and
    edges. Mars recovers from lost workers by a similar scan in two passes, down from lost chunks to their unfinished
    successors and up to predecessors whose chunks are lost (the Mars project, "Fault tolerance", https://docs.pymars.org).
    """
    column = np.frombuffer(states, dtype=np.uint8)
    completed = column == _COMPLETED
    unsettled = ~(completed | (column == _ERROR) | (column == _SKIPPED))
    is_data: BooleanColumn = graph.kinds[graph.template] == np.uint8(Kind.DATA)
    lost = completed & is_data & ~available
    before = graph.predecessors
    needed = np.frombuffer(kept, dtype=np.uint8) > 0
    lost[list(replaced)] = completed[list(replaced)]
    needed[list(replaced)] = False
    needed[before.neighbour[np.repeat(unsettled & ~is_data, np.diff(before.ptr))]] = True
    reset: BooleanColumn = lost & needed
    # From here on only drops that run again are visited, each with its predecessors, once.
    waiting: list[int] = np.flatnonzero(reset | (unsettled & is_data)).tolist()
    ptr, neighbour = before.ptr.data, before.neighbour.data
    is_reset, may_reset = reset.view(np.uint8).data, (lost | (completed & ~is_data)).view(np.uint8).data
    there = frozenset(parts)
    while waiting:
        drop = waiting.pop()
        for other in neighbour[ptr[drop] : ptr[drop + 1]]:
            if may_reset[other] and not is_reset[other] and (not there or (other, drop) not in there):
                is_reset[other] = 1
                waiting.append(other)
    return reset


def has_attempts(graph: PhysicalGraph) -> BooleanColumn:
    """Return which drops have attempts: applications, and data without producers."""
    found: BooleanColumn = graph.kinds[graph.template] == np.uint8(Kind.APP)
    found[np.diff(graph.predecessors.ptr) == 0] = True
    return found


def recomputed_drops(graph: PhysicalGraph, known: KnownStates | None) -> int:
    """Return how many drops with attempts run again, although they had completed, because contents are lost."""
    return 0 if known is None else int(np.count_nonzero(has_attempts(graph)[list(known.reset)]))


def known_reports(
    graph: PhysicalGraph, known: KnownStates, reset: Collection[int], drop: int
) -> Iterator[tuple[int, int]]:
    """Yield the state and the cause of each settled predecessor of a drop that is not settled.

    Of an application that acts on some of its inputs only, those that completed come first, and inputs that are reset
    have a place too: an application that ran on them does so again, whatever its other inputs ended as.

    Parameters
    ----------
    reset : collection of int
        Drops that had completed, and will again.
    """
    before = graph.predecessors
    inputs = before.of(drop)
    template = graph.templates[graph.template[drop]]
    states = [_SKIPPED if drop in known.skipped.get(other, ()) else known.states[other] for other in inputs]
    settled = [(state, other) for state, other in zip(states, inputs, strict=True) if state > _WRITING]
    wanted = effective_inputs(template.effective_inputs, len(inputs)) if template.kind is Kind.APP else len(inputs)
    if wanted < len(inputs):
        # The order in which most of them can be tolerated: with `block_skip` some skips are, and without it none.
        order = (_COMPLETED, _SKIPPED, _ERROR) if template.block_skip else (_COMPLETED, _ERROR, _SKIPPED)
        settled.sort(key=lambda one: order.index(one[0]) if one[0] in order else len(order))
        completed = sum(state == _COMPLETED for state, _ in settled)
        coming = sum(other in reset for other in inputs)
        settled = settled[: max(completed, wanted - coming)]
    for state, other in settled:
        yield state, known.causes.get(other, NO_CAUSE)
