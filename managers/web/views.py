"""The content of each page as a record, which is rendered as HTML and, for its ``.json`` twin, as JSON.

If the subject of a page is missing, its error is the answer. If anything else on the page is missing, because a node
does not answer, the page lists it under `warnings` and shows the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from dropflow.api.drop_records import FIRST_PAGE, DropDetail, DropPage, DropQuery, Neighbour, PageQuery, ResultInfo
from dropflow.api.manager import Manager
from dropflow.api.node_records import Child, Load, ManagerInfo, NodeHistory, NodeInfo
from dropflow.api.requests import (
    DEFAULT_STATISTICS,
    FailureList,
    FailureQuery,
    ResultList,
    ResultsQuery,
    StatisticsQuery,
)
from dropflow.api.session_records import FailureInfo, MomentQuery, SessionDetail, SessionInfo, SessionMoment, UserUse
from dropflow.errors import DropflowError, NotFoundError, PreviewError
from dropflow.formatting import format_count, format_size
from dropflow.preview.source import Line, Preview, PreviewQuery
from dropflow.states import DropState, SessionState
from dropflow.times.statistics import NO_TIMES, TimesStatistics
from dropflow.web.cause_groups import Cause, causes
from dropflow.web.views import Listed, listed
from managers.web.logs import LogTail, tail_of

_T = TypeVar("_T")
_YOUNGEST_SESSIONS = 10
"""Sessions that the overview shows."""
_FIRST_NODES = 20
"""Nodes that the overview shows."""
_SESSIONS_PER_PAGE = 50
"""Sessions on a page of their list, unless the query has another number."""
_FIRST_CAUSES = 5
"""Root causes that the page of a session shows; the others are folded."""
_SHOWN_FAILURES = 100
"""Failures that the page of a session at an earlier moment shows."""
_FIRST_RESULTS = 10
"""Results that the page of a session shows."""
_FIRST_INPUTS = 10
"""Inputs that the page of a drop that failed names beside its failure."""
_SIZED_INPUTS = 5
"""Inputs of these whose size is asked of their nodes."""
_UNSETTLED = (DropState.INITIALIZED, DropState.WRITING, DropState.CANCELLED)
"""States of drops that run when a session that is over is resumed."""
UseOf = Callable[[Sequence[SessionInfo]], tuple[UserUse, ...]]
"""Returns what the users of sessions have and may have (`managers.routes.owners.Owners.use`)."""

# A session as it was at a moment, for its page: numbers, logical nodes, failures and results.


def as_it_was(
    manager: Manager, detail: SessionDetail, results: Sequence[ResultInfo], time: float
) -> tuple[SessionDetail, tuple[ResultInfo, ...]]:
    """Return a session and its results as they were at a time."""
    moment = manager.moment(detail.session, MomentQuery(time=time, states=True))
    rows = ",".join(str(cause.row) for cause in moment.causes[:_SHOWN_FAILURES])
    failures = manager.failures(detail.session, FailureQuery(rows=rows)).failures if rows else ()
    return _detail_at(detail, moment, failures), _results_at(results, moment)


def _detail_at(detail: SessionDetail, moment: SessionMoment, failures: Sequence[FailureInfo]) -> SessionDetail:
    """Return a session with the numbers of a moment, and with those of its root causes that had failed by then.

    Lost nodes are not among them: when a node was lost is not recorded.
    """
    counts = {node.key: node.counts for node in moment.logical}
    known = {failure.row: failure for failure in failures if failure.drop}
    causes = [
        msgspec.structs.replace(known[cause.row], count=cause.count, took_along=cause.took_along)
        for cause in moment.causes
        if cause.row in known
    ]
    return msgspec.structs.replace(
        detail,
        settled=moment.settled,
        running=moment.running,
        queued=moment.queued,
        ready=0,
        counts=moment.counts,
        seconds=max(moment.time - moment.began, 0.0),
        rate=0.0,
        remaining=None,
        quiet=0.0,
        logical=tuple(
            msgspec.structs.replace(node, counts=counts.get(node.key, node.counts)) for node in detail.logical
        ),
        failures=tuple(causes),
    )


def _results_at(results: Sequence[ResultInfo], moment: SessionMoment) -> tuple[ResultInfo, ...]:
    """Return the results that were complete at a moment, which has the states of all drops."""
    states = np.frombuffer(moment.states, np.uint8)
    return tuple(
        result for result in results if result.drop < len(states) and states[result.drop] == DropState.COMPLETED
    )


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on sessions: their status, and a text in their name or in the name of their graph; and their order.

    `sort` is a column of the page; with a minus in front in descending order. By default the youngest come first.
    """

    status: Annotated[str, Meta(max_length=20)] = ""
    text: Annotated[str, Meta(max_length=200)] = ""
    sort: Annotated[str, Meta(pattern="^$|^-?(session|status|progress|rate|time|begun)$")] = ""
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = _SESSIONS_PER_PAGE


