"""Records of ``/api/v1``: managers and nodes, sessions and drops, hosts and moments.

Times are seconds since the epoch (UTC), and sizes are bytes.
"""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dropflow.clock import Clock
from dropflow.formatting import format_quiet, format_remaining, plural
from dropflow.graph.drop_counts import NO_DROPS, DropCounts
from dropflow.ids import SESSION_NAME, SESSION_NAME_HINT, USER_NAME
from dropflow.session_options import SubmitOptions, chosen_of
from dropflow.states import SessionState, is_over
from dropflow.times.statistics import AttemptProfile
from dropflow.version import __version__

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Records of ``/api/v1`` about sessions and drops.
#
# Frozen msgspec structs, keyword-only. A manager returns them inside a process, they are sent as JSON, and
# `dropflow.api.client` returns them again. States are the names of `dropflow.states`; times are seconds since the epoch
# (UTC); sizes are bytes.

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
    node that only knows the row of a cause elsewhere. `inputs` has a line for each input and argument of the attempt.
    """

    drop: str
    name: str
    node: str
    code: str
    kind: str
    text: str
    hint: str = ""
    detail: str = ""
    inputs: tuple[str, ...] = ()
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
        Name of a `dropflow.states.SessionState`, or UNKNOWN (`dropflow.states`).
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
    computed, reused : int
        Applications that have run, and those that took the results of earlier runs.
    joined_by : str
        Name of the manager that adds nodes which come while it runs; empty if none does.
    lacks_witness : bool
        Whether it has an even number of members and no witness that answers, so that it survives one loss less.
    request_id : str
        Of the request that submitted it (`SubmitQuery`); empty if it had none.
    user : str
        Whose key submitted it; empty for the cluster key and for tokens.
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
    computed: int = 0
    reused: int = 0
    joined_by: str = ""
    lacks_witness: bool = False
    request_id: str = ""
    user: str = ""

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


class UserUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has in sessions that are not over, and may have at a time; None for any number.

    They are users of the sessions, those with limits of their own, and the user who asks.
    """

    user: str
    sessions: int
    drops: int
    most_sessions: int | None = None
    most_drops: int | None = None

    @property
    def text(self) -> str:
        """The numbers as ``2 of 10 sessions, 1,200 drops``; empty without limits."""
        if self.most_sessions is None and self.most_drops is None:
            return ""
        return f"{_of(self.sessions, self.most_sessions, 'session')}, {_of(self.drops, self.most_drops, 'drop')}"


def _of(count: int, most: int | None, what: str) -> str:
    return plural(count, what) if most is None else f"{count:,} of {plural(most, what)}"


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
    sort: Annotated[
        str,
        Meta(
            pattern="^$|^-?(row|id|name|state|node|attempt|size)$",
            description="row, id, name, state, node, attempt or size; with - in front, the largest first",
        ),
    ] = ""
    time: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    offset: _Natural = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


FIRST_DROPS = DropQuery()


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
    missing : float
        The share of its data that is missing, from 0 to 1, because failures were tolerated.
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
    missing: float = 0.0


class ResultInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A result of a session: the content of a leaf, or of a drop that is to persist.

    `path` is relative to the session's directory (``results/x.txt``, ``files/out/y.fits``), or absolute outside of it.
    If the node of the drop does not answer, `node` has a copy of its content, and `owner` is the node of the drop.
    `checksum` is the CRC-32 with which it was committed, that of its tree for a directory; None if it is not known.
    `missing` is the share of the data that it was made without, because failures were tolerated. `reused` tells from
    which session and host it was taken; empty if it was computed, or its application is on another node.
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
    missing: float = 0.0
    reused: str = ""


