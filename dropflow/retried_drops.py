"""Which root causes are tried again, for a run on this machine and for a session of managers."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dropflow.errors import ConflictError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import find_drop, oid
from dropflow.states import DropState

__all__ = ["RETRY_REASON", "causes_to_retry"]

RETRY_REASON = "failed drops were tried again with 'dropflow retry'"
"""Why drops run again, for explanations."""

_SHOWN = 5


def causes_to_retry(
    graph: PhysicalGraph,
    states: bytes | bytearray | npt.NDArray[np.uint8],
    causes: Mapping[int, int],
    drops: Sequence[str],
    *,
    what: str = "session",
    where: str = "",
    hint: str = "",
) -> list[int]:
    """Return the root causes that are tried again, ascending.

    Parameters
    ----------
    states : bytes or uint8 array, shape (drops,)
        `DropState` of every drop.
    causes : mapping of int to int
        The drop that started the error of each drop in ERROR.
    drops : sequence of str
        Text ids, or ends of them, of drops in ERROR; without them, all root causes are tried again.
    what, where, hint : str
        For errors: what has the drops, where it is, and what to do if none has failed.

    Raises
    ------
    ConflictError
        No drop failed, or not those that are named.
    NotFoundError, AmbiguousError
        See `dropflow.graph.text_ids.find_drop`.
    """
    if not causes:
        raise ConflictError(f"no drop of this {what} failed", where=where, hint=hint)
    if not drops:
        return sorted(set(causes.values()))
    chosen = set()
    for text in drops:
        drop = find_drop(graph, text)
        if drop not in causes:
            failed = ", ".join(oid(graph, one) for one in sorted(set(causes.values()))[:_SHOWN])
            raise ConflictError(
                f"{oid(graph, drop)} did not fail: it is {DropState(int(states[drop])).name}",
                where=where,
                hint=f"failed were: {failed}",
            )
        chosen.add(causes[drop])
    return sorted(chosen)
