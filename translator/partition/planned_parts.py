"""The one signature of all algorithms: graph, options and machines in, an assignment out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from translator.planning.machines import Machines
from translator.stage_options import PartitionOptions

__all__ = ["PlannedParts", "Planner", "shares_of"]


@dataclass(frozen=True)
class PlannedParts:
    """What an algorithm decided.

    Attributes
    ----------
    part : int32 array, shape (drops,)
        Part of each drop; part k is on the k-th machine.
    priority : int32 array, shape (drops,), or None
        Of the ready applications of a node, those with the highest number start first. None: `partition` sets them.
    note : str
        Why this one, in one line; empty if there is nothing to tell.
    """

    part: IntColumn
    priority: IntColumn | None = None
    note: str = ""


Planner = Callable[[PhysicalGraph, PartitionOptions, Machines], PlannedParts]
"""Makes an assignment. There are as many machines as parts, and at most as many as drops; parts may stay empty."""


def shares_of(machines: Machines) -> npt.NDArray[np.float64]:
    """Return the share of the work that each machine should get, shape (parts,); the sum is 1."""
    power = np.array([node.cores * node.speed for node in machines.nodes], dtype=np.float64)
    found: npt.NDArray[np.float64] = power / power.sum()
    return found