class SubmitQuery(SubmitOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to deploy a graph whose bytes are the body of the request.

    Attributes
    ----------
    session : str
        Name of the session: at most 100 printable characters without slashes, a letter, digit or underscore first;
        made from the graph's name when empty.
    anew : bool
        Ignore the nodes that the graph names and place the parts again.
    movable : bool
        Whether drops go to other nodes than the graph names if those cannot run them. A graph that names no nodes is
        placed so anyway.
    request_id : str
        Which a client has made for this request. The session keeps it, so that the client can find it if the answer is
        lost (`dropflow.api.submission`).
    user : str
        Whose session it is to be. A request that is signed with the key of a user is of that user, whatever this says.
    until, check and others
        See `dropflow.session_options.SubmitOptions`.
    """

    session: Annotated[str, Meta(pattern=f"^$(?!\\n)|{SESSION_NAME}", description=SESSION_NAME_HINT)] = ""
    anew: bool = False
    movable: bool = False
    request_id: Annotated[str, Meta(max_length=64)] = ""
    user: Annotated[str, Meta(pattern=f"^(|{USER_NAME})$")] = ""

    @classmethod
    def of(cls, options: SubmitOptions, *, session: str = "", anew: bool = False) -> "SubmitQuery":
        """Return the request for a session with these options."""
        return cls(session=session, anew=anew, **chosen_of(options))


DEFAULT_SUBMISSION = SubmitQuery()


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """A need (`dropflow.apps.needs`) that a node does not meet: why, and what to install."""

    need: str
    text: str
    hint: str = ""


class NodeComponents(msgspec.Struct, frozen=True, kw_only=True):
    """What a node can run.

    Attributes
    ----------
    node : str
        Its name.
    python : str
        Version of its Python.
    environment : str
        Directory of the Python environment, into which packages are to be installed.
    applications : int
        Number of built-in applications.
    engine : str
        Program that runs its containers; empty if there is none.
    registered : tuple of str
        Components that its packages register, with the package before them: entry points ``dropflow.components``.
    lacks : tuple of Lack
        Of what it was asked for, what is missing.
    """

    node: str
    python: str = ""
    environment: str = ""
    applications: int = 0
    engine: str = ""
    registered: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()


Role = Literal["node", "island", "master", "daemon", "translator"]
"""The kind of a process."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a host, and how much of them is in use.

    Attributes
    ----------
    cores : int
        Processors that the manager may use.
    workers : int
        Worker processes that run applications.
    busy : int
        Attempts that run in workers or threads now.
    processor : float
        Use of all processors, per cent.
    memory, memory_free : int
        Bytes of main memory, and of those available.
    disk, disk_free : int
        Bytes of the file system of the sessions, and of those free.
    received : int
        Bytes of contents that the process of the node fetched from other nodes.
    gpus, gpus_free : int
        GPUs that the node gives to attempts, and those that none has now.
    """

    cores: int = 0
    workers: int = 0
    busy: int = 0
    processor: float = 0.0
    memory: int = 0
    memory_free: int = 0
    disk: int = 0
    disk_free: int = 0
    received: int = 0
    gpus: int = 0
    gpus_free: int = 0


class ManagerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One manager, as it describes itself.

    Attributes
    ----------
    incarnation : int
        Distinguishes this process from others with its name. That of a node grows with each start.
    time : float
        Its clock now, to measure clock skew.
    protocol : int
        Version of the messages between nodes.
    key : str
        Fingerprint of its cluster key; empty without one.
    findings : tuple of str
        Problems of its stored data, such as sessions that cannot be read.
    """

    name: str
    role: Role
    url: str
    version: str
    host: str
    process: int
    incarnation: int
    started: float
    time: float
    protocol: int
    key: str = ""
    root: str = ""
    findings: tuple[str, ...] = ()


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One node manager.

    Attributes
    ----------
    url : str
        Of its REST server; empty if it was never reached.
    links : str
        Address of its links, ``tcp://host:port``.
    state : str
        ``alive``, ``draining`` (it takes no sessions, and ends), ``drained`` (it has given all sessions away, and its
        process has ended or is about to), ``suspect`` (silent for longer than expected) or ``lost``.
    sessions : int
        Sessions that run on it.
    started : float
        When its process was started, in seconds since the epoch.
    island : str
        Its island, in the answer of a master.
    text : str
        Why it is not alive.
    """

    name: str
    url: str = ""
    links: str = ""
    incarnation: int = 0
    state: Literal["alive", "draining", "drained", "suspect", "lost"] = "alive"
    version: str = ""
    host: str = ""
    sessions: int = 0
    started: float = 0.0
    island: str = ""
    text: str = ""
    load: Load = Load()


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A direct child of an island (a node) or of a master (an island)."""

    name: str
    url: str
    role: Role
    state: Literal["alive", "drained", "suspect", "lost"] = "alive"
    text: str = ""


class ChildRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manager to add as a child."""

    url: Annotated[str, Meta(min_length=8, max_length=1024)]


class ProbeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The addresses that a manager probes.

    Attributes
    ----------
    addresses : tuple of str
        ``tcp://host:port`` of a node's links, ``http://host:port`` of a manager.
    seconds : float
        How long the whole probe may take.
    """

    addresses: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    max_length=300,
                    pattern=r"^(tcp|https?)://"
                    r"([A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\])"
                    r"(:[0-9]{1,5})?(/[A-Za-z0-9_.~-]+)*$",
                ),
            ],
            ...,
        ],
        Meta(min_length=1, max_length=32),
    ]
    seconds: Annotated[float, Meta(ge=0.1, le=10)] = 3.0


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one manager can reach another.

    Attributes
    ----------
    ok : bool
        It answered: links with the handshake of the cluster key, a manager with its `ManagerInfo`.
    name : str
        Name in the answer, which may be another one than expected; empty if there is none.
    seconds : float
        Seconds until the answer.
    skew : float or None
        Seconds by which its clock is ahead of that of the manager that probes; None for links, and without an answer.
    version : str
        Of its dropflow; empty if it is not known.
    protocol, incarnation : int
        See `ManagerInfo`; 0 if it is not known.
    key : str
        Fingerprint of its cluster key; empty if it has none, or if it is not known.
    code, trouble, hint : str
        Stable code and text of the error, and what to do; empty if it answered.
    """

    address: str
    ok: bool
    name: str = ""
    seconds: float = 0.0
    skew: float | None = None
    version: str = ""
    protocol: int = 0
    incarnation: int = 0
    key: str = ""
    code: str = ""
    trouble: str = ""
    hint: str = ""


class ManagerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager answers to its parent once per period.

    Attributes
    ----------
    nodes : tuple of NodeInfo
        All node managers at or below it.
    sessions : tuple of SessionInfo
        The sessions that are not over.
    finished : tuple of SessionVersion
        The sessions that are over. A parent that does not have these versions asks for the sessions.
    """

    info: ManagerInfo
    nodes: tuple[NodeInfo, ...]
    sessions: tuple[SessionInfo, ...] = ()
    finished: tuple[SessionVersion, ...] = ()

    @classmethod
    def of(cls, info: ManagerInfo, nodes: Sequence[NodeInfo], sessions: Sequence[SessionInfo]) -> "ManagerStatus":
        """Return the status of a manager that has all these sessions."""
        return cls(
            info=info,
            nodes=tuple(nodes),
            sessions=tuple(session for session in sessions if not session.is_over),
            finished=tuple(
                SessionVersion(session=session.session, epoch=session.epoch, version=session.version)
                for session in sessions
                if session.is_over
            ),
        )


