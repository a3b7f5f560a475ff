"""Answers of several children that are merged in an order: logs, sorted drops, archives."""

import heapq
import io
import itertools
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from dropflow.api import operations
from dropflow.api.contents_answer import Download
from dropflow.api.drop_queries import order_of
from dropflow.api.drop_records import DropInfo, DropPage, DropQuery
from dropflow.api.logs import LogLine, LogPage, LogQuery, pack_cursor, unpack_cursor
from dropflow.api.requests import FailureList, FailureQuery, TimesQuery
from dropflow.api.session_records import FailureInfo, columns_of, merged_columns
from dropflow.errors import UsageError
from dropflow.ids import safe_name
from dropflow.times.octets import RECORD, TimesSection, pack_times
from managers.composite.children import ChildView
from managers.composite.machine import Gathered
from managers.composite.merging import merge_failures
from managers.composite.routines import Replies

_PAGE_ROWS = 1000
"""Rows of a sorted list that each child is asked for at once."""
_MOST_SORTED_ROWS = 20_000
"""Rows of a sorted list of several nodes that can be read: each child sends all rows before the page."""
_CHUNK_BYTES = 256 * 1024
"""Bytes of an archive in one chunk of the response."""
_IN_MEMORY_BYTES = 8 * 1024 * 1024
"""Bytes of an archive, or of one member of it, that are kept in memory; a larger one is a temporary file."""


class _Placed(NamedTuple):
    key: float
    place: int
    line: LogLine


def merge_log_pages(pages: Sequence[LogPage], query: LogQuery, missing: Iterable[str] = ()) -> LogPage:
    """Return one page of the pages that children returned for a query.

    A page has all lines of its nodes up to the time that it reached. So the merged page has the lines that are
    between its beginning and the nearest of these times, at most as many as wanted. The lines of each page must
    be in its own order; those of a node whose times go back keep that order.
    """
    reached = [page.reached for page in pages if not (page.is_last if query.is_forward else page.is_first)]
    placed = sorted(
        (_Placed(key, place, line) for page in pages for place, (key, line) in enumerate(_keyed(page.lines))),
        key=lambda entry: (entry.key, entry.line.node, entry.place),
    )
    if query.is_forward:
        limit = min(reached, default=float("inf"))
        kept = [entry for entry in placed if entry.key <= limit][: query.limit]
    else:
        limit = max(reached, default=float("-inf"))
        kept = [entry for entry in placed if entry.key >= limit][-query.limit :]
    dropped = _dropped(placed, {(entry.line.node, entry.line.at) for entry in kept})
    older: dict[str, int] = {}
    newer: dict[str, int] = {}
    for page in pages:
        older |= unpack_cursor(page.older)
        newer |= unpack_cursor(page.newer)
    if query.is_forward:
        newer |= {node: lines[0].at - 1 for node, lines in dropped.items()}
        newer = _known(query.after, newer)
    else:
        older |= {node: lines[-1].at + 1 for node, lines in dropped.items()}
        older = _known(query.before, older)
    silent = {*missing, *(name for page in pages for name in page.missing)}
    return LogPage(
        lines=tuple(entry.line for entry in kept),
        older=pack_cursor(older),
        newer=pack_cursor(newer),
        is_first=all(page.is_first for page in pages) and (query.is_forward or not dropped),
        is_last=all(page.is_last for page in pages) and not (query.is_forward and dropped),
        reached=_reached(kept, query, limit) if reached or dropped else 0.0,
        missing=tuple(sorted(silent)),
    )


def _reached(kept: Sequence[_Placed], query: LogQuery, limit: float) -> float:
    """Return the time up to which the merged page has all lines."""
    if len(kept) < query.limit:
        return limit
    return min(limit, kept[-1].key) if query.is_forward else max(limit, kept[0].key)


def _keyed(lines: Sequence[LogLine]) -> Iterable[tuple[float, LogLine]]:
    """Return the lines with times that do not go back on a node."""
    by_node: dict[str, list[LogLine]] = {}
    for line in lines:
        by_node.setdefault(line.node, []).append(line)
    for mine in by_node.values():
        yield from zip(accumulate((line.time for line in mine), max), mine, strict=True)


