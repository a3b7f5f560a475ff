"""The operations of every manager: a node manager, an island or a master.

A node manager carries them out on its own sessions, an island or master by asking its children. Routes, web pages and
DALiuGE's paths are written against this protocol. `dropflow.api.client.Client` has the same methods over HTTP.

All methods may be called from any thread. They raise `NotFoundError` for unknown sessions and drops, `ConflictError`
for what the state of a session does not allow, `LinkError` for children that do not answer, and other `DropflowError`
as their docstrings say.
"""

from collections.abc import Sequence
from typing import Protocol

from dropflow.api.contents import WHOLE, ContentsRequest, DataQuery, Download
from dropflow.api.logs import LAST_LINES, LogPage, LogQuery
from dropflow.api.records import (
    FIRST_PAGE,
    Child,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    ManagerStatus,
    MomentQuery,
    NodeHistory,
    NodeInfo,
    PageQuery,
    SessionDetail,
    SessionInfo,
    SessionMoment,
    SubmitQuery,
)
from dropflow.api.requests import (
    ALL_TIMES,
    DEFAULT_STATISTICS,
    EVERY_RESULT,
    FIRST_FAILURES,
    DrainReply,
    DrainRequest,
    FailureList,
    FailureQuery,
    MemberRequest,
    ResultList,
    ResultsQuery,
    ResumeRequest,
    RetryRequest,
    StatisticsQuery,
    TimesQuery,
)
from dropflow.api.state_records import DropStates
from dropflow.graph.physical import PhysicalGraph
from dropflow.preview.source import FIRST_LOOK, Preview, PreviewQuery
from dropflow.stopping import GRACE_SECONDS
from dropflow.times.statistics import TimesStatistics
from managers.deployment import Deployment

__all__ = ["Manager", "ManagerRecords", "SessionContents"]


