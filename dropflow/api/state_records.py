"""States of drops as columns: what changed since a client last asked. Clients import it, so it does not load numpy."""

from typing import TYPE_CHECKING

import msgspec

from dropflow.states import DropState

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
