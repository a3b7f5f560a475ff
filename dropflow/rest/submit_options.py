"""The options that a session is submitted with, beside its name."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["SubmitOptions"]


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a session runs, beside its graph, name and places.

    Attributes
    ----------
    check : bool
        Check the whole state of the engine after each step; slow.
    infrastructure_retries : int
        How often an attempt of a drop is repeated because its worker process died, apart from its tries.
    until : float
        Walltime, in seconds since the epoch: nothing is started that cannot end by then, and the session stops when the
        rest has ended. 0 for none.
    replicas : int
        On how many nodes the results are to be before the session ends.
    protect : float
        Contents that took longer than this to compute, in seconds, are copied to a second node; 0 for none.
    memory_limit : int
        How many bytes of its contents a node may hold in memory at a time; others go to the disk. 0 for no such limit.
    join : bool
        Whether nodes that come while the session runs take a share of what has not begun.
    fuse : bool
        Whether chains of applications without branches run as one unit; a graph may have a note against that.
    """

    check: bool = False
    infrastructure_retries: Annotated[int, Meta(ge=0, le=1_000_000)] = 5
    until: Annotated[float, Meta(ge=0)] = 0.0
    replicas: Annotated[int, Meta(ge=1, le=100)] = 1
    protect: Annotated[float, Meta(ge=0.0)] = 0.0
    memory_limit: Annotated[int, Meta(ge=0, le=2**62)] = 0
    join: bool = True
    fuse: bool = True
