"""Events and actions of `NodeMachine` about copies of contents."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dropflow.engine.api import Handle
from managers.messages import Content, CopyMessage

__all__ = [
    "CopiesReleased",
    "CopiesWanted",
    "CopyAction",
    "CopyEvent",
    "CopyWritten",
    "DiscardCopies",
    "NoteCopies",
    "OfferCopies",
    "OffersRefused",
    "SendCopyMessage",
    "TakeCopies",
    "ViewBegun",
]


# Events.


class CopyWritten(msgspec.Struct, frozen=True):
    """A `TakeCopies` of this view is done: the copies by row, and why contents could not be copied."""

    session: str
    epoch: int
    view: int
    taken: Mapping[int, Handle]
    failed: Mapping[int, str]


class ViewBegun(msgspec.Struct, frozen=True):
    """A session has begun in a view: the contents that it has from earlier views are there."""

    session: str
    epoch: int
    view: int


class CopiesWanted(msgspec.Struct, frozen=True):
    """How many other members are to have a copy, by row of a content that was committed here.

    0 for a file that others may see.
    """

    session: str
    epoch: int
    counts: Mapping[int, int]


class CopiesReleased(msgspec.Struct, frozen=True):
    """The contents of these rows are released. Other members hold copies of them."""

    session: str
    epoch: int
    rows: tuple[int, ...]


class OffersRefused(msgspec.Struct, frozen=True):
    """Contents of an `OfferCopies` are not here any more, by row."""

    session: str
    epoch: int
    view: int
    peer: str
    failed: Mapping[int, str]


# Actions.


class OfferCopies(msgspec.Struct, frozen=True):
    """Ask a member to copy the contents of these rows; `counts` are how many copies are wanted of each."""

    session: str
    epoch: int
    view: int
    hosted: Any
    peer: str
    counts: Mapping[int, int]


class TakeCopies(msgspec.Struct, frozen=True):
    """Copy contents of another member: `CopyWritten`, once or several times."""

    session: str
    epoch: int
    view: int
    hosted: Any
    peer: str
    contents: tuple[Content, ...]


class DiscardCopies(msgspec.Struct, frozen=True):
    """Remove copies from the disk."""

    hosted: Any
    copies: tuple[Handle, ...]


class SendCopyMessage(msgspec.Struct, frozen=True):
    """Send a message to a member."""

    peer: str
    message: CopyMessage


class NoteCopies(msgspec.Struct, frozen=True):
    """Add a note about copies to a hosted session."""

    hosted: Any
    text: str


CopyEvent = ViewBegun | CopiesWanted | CopyWritten | CopiesReleased | OffersRefused
CopyAction = OfferCopies | TakeCopies | DiscardCopies | SendCopyMessage | NoteCopies
