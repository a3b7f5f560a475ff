"""Records of sessions in ``/api/v1``: what they are, why they failed, how they were at a moment, and what changed.

Records are frozen msgspec structs, keyword-only. A manager returns them inside a process, they are sent as JSON, and
`dropflow.api.client` returns them again. States are the names of `dropflow.states`; times are seconds since the epoch
(UTC); sizes are bytes.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from dropflow.failure import RootCause
from dropflow.formatting import format_quiet, format_remaining, plural
from dropflow.graph.drop_counts import NO_DROPS, DropCounts
from dropflow.states import SessionState, is_over

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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


class FailureInfo(RootCause, frozen=True, kw_only=True):
    """A root cause as a manager has it, with the node of its drop.

    `node` is empty in the report of a node that only knows the row of a cause elsewhere.
    """

    node: str
    has_log: bool = False


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
        Id of the request that submitted it (`SubmitQuery`); empty if it had none.
    user : str
        User whose key submitted it; empty for the cluster key and for tokens.
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
        """The time that is left, as ``about 12 s left``, or why that is not known; empty if nothing is known."""
        if self.is_quiet:
            return format_quiet(self.quiet)
        return "" if self.is_over or self.remaining is None else f"about {format_remaining(self.remaining)} left"


class UserUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a user in sessions that are not over, and the limits at a time; None for no limit.

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
    """Version of a session on a manager; see `SessionInfo`."""

    session: str
    epoch: int
    version: int


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
        Rows in the whole graph, and the numbers of `FailureInfo`, as uint32, little-endian. Base64 in JSON.
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
            for column in zip(*((failure.row, failure.count, failure.took_along) for failure in failures), strict=True)
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


# Differences between two records of a session, so that an event stream sends only what changed.
#
# A change is a JSON object with the fields that differ. ``logical`` has only the logical nodes that differ, identified
# by their ``key``; every other field is replaced as a whole.

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
