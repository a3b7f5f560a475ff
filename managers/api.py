"""What every manager can do, whatever stands below it.

A node manager does it with its own sessions, an island or master by asking its children; routes, web pages and
DALiuGE's paths are written once against this protocol. `dropflow.rest.client.Client` has the same methods over HTTP.

All methods may be called from any thread. They raise `NotFoundError` for sessions and drops that nobody knows,
`ConflictError` for what the state of a session does not allow, `LinkError` for children that cannot be reached, and
other `DropflowError` as their docstrings say.
"""

from typing import Protocol

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.rest.content_records import ContentsRequest
from dropflow.rest.operation_records import FailureList, ResultList
from dropflow.rest.schema import (
    FIRST_PAGE,
    Child,
    Download,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    ManagerStatus,
    NodeInfo,
    PageQuery,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
)
from managers.deployment import Deployment

__all__ = ["Manager"]


class Manager(Protocol):
    """A node manager, an island or a master."""

    def info(self) -> ManagerInfo:
        """About the manager itself."""
        ...

    def status(self) -> ManagerStatus:
        """Return what a parent asks for once per period, without asking any child."""
        ...

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All node managers at or below it, sorted by name, lost ones too."""
        ...

    # Children: a node manager has none, and raises `UsageError` for the two below.

    def children(self) -> tuple[Child, ...]:
        """Its direct children."""
        ...

    def add_child(self, url: str) -> Child:
        """Take the manager at `url` as a child; again is no error."""
        ...

    def remove_child(self, url: str) -> None:
        """Forget a child. Sessions that run there go on.

        Raises
        ------
        NotFoundError
            It is no child.
        """
        ...

    # Deployment.

    def submit(self, graph: PhysicalGraph, options: SubmitQuery) -> SessionInfo:
        """Deploy a whole graph and start it: cut it by node, `prepare` and `start` everywhere, or nowhere.

        Parts are on the nodes that `graph.places` names; a graph that names none is spread over all nodes that are
        alive, part k on the k-th node, from the start again when there are more parts than nodes.

        Raises
        ------
        BadGraphError
            It names nodes that are not here, has unknown components or a cycle.
        ConflictError
            There is a session of that name.
        WorldError
            A node failed; the others were undone. Names the node, the cause and what to do.
        """
        ...

    def prepare(self, deployment: Deployment, *, seconds: float) -> None:
        """First half of a deployment: take the slices, build the sessions, run nothing.

        Must be done within `seconds`. Preparing the same epoch of the same session again is no error.
        """
        ...

    def start(self, session: str, epoch: int) -> None:
        """Second half: run what was prepared. Again is no error."""
        ...

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Take back a `prepare`, started or not; what was never prepared has nothing to undo."""
        ...

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """All sessions, the youngest first."""
        ...

    def session(self, session: str) -> SessionDetail:
        """One session as it is now."""
        ...

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """As `session`, but waits until its version is another one than `version`, for `seconds` at most.

        A session that is over is answered at once.
        """
        ...

    def cancel(self, session: str, reason: str = "") -> SessionInfo:
        """Stop a session: whatever is not terminal becomes CANCELLED. One that is over stays as it is."""
        ...

    def delete(self, session: str) -> None:
        """Forget a session, stopping it first, and remove everything it left behind."""
        ...

    def drops(self, session: str, query: DropQuery) -> DropPage:
        """A page of the drops that match."""
        ...

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """Return one drop, by its id or the end of an id that no other drop of the session has.

        The same holds for `log` and `data`. Rows are found by `drops`. `query` says which of its neighbours to list.

        Raises
        ------
        AmbiguousError
            Several drops of the session end so, or may.
        """
        ...

    def failures(self, session: str, query: PageQuery = FIRST_PAGE) -> FailureList:
        """A page of the root causes, the most harmful first."""
        ...

    def log(self, session: str, drop: str) -> Download:
        """What a drop wrote to its log."""
        ...

    def data(self, session: str, drop: str) -> Download:
        """Content of a data drop, from whichever node holds it; a directory comes as a tar file.

        Raises
        ------
        GoneError
            It was released already.
        """
        ...

    def results(self, session: str) -> ResultList:
        """What the session left for people, and the nodes that could not be asked."""
        ...

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Contents of many drops on one node, as the records of `dropflow.rest.content_records`.

        What cannot be had of one content is a record among them.

        Raises
        ------
        NotFoundError
            The node is not at or below this manager, or has nothing of the session.
        """
        ...

    def journal(self, session: str) -> Download:
        """The journal; from several nodes, a tar file with that and the graph of each."""
        ...

    def graph(self, session: str) -> PhysicalGraph:
        """The whole graph, as far as it is at or below this manager."""
        ...

    def slices(self, session: str) -> tuple[Slice, ...]:
        """The slices of the graph that are at or below this manager: what a parent joins to the whole graph."""
        ...

    def close(self) -> None:
        """Stop: a node cancels its sessions; an island or master only goes away. Idempotent."""
        ...
