"""Pages of the log of a session: lines of all drops on all nodes, in the order of time.

A position in the log is a number on each node. A cursor has those of several nodes: ``NODE:POSITION``, with commas
between, names percent-encoded.
"""

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta

__all__ = [
    "ALL_LINES",
    "LAST_LINES",
    "LEVELS",
    "OUTPUT",
    "LogLine",
    "LogPage",
    "LogQuery",
    "LogTextQuery",
    "format_line",
    "pack_cursor",
    "severity",
    "unpack_cursor",
]

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
OUTPUT = "OUTPUT"
"""The level of what a program printed."""

_Level = Literal["", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
_Cursor = Annotated[str, Meta(max_length=100_000, pattern=r"^$|^[^,:]+:-?[0-9]{1,18}(,[^,:]+:-?[0-9]{1,18})*$")]
_SEVERITY = {name: 10 * (place + 1) for place, name in enumerate(LEVELS)} | {OUTPUT: 20, "WARN": 30, "FATAL": 50}


class LogTextQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines are wanted: those that match all fields that are not empty.

    Attributes
    ----------
    text : str
        Part of the line, ignoring case.
    level : str
        Least severe level; what programs print counts as ``INFO``.
    drop : str
        Part of a drop's id or of its logical node's name, ignoring case.
    oid : str
        The whole id of a drop.
    node : str
        Name of a node manager.
    """

    text: Annotated[str, Meta(max_length=200)] = ""
    level: _Level = ""
    drop: Annotated[str, Meta(max_length=1024)] = ""
    oid: Annotated[str, Meta(max_length=1024)] = ""
    node: Annotated[str, Meta(max_length=255)] = ""


class LogQuery(LogTextQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines are wanted, and which page of them.

    Attributes
    ----------
    before, after : str
        Cursor: lines before it, the last ones; or lines after it, the first ones. The last lines of all without either.
    limit : int
        Lines of the page.
    seconds : float
        How long to wait for a line after a cursor.
    """

    before: _Cursor = ""
    after: _Cursor = ""
    limit: Annotated[int, Meta(ge=1, le=5000)] = 200
    seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0

    @property
    def is_forward(self) -> bool:
        """Whether lines after a cursor are wanted."""
        return bool(self.after)


ALL_LINES = LogTextQuery()
LAST_LINES = LogQuery()


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes
    ----------
    time : float
        Seconds since 1970. Of what a program printed, when that arrived.
    node, drop, name : str
        Where it was written, by which drop, and the name of its logical node; in the log of a manager no drop, and the
        name of the logger.
    level : str
        A level of `logging`, or ``OUTPUT``.
    text : str
        Without control characters.
    at : int
        Its position on its node.
    """

    time: float
    node: str
    drop: str
    name: str
    level: str
    text: str
    at: int


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of lines, the oldest first.

    Attributes
    ----------
    older, newer : str
        Cursors of the pages before and after this one.
    is_first, is_last : bool
        Whether nothing that matches is older, or newer at present.
    reached : float
        A page that is not the first or last: the time up to which all lines that match are in it. A page of a search
        that takes long ends before it is full.
    missing : tuple of str
        Nodes that did not answer.
    """

    lines: tuple[LogLine, ...] = ()
    older: str = ""
    newer: str = ""
    is_first: bool = True
    is_last: bool = True
    reached: float = 0.0
    missing: tuple[str, ...] = ()


def severity(level: str) -> int:
    """Return a number for a level; unknown ones are as severe as INFO."""
    return _SEVERITY.get(level, 20)


def pack_cursor(positions: Mapping[str, int]) -> str:
    """Return the cursor with these positions, by node."""
    return ",".join(f"{quote(node, safe='')}:{position}" for node, position in sorted(positions.items()))


def unpack_cursor(cursor: str) -> dict[str, int]:
    """Return the positions of a cursor, by node."""
    pairs = (one.rpartition(":") for one in cursor.split(",") if one)
    return {unquote(node): int(position) for node, _, position in pairs}


def format_line(line: LogLine, moment: str) -> str:
    """Return a line as text; `moment` is its time."""
    return f"{moment} {line.level:<7} {line.node} {line.drop or line.name}: {line.text}"
