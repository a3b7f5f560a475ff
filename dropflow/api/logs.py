"""The logs of sessions and of managers: which lines match a query, the form of their text, and waits for new lines."""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta

from dropflow.api.routes import StreamSlots
from dropflow.clock import SystemClock
from dropflow.errors import NotFoundError
from dropflow.formatting import format_stamp

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
OUTPUT = "OUTPUT"
"""The level of what a program printed."""
NO_LOG = "a drop that has printed nothing, or has not run, has no log"

_Level = Literal["", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
_Cursor = Annotated[
    str,
    Meta(
        max_length=100_000,
        pattern=r"^$|^[^,:]+:-?[0-9]{1,18}(,[^,:]+:-?[0-9]{1,18})*$",
        description="NODE:NUMBER, separated by commas, as an answer had it",
    ),
]
_SEVERITY = {name: 10 * (place + 1) for place, name in enumerate(LEVELS)} | {OUTPUT: 20, "WARN": 30, "FATAL": 50}
_LONGEST_LINE = 20_000
"""Characters of a line of a log, after which it is cut off."""
_CONTROL = re.compile("\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MANAGER_LOG = "manager.log"
"""Name of the file in the directory of a manager. When it is full, it replaces the one with ``.1`` at its end."""
_RECORD = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z ([A-Z]+) +([^ :]+): (.*)", re.DOTALL)
_Files = tuple[tuple[int, int] | None, ...]
_EACH = 1000
"""Positions of each millisecond, so that they fit the numbers of JavaScript."""
_PAGE_LINES = 5000
"""Lines of a page that is read for the text of a whole log."""
LOG_START = "-:-1"
"""A cursor before all lines of any node: no node is called so."""
_PACE = 0.3
"""Seconds between two looks at the files of a log."""
_LAST_LINES = 0.6
"""Seconds after the end in which the last lines come."""

# Pages of the log of a session: lines of all drops on all nodes, in the order of time.
#
# A position in the log is a number on each node. A cursor has those of several nodes: ``NODE:POSITION``, with commas
# between, names percent-encoded.


class LogTextQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lines that are requested: those that match all fields that are not empty.

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
    """The lines that are requested, and the page of them.

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
    pairs = (word.rpartition(":") for word in cursor.split(",") if word)
    return {unquote(node): int(position) for node, _, position in pairs}


def format_line(line: LogLine, moment: str) -> str:
    """Return a line as text; `moment` is its time."""
    return f"{moment} {line.level:<7} {line.node} {line.drop or line.name}: {line.text}"


def matcher(query: LogTextQuery) -> Callable[[str, str], bool]:
    """Return a function that returns whether a line with this level and text is wanted."""
    text, least = query.text.lower(), severity(query.level) if query.level else 0

    def matches(level: str, line: str) -> bool:
        return not (least and severity(level) < least) and (not text or text in line.lower())

    return matches


def clean(text: str) -> str:
    """Return a line without control characters; a very long one is cut."""
    text = text.removesuffix("\r")
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]}... ({len(text)} characters)"
    return _CONTROL.sub("", text)


# The log of a manager: pages of the lines in the files that `dropflow.cli.servers.server_process` writes.


class ManagerLog:
    """Reads the log of one manager.

    Parameters
    ----------
    name : str
        Name of the manager.
    path : Path or None
        Its log; None if it has none.
    """

    def __init__(self, name: str, path: Path | None) -> None:
        self.name = name
        self._path = path
        self._read: tuple[_Files, tuple[LogLine, ...]] = ((), ())
        """The lines, and the state of the files that had them."""

    def page(self, query: LogQuery) -> LogPage:
        """Return a page of the lines that are kept. `drop` is a part of the name of a logger.

        Raises
        ------
        NotFoundError
            The manager keeps no log.
        """
        if self._path is None:
            raise NotFoundError(f"manager {self.name} keeps no log", hint="look at its standard error")
        if query.oid or query.node not in ("", self.name):
            return LogPage()
        everything = self._lines(self._path)
        matches, drop = matcher(query), query.drop.lower()
        lines = [line for line in everything if drop in line.name.lower() and matches(line.level, line.text)]
        end = everything[-1].at if everything else 0
        return _newer(self.name, lines, query, end) if query.is_forward else _older(self.name, lines, query, end)

    def _lines(self, path: Path) -> tuple[LogLine, ...]:
        """Return all lines that are kept, the oldest first."""
        files = (path.with_name(f"{path.name}.1"), path)
        known, lines = self._read
        now = tuple(map(_state, files))
        if known == now:
            return lines
        while True:
            rows = [row for file in files for row in _rows(file)]
            known, now = now, tuple(map(_state, files))
            # Read again if a file was renamed meanwhile: its lines would be missing, or be there twice. One that grew
            # is not read again: a log that is written to all the time would be read without end.
            if [file and file[0] for file in known] == [file and file[0] for file in now]:
                break
        lines = tuple(_parsed(self.name, rows))
        self._read = known, lines
        return lines


def _older(name: str, lines: list[LogLine], query: LogQuery, end: int) -> LogPage:
    before = unpack_cursor(query.before).get(name, end + 1)
    stop = bisect_left(lines, before, key=lambda line: line.at)
    kept = lines[max(stop - query.limit, 0) : stop]
    is_first = len(kept) == stop
    return LogPage(
        lines=tuple(kept),
        older=pack_cursor({name: kept[0].at if kept else 0}),
        newer=pack_cursor({name: before - 1}),
        is_first=is_first,
        is_last=not query.before,
        reached=0.0 if is_first else kept[0].time,
    )


def _newer(name: str, lines: list[LogLine], query: LogQuery, end: int) -> LogPage:
    after = unpack_cursor(query.after).get(name, -1)
    start = bisect_right(lines, after, key=lambda line: line.at)
    kept = lines[start : start + query.limit]
    is_last = start + len(kept) == len(lines)
    return LogPage(
        lines=tuple(kept),
        older=pack_cursor({name: after + 1}),
        newer=pack_cursor({name: max(after, end) if is_last else kept[-1].at}),
        is_first=after < 0,
        is_last=is_last,
        reached=0.0 if is_last else kept[-1].time,
    )


def _parsed(name: str, rows: list[str]) -> Iterator[LogLine]:
    """Yield the lines of a log; those without a time belong to the record before."""
    time, level, logger, at = 0.0, "INFO", "", 0
    for row in rows:
        match = _RECORD.match(row)
        text = row
        if match is not None:
            try:
                time = datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
            except ValueError:
                match = None
            else:
                level, logger, text = match[2], match[3], match[4]
        at = max(at + 1, round(time * 1000) * _EACH)
        yield LogLine(time=time, node=name, drop="", name=logger, level=level, text=clean(text), at=at)


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size


def _rows(path: Path) -> list[str]:
    """Return the whole lines of a file; none if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        return file.read().decode(errors="replace").split("\n")[:-1]


# The log of a session or a manager as text, page by page.


def log_text(read: Callable[[LogQuery], LogPage], query: LogTextQuery) -> Iterator[bytes]:
    """Yield the lines that match and are there now, the oldest first.

    Nodes that do not answer are named in the first line, or where they fail to answer. Raises as `read`, which returns
    a page, also while it is read.
    """
    wanted = LogQuery(**msgspec.structs.asdict(query), after=LOG_START, limit=_PAGE_LINES)
    silent: set[str] = set()
    while True:
        page = read(wanted)
        yield _text(page, silent)
        silent.update(page.missing)
        if page.is_last or page.newer == wanted.after:
            return
        wanted = msgspec.structs.replace(wanted, after=page.newer)


def _text(page: LogPage, silent: set[str]) -> bytes:
    missing = [f"[lines of node {node} are missing: it did not answer]" for node in page.missing if node not in silent]
    lines = [format_line(line, format_stamp(line.time)) for line in page.lines]
    return "".join(f"{line}\n" for line in (*missing, *lines)).encode(errors="replace")


# Waits for new lines of a log, for a request that asks for those after a cursor.


def page_with_lines(
    read: Callable[[LogQuery], LogPage],
    query: LogQuery,
    streams: StreamSlots,
    is_gone: Callable[[], bool],
    has_ended: Callable[[], bool] = lambda: False,
) -> LogPage:
    """Return a page of a log, once it has a line or the seconds of the query are over.

    Parameters
    ----------
    read : callable
        Returns a page without waiting.
    streams : StreamSlots
        Limits the requests that wait.
    is_gone : callable
        Whether the client has closed its connection.
    has_ended : callable
        Whether nothing more is written.

    Raises
    ------
    HttpError
        503: too many requests wait.
    """
    # Children do not wait: each level of managers would add its own time.
    once = msgspec.structs.replace(query, seconds=0.0)
    page = read(once)
    if not query.seconds or not query.is_forward or page.lines:
        return page
    with streams.slot():
        clock = SystemClock()
        end = clock.monotonic() + query.seconds
        # The time that the children take to answer counts too: the client waits no longer than it asked for.
        is_over = False
        while not page.lines and clock.monotonic() < end and not is_gone():
            if not is_over and has_ended():
                is_over, end = True, min(end, clock.monotonic() + _LAST_LINES)
            if streams.closing.wait(_PACE):
                break
            # What was searched already is not searched again.
            page = read(msgspec.structs.replace(once, after=page.newer or query.after))
        return page
