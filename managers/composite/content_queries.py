"""What is in a session: drops, logs, data, results, journals and graphs, from whichever child has them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from dropflow.errors import NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, join
from dropflow.rest.content_records import ContentsRequest
from dropflow.rest.find_drop import find_drop
from dropflow.rest.operation_records import FailureList, ResultList
from dropflow.rest.schema import Download, DropDetail, DropInfo, DropPage, DropQuery, FailureInfo, PageQuery
from managers.api import Manager
from managers.composite.archive import bundle, close
from managers.composite.asking import Asker, Replies
from managers.composite.children import Children, ChildView
from managers.composite.merging import known_detail, lost_nodes, merge_failures, row_ranges
from managers.composite.session_cache import SessionCache

__all__ = ["ContentQueries"]

_PAGE = 1000
_LONG = 30.0
"""Seconds to wait for the beginning of something large."""


class ContentQueries:
    """Finds things in the sessions of the children."""

    def __init__(self, name: str, asker: Asker, children: Children, cache: SessionCache) -> None:
        self._name = name
        self._asker = asker
        self._children = children
        self._cache = cache

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """A page of the drops that match: first how many each child has, then the rows of the page."""
        count = msgspec.structs.replace(query, offset=0, limit=1)
        replies = self._asker.ask(lambda child: child.drops(session, count))
        missing = self._missing(session, replies)
        if not missing:
            replies.raise_unless_answered(f"session {session!r}")
        if not replies.values and replies.refusals:
            raise replies.refusals[0][1]
        rows, late = self._rows(session, query, replies.values)
        return DropPage(
            drops=rows,
            total=sum(page.total for _, page in replies.values),
            offset=query.offset,
            limit=query.limit,
            missing=tuple(sorted({*missing, *late, *(view.name for view, _ in replies.refusals)})),
            held=sum(page.held for _, page in replies.values),
            whole=max((page.whole for _, page in replies.values), default=0),
        )

    def _rows(
        self, session: str, query: DropQuery, told: Sequence[tuple[ChildView, DropPage]]
    ) -> tuple[tuple[DropInfo, ...], list[str]]:
        """The rows of a page, and the children that did not give theirs.

        Parameters
        ----------
        told : sequence of (ChildView, DropPage)
            The first row of each child, and how many there are.
        """
        wanted: dict[str, Callable[[], DropPage]] = {}
        found: dict[str, DropPage] = {}
        for rows_wanted in row_ranges([page.total for _, page in told], query):
            view, first = told[rows_wanted.child]
            if rows_wanted.offset + rows_wanted.limit <= len(first.drops):
                found[view.url] = first
                continue
            part = msgspec.structs.replace(query, offset=rows_wanted.offset, limit=rows_wanted.limit)
            wanted[view.url] = partial(view.manager.drops, session, part)
        replies = self._asker.ask_each(wanted, views={view.url: view for view, _ in told})
        found |= {view.url: page for view, page in replies.values}
        rows = tuple(row for view, _ in told if view.url in found for row in found[view.url].drops)
        late = [view.name for view, _ in (*replies.missing, *replies.refusals)]
        below = [name for page in (*found.values(), *(page for _, page in told)) for name in page.missing]
        return rows, [*late, *below]

    def drop(self, session: str, drop: str, query: PageQuery) -> DropDetail:
        """One drop, from the node that holds it."""
        view, found = self._locate(session, drop)
        replies = self._asker.ask(lambda child: child.drop(session, found.oid, query), among=[view])
        replies.raise_unless_answered(f"drop {found.oid!r} in session {session!r}")
        return replies.values[0][1]

    def log(self, session: str, drop: str) -> Download:
        """The log of a drop, from the node that holds it."""
        view, found = self._locate(session, drop)
        return self._open(view, lambda child: child.log(session, found.oid), f"log of drop {found.oid!r}")

    def data(self, session: str, drop: str) -> Download:
        """Content of a data drop, from the node that holds it."""
        view, found = self._locate(session, drop)
        return self._open(view, lambda child: child.data(session, found.oid), f"content of drop {found.oid!r}")

    def failures(self, session: str, query: PageQuery) -> FailureList:
        """A page of the root causes; for children that do not answer, of those that they told last.

        Each cause may have victims on any node, so all causes of all children are merged for every page.
        """
        replies = self._asker.ask(lambda child: tuple(_all_failures(child, session)))
        parts = self._cache.parts(session, {view.url: view for view in self._children.views()})
        if not parts:
            replies.raise_unless_answered(f"session {session!r}")
        told = [failure for _, failures in replies.values for failure in failures]
        missing = [part for part in parts if part.missing]
        remembered = [failure for part in missing for failure in known_detail(part, lost_nodes(told)).failures]
        silent = [*(part.child for part in missing), *(view.name for view, _ in replies.refusals)]
        return FailureList.page(merge_failures([*told, *remembered]), query, missing=sorted(silent))

    def results(self, session: str) -> ResultList:
        """What the session left on the children that answer, in the order of the graph, and the nodes that do not."""
        replies = self._asker.ask(lambda child: child.results(session))
        replies.raise_unless_answered(f"session {session!r}")
        found = [result for _, told in replies.values for result in told.results]
        below = [name for _, told in replies.values for name in told.missing]
        refused = [view.name for view, _ in replies.refusals]
        return ResultList(
            results=tuple(sorted(found, key=lambda result: (result.drop, result.node))),
            missing=tuple(sorted({*below, *refused, *self._missing(session, replies)})),
        )

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """ContentQueries of many drops, from the child that has their node; its records pass through as they are."""
        view = self._holder(request.node)
        return self._open(view, lambda child: child.contents(session, request), f"session {session!r}")

    def journal(self, session: str) -> Download:
        """The journal of the only child that holds the session, or those of several in a tar file."""
        replies = self._asker.ask(lambda child: child.journal(session), seconds=_LONG, discard=close)
        replies.raise_unless_answered(f"session {session!r}")
        missing = [f"{name}: not reached" for name in self._missing(session, replies)]
        missing += [f"{view.name}: {error}" for view, error in replies.refusals]
        if len(replies.values) == 1 and not missing:
            return replies.values[0][1]
        members = [(view.name, download) for view, download in replies.values]
        notes = "".join(f"{line}\n" for line in sorted(missing))
        return bundle(f"{session}-journals.tar", members, notes=notes)

    def slices(self, session: str) -> tuple[Slice, ...]:
        """The slices of the graph on the children that answer."""
        replies = self._asker.ask(lambda child: child.slices(session), seconds=_LONG)
        replies.raise_unless_answered(f"session {session!r}")
        return tuple(piece for _, pieces in replies.values for piece in pieces)

    def graph(self, session: str) -> PhysicalGraph:
        """The graph, as far as the children that answer hold it."""
        return join(self.slices(session))

    def _locate(self, session: str, drop: str) -> tuple[ChildView, DropInfo]:
        """Return the child that holds the drop that `drop` names, and the drop in a row."""
        found = find_drop(partial(self.drops, session), drop, session=session)
        return self._holder(found.node), found

    def _holder(self, node: str) -> ChildView:
        for view in self._children.views():
            if node in {one.name for one in view.nodes}:
                return view
        raise NotFoundError(f"node {node} is not below {self._name}", hint="see 'dropflow nodes'")

    def _open(self, view: ChildView, call: Callable[[Manager], Download], what: str) -> Download:
        replies = self._asker.ask(call, among=[view], seconds=_LONG, discard=close)
        replies.raise_unless_answered(what)
        return replies.values[0][1]

    def _missing(self, session: str, replies: Replies[Any]) -> list[str]:
        """Children that hold a part of the session, or may hold one, and were not asked or did not answer."""
        unheard = self._cache.unheard(session, {view.url: view for view in self._children.views()})
        holders = {*self._cache.holders(session), *(view.url for view in unheard)}
        return sorted(view.name for view, _ in replies.missing if view.url in holders)


def _all_failures(child: Manager, session: str) -> Iterator[FailureInfo]:
    """Yield the root causes that a child knows, page by page."""
    offset, total = 0, 1
    while offset < total:
        page = child.failures(session, PageQuery(offset=offset, limit=_PAGE))
        yield from page.failures
        offset, total = offset + _PAGE, page.total