def _dropped(placed: Sequence[_Placed], kept: set[tuple[str, int]]) -> dict[str, list[LogLine]]:
    """Return the lines that are not kept, by node, in their order."""
    lines: dict[str, list[LogLine]] = {}
    for entry in placed:
        if (entry.line.node, entry.line.at) not in kept:
            lines.setdefault(entry.line.node, []).append(entry.line)
    return lines


def _known(given: str, positions: dict[str, int]) -> dict[str, int]:
    """Return the positions, and those of `given` of nodes that did not answer this time."""
    return unpack_cursor(given) | positions


# Root causes of a session on several children: ordered by columns of numbers, with the records of one page only.


class KnownCauses:
    """The root causes of a session, from the answers of its children.

    Parameters
    ----------
    answers : sequence of FailureList
        Answers of children, with columns and the records of lost nodes.
    remembered : sequence of FailureInfo
        From the last reports of the other children.

    Attributes
    ----------
    lost : tuple of FailureInfo
        Lost nodes, the most harmful first.
    columns : CauseColumns
        Drops that are causes, the most harmful first.
    """

    def __init__(self, answers: Sequence[FailureList], remembered: Sequence[FailureInfo]) -> None:
        without_row = [failure for failure in remembered if failure.row < 0]
        self.lost = merge_failures([*(failure for answer in answers for failure in answer.failures), *without_row])
        self._remembered = [failure for failure in remembered if failure.row >= 0]
        known = [answer.columns for answer in answers if answer.columns is not None]
        self.columns = merged_columns([*known, columns_of(self._remembered)])

    @property
    def total(self) -> int:
        """Number of all causes."""
        return len(self.lost) + len(self.columns)

    def page(
        self, query: FailureQuery, records: Callable[[Sequence[int]], Sequence[FailureInfo]]
    ) -> tuple[FailureInfo, ...]:
        """Return a page of all causes, the most harmful first; of equal ones lost nodes first, then by row.

        Parameters
        ----------
        records : callable
            Returns the records of the causes in some rows, of all children that answer.
        """
        rows, counts, along = self.columns.arrays()
        lost = len(self.lost)
        every = np.concatenate((np.full(lost, -1), rows))
        harm = np.concatenate((np.array([failure.count for failure in self.lost], np.int64), counts))
        order = np.lexsort((every, -harm))[query.offset : query.offset + query.limit]
        fetched = records([int(every[at]) for at in order if at >= lost])
        wanted = {failure.row: failure for failure in merge_failures([*fetched, *self._remembered])}
        shown = []
        for at in order.tolist():
            if at < lost:
                shown.append(self.lost[at])
            elif (failure := wanted.get(int(rows[at - lost]))) is not None:  # else it was tried again meanwhile
                numbers = {"count": int(counts[at - lost]), "took_along": int(along[at - lost])}
                shown.append(msgspec.structs.replace(failure, **numbers))
        return tuple(shown)


# A page of a sorted list of drops, merged from the sorted lists of several children.


def sorted_rows(
    ask: Callable[[Mapping[str, DropQuery]], Replies[DropPage]],
    query: DropQuery,
    counted: Sequence[tuple[ChildView, DropPage]],
) -> tuple[tuple[DropInfo, ...], list[str]]:
    """Return the rows of a page, and the names of the nodes whose rows are missing.

    Parameters
    ----------
    ask : callable
        Asks children for pages of drops; takes the query of each by its URL.
    query : DropQuery
        The page, and its order.
    counted : sequence of (ChildView, DropPage)
        How many rows each child has.

    Raises
    ------
    UsageError
        The page is so far from the beginning that all children would send too many rows.
    """
    end = query.offset + query.limit
    if end > _MOST_SORTED_ROWS:
        raise UsageError(
            f"only the first {_MOST_SORTED_ROWS:,} rows of a sorted list of several nodes can be read",
            where="offset",
            hint="filter the drops, sort in the other direction, or read them without sorting",
        )
    rows: dict[str, list[DropInfo]] = {view.url: [] for view, _ in counted}
    late = [name for _, page in counted for name in page.missing]
    for offset in range(0, end, _PAGE_ROWS):
        part = msgspec.structs.replace(query, offset=offset, limit=min(_PAGE_ROWS, end - offset))
        each = {view.url: part for view, page in counted if page.total > offset}
        if not each:
            break
        replies = ask(each)
        for view, page in replies.values:
            rows[view.url] += page.drops
        late += [view.name for view, _ in (*replies.missing, *replies.refusals)]
    key, is_reversed = order_of(query.sort)
    merged = heapq.merge(*rows.values(), key=key, reverse=is_reversed)
    return tuple(itertools.islice(merged, query.offset, end)), late


