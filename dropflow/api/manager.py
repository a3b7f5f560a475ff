"""A manager: a node manager, an island or a master, in this process or in another one.

`Manager` has a typed method for each operation of `dropflow.api.operations`. All of them go through `Manager.call`: a
node manager carries operations out on its own sessions, an island or master by asking its children, and a client
(`dropflow.api.client.Client`) by a request over HTTP. Routes, web pages and DALiuGE's paths are written against it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dropflow.api import operations
from dropflow.api.contents_answer import WHOLE, ContentsRequest, DataQuery, Download
from dropflow.api.drop_records import FIRST_DROPS, FIRST_PAGE, DropDetail, DropPage, DropQuery, PageQuery
from dropflow.api.logs import LAST_LINES, LogPage, LogQuery
from dropflow.api.node_records import Child, ManagerInfo, ManagerStatus, NodeComponents, NodeHistory, NodeInfo
from dropflow.api.operations import Operation
from dropflow.api.requests import (
    ALL_TIMES,
    DEFAULT_DRAIN,
    DEFAULT_STATISTICS,
    DEFAULT_SUBMISSION,
    EVERY_RESULT,
    FIRST_FAILURES,
    RESUME_ALL,
    RETRY_ALL,
    DrainReply,
    DrainRequest,
    DropStates,
    FailureList,
    FailureQuery,
    MemberRequest,
    ResultList,
    ResultsQuery,
    ResumeRequest,
    RetryRequest,
    StatisticsQuery,
    SubmitQuery,
    TimesQuery,
)
from dropflow.api.session_records import MomentQuery, SessionDetail, SessionInfo, SessionMoment
from dropflow.preview.source import FIRST_LOOK, Preview, PreviewQuery
from dropflow.stopping import GRACE_SECONDS
from dropflow.times.statistics import TimesStatistics

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph

_Answer = TypeVar("_Answer")


def call_of(operation: Operation[_Answer], **arguments: Any) -> partial[_Answer]:
    """Return the call of an operation, for any manager, by the method that is named after it."""
    return partial(getattr(Manager, operation.name), **arguments)


class Packable(Protocol):
    """A deployment: the part of `managers.deployment.Deployment` that a client needs."""

    @property
    def session(self) -> str:
        """Name of its session."""
        ...

    def buffers(self) -> Sequence[bytes | memoryview]:
        """Return it as bytes, in pieces."""
        ...


class Manager(ABC):
    """A node manager, an island or a master.

    All methods may be called from any thread. They raise `NotFoundError` for unknown sessions and drops,
    `ConflictError` for what the state of a session does not allow, `LinkError` for managers that do not answer, and
    other `DropflowError` as their docstrings say.
    """

    @abstractmethod
    def call(self, operation: Operation[_Answer], /, **arguments: Any) -> _Answer:
        """Carry out an operation, and return its answer.

        Parameters
        ----------
        operation : Operation
            The operation to carry out.
        **arguments
            The variables of its path, and its query or body (the fields of it, for an operation that is called
            `by_field`), under the names that the method of the operation has.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop: a node cancels its sessions, the others leave those below alone. Idempotent.

        A client closes its connections only.
        """

    # The manager itself, and its children. A node manager has none, and refuses `add_child` and `remove_child`.

    def info(self) -> ManagerInfo:
        """Return the record of the manager itself."""
        return self.call(operations.INFO)

    def status(self) -> ManagerStatus:
        """Return the nodes and sessions for the next status of a parent, without a request to any child."""
        return self.call(operations.STATUS)

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Return all node managers at or below it, sorted by name, lost ones too."""
        return self.call(operations.NODES).nodes

    def components(self, needs: Sequence[str] = ()) -> tuple[NodeComponents, ...]:
        """Return what each node at or below it can run, and which of these needs (`dropflow.apps.needs`) it lacks.

        A node that does not answer is left out.
        """
        return self.call(operations.COMPONENTS, needs=tuple(needs)).nodes

    def children(self) -> tuple[Child, ...]:
        """Return its direct children."""
        return self.call(operations.CHILDREN).children

    def add_child(self, url: str) -> Child:
        """Add the manager at `url` as a child; again is not an error."""
        return self.call(operations.ADD_CHILD, url=url)

    def remove_child(self, url: str) -> None:
        """Remove a child. Sessions that run there continue.

        Raises
        ------
        NotFoundError
            It is not a child.
        """
        self.call(operations.REMOVE_CHILD, url=url)

    def drain(self, node: str, request: DrainRequest = DEFAULT_DRAIN) -> DrainReply:
        """Tell a node, at or below this manager, to give its sessions to their other nodes and to end its process.

        It takes no sessions any more. The answer comes at once, with how each session goes on. A second call is no
        error: the earliest end counts.

        Raises
        ------
        NotFoundError
            The node is not at or below this manager.
        """
        return self.call(operations.DRAIN, node=node, request=request)

    def node_history(self, node: str) -> NodeHistory:
        """Return the load of a node, at or below this manager, during the last hour.

        Raises
        ------
        NotFoundError
            The node is not at or below this manager.
        """
        return self.call(operations.NODE_HISTORY, node=node)

    def manager_log(self, node: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the log of a manager: this one, or a node or child below it. Does not wait.

        Raises
        ------
        NotFoundError
            There is no manager of that name, or it keeps no log.
        """
        return self.call(operations.MANAGER_LOG, node=node, query=query)

    # Deployment.

    def submit(self, graph: "PhysicalGraph", options: SubmitQuery = DEFAULT_SUBMISSION) -> SessionInfo:
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
        return self.call(operations.SUBMIT, graph=graph, options=options)

    def prepare(self, deployment: Packable, *, seconds: float) -> None:
        """First half of a deployment: take the graph, build the sessions, run nothing.

        Must be done within `seconds`. Preparing the same epoch of the same session again is not an error.
        """
        self.call(operations.PREPARE, deployment=deployment, seconds=seconds)

    def start(self, session: str, epoch: int) -> None:
        """Second half: run what was prepared. Again is not an error."""
        self.call(operations.START, session=session, epoch=epoch)

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Undo a `prepare`, started or not. If it was never prepared, there is nothing to undo, and no error."""
        self.call(operations.UNDO, session=session, epoch=epoch, reason=reason)

    def deployment(self, session: str) -> Download:
        """Return what another node needs to join a session: a packed `managers.deployment.Deployment`.

        Its graph is placed as it is now, and its places are the members.

        Raises
        ------
        ConflictError
            The session does not run, or its nodes cannot change.
        """
        return self.call(operations.DEPLOYMENT, session=session)

    def add_member(self, session: str, member: MemberRequest) -> None:
        """Add a prepared and started node to the members of a session. Calling it again is not an error.

        Raises
        ------
        ConflictError
            The session does not run, or its nodes cannot change.
        """
        self.call(operations.ADD_MEMBER, session=session, member=member)

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Return all sessions, the youngest first."""
        return self.call(operations.SESSIONS).sessions

    def session(self, session: str) -> SessionDetail:
        """Return one session as it is now."""
        return self.call(operations.SESSION, session=session)

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """Return a session once its version is not `version`, or after `seconds`; immediately if it is over."""
        return self.call(operations.WATCH, session=session, version=version, seconds=seconds)

    def cancel(self, session: str, reason: str = "", grace: float = GRACE_SECONDS) -> SessionInfo:
        """Cancel a session: drops that are not settled become CANCELLED. One that is over stays as it is.

        The request is on the disk of each node before the answer. The session is CANCELLING until its attempts have
        ended, at most `dropflow.stopping.stopped_after` the answer; they have `grace` seconds to clean up. One
        that is being prepared is not started.
        """
        return self.call(operations.CANCEL, session=session, reason=reason, grace=grace)

    def pause(self, session: str) -> SessionInfo:
        """Start nothing more of a session; what runs goes on. One that is over, or paused, stays as it is."""
        return self.call(operations.PAUSE, session=session)

    def unpause(self, session: str) -> SessionInfo:
        """Continue a session after `pause`."""
        return self.call(operations.UNPAUSE, session=session)

    def rebalance(self, session: str) -> SessionInfo:
        """Move drops that have not begun, so that all nodes of a session end at about the same time.

        Attempts that run go on where they are, and what has completed stays.

        Raises
        ------
        ConflictError
            The session does not run, or has too few nodes.
        """
        return self.call(operations.REBALANCE, session=session)

    def force_continue(self, session: str) -> SessionInfo:
        """Continue a session although no majority of its voters answers.

        Unsafe while the others run: they may go on as well, and then the session runs twice.

        Raises
        ------
        ConflictError
            The session does not run, or a majority of its voters answers.
        """
        return self.call(operations.FORCE_CONTINUE, session=session)

    def resume(self, session: str, request: ResumeRequest = RESUME_ALL) -> SessionInfo:
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
        return self.call(operations.RESUME, session=session, request=request)

    def retry(self, session: str, request: RetryRequest = RETRY_ALL) -> SessionInfo:
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
        return self.call(operations.RETRY, session=session, request=request)

    def remains(self, session: str, *, ignore_damage: bool = False) -> tuple[bytes, ...]:
        """Return what each node at or below it has of a session, encoded (`managers.recovery.records`)."""
        return self.call(operations.REMAINS, session=session, ignore_damage=ignore_damage).parts

    def delete(self, session: str, *, epoch: int | None = None) -> None:
        """Cancel a session, and delete it with all its files.

        Parameters
        ----------
        epoch : int, optional
            Delete only this deployment of the session, and older ones.
        """
        self.call(operations.DELETE, session=session, epoch=epoch)

    # What is in a session.

    def drops(self, session: str, query: DropQuery = FIRST_DROPS) -> DropPage:
        """Return a page of the drops that match."""
        return self.call(operations.DROPS, session=session, query=query)

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """Return one drop, by its id or the end of an id that no other drop of the session has.

        The same holds for `log` and `data`. Rows are found by `drops`. `query` selects a page of its neighbours.

        Raises
        ------
        AmbiguousError
            Several ids end so, or may.
        """
        return self.call(operations.DROP, session=session, drop=drop, query=query)

    def states(self, session: str, *, since: str = "") -> DropStates:
        """Return the states of all drops, or what has changed since the answer with the cursor `since`."""
        return self.call(operations.STATES, session=session, since=since)

    def moment(self, session: str, query: MomentQuery) -> SessionMoment:
        """Return a session as it was at a moment, from the times of its attempts. Raises as `times_analysis`."""
        return self.call(operations.MOMENT, session=session, query=query)

    def failures(self, session: str, query: FailureQuery = FIRST_FAILURES) -> FailureList:
        """Return a page of the root causes, the most harmful first."""
        return self.call(operations.FAILURES, session=session, query=query)

    def cancel_drop(self, session: str, drop: str, reason: str = "", grace: float = GRACE_SECONDS) -> DropDetail:
        """Cancel one drop of a session that runs. One that is settled stays as it is.

        Its successors are treated as after an error whose root cause is that drop.

        Raises
        ------
        ConflictError
            The session is over.
        """
        return self.call(operations.CANCEL_DROP, session=session, drop=drop, reason=reason, grace=grace)

    def log(self, session: str, drop: str) -> Download:
        """Return the log of a drop."""
        return self.call(operations.LOG, session=session, drop=drop)

    def session_log(self, session: str, query: LogQuery = LAST_LINES) -> LogPage:
        """Return a page of the lines that all drops wrote to their logs, in the order of time. Does not wait."""
        return self.call(operations.SESSION_LOG, session=session, query=query)

    def data(self, session: str, drop: str, query: DataQuery = WHOLE) -> Download:
        """Return the content of a data drop, or a part, from the node that holds it; a directory comes as a tar file.

        Raises
        ------
        GoneError
            It was released already.
        RangeError
            The part begins after the end of the content.
        """
        return self.call(operations.DATA, session=session, drop=drop, query=query)

    def preview(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Preview:
        """Return a bounded part of the content of a data drop, made by the node that holds it. Raises as `data`."""
        return self.call(operations.PREVIEW, session=session, drop=drop, query=query)

    def picture(self, session: str, drop: str, query: PreviewQuery = FIRST_LOOK) -> Download:
        """Return the content of a data drop as a picture, made by the node that holds it.

        Raises
        ------
        BadFileError
            The content has no picture, or is damaged.
        """
        return self.call(operations.PICTURE, session=session, drop=drop, query=query)

    def results(self, session: str, query: ResultsQuery = EVERY_RESULT) -> ResultList:
        """Return the results of the session, and the nodes that did not answer."""
        return self.call(operations.RESULTS, session=session, query=query)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Return contents of many drops on one node, as the records of `dropflow.api.contents_answer`.

        An error with one content is a record among them.

        Raises
        ------
        NotFoundError
            The node is not at or below this manager, or has nothing of the session.
        """
        return self.call(operations.CONTENTS, session=session, request=request)

    def release(self, session: str, rows: Sequence[int]) -> None:
        """Remove results of a session that is FINISHED, by the rows of their drops in the whole graph.

        Contents outside of the directory of the session stay. Again is not an error, nor is a row without a result.

        Raises
        ------
        ConflictError
            The session is not FINISHED.
        LinkError
            A node did not answer. It was done on the others.
        """
        self.call(operations.RELEASE, session=session, rows=tuple(rows))

    def journal(self, session: str) -> Download:
        """Return the journal; from several nodes, a tar file with the journal and the graph of each."""
        return self.call(operations.JOURNAL, session=session)

    def times(self, session: str, query: TimesQuery = ALL_TIMES) -> Download:
        """Return the times of attempts that have ended: sections of `dropflow.times.octets`, one for each node."""
        return self.call(operations.TIMES, session=session, query=query)

    def times_analysis(self, session: str) -> Download:
        """Return what each attempt waited for, and its slack: the section of `dropflow.times.timeline.pack_analysis`.

        Raises
        ------
        ProtocolError
            The times are of another graph.
        """
        return self.call(operations.TIMES_ANALYSIS, session=session)

    def times_statistics(self, session: str, query: StatisticsQuery = DEFAULT_STATISTICS) -> TimesStatistics:
        """Return statistics of the attempts. Raises as `times_analysis`."""
        return self.call(operations.TIMES_STATISTICS, session=session, query=query)

    @abstractmethod
    def graph(self, session: str) -> "PhysicalGraph":
        """Return the whole graph."""
