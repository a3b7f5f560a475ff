"""A typed client of any manager: the methods of `managers.api.Manager`, over HTTP.

May be used from any thread. Errors of the manager are raised as their own class; a manager that cannot be reached is a
`LinkError` with its address. Verb, path and types of each method are those of `dropflow.api.operations`.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from dropflow.api import operations
from dropflow.api.contents import WHOLE, ContentsRequest, DataQuery, Download
from dropflow.api.http_client import ClientRequest, HttpTransport, joined
from dropflow.api.logs import ALL_LINES, LAST_LINES, LogPage, LogQuery, LogTextQuery
from dropflow.api.operation_caller import OperationCaller, session_events, state_events
from dropflow.api.records import (
    FIRST_PAGE,
    Child,
    ChildRequest,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    ManagerStatus,
    MomentQuery,
    NodeHistory,
    NodeInfo,
    PageQuery,
    ProbeRequest,
    ProbeResult,
    SessionDetail,
    SessionInfo,
    SessionMoment,
    SubmitQuery,
)
from dropflow.api.requests import (
    ALL_RESULTS,
    ALL_TIMES,
    DEFAULT_STATISTICS,
    EVERY_RESULT,
    FIRST_FAILURES,
    ArchiveQuery,
    CancelRequest,
    ChildQuery,
    DeleteQuery,
    DeploymentQuery,
    DrainReply,
    DrainRequest,
    EpochRequest,
    FailureList,
    FailureQuery,
    MemberRequest,
    ReleaseRequest,
    RemainsQuery,
    ResultList,
    ResultsQuery,
    ResumeRequest,
    RetryRequest,
    StatisticsQuery,
    TimesQuery,
    WatchQuery,
)
from dropflow.api.state_records import DropStates, StatesQuery
from dropflow.clock import Clock
from dropflow.errors import LinkError
from dropflow.preview.source import FIRST_LOOK, Preview, PreviewQuery
from dropflow.stopping import GRACE_SECONDS
from dropflow.times.statistics import TimesStatistics

__all__ = [
    "Client",
    "ClockSkew",
    "Packable",
    "measure_clock_skew",
]


if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph


class Packable(Protocol):
    """A deployment: the part of `managers.deployment.Deployment` that the client needs."""

    @property
    def session(self) -> str:
        """Name of its session."""
        ...

    def buffers(self) -> Sequence[bytes | memoryview]:
        """Return it as bytes, in pieces."""
        ...


class _ManagerCalls(OperationCaller):
    """Operations on the manager itself and on its children."""

    def ready(self) -> bool:
        """Return whether a manager answers at the address; needs no credential."""
        try:
            self._transport.ask(ClientRequest(operations.READY.method, operations.READY.path))
        except LinkError:
            return False
        return True

    def info(self) -> ManagerInfo:
        """Return what the manager is."""
        return self.call(operations.INFO)

    def status(self) -> ManagerStatus:
        """Return the manager, its nodes and its sessions, as a parent requests them once per period."""
        return self.call(operations.STATUS)

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return all node managers at or below it."""
        return self.call(operations.NODES).nodes

    def children(self) -> tuple[Child, ...]:
        """Return its direct children."""
        return self.call(operations.CHILDREN).children

    def add_child(self, url: str) -> Child:
        """Add the manager at `url` as a child."""
        return self.call(operations.ADD_CHILD, body=ChildRequest(url=url))

    def remove_child(self, url: str) -> None:
        """Remove a child."""
        self.call(operations.REMOVE_CHILD, query=ChildQuery(url=url))

    def node_history(self, node: str) -> NodeHistory:
        """Return the load of a node during the last hour."""
        return self.call(operations.NODE_HISTORY, node)

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of a manager."""
        return self.call(operations.MANAGER_LOG, node, query=query, seconds=query.seconds)

    def manager_log_text(self, node: str, query: LogTextQuery = ALL_LINES) -> Download:
        """Download the log of a manager."""
        return self.download(operations.MANAGER_LOG_TEXT, node, query=query)

    def drain(self, node: str, request: DrainRequest | None = None) -> DrainReply:
        """Have a node give its sessions to their other nodes, and end."""
        return self.call(operations.DRAIN, node, body=request or DrainRequest())

    def probe(self, addresses: Sequence[str], *, seconds: float = 3.0) -> tuple[ProbeResult, ...]:
        """Return which other managers it can reach.

        Parameters
        ----------
        addresses : sequence of str
            Of links (``tcp://host:port``) and managers (``http://host:port``); 32 at most.
        seconds : float
            How long the whole probe may take, 0.1 to 10.

        Raises
        ------
        HttpError
            400 for an address in another form, or too many; 503 while too many probes run.
        """
        request = ProbeRequest(addresses=tuple(addresses), seconds=seconds)
        return self.call(operations.PROBE, body=request, seconds=seconds).reaches


class _DeploymentCalls(OperationCaller):
    """Operations that deploy a graph, or return one that is deployed."""

    def submit(self, graph: "PhysicalGraph | bytes", options: SubmitQuery | None = None) -> SessionInfo:
        """Deploy a whole graph and start it.

        Parameters
        ----------
        graph : PhysicalGraph or bytes
            A graph, or a file with one: ``.dfg``, DALiuGE's JSON, or one of them compressed.
        options : SubmitQuery, optional
            How to deploy it.
        """
        if isinstance(graph, bytes):
            body: Sequence[bytes | memoryview] = [graph]
        else:
            from dropflow.graph.codec import dump  # noqa: PLC0415 - numpy, which most commands do not need

            body = dump(graph)
        return self.call(operations.SUBMIT, query=options or SubmitQuery(), body=body)

    def prepare(self, deployment: Packable, *, seconds: float) -> None:
        """First half of a deployment: send the graph, run nothing."""
        query = DeploymentQuery(seconds=round(seconds, 3))
        self.call(operations.PREPARE, deployment.session, query=query, body=deployment.buffers(), seconds=seconds)

    def start(self, session: str, epoch: int) -> None:
        """Second half: run what was prepared."""
        self.call(operations.START, session, body=EpochRequest(epoch=epoch))

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Undo a `prepare`, whether it was started or not."""
        self.call(operations.UNDO, session, body=EpochRequest(epoch=epoch, reason=reason))

    def deployment(self, session: str) -> Download:
        """Download what a node needs to join a session; `managers.deployment.unpack` reads it."""
        return self.download(operations.DEPLOYMENT, session)

    def add_member(self, session: str, member: MemberRequest) -> None:
        """Have a node that is prepared become a member of a session."""
        self.call(operations.ADD_MEMBER, session, body=member)

    def graph(self, session: str) -> "PhysicalGraph":
        """Return the whole graph."""
        from dropflow.graph.codec import parse  # noqa: PLC0415 - see `submit`

        return parse(joined(self.download(operations.GRAPH, session).chunks), where=self.url)


class _SessionCalls(OperationCaller):
    """Operations on sessions and their drops."""

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all sessions, the youngest first."""
        return self.call(operations.SESSIONS).sessions

    def session(self, session: str) -> SessionDetail:
        """Return one session as it is now."""
        return self.call(operations.SESSION, session)

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Return a session as soon as its version differs from `version`, or after `seconds`."""
        query = WatchQuery(version=version, seconds=round(seconds, 3))
        return self.call(operations.SESSION, session, query=query, seconds=seconds)

    def events(self, session: str) -> Iterator[SessionDetail]:
        """Return an iterator over a session: as it is now, and after each change until it is over.

        Raises
        ------
        LinkError
            The event stream ended before the session was over.
        """
        return session_events(self.download(operations.EVENTS, session).chunks, self.url)

    def cancel(self, session: str, reason: str = "", grace: float = GRACE_SECONDS) -> SessionInfo:
        """Cancel a session. Its attempts have `grace` seconds to clean up."""
        return self.call(operations.CANCEL, session, body=CancelRequest(reason=reason, grace=grace))

    def pause(self, session: str) -> SessionInfo:
        """Start nothing more of a session."""
        return self.call(operations.PAUSE, session)

    def unpause(self, session: str) -> SessionInfo:
        """Continue a session after a pause."""
        return self.call(operations.UNPAUSE, session)

    def rebalance(self, session: str) -> SessionInfo:
        """Move drops of a session that have not begun, so that all its nodes end at about the same time."""
        return self.call(operations.REBALANCE, session)

    def force_continue(self, session: str) -> SessionInfo:
        """Have a session go on although no majority of its voters answers."""
        return self.call(operations.FORCE_CONTINUE, session)

    def resume(self, session: str, request: ResumeRequest | None = None) -> SessionInfo:
        """Continue a session that was stopped."""
        return self.call(operations.RESUME, session, body=request or ResumeRequest())

    def retry(self, session: str, request: RetryRequest | None = None) -> SessionInfo:
        """Try the failed drops of a session that is over again."""
        return self.call(operations.RETRY, session, body=request or RetryRequest())

    def remains(self, session: str, *, ignore_damage: bool = False) -> tuple[bytes, ...]:
        """Return what the nodes at or below it have of a session, as managers exchange it."""
        return self.call(operations.REMAINS, session, query=RemainsQuery(ignore_damage=ignore_damage)).parts

    def delete(self, session: str, *, epoch: int | None = None) -> None:
        """Delete a session and its files; with an epoch, unless it was deployed again later."""
        self.call(operations.DELETE, session, query=DeleteQuery(epoch=epoch))


class _ContentCalls(OperationCaller):
    """Operations on what is in a session."""

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of all drops of a session, or what has changed since the answer with this cursor."""
        return self.call(operations.STATES, session, query=StatesQuery(since=since))

    def state_events(self, session: str) -> Iterator[DropStates]:
        """Return an iterator over the states of the drops of a session: all of them, and each change until it is over.

        Raises
        ------
        LinkError
            The event stream ended before the session was over.
        """
        return state_events(self.download(operations.STATE_EVENTS, session).chunks, self.url)

    def moment(self, session: str, query: MomentQuery) -> SessionMoment:
        """Return a session as it was at a moment."""
        return self.call(operations.MOMENT, session, query=query)

    def failures(self, session: str, query: FailureQuery = FIRST_FAILURES) -> FailureList:
        """Return a page of the root causes, the most harmful first."""
        return self.call(operations.FAILURES, session, query=query)

    def results(self, session: str, query: ResultsQuery = EVERY_RESULT) -> ResultList:
        """Return the results of a session, and the nodes that did not answer."""
        return self.call(operations.RESULTS, session, query=query)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Download contents of many drops on one node; see `dropflow.api.contents.read_records`."""
        return self.download(operations.CONTENTS, session, body=request)

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, by the rows of their drops in the whole graph."""
        self.call(operations.RELEASE, session, body=ReleaseRequest(rows=tuple(rows)))

    def session_log(self, session: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of a session."""
        return self.call(operations.SESSION_LOG, session, query=query, seconds=query.seconds)

    def session_log_text(self, session: str, query: LogTextQuery = ALL_LINES) -> Download:
        """Download the log of a session."""
        return self.download(operations.SESSION_LOG_TEXT, session, query=query)

    def archive(self, session: str, query: ArchiveQuery = ALL_RESULTS) -> Download:
        """Download results as one archive; its chunks raise `LinkError` if something is missing."""
        return self.download(operations.ARCHIVE, session, query=query)

    def journal(self, session: str) -> Download:
        """Download the journal, or a tar file with those of several nodes."""
        return self.download(operations.JOURNAL, session)

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Download the times of attempts; `dropflow.times.octets.read_sections` reads them."""
        return self.download(operations.TIMES, session, query=query)

    def times_analysis(self, session: str) -> Download:
        """Download what attempts waited for, and their slack."""
        return self.download(operations.TIMES_ANALYSIS, session)

    def times_statistics(self, session: str, query: StatisticsQuery = DEFAULT_STATISTICS) -> TimesStatistics:
        """Return statistics of the attempts."""
        return self.call(operations.TIMES_STATISTICS, session, query=query)

    def drops(self, session: str, query: DropQuery | None = None) -> DropPage:
        """Return a page of the drops that match."""
        return self.call(operations.DROPS, session, query=query)

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """Return one drop, by its id or the end of an id that no other drop of the session has."""
        return self.call(operations.DROP, session, drop, query=query)

    def cancel_drop(self, session: str, drop: str, reason: str = "", grace: float = GRACE_SECONDS) -> DropDetail:
        """Cancel one drop of a session that runs."""
        return self.call(operations.CANCEL_DROP, session, drop, body=CancelRequest(reason=reason, grace=grace))

    def log(self, session: str, drop: str) -> Download:
        """Download the log of a drop."""
        return self.download(operations.LOG, session, drop)

    def data(self, session: str, drop: str, query: DataQuery = WHOLE) -> Download:
        """Download the content of a data drop, or a part of it."""
        return self.download(operations.DATA, session, drop, query=query)

    def preview(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Preview:
        """Return a bounded part of the content of a data drop."""
        return self.call(operations.PREVIEW, session, drop, query=query)

    def picture(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Download:
        """Download the content of a data drop as a picture."""
        return self.download(operations.PICTURE, session, drop, query=query)


class Client(_ManagerCalls, _DeploymentCalls, _SessionCalls, _ContentCalls):
    """One manager in another process.

    Parameters
    ----------
    url : str
        Its address, ``http://host:port``.
    token : str, optional
        Its token.
    secret : bytes, optional
        Secret half of the cluster key, which signs requests when there is no token.
    timeout : float
        Seconds to connect, and to wait for each answer.
    clock : Clock, optional
        By which requests are signed; the system's unless given.
    most : int, optional
        Bytes of the largest answer that is read whole, but for downloads; any unless given.

    Raises
    ------
    UsageError
        The URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        secret: bytes | None = None,
        timeout: float = 30.0,
        clock: Clock | None = None,
        most: int | None = None,
    ) -> None:
        super().__init__(HttpTransport(url, token=token, secret=secret, timeout=timeout, clock=clock, most=most))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def within(self, timeout: float) -> "Client":
        """Return a client with another time limit in seconds that shares the connections of this one."""
        other = copy(self)
        other._transport = self._transport.within(timeout)  # noqa: SLF001 - a copy of this object
        return other

    def close(self) -> None:
        """Close the connections; the manager is not affected. Idempotent."""
        self._transport.close()


# Measures how far the clock of a manager is ahead of the clock here.


class ClockSkew(msgspec.Struct, frozen=True, kw_only=True):
    """A manager, and the measurement of its clock.

    Attributes
    ----------
    delay : float
        Seconds until its answer.
    skew : float
        Seconds by which its clock is ahead of the clock here, give or take half of `delay`.
    """

    info: ManagerInfo
    delay: float
    skew: float


def measure_clock_skew(client: Client, clock: Clock) -> ClockSkew:
    """Measure the clock of a manager with two requests: the first opens the connection, the second is timed.

    Raises
    ------
    DropflowError
        It does not answer, or refuses the request.
    """
    client.info()
    before, began = clock.now(), clock.monotonic()
    info = client.info()
    delay = clock.monotonic() - began
    # The manager read its clock at some time during the request: the middle is the best estimate.
    return ClockSkew(info=info, delay=round(delay, 4), skew=round(info.time - (before + delay / 2), 3))
