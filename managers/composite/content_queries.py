"""What is in a session: drops, logs, data, results, journals and graphs, from the children that have them."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import numpy as np

from dropflow.api import operations
from dropflow.api.contents import WHOLE, ContentsRequest, DataQuery, Download
from dropflow.api.logs import LAST_LINES, LogPage, LogQuery
from dropflow.api.records import (
    FIRST_PAGE,
    Child,
    DropDetail,
    DropInfo,
    DropPage,
    DropQuery,
    FailureInfo,
    PageQuery,
    ResultInfo,
    SessionInfo,
)
from dropflow.api.requests import (
    ALL_TIMES,
    EVERY_RESULT,
    FIRST_FAILURES,
    FailureList,
    FailureQuery,
    ResultList,
    ResultsQuery,
    TimesQuery,
)
from dropflow.api.state_records import DropStates
from dropflow.errors import DropflowError, LinkError, NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import find_drop as find_in_graph
from dropflow.graph.text_ids import oid
from dropflow.preview.source import FIRST_LOOK, Preview, PreviewQuery
from dropflow.stopping import GRACE_SECONDS
from dropflow.times.octets import RECORD, TimesSection, pack_times
from dropflow.web.times import SessionTimes
from dropflow.web.views import find_drop
from managers.composite.children import ChildView
from managers.composite.log_merging import KnownCauses, bundle, merge_log_pages, sorted_rows
from managers.composite.machine import Gathered
from managers.composite.merging import ended_detail, known_detail, known_ends, lost_nodes, merge_failures, row_ranges
from managers.composite.operations import SECONDS
from managers.owner_thread import Owner

__all__ = ["ContentQueries", "without_needless_copies"]

_Cursors = dict[str, str]
_LONG = 30.0
"""Seconds to wait for the beginning of something large."""


class ContentQueries(SessionTimes):
    """Answers requests for the contents of sessions, in the threads of the callers.

    Parameters
    ----------
    owner : Owner
        Asks the children; see `managers.composite.machine`.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """Return a page of the drops that match: first count those of each child, then get the rows of the page."""
        if query.time:
            return self.drops_at(session, query)
        count = msgspec.structs.replace(query, offset=0, limit=1)
        found = self._ask(session, "drops", query=count)
        replies = found.replies
        if not found.missing:
            replies.raise_unless_answered(f"session {session!r}")
        if not replies.values and replies.refusals:
            raise replies.refusals[0][1]
        if query.sort:
            rows, late = sorted_rows(partial(self._ask, session, "drops"), query, replies.values)
        else:
            rows, late = self._rows(session, query, replies.values)
        return DropPage(
            drops=rows,
            total=sum(page.total for _, page in replies.values),
            offset=query.offset,
            limit=query.limit,
            missing=tuple(sorted({*found.missing, *late, *(view.name for view, _ in replies.refusals)})),
            held=sum(page.held for _, page in replies.values),
            whole=max((page.whole for _, page in replies.values), default=0),
        )

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """Return one drop, from the node that holds it; what its root cause took along is counted on all nodes."""
        view, found = self._find(session, drop)
        detail: DropDetail = self._ask_one(
            view, session, "drop", f"drop {found.oid!r} in session {session!r}", drop=found.oid, query=query
        )
        cause = detail.failure
        if cause is None:
            return detail
        known: Sequence[FailureInfo] = self._owner.call("session", session=session).failures
        if cause.row >= 0:
            known = merge_failures(self._failures_in(session, (cause.row,)))
        whole = next((one for one in known if (one.row, one.name) == (cause.row, cause.name)), cause)
        return msgspec.structs.replace(detail, failure=whole)

    def pause(self, session: str) -> SessionInfo:
        """Pause a session on all children that answer."""
        return cast(SessionInfo, self._owner.call("pause", session=session))

    def unpause(self, session: str) -> SessionInfo:
        """Continue a session on all children that answer."""
        return cast(SessionInfo, self._owner.call("unpause", session=session))

    def cancel_drop(self, session: str, drop: str, reason: str = "", grace: float = GRACE_SECONDS) -> DropDetail:
        """Cancel one drop, on the node that holds it."""
        view, found = self._find(session, drop)
        what = f"drop {found.oid!r} in session {session!r}"
        detail = self._ask_one(view, session, "cancel_drop", what, drop=found.oid, reason=reason, grace=grace)
        return cast(DropDetail, detail)

    def log(self, session: str, drop: str) -> Download:
        """Return the log of a drop, from the node that holds it."""
        view, found = self._find(session, drop)
        return self._open(view, session, "log", f"log of drop {found.oid!r}", drop=found.oid)

    def session_log(self, session: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of a session, merged from the children that answer."""
        found = self._ask(session, "session_log", _LONG, query=query)
        if not found.missing:
            found.replies.raise_unless_answered(f"session {session!r}")
        refused = [view.name for view, _ in found.replies.refusals]
        return merge_log_pages([page for _, page in found.replies.values], query, [*found.missing, *refused])

    def data(self, session: str, drop: str, query: DataQuery = WHOLE) -> Download:
        """Return the content of a data drop, or a part, from the node that holds it, or one that has a copy."""
        try:
            view, found = self._find(session, drop)
            return self._open(view, session, "data", f"content of drop {found.oid!r}", drop=found.oid, query=query)
        except (LinkError, NotFoundError):
            copy = _copy_of(self, session, drop)
            if copy is None:
                raise
            what = f"copy of the content of drop {copy.oid!r}"
            return self._open(self._holder(copy.node), session, "data", what, drop=copy.oid, query=query)

    def preview(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Preview:
        """Return a bounded part of the content of a data drop, from the node that holds it."""
        view, found = self._find(session, drop)
        what = f"content of drop {found.oid!r}"
        return cast(Preview, self._ask_one(view, session, "preview", what, _LONG, drop=found.oid, query=query))

    def picture(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Download:
        """Return the content of a data drop as a picture, from the node that holds it."""
        view, found = self._find(session, drop)
        return self._open(view, session, "picture", f"picture of drop {found.oid!r}", drop=found.oid, query=query)

    def failures(self, session: str, query: FailureQuery = FIRST_FAILURES) -> FailureList:
        """Return a page of the root causes, the most harmful first; lost nodes among them.

        Those of children that do not answer come from their last answers. Drops on any node may be in
        ERROR because of one cause, so the numbers of all causes of all children are merged, as columns, for every page.
        """
        if query.rows:
            found = merge_failures(self._failures_in(session, query.row_numbers))
            return FailureList(failures=found, total=len(found), offset=query.offset, limit=query.limit)
        first = self._ask(session, "failures", query=FailureQuery(columns=True))
        parts = self._owner.call("parts", session=session)
        if not parts:
            first.replies.raise_unless_answered(f"session {session!r}")
        answers = [page for _, page in first.replies.values]
        missing = [part for part in parts if part.missing]
        reported = lost_nodes(failure for page in answers for failure in page.failures)
        ends = known_ends(parts)
        details = [ended_detail(part, ends) or known_detail(part, reported) for part in missing]
        remembered = [failure for detail in details for failure in detail.failures]
        causes = KnownCauses(answers, remembered)
        silent = [*(part.child for part in missing), *(view.name for view, _ in first.replies.refusals)]
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
        """Return the states of all drops of the children that answer; a cursor has those of all children."""
        before = _cursors(since)
        holding = {part.child for part in self._owner.call("parts", session=session)}
        children: tuple[Child, ...] = self._owner.call("children")
        each = {child.url: {"since": before.get(child.url, "")} for child in children if child.name in holding}
        found = self._ask(session, "states", each=each or None)
        if not found.missing:
            found.replies.raise_unless_answered(f"session {session!r}")
        answers = [(view.url, answer) for view, answer in found.replies.values]
        silent = [view.name for view, _ in found.replies.refusals]
        return DropStates(
            cursor=msgspec.json.encode(before | {url: answer.cursor for url, answer in answers}).decode(),
            drops=b"".join(answer.drops for _, answer in answers),
            states=b"".join(answer.states for _, answer in answers),
            missing=tuple(sorted({*found.missing, *silent, *(one for _, answer in answers for one in answer.missing)})),
        )

    def results(self, session: str, query: ResultsQuery = EVERY_RESULT) -> ResultList:
        """Return what the session left on the nodes that answer, and the other nodes.

        Of results of the others, there is one of the copies on nodes that answer.
        """
        found = self._ask(session, "results", query=query)
        found.replies.raise_unless_answered(f"session {session!r}")
        results = [result for _, answer in found.replies.values for result in answer.results]
        if query != EVERY_RESULT and any(result.owner for result in results):
            return self.results(session).chosen(query)  # a copy may be of a result that is not listed
        below = [name for _, answer in found.replies.values for name in answer.missing]
        refused = [view.name for view, _ in found.replies.refusals]
        return ResultList(
            results=without_needless_copies(results),
            missing=tuple(sorted({*below, *refused, *found.missing})),
            more=sum(answer.more for _, answer in found.replies.values),
            more_size=sum(answer.more_size for _, answer in found.replies.values),
        ).chosen(query)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Return contents of many drops, from the child that has their node; the records are forwarded unread."""
        view = self._holder(request.node)
        return self._open(view, session, "contents", f"session {session!r}", request=request)

    def journal(self, session: str) -> Download:
        """Return the journal of the only child that has the session, or those of several in a tar file."""
        found = self._ask(session, "journal", _LONG)
        replies = found.replies
        replies.raise_unless_answered(f"session {session!r}")
        missing = [f"{name}: not reached" for name in found.missing]
        missing += [f"{view.name}: {error}" for view, error in replies.refusals]
        if len(replies.values) == 1 and not missing:
            return cast(Download, replies.values[0][1])
        members = [(view.name, download) for view, download in replies.values]
        notes = "".join(f"{line}\n" for line in sorted(missing))
        return bundle(f"{session}-journals.tar", members, notes=notes)

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the times of attempts: the sections of all children that answer, and one for each that does not."""
        found = self._ask(session, "times", _LONG, query=query)
        replies = found.replies
        replies.raise_unless_answered(f"session {session!r}")
        silent = dict.fromkeys(found.missing, "it did not answer")
        silent |= {view.name: str(error) for view, error in replies.refusals}
        none = np.zeros(0, RECORD)
        ends = [pack_times(TimesSection(node=name, missing=why, records=none)) for name, why in sorted(silent.items())]
        chunks = itertools.chain(*(download.chunks for _, download in replies.values), ends)
        return Download(name=f"{session}.times", content_type=operations.TIMES.gives, size=None, chunks=chunks)

    def graph(self, session: str) -> PhysicalGraph:
        """Return the graph, from the first child that can read it: each of them has the whole graph."""
        return cast(PhysicalGraph, self._owner.call("graph", session=session))

    def _rows(
        self, session: str, query: DropQuery, counted: Sequence[tuple[ChildView, DropPage]]
    ) -> tuple[tuple[DropInfo, ...], list[str]]:
        """Return the rows of a page, and the names of the nodes whose rows are missing.

        Parameters
        ----------
        counted : sequence of (ChildView, DropPage)
            The first row of each child, and how many there are.
        """
        wanted: dict[str, Mapping[str, Any]] = {}
        found: dict[str, DropPage] = {}
        for range_ in row_ranges([page.total for _, page in counted], query):
            view, first = counted[range_.child]
            if range_.offset + range_.limit <= len(first.drops):
                found[view.url] = first
            else:
                part = msgspec.structs.replace(query, offset=range_.offset, limit=range_.limit)
                wanted[view.url] = {"query": part}
        replies = self._ask(session, "drops", each=wanted).replies
        found |= {view.url: page for view, page in replies.values}
        rows = tuple(row for view, _ in counted if view.url in found for row in found[view.url].drops)
        late = [view.name for view, _ in (*replies.missing, *replies.refusals)]
        below = [name for page in (*found.values(), *(page for _, page in counted)) for name in page.missing]
        return rows, [*late, *below]

    def _failures_in(self, session: str, rows: Sequence[int]) -> list[FailureInfo]:
        """Return what each child that answers has of the causes in these rows."""
        query = FailureQuery(rows=",".join(map(str, rows)))
        answers = self._ask(session, "failures", query=query).replies.values if rows else ()
        return [failure for _, page in answers for failure in page.failures]

    def _find(self, session: str, drop: str) -> tuple[ChildView, DropInfo]:
        """Return the child that holds the drop that `drop` names, and the row of the drop."""
        drops = partial(self.drops, session)
        try:
            found = find_drop(drops, drop, session=session)
        except LinkError:
            # A node that does not answer may have it. Those that answer have the whole graph, with all ids.
            graph = self.graph(session)
            found = find_drop(drops, oid(graph, find_in_graph(graph, drop)), session=session)
        return self._holder(found.node), found

    def _holder(self, node: str) -> ChildView:
        return cast(ChildView, self._owner.call("holder", node=node))

    def _open(self, view: ChildView, session: str, operation: str, what: str, **arguments: Any) -> Download:
        return cast(Download, self._ask_one(view, session, operation, what, _LONG, **arguments))

    def _ask_one(
        self, view: ChildView, session: str, operation: str, what: str, seconds: float = SECONDS, **arguments: Any
    ) -> Any:
        replies = self._ask(session, operation, seconds, each={view.url: {}}, **arguments).replies
        replies.raise_unless_answered(what)
        return replies.values[0][1]

    def _ask(
        self,
        session: str,
        operation: str,
        seconds: float = SECONDS,
        *,
        each: Mapping[str, Mapping[str, Any]] | None = None,
        **arguments: Any,
    ) -> Gathered:
        """Call an operation of all children, or of those in `each`, with further arguments for each."""
        found = self._owner.call(
            "ask_children",
            session=session,
            operation=operation,
            arguments={"session": session, **arguments},
            seconds=seconds,
            each=each,
        )
        return cast(Gathered, found)


def _copy_of(queries: ContentQueries, session: str, drop: str) -> ResultInfo | None:
    """Return a copy of the content of a drop whose node does not answer."""
    try:
        graph = queries.graph(session)
        name = oid(graph, find_in_graph(graph, drop))
        results = queries.results(session).results
    except DropflowError:
        return None  # the first error is the one to report
    return next((result for result in results if result.owner and result.oid == name), None)


def without_needless_copies(results: Sequence[ResultInfo]) -> tuple[ResultInfo, ...]:
    """Return the results in the order of the graph; of each drop its own content, or else one copy."""
    found: dict[int, ResultInfo] = {}
    for result in sorted(results, key=lambda result: (result.drop, bool(result.owner), result.node)):
        found.setdefault(result.drop, result)
    return tuple(found.values())


def _cursors(since: str) -> _Cursors:
    """Return the cursors of children, by URL, in a cursor of this manager; none if it is of another kind of manager."""
    try:
        return msgspec.json.decode(since, type=_Cursors) if since else {}
    except msgspec.DecodeError:
        return {}
