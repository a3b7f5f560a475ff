"""The content of a session: drops, logs, data, results, journals and graphs, from the children that have them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from dropflow.api import operations
from dropflow.api.contents_answer import ContentsRequest, DataQuery, Download
from dropflow.api.drop_queries import find_drop
from dropflow.api.drop_records import DropDetail, DropInfo, DropPage, DropQuery, PageQuery, ResultInfo
from dropflow.api.logs import NO_LOG
from dropflow.api.manager import Manager, call_of
from dropflow.api.operations import Operation
from dropflow.api.requests import (
    ALL_TIMES,
    EVERY_RESULT,
    DropStates,
    FailureList,
    FailureQuery,
    ResultList,
    ResultsQuery,
    TimesQuery,
)
from dropflow.api.session_records import FailureInfo
from dropflow.errors import ConflictError, DropflowError, LinkError, NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import find_drop as find_in_graph
from dropflow.graph.text_ids import oid
from dropflow.states import SessionState
from dropflow.web.times import SessionTimes
from managers.composite.children import ChildView
from managers.composite.log_merging import MERGES, KnownCauses, sorted_rows
from managers.composite.machine import CompositeMachine, Gathered
from managers.composite.merging import (
    ended_detail,
    known_detail,
    known_ends,
    lost_nodes,
    merge_failures,
    row_ranges,
    unrecorded_nodes,
)
from managers.composite.routines import SECONDS, Replies
from managers.owner_thread import Owner

_Answer = TypeVar("_Answer")
_Cursors = dict[str, str]
_PARTS = {
    operations.LOG.name: "log of ",
    operations.DATA.name: "content of ",
    operations.PREVIEW.name: "content of ",
    operations.PICTURE.name: "picture of ",
}
_LONG = 30.0
"""Seconds to wait for the beginning of a large answer."""


class ContentQueries(SessionTimes):
    """Answers requests for the contents of sessions, in the threads of the callers.

    Parameters
    ----------
    owner : Owner
        The thread of the machine.
    machine : CompositeMachine
        Asks the children.
    """

    def __init__(self, owner: Owner, machine: CompositeMachine) -> None:
        self._owner = owner
        self._machine = machine

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the function that carries out each operation, by name: the method of that name, or its route."""
        routes: Mapping[str, Callable[..., Any]] = {"drop": self._at_drop, "all": self._at_all}
        handlers: dict[str, Callable[..., Any]] = {}
        for operation in operations.OPERATIONS:
            if hasattr(self, operation.name):
                handlers[operation.name] = getattr(self, operation.name)
            elif operation.to in routes:
                handlers[operation.name] = partial(routes[operation.to], operation)
        return handlers

    def _at_drop(self, operation: Operation[_Answer], session: str, drop: str, **arguments: Any) -> _Answer:
        """Tell the node that holds a drop to carry out an operation on it."""
        view, record = self._find(session, drop)
        what = f"{_PARTS.get(operation.name, '')}drop {record.oid!r} in session {session!r}"
        seconds = SECONDS if operation.answer is DropDetail else _LONG
        call = call_of(operation, session=session, drop=record.oid, **arguments)
        hint = NO_LOG if operation is operations.LOG else "see the list of its drops"
        return self._ask_one(view, call, what, seconds, hint)

    def _at_all(self, operation: Operation[_Answer], session: str, **arguments: Any) -> _Answer:
        """Tell all children to carry out an operation, and merge their answers."""
        gathered = self._ask(session, call_of(operation, session=session, **arguments), _LONG)
        return cast(_Answer, MERGES[operation.name](session, gathered, **arguments))

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """Return a page of the drops that match: first count the drops of each child, then get the rows of the page."""
        if query.time:
            return self.drops_at(session, query)
        count = msgspec.structs.replace(query, offset=0, limit=1)
        gathered = self._ask(session, partial(Manager.drops, session=session, query=count))
        replies = gathered.replies
        if not gathered.missing:
            replies.raise_unless_answered(f"session {session!r}")
        if not replies.values and replies.refusals:
            raise replies.refusals[0][1]
        if query.sort:
            rows, late = sorted_rows(partial(self._pages, session), query, replies.values)
        else:
            rows, late = self._rows(session, query, replies.values)
        return DropPage(
            drops=rows,
            total=sum(page.total for _, page in replies.values),
            offset=query.offset,
            limit=query.limit,
            missing=tuple(
                sorted({*gathered.missing, *gathered.lacking, *late, *(view.name for view, _ in replies.refusals)})
            ),
            held=sum(page.held for _, page in replies.values),
            whole=max((page.whole for _, page in replies.values), default=0),
        )

    def drop(self, session: str, drop: str, query: PageQuery) -> DropDetail:
        """Return one drop, from the node that holds it. The count of drops that it took along is that of all nodes."""
        detail = self._at_drop(operations.DROP, session, drop, query=query)
        cause = detail.failure
        if cause is None:
            return detail
        known: Sequence[FailureInfo] = self._owner.call(self._machine.sessions.session, session).failures
        if cause.row >= 0:
            known = merge_failures(self._failures_in(session, (cause.row,)))
        merged = next((failure for failure in known if (failure.row, failure.name) == (cause.row, cause.name)), cause)
        return msgspec.structs.replace(detail, failure=merged)

    def data(self, session: str, drop: str, query: DataQuery) -> Download:
        """Return the content of a data drop, or a part of it, from the node that holds it, or a node with a copy."""
        try:
            return self._at_drop(operations.DATA, session, drop, query=query)
        except (LinkError, NotFoundError):
            copy = _copy_of(self, session, drop)
            if copy is None:
                raise
            what = f"copy of the content of drop {copy.oid!r}"
            call = partial(Manager.data, session=session, drop=copy.oid, query=query)
            return self._ask_one(self._holder(copy.node), call, what, _LONG, "see the list of results")

    def failures(self, session: str, query: FailureQuery) -> FailureList:
        """Return a page of the root causes, the most harmful first; lost nodes among them.

        The causes on children that do not answer come from their last answers. Drops on any node may be in ERROR
        because of one cause, so the numbers of all causes of all children are merged, as columns, for every page.
        """
        if query.rows:
            records = merge_failures(self._failures_in(session, query.row_numbers))
            return FailureList(failures=records, total=len(records), offset=query.offset, limit=query.limit)
        first = self._ask(session, partial(Manager.failures, session=session, query=FailureQuery(columns=True)))
        parts = self._owner.call(self._machine.parts, session)
        if not parts:
            first.replies.raise_unless_answered(f"session {session!r}")
        answers = [page for _, page in first.replies.values]
        missing = [part for part in parts if part.missing]
        reported = lost_nodes(failure for page in answers for failure in page.failures)
        ends = known_ends(parts)
        details = [ended_detail(part, ends) or known_detail(part, reported) for part in missing]
        remembered = [failure for detail in details for failure in detail.failures]
        causes = KnownCauses(answers, remembered)
        silent = {*(part.child for part in missing), *(view.name for view, _ in first.replies.refusals)}
        silent.update(name for page in answers for name in page.missing)
        failures = causes.lost if query.columns else causes.page(query, partial(self._failures_in, session))
        return FailureList(
            failures=failures,
            total=causes.total,
            offset=query.offset,
            limit=query.limit,
            missing=tuple(sorted(silent)),
            columns=causes.columns if query.columns else None,
        )

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of all drops of the children that answer; the cursor contains those of all children."""
        before = _cursors(since)
        holding = {part.child for part in self._owner.call(self._machine.parts, session)}
        children = self._owner.call(self._machine.list_children)
        call = partial(Manager.states, session=session)
        each = {
            child.url: partial(call, since=before.get(child.url, "")) for child in children if child.name in holding
        }
        gathered = self._ask(session, each or call)
        if not gathered.missing:
            gathered.replies.raise_unless_answered(f"session {session!r}")
        answers = [(view.url, answer) for view, answer in gathered.replies.values]
        silent = [view.name for view, _ in gathered.replies.refusals]
        return DropStates(
            cursor=msgspec.json.encode(before | {url: answer.cursor for url, answer in answers}).decode(),
            drops=b"".join(answer.drops for _, answer in answers),
            states=b"".join(answer.states for _, answer in answers),
            missing=tuple(
                sorted({*gathered.missing, *silent, *(name for _, answer in answers for name in answer.missing)})
            ),
        )

    def results(self, session: str, query: ResultsQuery) -> ResultList:
        """Return the results of the session on the nodes that answer, and the names of the other nodes.

        For a result of another node, one of its copies on nodes that answer is returned.
        """
        gathered = self._ask(session, partial(Manager.results, session=session, query=query))
        gathered.replies.raise_unless_answered(f"session {session!r}")
        results = [result for _, answer in gathered.replies.values for result in answer.results]
        if query != EVERY_RESULT and any(result.owner for result in results):
            return self.results(session, EVERY_RESULT).chosen(query)  # it may be a copy of an unlisted result
        below = [name for _, answer in gathered.replies.values for name in answer.missing]
        refused = [view.name for view, _ in gathered.replies.refusals]
        unrecorded = unrecorded_nodes(self._owner.call(self._machine.parts, session))
        return ResultList(
            results=without_needless_copies(results),
            missing=tuple(sorted({*below, *refused, *unrecorded, *gathered.missing, *gathered.lacking})),
            more=sum(answer.more for _, answer in gathered.replies.values),
            more_size=sum(answer.more_size for _, answer in gathered.replies.values),
            in_stores=tuple(result for _, answer in gathered.replies.values for result in answer.in_stores),
        ).chosen(query)

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, on all children that answer.

        Raises
        ------
        ConflictError
            The session is not FINISHED.
        LinkError
            A child with a part of the session did not answer. The results were removed on the other children.
        """
        status = self._owner.call(self._machine.sessions.session, session).status
        if status != SessionState.FINISHED.name:
            raise ConflictError(f"session {session!r} is {status}, and not FINISHED: its results are not released")
        gathered = self._ask(session, partial(Manager.release, session=session, rows=rows), _LONG)
        gathered.replies.raise_unless_answered(f"session {session!r}")
        if gathered.replies.refusals:
            raise gathered.replies.refusals[0][1]
        if gathered.missing:
            names = ", ".join(gathered.missing)
            raise LinkError(f"the results are released, but not on {names}, which did not answer", where=session)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Return contents of many drops, from the child of their node; the records are forwarded without decoding."""
        view = self._holder(request.node)
        call = partial(Manager.contents, session=session, request=request)
        return self._ask_one(view, call, f"session {session!r}", _LONG)

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the times of attempts of all children."""
        return self._at_all(operations.TIMES, session, query=query)

    def graph(self, session: str) -> PhysicalGraph:
        """Return the graph, from the first child that can read it: each of them has the whole graph."""
        return self._owner.call(self._machine.sessions.graph, session)

    def _rows(
        self, session: str, query: DropQuery, counted: Sequence[tuple[ChildView, DropPage]]
    ) -> tuple[tuple[DropInfo, ...], list[str]]:
        """Return the rows of a page, and the names of the nodes whose rows are missing.

        Parameters
        ----------
        counted : sequence of (ChildView, DropPage)
            The first rows of each child, with the number of all its rows.
        """
        wanted: dict[str, DropQuery] = {}
        pages: dict[str, DropPage] = {}
        for range_ in row_ranges([page.total for _, page in counted], query):
            view, first = counted[range_.child]
            if range_.offset + range_.limit <= len(first.drops):
                pages[view.url] = first
            else:
                wanted[view.url] = msgspec.structs.replace(query, offset=range_.offset, limit=range_.limit)
        replies = self._pages(session, wanted)
        pages |= {view.url: page for view, page in replies.values}
        rows = tuple(row for view, _ in counted if view.url in pages for row in pages[view.url].drops)
        late = [view.name for view, _ in (*replies.missing, *replies.refusals)]
        below = [name for page in (*pages.values(), *(page for _, page in counted)) for name in page.missing]
        return rows, [*late, *below]

    def _failures_in(self, session: str, rows: Sequence[int]) -> list[FailureInfo]:
        """Return the causes in these rows, as each child that answers reports them."""
        query = FailureQuery(rows=",".join(map(str, rows)))
        call = partial(Manager.failures, session=session, query=query)
        answers = self._ask(session, call).replies.values if rows else ()
        return [failure for _, page in answers for failure in page.failures]

    def _pages(self, session: str, queries: Mapping[str, DropQuery]) -> Replies[DropPage]:
        """Return a page of drops of some children, by URL."""
        calls = {url: partial(Manager.drops, session=session, query=query) for url, query in queries.items()}
        return self._ask(session, calls).replies

    def _find(self, session: str, drop: str) -> tuple[ChildView, DropInfo]:
        """Return the child that holds the drop with the name or id `drop`, and its record."""
        drops = partial(self.drops, session)
        try:
            record = find_drop(drops, drop, session=session)
        except LinkError:
            # A node that does not answer may hold the drop. All others have the whole graph, with all ids.
            graph = self.graph(session)
            record = find_drop(drops, oid(graph, find_in_graph(graph, drop)), session=session)
        return self._holder(record.node), record

    def _holder(self, node: str) -> ChildView:
        return self._owner.call(self._machine.holder, node)

    def _ask_one(
        self, view: ChildView, call: partial[_Answer], what: str, seconds: float, hint: str = "see the list of sessions"
    ) -> _Answer:
        replies = self._ask(call.keywords["session"], {view.url: call}, seconds).replies
        replies.raise_unless_answered(what, hint)
        return replies.values[0][1]

    def _ask(
        self, session: str, calls: partial[_Answer] | Mapping[str, partial[_Answer]], seconds: float = SECONDS
    ) -> Gathered[_Answer]:
        """Call a method of all children, or of some, by URL."""
        return self._owner.call(self._machine.ask_children, session, calls, seconds)


def _copy_of(queries: ContentQueries, session: str, drop: str) -> ResultInfo | None:
    """Return a copy of the content of a drop whose node does not answer."""
    try:
        graph = queries.graph(session)
        name = oid(graph, find_in_graph(graph, drop))
        results = queries.results(session, EVERY_RESULT).results
    except DropflowError:
        return None  # the first error is the one to report
    return next((result for result in results if result.owner and result.oid == name), None)


def without_needless_copies(results: Sequence[ResultInfo]) -> tuple[ResultInfo, ...]:
    """Return the results in the order of the graph; for each drop its own content, or else one copy."""
    first_by_drop: dict[int, ResultInfo] = {}
    for result in sorted(results, key=lambda result: (result.drop, bool(result.owner), result.node)):
        first_by_drop.setdefault(result.drop, result)
    return tuple(first_by_drop.values())


def _cursors(since: str) -> _Cursors:
    """Return the cursors of children, by URL, in a cursor of this manager; empty for one of a node manager."""
    try:
        return msgspec.json.decode(since, type=_Cursors) if since else {}
    except msgspec.DecodeError:
        return {}
