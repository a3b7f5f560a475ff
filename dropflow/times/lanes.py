"""The rows of a timeline: a lane for each worker process, and as many as are needed for attempts without one."""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.times.attempts import AttemptColumns

__all__ = ["Lanes", "lanes_of"]


@dataclass(frozen=True)
class Lanes:
    """Lanes, those of a node together.

    Attributes
    ----------
    lane : int32 array, shape (attempts,)
        Lane of each attempt.
    node : int32 array, shape (lanes,)
        Index of the node of each lane.
    worker : int64 array, shape (lanes,)
        Number of the worker process of each lane; 0 for attempts without one.
    number : int64 array, shape (lanes,)
        Position among the lanes of its node, from 0.
    """

    lane: npt.NDArray[np.int32]
    node: npt.NDArray[np.int32]
    worker: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.node)


def lanes_of(attempts: AttemptColumns) -> Lanes:
    """Return a lane for each attempt: that of its worker process, or else the lowest that is free when it begins."""
    position = np.zeros(len(attempts), np.int64)
    without = np.flatnonzero(attempts.worker == 0)
    for node in np.unique(attempts.node[without]).tolist():
        here = without[attempts.node[without] == node]
        position[here] = _lowest_free(attempts.began[here], attempts.ended[here])
    keys = np.stack([attempts.node.astype(np.int64), attempts.worker, position])
    found, lane = np.unique(keys, axis=1, return_inverse=True)
    node = found[0].astype(np.int32)
    first = np.searchsorted(node, node)
    return Lanes(
        lane=lane.reshape(-1).astype(np.int32),
        node=node,
        worker=found[1],
        number=np.arange(len(node)) - first,
    )


def _lowest_free(began: npt.NDArray[np.float64], ended: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the lowest number that no interval has which still goes on, for each interval in the order of begins."""
    order = np.lexsort((ended, began))
    found = np.zeros(len(began), np.int64)
    starts, ends = began[order], ended[order]
    if (starts[1:] >= np.maximum.accumulate(ends)[:-1]).all():
        return found
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    numbers, used = [], 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            number = heapq.heappop(free)
        else:
            number, used = used, used + 1
        heapq.heappush(busy, (end, number))
        numbers.append(number)
    found[order] = numbers
    return found
