"""The log of a session on one node: pages of the lines of all drops, found by the index of the logs.

The module also writes failures of drops to the log of the node.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import NamedTuple

from dropflow.api.contents_answer import Download
from dropflow.api.logs import NO_LOG, OUTPUT, LogLine, LogPage, LogQuery, clean, matcher, pack_cursor, unpack_cursor
from dropflow.clock import Clock, SystemClock
from dropflow.errors import NotFoundError
from dropflow.execution.decisions.events import Assembled, Event, Failed
from dropflow.execution.drop_log import LogIndex
from dropflow.execution.session import Instrument
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid, row_of
from dropflow.ids import drop_file_name
from managers.node.downloads import file_download

_log = logging.getLogger(__name__)

_LINES = 20
"""Number of bits of a position for the number of a line in its part."""
_SETTLED_SECONDS = 0.3
"""Seconds after which no text is added to a part: more than the limits of `dropflow.execution.drop_log`."""
_MOST_PARTS = 30_000
"""Parts of logs that one request may search."""
_MOST_SEARCHED_BYTES = 32 << 20
"""Bytes of logs that one request may read."""
_MOST_SENT_CHARACTERS = 4 << 20
"""Characters of lines after which a page ends."""
_SMALL_FILE_BYTES = 256 << 10
"""Bytes up to which a log is read as a whole, and kept during the request."""
_HELD_BYTES = 64 << 20
"""Bytes of small logs that one request keeps in memory."""
_KEPT_INDEXES = 4
"""Sessions whose indexes of logs are kept between requests."""
_DATED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) ([A-Z]+) (.*)", re.DOTALL)
_MOST_LOGGED_FAILURES = 100
"""Failures of a session, above which no more are written to the log of the node."""


def log_download(folder: Path, drop: str, *, where: str) -> Download:
    """Return the log of a drop, whose session or run is `where`.

    Raises
    ------
    NotFoundError
        The drop has written no log.
    StorageError
        The file cannot be read.
    """
    name = f"{drop_file_name(drop)}.log"
    path = folder / name
    if not path.exists():
        raise NotFoundError(f"drop {drop} has written no log", where=where, hint=NO_LOG)
    return file_download(path, name, "text/plain; charset=utf-8")


class SessionLogs:
    """Indexes of the logs of sessions that were read lately. A request takes an index out while it uses it.

    Parameters
    ----------
    clock : Clock, optional
        Clock of the logs; by default that of the system.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._kept: dict[str, LogIndex] = {}
        self._clock = clock or SystemClock()

    def page(
        self, folder: str, node: str, query: LogQuery, name_of: Callable[[str], str], *, is_over: bool = False
    ) -> LogPage:
        """Return a page of the log in a directory.

        Parameters
        ----------
        folder : str
            Directory of the logs.
        node : str
            Name of this node.
        name_of : callable
            Returns the name of the logical node of a drop, such as `name_in` of its graph.
        is_over : bool
            Whether no text is written any more, so that the last lines are complete.
        """
        index = self._kept.pop(folder, None) or LogIndex(folder)
        index.update()
        try:
            return LogReader(index, folder, node, query, name_of).page(inf if is_over else self._clock.now())
        finally:
            self._kept[folder] = index
            # Other threads of the server change the dictionary meanwhile: `list` copies its keys in one step.
            for oldest in list(self._kept)[:-_KEPT_INDEXES]:
                self._kept.pop(oldest, None)


def name_in(graph: PhysicalGraph, drop: str) -> str:
    """Return the name of the logical node of a drop; empty if the graph has no such drop."""
    row = row_of(graph, drop)
    return "" if row is None else graph.templates[graph.template[row]].name


class _Line(NamedTuple):
    time: float
    level: str
    text: str


