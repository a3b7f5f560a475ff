"""Records of ``/api/v1`` about sessions and drops.

Frozen msgspec structs, keyword-only. A manager returns them inside a process, they are sent as JSON, and
`dropflow.rest.client` returns them again. States are the names of `dropflow.states`; times are seconds since the epoch
(UTC); sizes are bytes.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from dropflow.drop_counts import NO_DROPS, DropCounts
from dropflow.formatting import format_quiet, format_remaining
from dropflow.ids import SESSION_NAME
from dropflow.rest.status import is_over
from dropflow.rest.submit_options import SubmitOptions
from dropflow.states import SessionState
from dropflow.times.statistics import AttemptProfile

__all__ = [
    "FIRST_PAGE",
    "DropDetail",
    "DropInfo",
    "DropPage",
    "DropQuery",
    "FailureInfo",
    "LogicalNodeInfo",
    "Neighbour",
    "PageQuery",
    "PartEnd",
    "ResultInfo",
    "SessionDetail",
    "SessionInfo",
    "SessionVersion",
    "SubmitQuery",
]

_Natural = Annotated[int, Meta(ge=0, le=2**53)]


class LogicalNodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The drops of one logical node, with their number in each state that occurs.

    `order` is its index among the logical nodes of the graph. `running` is how many of its applications in WRITING run
    in a worker or thread; the others are queued. `counts` has its drops by what has become of them.
    """

    key: str
    name: str
    category: str
    is_app: bool
    artificial: bool
    drops: int
    states: dict[str, int]
    order: int = 0
    running: int = 0
    counts: DropCounts = NO_DROPS


class FailureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One root cause: the drop that failed by itself, and the number of drops in ERROR because of it, itself included.

    `took_along` of them are other drops. A drop that was cancelled alone is a cause too, and not in ERROR itself. The
    counts of all causes add up to the drops in ERROR, and `took_along` to those that others took along.

    A lost node is a root cause too: then `drop` is empty, `name` is the name of the node, `count` the number of drops
    on all nodes that are lost because of it, and `drops` the first of those on the node itself. `row` is the drop's row
    in the whole graph, which identifies the cause on all nodes; -1 for a lost node. `node` is empty in the report of a
    node that only knows the row of a cause elsewhere.
    """

    drop: str
    name: str
    node: str
    code: str
    kind: str
    text: str
    hint: str = ""
    detail: str = ""
    count: int = 1
    took_along: int = 0
    attempts: int = 1
    has_log: bool = False
    drops: tuple[str, ...] = ()
    row: int = -1


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session in one row.

    Attributes
    ----------
    graph : str
        Name of the graph.
    status : str
        Name of a `dropflow.states.SessionState`, or UNKNOWN (`dropflow.rest.status`).
    epoch : int
        Number of its deployment; grows when it is deployed again.
    version : int
        Grows with every change that `SessionDetail` shows.
    drops, settled : int
        All drops, and those in a terminal state.
    running, queued, ready : int
        Attempts that run in a worker, that wait for one, and that wait for room in the queue of workers.
    counts : DropCounts
        All drops by what has become of them: they add up to `drops`.
    states : dict
        Number of drops by the name of their state (only states that occur).
    created, started, finished : float
        Seconds since the epoch; 0 when it has not happened.
    seconds : float
        How long it has run.
    rate : float
        Drops settled per second: recently; of a session that is over, on average.
    remaining : float or None
        Seconds until the end at the median rate of the last three minutes; None if it cannot be estimated.
    quiet, usual_quiet : float
        For how many seconds no drop has settled, and for how many that is usual. After longer ones, `rate` is 0 and
        `remaining` is None: what is left does not take as long as what was done. Of several nodes, those of the node
        that is the least quiet.
    nodes : tuple of str
        The nodes that hold its drops.
    text : str
        Why it failed, was cancelled or is UNKNOWN, in one sentence.
    unknown : tuple of str
        The nodes that do not answer, or whose island does not, and that had open drops in their last answer.
    whole : int
        Drops of the session on all nodes, also on those that are not below the manager; 0 if it is not known.
    silent_children : tuple of str
        The children that have not answered since the manager was started and may have the rest of `whole`. Only if the
        session is UNKNOWN.
    view : int
        Grows whenever the session goes on with other members, because nodes were lost.
    members : tuple of str
        All nodes of the session in this view, also those that hold no drops; empty if it does not survive losses.
    recomputed : int
        Drops that ran again although they had completed, because contents were lost. Notes say why.
    joined_by : str
        Name of the manager that adds nodes which come while it runs; empty if none does.
    lacks_witness : bool
        Whether it has an even number of members and no witness that answers, so that it survives one loss less.
    request_id : str
        Of the request that submitted it (`SubmitQuery`); empty if it had none.
    """

    session: str
    graph: str
    status: str
    epoch: int = 1
    version: int = 0
    drops: int = 0
    settled: int = 0
    running: int = 0
    queued: int = 0
    ready: int = 0
    counts: DropCounts = NO_DROPS
    states: dict[str, int] = {}
    created: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    seconds: float = 0.0
    rate: float = 0.0
    remaining: float | None = None
    quiet: float = 0.0
    usual_quiet: float = 0.0
    nodes: tuple[str, ...] = ()
    text: str = ""
    unknown: tuple[str, ...] = ()
    whole: int = 0
    silent_children: tuple[str, ...] = ()
    view: int = 0
    members: tuple[str, ...] = ()
    recomputed: int = 0
    joined_by: str = ""
    lacks_witness: bool = False
    request_id: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return is_over(self.status)

    @property
    def is_quiet(self) -> bool:
        """Whether it runs, and no drop has settled for unusually long."""
        return self.status == SessionState.RUNNING.name and self.quiet > self.usual_quiet

    @property
    def time_left(self) -> str:
        """How much time is left, as ``about 12 s left``, or why that is not known; empty if nothing is known."""
        if self.is_quiet:
            return format_quiet(self.quiet)
        return "" if self.is_over or self.remaining is None else f"about {format_remaining(self.remaining)} left"


class PartEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the part of one node ended, as all nodes of the session know it; see `SessionInfo` for the fields."""

    node: str
    status: str
    counts: DropCounts
    states: dict[str, int]
    logical: tuple[LogicalNodeInfo, ...] = ()


class SessionDetail(SessionInfo, frozen=True, kw_only=True):
    """A session with its logical nodes and at most 100 root causes, the most harmful first.

    Each node contributes at most 100; the operation `failures` lists all. `ends` has the end of each part, once the
    nodes have agreed that the session is over: so its end is known although a node does not answer any more.
    """

    logical: tuple[LogicalNodeInfo, ...] = ()
    failures: tuple[FailureInfo, ...] = ()
    notes: tuple[str, ...] = ()
    ends: tuple[PartEnd, ...] = ()

    @property
    def unlisted(self) -> int:
        """Drops in ERROR because of causes that are not in `failures`."""
        return self.counts.in_error - sum(failure.count for failure in self.failures if failure.drop)


class SessionVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Which version of a session a manager has; see `SessionInfo`."""

    session: str
    epoch: int
    version: int


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of a long list: `limit` entries from `offset` on."""

    offset: _Natural = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


FIRST_PAGE = PageQuery()


class DropQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters on the drops of a session: a drop must match all that are not empty.

    Attributes
    ----------
    state : str
        Name of a state, or several with commas between.
    key : str
        Key of a logical node.
    node : str
        Name of a node manager.
    text : str
        Part of the drop's id or of its logical node's name, ignoring case.
    oid : str
        The whole id of a drop.
    ending : str
        End of the drop's id.
    name : str
        Name of a logical node, or that and the indices of one of its drops: ``Measure 3`` or ``Measure_0-3``.
    row : int
        Row of a drop in the whole graph; -1 for any.
    sort : str
        What the list is sorted by: row, id, name (of the logical node), state, node, attempt or size; with a minus in
        front in descending order. By default it has the order of the graph on each node.
    time : float
        A moment, in seconds since the epoch: the drops as they were then, in the order of the graph. 0 for now.
    """

    state: Annotated[str, Meta(max_length=200)] = ""
    key: Annotated[str, Meta(max_length=200)] = ""
    node: Annotated[str, Meta(max_length=255)] = ""
    text: Annotated[str, Meta(max_length=200)] = ""
    oid: Annotated[str, Meta(max_length=1024)] = ""
    ending: Annotated[str, Meta(max_length=1024)] = ""
    name: Annotated[str, Meta(max_length=1024)] = ""
    row: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    sort: Annotated[str, Meta(pattern="^$|^-?(row|id|name|state|node|attempt|size)$")] = ""
    time: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    offset: _Natural = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class DropInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One drop in a row. `drop` is its row in the whole graph, `oid` its text id; `size` is None when there is none.

    `is_running` is whether the attempt of an application in WRITING runs in a worker or thread, or is queued; None for
    other drops, and if the node does not know it.
    """

    drop: int
    oid: str
    name: str
    key: str
    category: str
    is_app: bool
    state: str
    node: str
    attempt: int = 1
    size: int | None = None
    is_running: bool | None = None


class DropPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of drops.

    Attributes
    ----------
    total : int
        Number of all drops that match.
    missing : tuple of str
        Nodes that did not answer.
    held, whole : int
        Drops of the session on the nodes that answered, and on all its nodes. A manager below others may hold fewer.
    """

    drops: tuple[DropInfo, ...]
    total: int
    offset: int = 0
    limit: int = 100
    missing: tuple[str, ...] = ()
    held: int = 0
    whole: int = 0


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A drop at the other end of an edge. `port` is the name of the port, if the graph has one.

    `size` is that of its content, and `path` where that is, if it is a file; as far as the node has them.
    """

    drop: int
    oid: str
    name: str
    state: str
    node: str
    port: str = ""
    size: int | None = None
    path: str = ""


class DropDetail(DropInfo, frozen=True, kw_only=True):
    """Everything about one drop.

    Attributes
    ----------
    inputs, outputs : tuple of Neighbour
        A page of its predecessors, and of its successors.
    input_count, output_count : int
        Number of all of them.
    reasons : tuple of str
        Why it is in its state, in words.
    has_log, has_data : bool
        Whether there is a log, and content that can be downloaded.
    parameters : dict of str to str
        Its logical node's parameters, as text.
    attempts : tuple of AttemptProfile
        Its attempts on its node that have ended, and the one that runs.
    """

    reasons: tuple[str, ...] = ()
    failure: FailureInfo | None = None
    inputs: tuple[Neighbour, ...] = ()
    outputs: tuple[Neighbour, ...] = ()
    input_count: int = 0
    output_count: int = 0
    has_log: bool = False
    has_data: bool = False
    parameters: dict[str, str] = {}
    attempts: tuple[AttemptProfile, ...] = ()


class ResultInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A result of a session: the content of a leaf, or of a drop that is to persist.

    `path` is relative to the session's directory (``results/x.txt``, ``files/out/y.fits``), or absolute outside of it.
    If the node of the drop does not answer, `node` has a copy of its content, and `owner` is the node of the drop.
    `checksum` is the CRC-32 with which it was committed; None for a directory, and where it is not known.
    """

    drop: int
    oid: str
    name: str
    node: str
    path: str
    size: int
    checksum: int | None = None
    is_directory: bool = False
    owner: str = ""


class SubmitQuery(SubmitOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to deploy a graph whose bytes are the body of the request.

    Attributes
    ----------
    session : str
        Name of the session: at most 100 printable characters without slashes, a letter, digit or underscore first;
        made from the graph's name when empty.
    anew : bool
        Ignore the nodes that the graph names and place the parts again.
    request_id : str
        Which a client has made for this request. The session keeps it, so that the client can find it if the answer is
        lost (`dropflow.rest.submission`).
    check, infrastructure_retries, until, replicas, protect, memory_limit, join, fuse
        See `dropflow.rest.submit_options.SubmitOptions`.
    """

    session: Annotated[str, Meta(pattern=f"^$|{SESSION_NAME}")] = ""
    anew: bool = False
    request_id: Annotated[str, Meta(max_length=64)] = ""

    @classmethod
    def of(cls, options: SubmitOptions, *, session: str = "", anew: bool = False) -> "SubmitQuery":
        """Return the request for a session with these options."""
        known = {name: getattr(options, name) for name in SubmitOptions.__struct_fields__}
        return cls(session=session, anew=anew, **known)
