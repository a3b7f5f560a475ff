"""A page of a sorted list of drops, merged from the sorted lists of several children."""

import heapq
import itertools
from collections.abc import Callable, Sequence

import msgspec

from dropflow.errors import UsageError
from dropflow.rest.session_records import DropInfo, DropPage, DropQuery
from dropflow.session_views.drop_order import order_of
from managers.composite.children import ChildView
from managers.composite.composite_machine import Gathered

__all__ = ["sorted_rows"]

_PAGE = 1000
_MOST = 20_000


def sorted_rows(
    ask: Callable[..., Gathered], query: DropQuery, counted: Sequence[tuple[ChildView, DropPage]]
) -> tuple[tuple[DropInfo, ...], list[str]]:
    """Return the rows of a page, and the names of the nodes whose rows are missing.

    Parameters
    ----------
    ask : callable
        Asks children for pages of drops; takes the query of each by its URL, as ``each``.
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
    if end > _MOST:
        raise UsageError(
            f"only the first {_MOST:,} rows of a sorted list of several nodes can be read",
            where="offset",
            hint="filter the drops, sort in the other direction, or read them without sorting",
        )
    found: dict[str, list[DropInfo]] = {view.url: [] for view, _ in counted}
    late = [name for _, page in counted for name in page.missing]
    for offset in range(0, end, _PAGE):
        part = msgspec.structs.replace(query, offset=offset, limit=min(_PAGE, end - offset))
        each = {view.url: {"query": part} for view, page in counted if page.total > offset}
        if not each:
            break
        replies = ask(each=each).replies
        for view, page in replies.values:
            found[view.url] += page.drops
        late += [view.name for view, _ in (*replies.missing, *replies.refusals)]
    key, is_reversed = order_of(query.sort)
    merged = heapq.merge(*found.values(), key=key, reverse=is_reversed)
    return tuple(itertools.islice(merged, query.offset, end)), late
