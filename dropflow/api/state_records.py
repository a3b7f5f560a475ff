"""States of drops as columns: what changed since a client last asked. Clients import it, so it does not load numpy."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from dropflow.states import DropState

__all__ = [
    "QUEUED",
    "RUNNING",
    "DropStates",
    "StatesQuery",
    "SubmitOptions",
    "plain_states",
]


# The options that a session is submitted with, beside its name.


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


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


RUNNING = 65
"""Sign of an application in WRITING whose attempt runs in a worker or thread."""
QUEUED = 66
"""Sign of an application in WRITING whose attempt waits for a worker."""


class StatesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `cursor` of the answer that the client had before; empty for the states of all drops."""

    since: str = ""


class DropStates(msgspec.Struct, frozen=True, kw_only=True):
    """Drops and their states, to be applied in their order: of one drop, the last state counts.

    Attributes
    ----------
    cursor : str
        For the next request.
    drops : bytes
        Rows in the whole graph, as uint32, little-endian. Base64 in JSON.
    states : bytes
        `dropflow.states.DropState` of each of them, as uint8; of applications in WRITING `RUNNING` or `QUEUED`.
    missing : tuple of str
        Children that did not answer: the states of their drops may be old.
    """

    cursor: str = ""
    drops: bytes = b""
    states: bytes = b""
    missing: tuple[str, ...] = ()

    @property
    def rows(self) -> "npt.NDArray[np.uint32]":
        """The drops as an array."""
        import numpy as np  # noqa: PLC0415 - takes long to load

        return np.frombuffer(self.drops, dtype="<u4")

    @property
    def signs(self) -> "npt.NDArray[np.uint8]":
        """The states as an array, with the signs `RUNNING` and `QUEUED`."""
        import numpy as np  # noqa: PLC0415 - takes long to load

        return np.frombuffer(self.states, dtype=np.uint8)

    @property
    def values(self) -> "npt.NDArray[np.uint8]":
        """The states as an array of `DropState`."""
        return plain_states(self.signs)


def plain_states(signs: "npt.NDArray[np.uint8]") -> "npt.NDArray[np.uint8]":
    """Return states without the signs for what runs and what is queued: both are WRITING."""
    found = signs.copy()
    found[(signs == RUNNING) | (signs == QUEUED)] = DropState.WRITING
    return found
