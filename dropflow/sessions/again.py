"""Which drops run again from those that a user names, for a run on this machine and for a session of managers.

The drops that are named settle again, and all that depends on them. Everything else stays as it is: what runs again
reads its contents. Contents that are gone are made again (`dropflow.engine.recovery.must_run_again`). Inputs from
outside of the session are read where they are; if one is not as it was, what was computed from it must not stay.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dropflow.data.registry import is_read_from_outside
from dropflow.engine.recovery import has_attempts
from dropflow.errors import ConflictError
from dropflow.formatting import plural
from dropflow.graph.order import reached
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import find_drops, oid
from dropflow.states import DropState

__all__ = [
    "AGAIN_REASON",
    "OutsideInputs",
    "RepeatedDrops",
    "drops_to_repeat",
    "refuse_mixed_results",
]


AGAIN_REASON = "drops were run again with 'dropflow retry --from'"
"""Why drops run again, for explanations."""

_SHOWN = 5

BooleanColumn = npt.NDArray[np.bool_]
StateColumn = npt.NDArray[np.uint8]


class RepeatedDrops(NamedTuple):
    """The drops that settle again because a user wants that.

    Attributes
    ----------
    starts : tuple of int
        The drops with attempts from which on all is repeated, ascending.
    drops : tuple of int
        These, and all that depends on them, ascending.
    begun : tuple of int
        Those of them that had attempts: their earlier attempts do not count as tries.
    """

    starts: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()


class OutsideInputs(NamedTuple):
    """Data drops without producers whose files or directories are not as they were when the session read them.

    Attributes
    ----------
    missing : frozenset of int
        They do not exist any more.
    changed : frozenset of int
        They have changed, or may have.
    replaced : frozenset of int
        An application of the session has written there since.
    """

    missing: frozenset[int] = frozenset()
    changed: frozenset[int] = frozenset()
    replaced: frozenset[int] = frozenset()


def drops_to_repeat(
    graph: PhysicalGraph,
    states: StateColumn,
    causes: Mapping[int, int],
    names: Sequence[str],
    *,
    where: str = "",
) -> RepeatedDrops:
    """Return the drops that run again, from those that are named.

    A data drop is written again by its producers, and these write all of their outputs again. A name that stands for
    all drops of a logical node means those of them that have run.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        `DropState` of every drop.
    causes : mapping of int to int
        The drop that started the error of each drop in ERROR.
    names : sequence of str
        Text ids, ends of them, or names, see `dropflow.graph.text_ids.find_drops`.
    where : str
        Where the drops are, for errors.

    Raises
    ------
    ConflictError
        None of the drops with one of the names has run.
    NotFoundError, AmbiguousError
        See `dropflow.graph.text_ids.find_drops`.
    """
    runs = has_attempts(graph)
    before = graph.predecessors

    def has_run(drop: int) -> bool:
        has_failed = states[drop] == DropState.ERROR and causes.get(drop) == drop
        return bool(states[drop] == DropState.COMPLETED or has_failed)

    starts: set[int] = set()
    for name in names:
        named = find_drops(graph, name)
        writers = {
            other
            for drop in named
            for other in ([drop] if runs[drop] else before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist())
        }
        found = {drop for drop in writers if has_run(drop)}
        if not found:
            raise _has_not_run(graph, states, causes, named[0], where)
        starts |= found
    repeated = np.sort(reached(graph.successors, starts)[0]).tolist()
    begun = tuple(drop for drop in repeated if runs[drop] and has_run(drop))
    return RepeatedDrops(tuple(sorted(starts)), tuple(repeated), begun)


def refuse_mixed_results(
    graph: PhysicalGraph,
    states: StateColumn,
    repeated: Collection[int],
    reset: BooleanColumn,
    inputs: OutsideInputs,
    *,
    where: str = "",
) -> None:
    """Refuse to run drops again if what they give would not fit the results that stay, or cannot be computed.

    That is so if an input from outside of the session has to be read, and is missing or was written over; and if it has
    changed, or has to be read again, while a drop stays that was computed from it.

    Parameters
    ----------
    states : uint8 array, shape (drops,)
        `DropState` of every drop before.
    repeated : collection of int
        The drops that settle again, from `drops_to_repeat`.
    reset : bool array, shape (drops,)
        Completed drops that run again, from `dropflow.engine.recovery.must_run_again`.
    inputs : OutsideInputs
        What is known of the inputs.

    Raises
    ------
    ConflictError
        Names these inputs, and what to do.
    """
    is_named = np.zeros(graph.drops, dtype=np.bool_)
    is_named[list(repeated)] = True
    is_settled = np.isin(states, (DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED))
    runs = reset | is_named | ~is_settled
    after = graph.successors
    outside = _outside_roots(graph)
    read = {
        drop for drop in outside if runs[drop] or runs[after.neighbour[after.ptr[drop] : after.ptr[drop + 1]]].any()
    }
    for found, what, hint in (
        (inputs.missing, "does not exist any more", "put it back"),
        (inputs.replaced, "was written over by the session itself", "put it back, and submit the graph again"),
    ):
        lacking = sorted(read & found)
        if lacking:
            raise ConflictError(
                f"what is to run again needs {_listed(graph, lacking)}, which {what}", where=where, hint=hint
            )
    fresh = [drop for drop in sorted(read) if not is_named[drop] and (runs[drop] or drop in inputs.changed)]
    stays = is_settled & ~runs
    stays[fresh] = False
    if not stays[reached(graph.successors, fresh)[0]].any():
        return
    for drop in fresh:
        dependents = reached(graph.successors, [drop])[0]
        staying = np.sort(dependents[stays[dependents]]).tolist()
        if staying:
            why = "has changed since the session read it" if drop in inputs.changed else "has to be read again"
            raise ConflictError(
                f"{oid(graph, drop)} {why}, and {plural(len(staying), 'drop')} that would stay "
                f"{'depends' if len(staying) == 1 else 'depend'} on what it was: {_listed(graph, staying)}",
                where=where,
                hint=f"run all that depends on it again: --from {oid(graph, drop)}; or put it back as it was",
            )


def _has_not_run(
    graph: PhysicalGraph, states: StateColumn, causes: Mapping[int, int], drop: int, where: str
) -> ConflictError:
    """Return the error for a drop that no attempt has settled."""
    state = DropState(int(states[drop]))
    hint = "'dropflow resume' runs what has not run"
    if state is DropState.ERROR:
        cause = causes.get(drop, -1)
        named = oid(graph, cause) if cause >= 0 else "its root cause"
        hint = f"it failed because of {named}: name that one, or leave out --from"
    elif state is DropState.SKIPPED:
        hint = "name a drop that it depends on, such as the branch that skipped it"
    return ConflictError(f"{oid(graph, drop)} has not run: it is {state.name}", where=where, hint=hint)


def _outside_roots(graph: PhysicalGraph) -> list[int]:
    """Return the data drops without producers whose content is not made from the graph."""
    is_outside = np.array(
        [one.kind is Kind.DATA and is_read_from_outside(one) for one in graph.templates], dtype=np.bool_
    )
    found: list[int] = np.flatnonzero(is_outside[graph.template] & (np.diff(graph.predecessors.ptr) == 0)).tolist()
    return found


def _listed(graph: PhysicalGraph, drops: Sequence[int]) -> str:
    more = f" and {len(drops) - _SHOWN} more" if len(drops) > _SHOWN else ""
    return ", ".join(oid(graph, drop) for drop in drops[:_SHOWN]) + more
