"""The file in a session directory that names the applications whose results were taken, and from where.

Worker processes append a line of JSON each, so it is read up to the last whole line. The last line of a drop counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from time import localtime, strftime
from typing import TYPE_CHECKING, Self

import msgspec

from dropflow.files import REUSE_LOG, private_opener
from dropflow.formatting import plural
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind

if TYPE_CHECKING:
    from dropflow.reuse.result_store import Record

_SHOWN_REASONS = 5
"""Producers of data that are looked at for the origin of their results."""


class TakenResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """An application whose result was taken, or one that `has_run` after all.

    Attributes
    ----------
    drop : int
        Its row.
    session, host : str
        Where the result was computed.
    ended, seconds : float
        When, in seconds since the epoch, and how long that took.
    is_needed : bool
        Whether its outputs were put into the session; otherwise nothing reads them.
    reason : str
        Why it has run, if it ran before.
    lack : str
        Why what it gave is not stored.
    """

    drop: int
    session: str = ""
    host: str = ""
    ended: float = 0.0
    seconds: float = 0.0
    is_needed: bool = True
    has_run: bool = False
    reason: str = ""
    lack: str = ""

    @classmethod
    def of(cls, drop: int, record: "Record") -> Self:
        """Return the line for a drop that takes a record."""
        return cls(drop, record.session, record.host, record.ended, record.seconds)

    @property
    def text(self) -> str:
        """Origin of the result, or the reason why there was none, for people."""
        if self.has_run:
            return f"not reused: {self.reason}"
        if not self.is_needed:
            return "not run: nothing that runs reads its outputs"
        when = strftime("%Y-%m-%d %H:%M", localtime(self.ended))
        took = f"where it took {self.seconds:.3g} s"
        return f"reused: from session {self.session} on {self.host}, {when}, {took}"


class ReuseLog:
    """Appends to the file. Used by any number of processes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def add(self, *lines: TakenResult) -> None:
        """Append lines, in one write. What cannot be written, as on a full disk, fails no attempt: it is for people."""
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        if text:
            with suppress(OSError), open(self._path, "ab", buffering=0, opener=private_opener) as stream:
                stream.write(text)


class TakenCount:
    """Counts the applications of a running session whose results were taken. Thread-safe.

    Each count reads the lines that were added since the one before it: a session has up to one for each application.
    """

    def __init__(self, directory: str | Path) -> None:
        self._path = Path(directory) / REUSE_LOG
        self._lock = Lock()
        self._size = 0
        self._taken: set[int] = set()

    def read(self) -> int:
        """Return the count."""
        with self._lock, suppress(OSError):
            if self._path.stat().st_size > self._size:
                with self._path.open("rb") as stream:
                    stream.seek(self._size)
                    text = stream.read()
                self._size += text.rfind(b"\n") + 1
                for result in _decoded(text):
                    (self._taken.discard if result.has_run else self._taken.add)(result.drop)
        return len(self._taken)


def taken_results(directory: str | Path) -> Mapping[int, TakenResult]:
    """Return the applications of a session whose results were taken, by their row."""
    return {drop: taken for drop, taken in _all(directory).items() if not taken.has_run}


def lack_note(directory: str | Path) -> str:
    """Return a note about results of a session that could not be stored; empty if all were."""
    lacks = [result.lack for result in _all(directory).values() if result.lack]
    if not lacks:
        return ""
    return f"the next run computes {plural(len(lacks), 'application')} again, as not all could be stored: {lacks[0]}"


def _all(directory: str | Path) -> Mapping[int, TakenResult]:
    path = Path(directory) / REUSE_LOG
    try:
        status = path.stat()
        return _read(path, status.st_size, status.st_mtime_ns)
    except OSError:
        return {}


@lru_cache(maxsize=16)
def _read(path: Path, size: int, _changed: int) -> Mapping[int, TakenResult]:
    with path.open("rb") as stream:
        text = stream.read(size)
    results: dict[int, TakenResult] = {}
    for result in _decoded(text):
        reason = (
            results[result.drop].reason
            if result.has_run and not result.reason and result.drop in results
            else result.reason
        )
        results[result.drop] = msgspec.structs.replace(result, reason=reason)
    return results


def _decoded(text: bytes) -> Iterator[TakenResult]:
    """Yield the results in whole lines."""
    for line in text.split(b"\n")[:-1]:
        with suppress(ValueError):  # a full disk has cut a line short, and another process has gone on behind it
            yield msgspec.json.decode(line, type=TakenResult)


def reuse_origin(graph: PhysicalGraph, directory: str | Path, drop: int) -> str:
    """Return from which session and host the result of a drop was taken; empty if it was computed."""
    return origin_in(reuse_lines(graph, directory, drop)) if taken_results(directory) else ""


def origin_in(reasons: Iterable[str]) -> str:
    """Return the lines about where a result was taken from, among those that explain a drop."""
    return "; ".join(line for line in reasons if line.startswith("reused: "))


def reuse_lines(graph: PhysicalGraph, directory: str | Path, drop: int) -> tuple[str, ...]:
    """Return where the result of an application, or of the producers of data, was taken from, or why it was not."""
    before = graph.predecessors
    is_app = graph.kinds[graph.template[drop]] == Kind.APP
    apps = [drop] if is_app else before.of(drop)
    known = _all(directory)
    return tuple(
        known[app].text
        for app in apps[:_SHOWN_REASONS]
        if app in known and (known[app].reason or not known[app].has_run)
    )