# Downloads of several children as one tar file.


def bundle(name: str, members: Sequence[tuple[str, Download]], *, notes: str = "") -> Download:
    """Return a tar file with each download in a directory of its own.

    Parameters
    ----------
    name : str
        File name to offer.
    members : sequence of (str, Download)
        Directory and content. All are read and closed; large ones go through a temporary file.
    notes : str
        The missing parts, for a file ``MISSING.txt``; no such file if it is empty.
    """
    file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed with the download
    try:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for directory, download in members:
                _add(tar, f"{safe_name(directory)}/{safe_name(download.name, fallback='content')}", download)
            if notes:
                text = notes.encode()
                header = tarfile.TarInfo("MISSING.txt")
                header.size = len(text)
                tar.addfile(header, io.BytesIO(text))
        size = file.tell()
    except BaseException:
        file.close()
        raise
    finally:
        for _, download in members:
            download.close()
    return Download(name=name, content_type="application/x-tar", size=size, chunks=_read(file))


def _add(tar: tarfile.TarFile, path: str, download: Download) -> None:
    # The size of a member is written before its content, and not every child gives the size of a download.
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as content:
        for chunk in download.chunks:
            content.write(chunk)
        header = tarfile.TarInfo(path)
        header.size = content.tell()
        content.seek(0)
        tar.addfile(header, content)


def _read(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


# Answers that follow from those of all children, which are asked at the same time.


def _merge_session_log(session: str, gathered: Gathered[LogPage], query: LogQuery) -> LogPage:
    """Return a page of the log of a session, from the children that answer."""
    if not gathered.missing:
        gathered.replies.raise_unless_answered(f"session {session!r}")
    refused = [view.name for view, _ in gathered.replies.refusals]
    return merge_log_pages([page for _, page in gathered.replies.values], query, [*gathered.missing, *refused])


def _merge_journals(session: str, gathered: Gathered[Download]) -> Download:
    """Return the journal of the only child that has the session, or those of several in a tar file."""
    replies = gathered.replies
    replies.raise_unless_answered(f"session {session!r}")
    missing = [f"{name}: not reached" for name in gathered.missing]
    missing += [f"{view.name}: {error}" for view, error in replies.refusals]
    if len(replies.values) == 1 and not missing:
        return replies.values[0][1]
    members = [(view.name, download) for view, download in replies.values]
    notes = "".join(f"{line}\n" for line in sorted(missing))
    return bundle(f"{session}-journals.tar", members, notes=notes)


def _merge_times(session: str, gathered: Gathered[Download], query: TimesQuery) -> Download:  # noqa: ARG001 - the children read it
    """Return the sections of all children that answer, and one for each that does not."""
    replies = gathered.replies
    replies.raise_unless_answered(f"session {session!r}")
    silent = dict.fromkeys(gathered.missing, "it did not answer")
    silent |= {view.name: str(error) for view, error in replies.refusals}
    none = np.zeros(0, RECORD)
    ends = [pack_times(TimesSection(node=name, missing=why, records=none)) for name, why in sorted(silent.items())]
    chunks = itertools.chain(*(download.chunks for _, download in replies.values), ends)
    return Download(name=f"{session}.times", content_type=operations.TIMES.gives, size=None, chunks=chunks)


MERGES: Mapping[str, Callable[..., Any]] = {
    operations.SESSION_LOG.name: _merge_session_log,
    operations.JOURNAL.name: _merge_journals,
    operations.TIMES.name: _merge_times,
}
"""Functions by the name of the operation: each takes the name of the session, the answers, and the other arguments."""