class LogReader:
    """Reads one page.

    Parameters
    ----------
    index : LogIndex
        Index of the logs in `folder`; up to date.
    """

    def __init__(self, index: LogIndex, folder: str, node: str, query: LogQuery, name_of: Callable[[str], str]) -> None:
        self._index = index
        self._folder = folder
        self._node = node
        self._query = query
        self._name_of = name_of
        self._names: dict[int, str | None] = {}
        self._small: dict[int, bytes] = {}
        self._held = 0
        self._read = 0
        self._parts = 0
        self._found: list[LogLine] = []
        """The lines of the page, in the order in which they were found."""
        self._sent = 0
        self._matches = matcher(query)

    def page(self, now: float) -> LogPage:
        """Return the page."""
        if self._query.node not in ("", self._node):
            return LogPage()
        settled = self._settled(now)
        return self._newer(settled) if self._query.is_forward else self._older(settled)

    def _settled(self, now: float) -> int:
        """Return the first part to which text may still be added; this part and later ones are not shown yet."""
        index, settled = self._index, len(self._index)
        for part in range(len(index) - 1, -1, -1):
            if now - index.times[part] >= _SETTLED_SECONDS:
                break
            if index.ends[part] < 0:
                settled = part
        return settled

    def _older(self, settled: int) -> LogPage:
        index = self._index
        end = settled << _LINES
        before = min(unpack_cursor(self._query.before).get(self._node, end), end)
        matching = self._found
        position, reached, is_first = before, 0.0, True
        first, rest = divmod(before, 1 << _LINES)
        for part in range(first if rest else first - 1, -1, -1):
            lines = self._lines(part)
            stop = len(lines) if part < first else min(rest, len(lines))
            last = self._search(part, lines, range(stop - 1, -1, -1))
            position = part << _LINES if last is None else last
            if last is None and (self._may_go_on or not part):
                continue
            is_first, reached = False, index.times[part] if last is None else matching[-1].time
            break
        return LogPage(
            lines=tuple(reversed(matching)),
            older=pack_cursor({self._node: position}),
            newer=pack_cursor({self._node: before - 1}),
            is_first=is_first or position == 0,
            is_last=not self._query.before,
            reached=reached,
        )

    def _newer(self, settled: int) -> LogPage:
        index = self._index
        after = unpack_cursor(self._query.after).get(self._node, -1)
        matching = self._found
        position, reached, is_last = after, 0.0, True
        first, rest = divmod(after + 1, 1 << _LINES)
        for part in range(first, settled):
            lines = self._lines(part)
            last = self._search(part, lines, range(rest if part == first else 0, len(lines)))
            position = (part + 1 << _LINES) - 1 if last is None else last
            if last is None and (self._may_go_on or part == settled - 1):
                continue
            is_last, reached = False, max(index.times[part], matching[-1].time if matching else 0.0)
            break
        return LogPage(
            lines=tuple(matching),
            older=pack_cursor({self._node: after + 1}),
            newer=pack_cursor({self._node: position}),
            is_first=after < 0,
            is_last=is_last,
            reached=reached,
        )

    def _search(self, part: int, lines: Sequence[_Line], numbers: Iterable[int]) -> int | None:
        """Add the matching lines of a part to the page; return the position of the line that fills it, or None."""
        for number in numbers:
            line = lines[number]
            if self._matches(line.level, line.text):
                position = part << _LINES | number
                self._found.append(self._record(part, position, line))
                self._sent += len(line.text)
                if len(self._found) == self._query.limit or self._sent > _MOST_SENT_CHARACTERS:
                    return position
        self._parts += 1
        return None

    @property
    def _may_go_on(self) -> bool:
        """Whether one request may search more parts."""
        return self._parts < _MOST_PARTS and self._read < _MOST_SEARCHED_BYTES

    def _record(self, part: int, position: int, line: _Line) -> LogLine:
        number = self._index.drops[part]
        return LogLine(
            time=line.time,
            node=self._node,
            drop=self._index.names[number],
            name=self._names[number] or "",
            level=line.level,
            text=clean(line.text),
            at=position,
        )

    def _lines(self, part: int) -> list[_Line]:
        """Return the lines of a part; none if its drop does not match."""
        number = self._index.drops[part]
        if not self._is_wanted(number):
            return []
        data = self._data(part)
        self._read += len(data)
        rows = data.decode(errors="replace").split("\n")
        # Text after the last end of line is a line only if no text can be added to it.
        if not rows[-1] or self._index.ends[part] < 0:
            rows.pop()
        return list(_dated(rows[: 1 << _LINES], self._index.times[part]))

    def _is_wanted(self, number: int) -> bool:
        if number not in self._names:
            self._names[number] = self._wanted_name(self._index.names[number])
        return self._names[number] is not None

    def _wanted_name(self, oid: str) -> str | None:
        """Return the name of the logical node of a drop; None if the drop is not wanted."""
        if self._query.oid not in ("", oid):
            return None
        name, drop = self._name_of(oid), self._query.drop.lower()
        return name if drop in oid.lower() or drop in name.lower() else None

    def _data(self, part: int) -> bytes:
        """Return the bytes of a part."""
        number, start, end = self._index.drops[part], self._index.starts[part], self._index.ends[part]
        content = self._small.get(number)
        if content is not None:
            return content[start : end if end >= 0 else None]
        try:
            descriptor = os.open(
                f"{self._folder}/{drop_file_name(self._index.names[number])}.log",
                os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC,
            )
        except OSError:
            return b""
        try:
            size = os.fstat(descriptor).st_size
            if size <= _SMALL_FILE_BYTES and self._held + size <= _HELD_BYTES:
                content = self._small[number] = os.pread(descriptor, size, 0)
                self._held += size
                return content[start : end if end >= 0 else None]
            return os.pread(descriptor, max((end if end >= 0 else size) - start, 0), start)
        except OSError:
            return b""
        finally:
            os.close(descriptor)


def _dated(rows: list[str], time: float) -> Iterator[_Line]:
    """Yield the lines of a part. Lines without a level have the level of the line before."""
    level = OUTPUT
    for row in rows:
        match = _DATED.match(row) if row[:1] == "2" else None
        if match is not None:
            try:
                time = datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
            except ValueError:
                yield _Line(time, level, row)
                continue
            level = match[2]
            yield _Line(time, level, match[3])
        else:
            yield _Line(time, level, row)


class FailureLog(Instrument):
    """Logs the first hundred failures of one session.

    Parameters
    ----------
    graph : PhysicalGraph
        Graph of the session.
    session : str
        Name of the session.
    """

    def __init__(self, graph: PhysicalGraph, session: str) -> None:
        self._graph = graph
        self._session = session
        self._logged = 0

    def on_events(self, events: Sequence[Event]) -> None:
        """Log the failures among `events`."""
        for event in events:
            if self._logged > _MOST_LOGGED_FAILURES:
                return
            if isinstance(event, Failed):
                self._write(event.drop, event.attempt, f"{event.failure.code} {event.failure.text}")
            elif isinstance(event, Assembled) and event.failure is not None:
                self._write(event.drop, 1, f"{event.failure.code} {event.failure.text}")

    def _write(self, drop: int, attempt: int, text: str) -> None:
        self._logged += 1
        if self._logged > _MOST_LOGGED_FAILURES:
            _log.warning("more drops failed: see the failures of the session", extra={"session": self._session})
            return
        context = {"session": self._session, "drop": oid(self._graph, drop), "attempt": attempt}
        _log.warning("an attempt failed: %s", text, extra=context)
