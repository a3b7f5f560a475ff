"""The log of a manager: pages of the lines in the files that `dropflow.cli.log_setup` writes."""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dropflow.errors import NotFoundError
from dropflow.logs.lines import clean, matcher
from dropflow.logs.records import LogLine, LogPage, LogQuery, pack_cursor, unpack_cursor

__all__ = ["MANAGER_LOG", "ManagerLog"]

MANAGER_LOG = "manager.log"
"""Name of the file in the directory of a manager. When it is full, it replaces the one with ``.1`` at its end."""

_RECORD = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z ([A-Z]+) +([^ :]+): (.*)", re.DOTALL)
_Files = tuple[tuple[int, int] | None, ...]
_EACH = 1000
"""Positions of each millisecond, so that they fit the numbers of JavaScript."""


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
        lines = [line for line in everything if drop in line.name and matches(line.level, line.text)]
        end = everything[-1].at if everything else 0
        return _newer(self.name, lines, query, end) if query.is_forward else _older(self.name, lines, query, end)

    def _lines(self, path: Path) -> tuple[LogLine, ...]:
        """Return all lines that are kept, the oldest first."""
        files = (path.with_name(f"{path.name}.1"), path)
        known, lines = self._read
        # Read again if a file was renamed meanwhile: its lines would be missing, or be there twice.
        while known != (now := tuple(_state(file) for file in files)):
            known, lines = now, tuple(_parsed(self.name, [row for file in files for row in _rows(file)]))
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
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size


def _rows(path: Path) -> list[str]:
    """Return the whole lines of a file; none if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open already
        return file.read().decode(errors="replace").split("\n")[:-1]