class SessionContents(Protocol):
    """The operations of a manager on what is in a session."""

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """Return a page of the drops that match."""
        ...

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """Return one drop, by its id or the end of an id that no other drop of the session has.

        The same holds for `log` and `data`. Rows are found by `drops`. `query` selects a page of its neighbours.

        Raises
        ------
        AmbiguousError
            Several ids end so, or may.
        """
        ...

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of all drops, or what has changed since the answer with the cursor `since`."""
        ...

    def moment(self, session: str, query: MomentQuery) -> SessionMoment:
        """Return a session as it was at a moment, from the times of its attempts. Raises as `times_analysis`."""
        ...

    def failures(self, session: str, query: FailureQuery = FIRST_FAILURES) -> FailureList:
        """Return a page of the root causes, the most harmful first."""
        ...

    def pause(self, session: str) -> SessionInfo:
        """Start nothing more of a session; what runs goes on. One that is over, or paused, stays as it is."""
        ...

    def unpause(self, session: str) -> SessionInfo:
        """Continue a session after `pause`."""
        ...

    def cancel_drop(self, session: str, drop: str, reason: str = "", grace: float = GRACE_SECONDS) -> DropDetail:
        """Cancel one drop of a session that runs. One that is settled stays as it is.

        Its successors are treated as after an error whose root cause is that drop.

        Raises
        ------
        ConflictError
            The session is over.
        """
        ...

    def log(self, session: str, drop: str) -> Download:
        """Return the log of a drop."""
        ...

    def session_log(self, session: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the lines that all drops wrote to their logs, in the order of time. Does not wait."""
        ...

    def data(self, session: str, drop: str, query: DataQuery = WHOLE) -> Download:
        """Return the content of a data drop, or a part, from the node that holds it; a directory comes as a tar file.

        Raises
        ------
        GoneError
            It was released already.
        RangeError
            The part begins after the end of the content.
        """
        ...

    def preview(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Preview:
        """Return a bounded part of the content of a data drop, made by the node that holds it. Raises as `data`."""
        ...

    def picture(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Download:
        """Return the content of a data drop as a picture, made by the node that holds it.

        Raises
        ------
        BadFileError
            The content has no picture, or is damaged.
        """
        ...

    def results(self, session: str, query: ResultsQuery = EVERY_RESULT) -> ResultList:
        """Return the results of the session, and the nodes that did not answer."""
        ...

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Return contents of many drops on one node, as the records of `dropflow.api.contents`.

        An error with one content is a record among them.

        Raises
        ------
        NotFoundError
            The node is not at or below this manager, or has nothing of the session.
        """
        ...

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, by the rows of their drops in the whole graph.

        Contents outside of the directory of the session stay. Again is no error, nor is a row without a result.

        Raises
        ------
        ConflictError
            The session is not FINISHED.
        LinkError
            A node did not answer. It was done on the others.
        """
        ...

    def journal(self, session: str) -> Download:
        """Return the journal; from several nodes, a tar file with the journal and the graph of each."""
        ...

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the times of attempts that have ended: sections of `dropflow.times.octets`, one for each node."""
        ...

    def times_analysis(self, session: str) -> Download:
        """Return what each attempt waited for, and its slack: the section of `dropflow.times.timeline.pack_analysis`.

        Raises
        ------
        ProtocolError
            The times are of another graph.
        """
        ...

    def times_statistics(self, session: str, query: StatisticsQuery = DEFAULT_STATISTICS) -> TimesStatistics:
        """Return statistics of the attempts. Raises as `times_analysis`."""
        ...

    def graph(self, session: str) -> PhysicalGraph:
        """Return the whole graph."""
        ...


class ManagerRecords(Protocol):
    """The operations on what managers record of themselves."""

    def node_history(self, node: str) -> NodeHistory:
        """Return the load of a node, at or below this manager, during the last hour.

        Raises
        ------
        NotFoundError
            The node is not at or below this manager.
        """
        ...

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of a manager: this one, or a node or child below it. Does not wait.

        Raises
        ------
        NotFoundError
            There is no manager of that name, or it keeps no log.
        """
        ...


class Manager(SessionContents, ManagerRecords, Protocol):
    """A node manager, an island or a master."""

    def info(self) -> ManagerInfo:
        """Return the record of the manager itself."""
        ...

    def status(self) -> ManagerStatus:
        """Return the nodes and sessions for the next status of a parent, without a request to any child."""
        ...

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return all node managers at or below it, sorted by name, lost ones too."""
        ...

    # Children: a node manager has none, and `add_child` and `remove_child` raise `UsageError`.

    def children(self) -> tuple[Child, ...]:
        """Return its direct children."""
        ...

    def add_child(self, url: str) -> Child:
        """Add the manager at `url` as a child; again is no error."""
        ...

    def remove_child(self, url: str) -> None:
        """Remove a child. Sessions that run there continue.

        Raises
        ------
        NotFoundError
            It is not a child.
        """
        ...

    def drain(self, node: str, request: DrainRequest) -> DrainReply:
        """Have a node, at or below this manager, give its sessions to their other nodes, and end its process.

        It takes no sessions any more. The answer comes at once, and tells what happens to each session. Again is no
        error: the earliest end counts.

        Raises
        ------
        NotFoundError
            The node is not at or below this manager.
        """
        ...

    # Deployment.

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Deploy a whole graph and start it: `prepare` and `start` on all its nodes, or on none.

        Parts are on the nodes that `graph.places` names. A graph that names none is spread over all nodes that are
        alive: part k on the k-th node, and from the first again when there are more parts than nodes.

        Raises
        ------
        BadGraphError
            It names unknown nodes, has unknown components or a cycle.
        ConflictError
            There is a session of that name.
        WorldError
            A node failed, and the others were undone. Names the node, the cause and what to do.
        """
        ...

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """First half of a deployment: take the graph, build the sessions, run nothing.

        Must be done within `seconds`. Preparing the same epoch of the same session again is no error.
        """
        ...

    def start(self, session: str, epoch: int) -> None:
        """Second half: run what was prepared. Again is no error."""
        ...

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Undo a `prepare`, started or not. If it was never prepared, there is nothing to undo, and no error."""
        ...

    def deployment(self, session: str) -> Download:
        """Return what another node needs to join a session: a packed `managers.deployment.Deployment`.

        Its graph is placed as it is now, and its places are the members.

        Raises
        ------
        ConflictError
            The session does not run, or its nodes cannot change.
        """
        ...

    def add_member(self, session: str, member: MemberRequest) -> None:
        """Have a node that was prepared and started become a member of a session. Again is no error.

        Raises
        ------
        ConflictError
            The session does not run, or its nodes cannot change.
        """
        ...

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all sessions, the youngest first."""
        ...

    def session(self, session: str) -> SessionDetail:
        """Return one session as it is now."""
        ...

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Return a session once its version is not `version`, or after `seconds`; immediately if it is over."""
        ...

    def cancel(self, session: str, reason: str = "", grace: float = GRACE_SECONDS) -> SessionInfo:
        """Cancel a session: drops that are not settled become CANCELLED. One that is over stays as it is.

        The request is on the disk of each node before the answer. The session is CANCELLING until its attempts have
        ended, at most `dropflow.stopping.stopped_after` the answer; they have `grace` seconds to clean up. One
        that is being prepared is not started.
        """
        ...

    def force_continue(self, session: str) -> SessionInfo:
        """Have a session go on although no majority of its voters answers.

        Unsafe while the others run: they may go on as well, and then the session runs twice.

        Raises
        ------
        ConflictError
            The session does not run, or a majority of its voters answers.
        """
        ...

    def rebalance(self, session: str) -> SessionInfo:
        """Move drops that have not begun, so that all nodes of a session end at about the same time.

        Attempts that run go on where they are, and what has completed stays.

        Raises
        ------
        ConflictError
            The session does not run, or has too few nodes.
        """
        ...

    def resume(self, session: str, request: ResumeRequest) -> SessionInfo:
        """Continue a session that was stopped: what was committed and is still there is kept, and the rest runs.

        It keeps its name, and has a new epoch.

        Raises
        ------
        ConflictError
            It runs on a node, or nothing is left to run, or most of its nodes are missing.
        GoneError
            No node can read its copy.
        WorldError
            See `submit`. It is as before then.
        """
        ...

    def retry(self, session: str, request: RetryRequest) -> SessionInfo:
        """Run failed drops of a session again, and those that failed because of them.

        A session that runs goes on with them; one that is over is continued. With `RetryRequest.start`, other drops of
        a session that is over run again, with all that depends on them.

        Raises
        ------
        ConflictError, GoneError, WorldError
            See `resume`; no drop failed, or not those that are named; the session runs on too few nodes to change.
        UsageError
            A setting does not fit the nodes that failed.
        """
        ...

    def remains(self, session: str, *, ignore_damage: bool = False) -> tuple[bytes, ...]:
        """Return what each node at or below it has of a session, encoded (`managers.recovery.records`)."""
        ...

    def delete(self, session: str, *, epoch: int | None = None) -> None:
        """Cancel a session, and delete it with all its files.

        Parameters
        ----------
        epoch : int, optional
            Delete only this deployment of the session, and older ones.
        """
        ...

    def close(self) -> None:
        """Stop: a node cancels its sessions, an island or master leaves those below alone. Idempotent."""
        ...