# The record with which managers, daemons and translators describe themselves.


def manager_info(
    name: str,
    role: Role,
    *,
    url: str,
    started: float,
    clock: Clock,
    protocol: int,
    incarnation: int | None = None,
    key: str = "",
    root: str = "",
    findings: tuple[str, ...] = (),
) -> ManagerInfo:
    """Return the record of this process. Its incarnation is by default the time of its start, in microseconds."""
    return ManagerInfo(
        name=name,
        role=role,
        url=url,
        version=__version__,
        host=socket.gethostname(),
        process=os.getpid(),
        incarnation=int(started * 1e6) if incarnation is None else incarnation,
        started=started,
        time=clock.now(),
        protocol=protocol,
        key=key,
        root=root,
        findings=findings,
    )


# Records of the load of a node over time.


class LoadSample(msgspec.Struct, frozen=True, array_like=True):
    """The load of a host at one time; in JSON an array in this order.

    Attributes
    ----------
    time : float
        Seconds since the epoch.
    processor : float
        Use of all processors, per cent.
    memory, disk : int
        Bytes in use.
    received, sent : int
        Bytes over all network interfaces but the local one, since the host was started.
    sessions, running : int
        Sessions that run, and attempts that run in workers or threads.
    """

    time: float
    processor: float
    memory: int
    disk: int
    received: int
    sent: int
    sessions: int
    running: int


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a node during the last hour: a sample every `every` seconds, the oldest one first."""

    node: str
    every: float
    samples: tuple[LoadSample, ...] = ()


# A session as it was at a moment: what `dropflow.times.moments` finds, for pages and clients.


class MomentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The moment, in seconds since the epoch, and whether the states of all drops are wanted."""

    time: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    states: bool = False


class NodeMoment(msgspec.Struct, frozen=True, kw_only=True):
    """The drops of one logical node."""

    key: str
    name: str
    drops: int
    counts: DropCounts


class CauseMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A root cause: its row in the graph, the drops in ERROR because of it, and those of them that it took along."""

    row: int
    count: int
    took_along: int


class SessionMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A session at a moment.

    Attributes
    ----------
    time : float
        The moment, in seconds since the epoch.
    began, ended : float
        When the first attempt was ready, and the last one that has ended was committed. Later moments are as now.
    drops, settled, running, queued : int
        As in `SessionInfo`; `queued` are all attempts that were ready and did not run.
    counts : DropCounts
        All drops whose state is known.
    logical : tuple of NodeMoment
        By logical node, in the order of the graph.
    states : bytes
        The state of each drop of the graph, by row, as uint8; 255 if it is not known. Base64 in JSON. Empty unless they
        were asked for.
    missing : tuple of str
        Nodes that did not answer.
    causes : tuple of CauseMoment
        The most harmful root causes of failures; at most a thousand.
    """

    time: float
    began: float
    ended: float
    drops: int
    settled: int
    running: int
    queued: int
    counts: DropCounts = NO_DROPS
    logical: tuple[NodeMoment, ...] = ()
    states: bytes = b""
    missing: tuple[str, ...] = ()
    causes: tuple[CauseMoment, ...] = ()


