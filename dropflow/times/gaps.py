"""Why workers were idle: the time between two attempts of a lane, in up to three pieces.

Until the last input of the next attempt was committed, its lane waited for data. From then until the attempt was ready,
it waited for a message: the drop's node had not been told yet, or the data were on their way. From then until it began,
it waited for a worker: other attempts were before it, its needs did not fit, or the session was paused.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.times.attempts import AttemptColumns
from dropflow.times.lanes import Lanes
from dropflow.times.waits import Waits

__all__ = ["GAP_KINDS", "Gaps", "gaps_of"]

GAP_KINDS = ("data", "message", "worker")
"""What a lane waited for in a piece of a gap."""


@dataclass(frozen=True)
class Gaps:
    """Idle time of lanes before their attempts.

    Attributes
    ----------
    begin : float64 array, shape (attempts,)
        When the lane became free; for the first attempt of a lane, when the session began.
    seconds : float64 array, shape (attempts, 3)
        Length of the pieces, by `GAP_KINDS`, in this order in time.
    tail : float64 array, shape (lanes,)
        Seconds from the last attempt of a lane to the end of the session: nothing was left for it.
    """

    begin: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    tail: npt.NDArray[np.float64]


def gaps_of(attempts: AttemptColumns, lanes: Lanes, waits: Waits) -> Gaps:
    """Return the gaps between the attempts of each lane, explained."""
    known = waits.previous >= 0
    begin = np.where(known, attempts.ended[waits.previous], attempts.start)
    begin = np.minimum(begin, attempts.began)
    ready = np.clip(attempts.ready, begin, attempts.began)
    # What comes again waits for its repetition, and not for a message about its inputs.
    inputs = np.where(attempts.attempt > 1, ready, waits.inputs)
    there = np.clip(inputs, begin, ready)
    seconds = np.stack([there - begin, ready - there, attempts.began - ready], axis=1)
    tail = np.full(len(lanes), attempts.end)
    last = np.full(len(lanes), -np.inf)
    np.maximum.at(last, lanes.lane, attempts.ended)
    return Gaps(begin, seconds, np.maximum(tail - last, 0.0))