class DropPageQuery(PreviewQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the content of a drop is shown, and which of its neighbours its page lists (`PageQuery`)."""

    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = FIRST_PAGE.limit

    @property
    def look(self) -> PreviewQuery:
        """How the content is shown."""
        return msgspec.convert(self, PreviewQuery, from_attributes=True)


FIRST_DROP_PAGE = DropPageQuery()


class NodeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on nodes: their state, and a text in their name, host or island; and their order, as of sessions."""

    text: Annotated[str, Meta(max_length=200)] = ""
    state: Annotated[str, Meta(max_length=20)] = ""
    sort: Annotated[str, Meta(pattern="^$|^-?(name|state|sessions|processor|memory|disk|attempts)$")] = ""


_SESSION_ORDERS: dict[str, Callable[[SessionInfo], str | float]] = {
    "session": lambda session: session.session.casefold(),
    "status": lambda session: session.status,
    "progress": lambda session: session.settled / max(session.drops, 1),
    "rate": lambda session: session.rate,
    "time": lambda session: session.seconds,
    "begun": lambda session: session.created,
}
_NODE_ORDERS: dict[str, Callable[[NodeInfo], str | float]] = {
    "name": lambda node: node.name.casefold(),
    "state": lambda node: node.state,
    "sessions": lambda node: node.sessions,
    "processor": lambda node: node.load.processor,
    "memory": lambda node: 1 - node.load.memory_free / max(node.load.memory, 1),
    "disk": lambda node: 1 - node.load.disk_free / max(node.load.disk, 1),
    "attempts": lambda node: node.load.busy,
}


class ManagerView(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a page of a manager: at least the manager itself."""

    manager: ManagerInfo


class OverviewView(ManagerView, frozen=True, kw_only=True):
    """The manager, its children and nodes, and its youngest sessions."""

    children: tuple[Child, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    sessions: tuple[SessionInfo, ...] = ()
    total: int = 0
    running: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def first_nodes(self) -> Listed[NodeInfo]:
        """The nodes that the page shows."""
        return listed(self.nodes, _FIRST_NODES)


class NodesView(ManagerView, frozen=True, kw_only=True):
    """The node managers that match."""

    nodes: tuple[NodeInfo, ...]
    query: NodeQuery


class NodeView(ManagerView, frozen=True, kw_only=True):
    """One node manager, and its load during the last hour."""

    node: NodeInfo
    history: NodeHistory
    warnings: tuple[str, ...] = ()


class SessionsView(ManagerView, frozen=True, kw_only=True):
    """A page of the sessions that match, and the number of all that match."""

    sessions: tuple[SessionInfo, ...]
    total: int
    query: SessionQuery
    users: tuple[UserUse, ...] = ()


class SessionView(ManagerView, frozen=True, kw_only=True):
    """One session with a page of its drops, and the first of its results; the number and bytes are of all results.

    With the time of the query, all but its status, notes and actions is as it was then.
    """

    session: SessionDetail
    drops: DropPage
    query: DropQuery
    results: tuple[ResultInfo, ...] = ()
    result_count: int = 0
    result_size: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def causes(self) -> tuple[tuple[Cause, ...], tuple[Cause, ...]]:
        """The root causes that the page shows, and those that it folds."""
        every = causes(self.session.failures)
        return every[:_FIRST_CAUSES], every[_FIRST_CAUSES:]


class TimelineView(ManagerView, frozen=True, kw_only=True):
    """The times at which the attempts of a session ran."""

    session: SessionDetail
    times: TimesStatistics
    warnings: tuple[str, ...] = ()


class CausesView(ManagerView, frozen=True, kw_only=True):
    """A page of the root causes of a session."""

    session: SessionDetail
    causes: FailureList
    warnings: tuple[str, ...] = ()


class DropView(ManagerView, frozen=True, kw_only=True):
    """One drop, with the end of its log and the beginning of its content."""

    session: SessionInfo
    drop: DropDetail
    query: DropPageQuery
    log: LogTail | None = None
    data: Preview | None = None
    warnings: tuple[str, ...] = ()

    @property
    def first_inputs(self) -> Listed[Neighbour]:
        """The inputs that are named beside a failure."""
        return Listed(rows=self.drop.inputs[:_FIRST_INPUTS], total=self.drop.input_count)

    @property
    def can_try_again(self) -> bool:
        """Whether the root cause of the drop can be tried again."""
        return self.drop.state == DropState.ERROR.name

    @property
    def can_run_again(self) -> bool:
        """Whether the session can be run again from the drop: it is completed, or a root cause."""
        failure = self.drop.failure
        is_cause = failure is not None and failure.drop == self.drop.oid
        return self.session.is_over and (self.drop.state == DropState.COMPLETED.name or is_cause)


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a form of a page does with a session: its name, which is the end of its address, and its words."""

    name: str
    word: str
    consequence: str
    button: str
    asks_reason: bool = False
    is_harmful: bool = False


_ACTIONS: tuple[tuple[Callable[[SessionDetail], bool], Action], ...] = (
    (
        lambda session: session.is_over and any(session.states.get(state.name) for state in _UNSETTLED),
        Action(
            name="resume",
            word="Resume",
            consequence="It goes on under its name on those of its nodes that are there. Committed contents are kept, "
            "and the rest runs.",
            button="Resume the session",
        ),
    ),
    (
        lambda session: bool(session.states.get(DropState.ERROR.name)),
        Action(
            name="retry",
            word="Try again",
            consequence="All drops that failed run again, and those that failed because of them, with all of their "
            "tries. Correct the cause first. Running drops go on. The page of a drop tries it alone.",
            button="Try failed drops again",
        ),
    ),
    (
        lambda session: not session.is_over and session.status == SessionState.PAUSED.name,
        Action(
            name="continue",
            word="Continue",
            consequence="Ready drops are started again.",
            button="Continue the session",
        ),
    ),
    (
        lambda session: not session.is_over and session.status != SessionState.PAUSED.name,
        Action(
            name="pause",
            word="Pause",
            consequence="Nothing more is started. Running attempts go on, and the session can be continued.",
            button="Pause the session",
        ),
    ),
    (
        lambda session: not session.is_over,
        Action(
            name="cancel",
            word="Cancel",
            consequence="Drops that are not settled become cancelled, and running attempts are stopped. Results are "
            "kept.",
            button="Cancel the session",
            asks_reason=True,
            is_harmful=True,
        ),
    ),
    (
        lambda _: True,
        Action(
            name="delete",
            word="Delete",
            consequence="It is stopped if it runs, and its results, logs and journal are removed from all nodes. This "
            "cannot be undone.",
            button="Delete the session",
            is_harmful=True,
        ),
    ),
)
TRY_AGAIN = Action(
    name="try",
    word="Try again",
    consequence="Its root cause runs again, and all that failed because of it, with all of their tries. Correct the "
    "cause first.",
    button="Try it again",
)
RUN_AGAIN = Action(
    name="run",
    word="Run again from here",
    consequence="It runs again, and all that depends on it; their present results are replaced. Everything else "
    "stays as it is. Inputs whose contents are gone are made again. A parameter that you change is changed for all "
    "drops of its logical node.",
    button="Run again",
)


def session_actions(session: SessionDetail) -> tuple[Action, ...]:
    """Return what can be done with a session now."""
    return tuple(action for is_possible, action in _ACTIONS if is_possible(session))


class _OptionalParts:
    """Reads what may be missing, and collects the errors as warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def read(self, source: Callable[[], _T], default: _T) -> _T:
        try:
            return source()
        except DropflowError as error:
            self.warnings.append(str(error))
            return default


def overview_view(manager: Manager) -> OverviewView:
    """Return the first page of a manager."""
    info, optional = manager.info(), _OptionalParts()
    children: tuple[Child, ...] = ()
    if info.role in ("island", "master"):
        children = optional.read(manager.children, ())
    nodes: tuple[NodeInfo, ...] = optional.read(manager.nodes, ())
    sessions: tuple[SessionInfo, ...] = optional.read(manager.sessions, ())
    return OverviewView(
        manager=info,
        children=children,
        nodes=nodes,
        sessions=sessions[:_YOUNGEST_SESSIONS],
        total=len(sessions),
        running=sum(not session.is_over for session in sessions),
        warnings=tuple(optional.warnings),
    )


def nodes_view(manager: Manager, query: NodeQuery) -> NodesView:
    """Return the node managers that match `query`, with their load."""
    text = query.text.casefold()
    nodes = [
        node
        for node in manager.nodes()
        if query.state in ("", node.state)
        and any(text in name.casefold() for name in (node.name, node.host, node.island))
    ]
    return NodesView(manager=manager.info(), nodes=_in_order(nodes, query.sort, _NODE_ORDERS), query=query)


def _in_order(rows: list[_T], sort: str, orders: Mapping[str, Callable[[_T], str | float]]) -> tuple[_T, ...]:
    if sort:
        rows.sort(key=orders[sort.removeprefix("-")], reverse=sort.startswith("-"))
    return tuple(rows)


def node_view(manager: Manager, name: str) -> NodeView:
    """Return the page of a node.

    Raises
    ------
    NotFoundError
        There is no such node.
    """
    node = next((node for node in manager.nodes() if node.name == name), None)
    if node is None:
        raise NotFoundError(f"there is no node {name!r}", hint="see the list of nodes")
    optional = _OptionalParts()
    history = optional.read(lambda: manager.node_history(name), NodeHistory(node=name, every=0.0))
    return NodeView(manager=manager.info(), node=node, history=history, warnings=tuple(optional.warnings))


def sessions_view(manager: Manager, query: SessionQuery, use_of: UseOf = lambda _: ()) -> SessionsView:
    """Return the sessions that match `query`, the youngest first."""
    text, sessions = query.text.casefold(), manager.sessions()
    matching = [
        session
        for session in sessions
        if query.status.upper() in ("", session.status)
        and (text in session.session.casefold() or text in session.graph.casefold())
    ]
    return SessionsView(
        manager=manager.info(),
        sessions=_in_order(matching, query.sort, _SESSION_ORDERS)[query.offset : query.offset + query.limit],
        total=len(matching),
        query=query,
        users=use_of(sessions),
    )


def session_start(manager: Manager, session: str, query: DropQuery) -> tuple[SessionDetail, DropPage | None]:
    """Return what decides whether there is a page: the session, and the drops that a query chooses, if it has any.

    Raises the errors of `session_view`.
    """
    return manager.session(session), None if query == DropQuery() else manager.drops(session, query)


def session_view(
    manager: Manager,
    session: str,
    query: DropQuery,
    *,
    start: tuple[SessionDetail, DropPage | None] | None = None,
) -> SessionView:
    """Return the page of a session; its `start` may be known already.

    Raises
    ------
    NotFoundError
        There is no such session.
    UsageError
        The query names a state that does not exist.
    """
    optional = _OptionalParts()
    if start is None:
        detail, page = manager.session(session), manager.drops(session, query)
    else:  # the answer has begun, so that its status can tell of no error
        detail, known = start
        page = known or optional.read(lambda: manager.drops(session, query), DropPage(drops=(), total=0))
    missing = tuple(f"Node {node} did not answer: its drops are missing." for node in page.missing)
    # At an earlier moment, all have to be known: which of them there were is decided here.
    listed = ResultsQuery(limit=0 if query.time else _FIRST_RESULTS)
    listing = optional.read(lambda: manager.results(session, listed), ResultList(results=()))
    missing += tuple(f"Node {node} did not answer: its results are missing." for node in listing.missing)
    results = listing.results
    if query.time:
        detail, results = as_it_was(manager, detail, results, query.time)
    return SessionView(
        manager=manager.info(),
        session=detail,
        drops=page,
        query=query,
        results=results[:_FIRST_RESULTS],
        result_count=len(results) + listing.more,
        result_size=sum(result.size for result in results) + listing.more_size,
        warnings=(*missing, *optional.warnings),
    )


def timeline_view(manager: Manager, session: str, query: StatisticsQuery = DEFAULT_STATISTICS) -> TimelineView:
    """Return the statistics of the timeline of a session, or of the attempts that had ended by a time."""
    detail, optional = manager.session(session), _OptionalParts()
    times = optional.read(lambda: manager.times_statistics(session, query), NO_TIMES)
    missing = tuple(f"Node {node} did not answer: its attempts are missing." for node in times.missing)
    return TimelineView(manager=manager.info(), session=detail, times=times, warnings=(*missing, *optional.warnings))


def causes_view(manager: Manager, session: str, query: PageQuery) -> CausesView:
    """Return a page of the root causes of a session.

    Raises
    ------
    NotFoundError
        There is no such session.
    """
    causes = manager.failures(session, FailureQuery(offset=query.offset, limit=query.limit))
    missing = tuple(
        f"Node {node} did not answer: its causes are those that it reported last." for node in causes.missing
    )
    return CausesView(manager=manager.info(), session=manager.session(session), causes=causes, warnings=missing)


def drop_view(manager: Manager, session: str, drop: str, query: DropPageQuery = FIRST_DROP_PAGE) -> DropView:
    """Return the page of a drop.

    Raises
    ------
    NotFoundError
        There is no such session, or no such drop in it.
    """
    detail, optional = manager.drop(session, drop, PageQuery(offset=query.offset, limit=query.limit)), _OptionalParts()
    log = optional.read(lambda: tail_of(manager.log(session, detail.oid)), None) if detail.has_log else None
    data = optional.read(lambda: _preview_of(manager, session, detail, query.look), None) if detail.has_data else None
    if detail.failure is not None and detail.failure.drop == detail.oid:
        first = (_sized(manager, session, neighbour, optional) for neighbour in detail.inputs[:_SIZED_INPUTS])
        detail = msgspec.structs.replace(detail, inputs=(*first, *detail.inputs[_SIZED_INPUTS:]))
    return DropView(
        manager=manager.info(),
        session=msgspec.convert(manager.session(session), SessionInfo, from_attributes=True),
        drop=detail,
        query=query,
        log=log,
        data=data,
        warnings=tuple(optional.warnings),
    )


def _sized(manager: Manager, session: str, data: Neighbour, optional: _OptionalParts) -> Neighbour:
    """Return an input with the size of its content, also if that is on another node."""
    if data.size is not None:
        return data
    detail = optional.read(lambda: manager.drop(session, data.oid), None)
    return data if detail is None else msgspec.structs.replace(data, size=detail.size)


def _preview_of(manager: Manager, session: str, detail: DropDetail, look: PreviewQuery) -> Preview:
    try:
        return manager.preview(session, detail.oid, look)
    except PreviewError as error:  # the content itself is there
        return Preview(kind="header", size=detail.size, trouble=error.text)


# Small plots of the load of a node, as lines of a picture that the page scales.

_WIDTH, _HEIGHT = 300.0, 48.0
_LINE_WIDTH, _LINE_HEIGHT = 700.0, 200.0


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """One plot.

    Attributes
    ----------
    title : str
    now, most : str
        The last value, and that of the upper edge.
    line, area : str
        Points of the line, and of what is under it, in a picture 300 wide and 48 high.
    """

    title: str
    now: str
    most: str
    line: str
    area: str


class LinePlot(msgspec.Struct, frozen=True, kw_only=True):
    """The values of an array with one axis.

    Attributes
    ----------
    low, high, last : str
        The least and the largest value, and the last index.
    areas, lines : tuple of str
        Points of what is between the smallest and the largest value of each interval, and of the line in the middle;
        one for each part of the array without gaps. The picture is 700 wide and 200 high.
    """

    low: str
    high: str
    last: str
    areas: tuple[str, ...]
    lines: tuple[str, ...]


def line_plot(line: Line) -> LinePlot | None:
    """Return the plot of a line; None if it has no number."""
    highs, lows = (
        [number for number in line.highs if number is not None],
        [number for number in line.lows if number is not None],
    )
    if not highs:
        return None
    top, bottom = max(highs), min(lows)
    # Halves, since the difference of two large numbers may be infinite.
    range_ = (top / 2 - bottom / 2) or 1.0
    areas, lines, most = [], [], max(len(line.lows) - 1, 1)
    pairs = enumerate(zip(line.lows, line.highs, strict=True))
    for has_numbers, part in groupby(pairs, lambda pair: pair[1][0] is not None):
        if has_numbers:
            edges = [
                (_LINE_WIDTH * at / most, _level(low, bottom, range_), _level(high, bottom, range_))
                for at, (low, high) in part
                if low is not None and high is not None
            ]
            if len(edges) == 1:
                edges.append((edges[0][0] + 1, *edges[0][1:]))
            under = [(x, low) for x, low, _ in reversed(edges)]
            areas.append(" ".join(f"{x:.1f},{y:.1f}" for x, y in [*((x, high) for x, _, high in edges), *under]))
            lines.append(" ".join(f"{x:.1f},{(low + high) / 2:.1f}" for x, low, high in edges))
    ends = {"low": f"{bottom:.6g}", "high": f"{top:.6g}", "last": format_count(line.count - 1)}
    return LinePlot(**ends, areas=tuple(areas), lines=tuple(lines))


def _level(value: float, bottom: float, half_range: float) -> float:
    share = (value / 2 - bottom / 2) / half_range
    return 2 + (_LINE_HEIGHT - 4) * (1 - share)


def plots_of(history: NodeHistory, load: Load) -> tuple[Plot, ...]:
    """Return plots of processor, memory, disk, network, sessions and attempts; none without two samples."""
    samples = history.samples
    if len(samples) < 2:
        return ()
    times = [sample.time for sample in samples]
    network = [
        (after.received - before.received + after.sent - before.sent) / max(after.time - before.time, 1e-3)
        for before, after in pairwise(samples)
    ]
    rate: Callable[[float], str] = lambda value: f"{format_size(max(value, 0.0))}/s"  # noqa: E731
    count: Callable[[float], str] = lambda value: format_count(int(value))  # noqa: E731
    return (
        _plot("Processor", times, [sample.processor for sample in samples], 100.0, lambda value: f"{value:.0f} %"),
        _plot("Memory", times, [sample.memory for sample in samples], float(load.memory), format_size),
        _plot("Disk", times, [sample.disk for sample in samples], float(load.disk), format_size),
        _plot("Network", times[1:], network, 0.0, rate),
        _plot("Sessions", times, [sample.sessions for sample in samples], 0.0, count),
        _plot("Attempts that run", times, [sample.running for sample in samples], float(load.workers), count),
    )


def _plot(
    title: str, times: Sequence[float], values: Sequence[float], most: float, shown: Callable[[float], str]
) -> Plot:
    """Return a plot from 0 to `most`, or to the greatest value if that is more."""
    top = max(most, *values, 1.0) if len(values) > 1 else max(most, values[0], 1.0)
    length = max(times[-1] - times[0], 1e-3)
    points = [
        (_WIDTH * (time - times[0]) / length, _HEIGHT - (_HEIGHT - 1) * max(value, 0.0) / top)
        for time, value in zip(times, values, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"0,{_HEIGHT:.0f} {line} {points[-1][0]:.1f},{_HEIGHT:.0f}"
    return Plot(title=title, now=shown(values[-1]), most=shown(top), line=line, area=area)
