"""Events and actions of `NodeMachine` about a node that gives its sessions away before it ends."""

from typing import Any

import msgspec

__all__ = ["ContentsRead", "ReadContents"]


class ReadContents(msgspec.Struct, frozen=True):
    """Read which contents a hosted session has here: `ContentsRead`."""

    session: str
    epoch: int
    view: int
    hosted: Any


class ContentsRead(msgspec.Struct, frozen=True):
    """Rows of the completed data drops of this node in a view whose contents are here."""

    session: str
    epoch: int
    view: int
    rows: tuple[int, ...]
