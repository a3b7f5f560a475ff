"""Pages of the log of a session from several nodes, merged into one page in the order of time."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from dropflow.logs.records import LogLine, LogPage, LogQuery, pack_cursor, unpack_cursor

__all__ = ["merge_log_pages"]


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
        key=lambda one: (one.key, one.line.node, one.place),
    )
    if query.is_forward:
        limit = min(reached, default=float("inf"))
        kept = [one for one in placed if one.key <= limit][: query.limit]
    else:
        limit = max(reached, default=float("-inf"))
        kept = [one for one in placed if one.key >= limit][-query.limit :]
    dropped = _dropped(placed, {(one.line.node, one.line.at) for one in kept})
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
        lines=tuple(one.line for one in kept),
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
    found: dict[str, list[LogLine]] = {}
    for one in placed:
        if (one.line.node, one.line.at) not in kept:
            found.setdefault(one.line.node, []).append(one.line)
    return found


def _known(given: str, positions: dict[str, int]) -> dict[str, int]:
    """Return the positions, and those of `given` of nodes that did not answer this time."""
    return unpack_cursor(given) | positions
