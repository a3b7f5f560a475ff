"""What the members of a session report when a view ends, and what begins with the next one."""

import zlib
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from dropflow.errors import ProtocolError
from managers.deployment import Place

__all__ = ["FEWEST_VOTERS", "MemberReport", "View", "ViewDecision", "pack_column", "unpack_column"]

_Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]


FEWEST_VOTERS = 3
"""How many voters a session needs to survive a loss: one of two cannot know which of them is cut off."""


class View(msgspec.Struct, frozen=True):
    """The members and voters of a session.

    Attributes
    ----------
    number : int
        0 for the deployment; grows by 1 with each decision.
    members : tuple of Place
        The nodes that hold drops, in an order that all share.
    witnesses : tuple of Place
        Further voters. They hold no drops, and stay voters when they do not answer: leaving one out would only make
        the next loss worse.
    """

    number: _Natural
    members: tuple[Place, ...]
    witnesses: tuple[Place, ...] = ()

    @property
    def voters(self) -> tuple[Place, ...]:
        """Members, then witnesses."""
        return self.members + self.witnesses

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1


class MemberReport(msgspec.Struct, frozen=True):
    """What a member knows of a session whose core has stopped. Columns are packed by `pack_column`.

    Attributes
    ----------
    rows : bytes
        int32, rows in the whole graph of the drops in its slice.
    states : bytes
        uint8, as long: their `dropflow.states.DropState`. WRITING for an attempt that is running.
    available : bytes
        uint8, as long: 1 where the content of a completed data drop is on this member.
    parts : bytes
        int32, pairs of rows: an application, and a data drop of this member with several producers whose part by that
        application is here.
    attempts : dict of int to int
        By row: number of the last attempt, where it is not the first.
    causes : dict of int to int
        By row of a drop in ERROR: row of the drop that started it.
    copies : bytes
        int32, rows: completed data drops of other members whose content is also on this one.
    """

    rows: bytes
    states: bytes
    available: bytes
    parts: bytes = b""
    attempts: dict[int, int] = {}
    causes: dict[int, int] = {}
    copies: bytes = b""


class ViewDecision(msgspec.Struct, frozen=True):
    """What the voters of a view decided: the next view.

    Attributes
    ----------
    view : View
        The next view.
    places : tuple of str
        Names of nodes.
    placement : bytes
        uint16, by row of the whole graph: index in `places`. Packed by `pack_column`.
    reset : bytes
        int32, rows: completed drops that run again. Packed.
    taken_over : bytes
        uint8, by row: state of each drop whose node is not a member any more, as far as it was known. Packed; empty if
        there are none.
    causes : dict of int to int
        By row of a drop in ERROR that is taken over: row of the drop that started it.
    attempts : dict of int to int
        By row of a drop that is taken over: number of its last known attempt.
    lost : dict of str to str
        Nodes that are members no more, and why.
    is_over : bool
        Whether the session is over: all members had finished their parts. Nothing but the view is used then.
    """

    view: View
    places: tuple[str, ...]
    placement: bytes
    reset: bytes = b""
    taken_over: bytes = b""
    causes: dict[int, int] = {}
    attempts: dict[int, int] = {}
    lost: dict[str, str] = {}
    is_over: bool = False


def pack_column(column: npt.NDArray[np.generic]) -> bytes:
    """Return the compressed bytes of an array. Columns of states and places compress to a few percent."""
    return zlib.compress(np.ascontiguousarray(column).tobytes(), 1)


def unpack_column(packed: bytes, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return the array of `pack_column`, read-only; an empty one for no bytes.

    Raises
    ------
    ProtocolError
        The bytes are not a packed column of that type.
    """
    if not packed:
        return np.zeros(0, dtype)
    try:
        return np.frombuffer(zlib.decompress(packed), dtype)
    except (zlib.error, ValueError) as error:
        raise ProtocolError(f"a column of a view cannot be read: {error}") from error