# Root causes of a session as columns, which managers merge and sort without the records themselves.


class CauseColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Drops that are root causes, those with the most drops in ERROR first; lost nodes are not among them.

    Attributes
    ----------
    rows, counts, took_along : bytes
        Rows in the whole graph, and the numbers of `FailureInfo`, as uint32,
        little-endian. Base64 in JSON.
    """

    rows: bytes = b""
    counts: bytes = b""
    took_along: bytes = b""

    def __len__(self) -> int:
        return len(self.rows) // 4

    def arrays(self) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]":
        """Return rows, counts and how many each took along."""
        import numpy as np  # noqa: PLC0415 - takes long to load

        rows, counts, along = (
            np.frombuffer(column, "<u4").astype(np.int64) for column in (self.rows, self.counts, self.took_along)
        )
        return rows, counts, along


def packed_columns(
    rows: "npt.NDArray[np.int64]", counts: "npt.NDArray[np.int64]", took_along: "npt.NDArray[np.int64]"
) -> CauseColumns:
    """Return columns in the order in which they are given."""
    return CauseColumns(
        rows=rows.astype("<u4").tobytes(),
        counts=counts.astype("<u4").tobytes(),
        took_along=took_along.astype("<u4").tobytes(),
    )


def columns_of(failures: "Sequence[FailureInfo]") -> CauseColumns:
    """Return the columns of records of drops, in their order."""
    import numpy as np  # noqa: PLC0415 - takes long to load

    rows, counts, along = (
        (
            np.array(column, np.int64)
            for column in zip(*((one.row, one.count, one.took_along) for one in failures), strict=True)
        )
        if failures
        else (np.zeros(0, np.int64),) * 3
    )
    return packed_columns(rows, counts, along)


def merged_columns(parts: Sequence[CauseColumns]) -> CauseColumns:
    """Return the causes of several nodes, with the numbers of each added up.

    Causes with equal numbers are sorted by row, as on each node.
    """
    import numpy as np  # noqa: PLC0415 - takes long to load

    arrays = [part.arrays() for part in parts]
    if not arrays:
        return CauseColumns()
    every, counts, along = (np.concatenate(columns) for columns in zip(*arrays, strict=True))
    rows, places = np.unique(every, return_inverse=True)
    # The sums of whole numbers are exact in a float below 2**53.
    sums = np.bincount(places, weights=counts, minlength=len(rows)).astype(np.int64)
    taken = np.bincount(places, weights=along, minlength=len(rows)).astype(np.int64)
    order = np.lexsort((rows, -sums))
    return packed_columns(rows[order], sums[order], taken[order])


# The hosts of node managers: several of them on one host share its processors, which count once.


def cores_of_hosts(nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """Return the processors of each host with a node that is not lost: the most that one of its nodes may use.

    A node whose host is not known is a host of its own.
    """
    found: dict[str, int] = {}
    for node in nodes:
        if node.state != "lost":
            host = node.host or node.name
            found[host] = max(found.get(host, 0), node.load.cores)
    return found


# Differences between two records of a session, so that an event stream sends only what changed.
#
# A change is a JSON object with the fields that differ. ``logical`` has only the logical nodes that
# differ, identified by their ``key``; every other field is replaced as a whole.

_FIELDS = SessionDetail.__struct_fields__


def change_between(before: SessionDetail, after: SessionDetail) -> dict[str, Any] | None:
    """Return the change from `before` to `after`; None if the whole record must be sent."""
    change = {name: value for name in _FIELDS if (value := getattr(after, name)) != getattr(before, name)}
    if "logical" in change:
        if [node.key for node in before.logical] != [node.key for node in after.logical]:
            return None
        pairs = zip(before.logical, after.logical, strict=True)
        change["logical"] = [new for old, new in pairs if new != old]
    return change


def apply_change(before: SessionDetail, change: Mapping[str, Any]) -> SessionDetail:
    """Return the record after a change.

    Raises
    ------
    msgspec.ValidationError
        It is not a change of a session.
    """
    merged = {name: getattr(before, name) for name in _FIELDS} | dict(change)
    if "logical" in change:
        new = {node.key: node for node in msgspec.convert(change["logical"], tuple[LogicalNodeInfo, ...])}
        merged["logical"] = tuple(new.get(node.key, node) for node in before.logical)
    return msgspec.convert(msgspec.to_builtins(merged), SessionDetail)
