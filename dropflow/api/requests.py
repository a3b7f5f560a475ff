"""Queries, bodies and answers of single operations (`dropflow.api.operations`).

JSON answers are always objects, so each answer that is a list has a struct with one field for it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta

from dropflow.api.contents_answer import MAX_CONTENTS
from dropflow.api.drop_records import PageQuery, ResultInfo
from dropflow.api.node_records import Child, NodeComponents, NodeInfo, ProbeResult
from dropflow.api.session_records import CauseColumns, FailureInfo, SessionInfo, UserUse, columns_of
from dropflow.ids import SESSION_NAME, SESSION_NAME_HINT, USER_NAME
from dropflow.session_options import SubmitOptions, chosen_of
from dropflow.states import STOPPED_AT_WALLTIME, DropState
from dropflow.stopping import GRACE_SECONDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
MOST_NEEDS = 10_000
"""Needs that a node is asked for at a time."""
RUNNING = 65
"""Sign of an application in WRITING whose attempt runs in a worker or thread."""
QUEUED = 66
"""Sign of an application in WRITING whose attempt waits for a worker."""


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
        lost (`dropflow.submission.submit`).
    user : str
        The user of the session. If a request is signed with the key of a user, that user counts, and not this field.
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


class WatchQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Until when a session is watched.

    Attributes
    ----------
    version : int
        The version that the client has: the answer comes when the session has another one.
    seconds : float
        The longest time to wait; 0 does not wait.
    over : bool
        Wait until the session is over, whatever its version is.
    """

    version: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    seconds: Annotated[float, Meta(ge=0, le=300)] = 0.0
    over: bool = False


class DeploymentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds that the preparation of a deployment may take."""

    seconds: Annotated[float, Meta(gt=0, le=3600)] = 60.0


class ChildQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The URL of a child."""

    url: Annotated[str, Meta(min_length=1, max_length=1024)]


class GraphQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The format of a graph: `dfg` (ours), `json` (DALiuGE's), or `logical`, the file of the logical graph."""

    format: Annotated[str, Meta(pattern="^(dfg|json|logical)$", description="dfg, json or logical")] = "dfg"


class CancelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a session is cancelled, and how many seconds its attempts have to clean up before they are killed."""

    reason: Annotated[str, Meta(max_length=1000)] = ""
    grace: Annotated[float, Meta(ge=0, le=3600)] = GRACE_SECONDS

    @property
    def text(self) -> str:
        """The text that is shown with the session."""
        return f"cancelled: {self.reason}" if self.reason else "cancelled"


WALLTIME_REQUEST = CancelRequest(reason=f"{STOPPED_AT_WALLTIME}; 'dropflow resume' goes on with it")
"""The request that ends a session that was stopped at its walltime."""


class ReleaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The results of a session that are not needed any more: the rows of their drops in the whole graph."""

    rows: Annotated[tuple[Annotated[int, Meta(ge=0, lt=2**31)], ...], Meta(min_length=1, max_length=MAX_CONTENTS)]


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a session that was stopped goes on.

    Attributes
    ----------
    without_missing : bool
        Go on although most of its nodes are missing. Only if they are switched off, or have lost it: a session that
        still runs on them would run twice.
    ignore_damage : bool
        Take a journal that is damaged before its end up to the damage; what came later runs again.
    until : float
        Walltime, in seconds since the epoch; see `SubmitQuery`.
    """

    without_missing: bool = False
    ignore_damage: bool = False
    until: Annotated[float, Meta(ge=0)] = 0.0


RESUME_ALL = ResumeRequest()


class RetryRequest(ResumeRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """The failed drops of a session that are tried again, or the drops that run again from any state.

    Attributes
    ----------
    drops : tuple of str
        Text ids, or ends of them, of drops in ERROR whose root causes are tried again; all by default.
    start : tuple of str
        ``from`` in JSON. Text ids, ends of them, or names of logical nodes: these drops run again with all that depends
        on them, instead of those that failed. The session must be over.
    settings : tuple of str
        ``name=value`` or ``node.name=value``: parameters of the nodes that failed, or of those in `start`. The session
        must be over.
    code : mapping of str to str
        New sources of functions, by the key of their logical node: for those that run again, or have not run. If no
        drop has failed and `start` is empty, those that were completed run again, too. The session must be over.
    if_running : bool
        Refuse a session that is over: for a manager above, which continues it on all of its nodes.
    """

    drops: tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...] = ()
    start: tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...] = ()
    settings: tuple[Annotated[str, Meta(max_length=100_000)], ...] = ()
    code: dict[str, Annotated[str, Meta(max_length=100_000)]] = {}
    if_running: bool = False

    def __post_init__(self) -> None:
        if self.start and self.drops:
            raise ValueError("either drops that failed are named, or drops from which the session runs again")


RETRY_ALL = RetryRequest()


class TimesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selection of records of attempts.

    Attributes
    ----------
    since : str
        Records that are known already: ``NODE:COUNT`` for each node, with commas between. Names are percent-encoded. Of
        other nodes, all records are sent.
    """

    since: Annotated[
        str,
        Meta(
            max_length=100_000,
            pattern=r"^$|^[^,:]+:[0-9]{1,12}(,[^,:]+:[0-9]{1,12})*$",
            description="NODE:NUMBER, separated by commas, as an answer had it",
        ),
    ] = ""

    @property
    def known(self) -> dict[str, int]:
        """Number of records that are known, by node."""
        pairs = (word.rpartition(":") for word in self.since.split(",") if word)
        return {unquote(name): int(count) for name, _, count in pairs}


ALL_TIMES = TimesQuery()


class StatisticsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many of the slowest attempts, and how many steps of the critical path, statistics list.

    With a `time`, in seconds since the epoch, they are of the attempts that had ended by then. What was moved between
    nodes is left out then: it has no times. With `waits=false`, only times by logical node and what was moved are
    computed, in a fraction of the time: nothing follows from what attempts waited for.
    """

    slowest: Annotated[int, Meta(ge=0, le=1000)] = 10
    steps: Annotated[int, Meta(ge=0, le=1000)] = 100
    time: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    waits: bool = True


DEFAULT_STATISTICS = StatisticsQuery()


class ArchiveQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The results in an archive, and its format.

    Attributes
    ----------
    format : str
        ``tar`` or ``zip``.
    text : str
        Part of the path of a result, of its drop's id or of its logical node's name, ignoring case.
    node : str
        Name of a node manager.
    """

    format: Literal["tar", "zip"] = "tar"
    text: Annotated[str, Meta(max_length=200)] = ""
    node: Annotated[str, Meta(max_length=255)] = ""

    def matches(self, result: ResultInfo) -> bool:
        """Return whether the archive has a result."""
        text = self.text.lower()
        is_text = not text or any(text in field.lower() for field in (result.path, result.oid, result.name))
        return is_text and self.node in ("", result.node)


ALL_RESULTS = ArchiveQuery()


class ComponentsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The needs of a graph (`dropflow.apps.needs`) that nodes are asked for."""

    needs: Annotated[tuple[Annotated[str, Meta(max_length=1000)], ...], Meta(max_length=MOST_NEEDS)] = ()


class ComponentsReply(msgspec.Struct, frozen=True, kw_only=True):
    """The applications that each node at or below a manager can run."""

    nodes: tuple[NodeComponents, ...]


class RemainsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a journal that is damaged before its end is read up to the damage."""

    ignore_damage: bool = False


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a session on the nodes at or below a manager, each encoded as managers exchange it."""

    parts: tuple[bytes, ...]


class EpochRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start or undo the deployment of a session with this epoch; `reason` is why it is undone."""

    epoch: int
    reason: str = ""


class DeleteQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delete a session only if its deployment is of this epoch or an older one; in any case by default."""

    epoch: int | None = None


class MemberRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that is prepared to become a member of a session, or a manager that is to be its witness.

    Attributes
    ----------
    node : str
        Its name.
    links : str
        Address of its links.
    incarnation : int
        Incarnation of its process.
    workers : float
        Attempts that it can run at a time.
    invitation : str
        The id by which a manager that is to be the witness knows this request; empty for a node.
    """

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    links: Annotated[str, Meta(max_length=1024)]
    incarnation: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    workers: Annotated[float, Meta(gt=0, le=1e9)] = 1.0
    invitation: Annotated[str, Meta(max_length=255)] = ""


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds that a node has to give its sessions away."""

    grace: Annotated[float, Meta(ge=0, le=86400)] = 600.0


DEFAULT_DRAIN = DrainRequest()


class DrainedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a node that is drained, and what happens to it."""

    session: str
    text: str


class DrainReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a drain: how each session of the node goes on, and the seconds after which its process has ended.

    Attributes
    ----------
    over : int
        Sessions that are over: their contents stay in the directory of the node, and are not copied.
    """

    node: str
    seconds: float
    sessions: tuple[DrainedSession, ...] = ()
    over: int = 0


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """A manager answers requests."""

    ready: bool = True


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """All node managers at or below a manager."""

    nodes: tuple[NodeInfo, ...]


class ChildList(msgspec.Struct, frozen=True, kw_only=True):
    """The direct children of a manager."""

    children: tuple[Child, ...]


class ProbeResultList(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a manager for the addresses that it probed, in the order of the request."""

    reaches: tuple[ProbeResult, ...]


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions, the youngest first, and what users have and may have (`dropflow.api.session_records.UserUse`)."""

    sessions: tuple[SessionInfo, ...]
    users: tuple[UserUse, ...] = ()


class FailureQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root causes that are returned: a page of all, or those of some drops.

    Attributes
    ----------
    rows : str
        Rows in the whole graph of the drops, separated by commas. Then there are no pages.
    columns : bool
        Return the numbers of all drops that are causes, and the records of lost nodes only.
    """

    rows: Annotated[
        str,
        Meta(max_length=12_000, pattern=r"^(\d{1,10}(,\d{1,10})*)?$", description="numbers, separated by commas"),
    ] = ""
    columns: bool = False

    @property
    def row_numbers(self) -> tuple[int, ...]:
        """The rows as numbers."""
        return tuple(map(int, self.rows.split(","))) if self.rows else ()


FIRST_FAILURES = FailureQuery()


class FailureList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the root causes of a session, the most harmful first.

    Attributes
    ----------
    columns : CauseColumns or None
        If they were asked for.
    total : int
        Number of all root causes.
    missing : tuple of str
        Nodes that did not answer. Their causes are those that they reported last.
    """

    failures: tuple[FailureInfo, ...]
    total: int
    offset: int = 0
    limit: int = 100
    missing: tuple[str, ...] = ()
    columns: CauseColumns | None = None

    @classmethod
    def of(cls, failures: Sequence[FailureInfo], query: FailureQuery) -> "FailureList":
        """Return what `query` selects of `failures`, which are in order."""
        drops = [failure for failure in failures if failure.row >= 0]
        if query.rows:
            wanted = {*query.row_numbers}
            selected = [drop for drop in drops if drop.row in wanted]
            return cls(failures=tuple(selected), total=len(selected), offset=query.offset, limit=query.limit)
        if query.columns:
            shown = [failure for failure in failures if failure.row < 0]
        else:
            shown = list(failures[query.offset : query.offset + query.limit])
        columns = columns_of(drops) if query.columns else None
        return cls(failures=tuple(shown), total=len(failures), offset=query.offset, limit=query.limit, columns=columns)


class ResultsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The results that are listed, their order and their number.

    Attributes
    ----------
    text, node : str
        As of archives.
    sort : str
        A column, with a minus in front in descending order; empty for the order of the graph.
    limit : int
        All (0), or the first ones.
    """

    text: Annotated[str, Meta(max_length=200)] = ""
    node: Annotated[str, Meta(max_length=255)] = ""
    sort: Annotated[
        str,
        Meta(
            pattern="^$|^-?(path|name|node|size)$",
            description="path, name, node or size; with - in front, the largest first",
        ),
    ] = ""
    limit: Annotated[int, Meta(ge=0, le=2**54)] = 0

    @property
    def is_in_order(self) -> bool:
        """Whether it asks for all results, or the first of all, in the order of the graph."""
        return not (self.text or self.node or self.sort)


EVERY_RESULT = ResultsQuery()


class ResultList(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a session that match a query, or the first of them.

    Attributes
    ----------
    missing : tuple of str
        Nodes that did not answer.
    more, more_size : int
        How many results that match there are behind those that are listed, and their bytes.
    in_stores : tuple of ResultInfo
        Results that are in stores outside of the nodes, which read them there.
    """

    results: tuple[ResultInfo, ...]
    missing: tuple[str, ...] = ()
    more: int = 0
    more_size: int = 0
    in_stores: tuple[ResultInfo, ...] = ()

    def chosen(self, query: ResultsQuery) -> "ResultList":
        """Return the list with what the query asks for: again if it was chosen by the same query before."""
        wanted = ArchiveQuery(text=query.text, node=query.node)
        results = self.results
        if query.text or query.node:
            results = tuple(filter(wanted.matches, results))
        if query.sort:
            order = _ORDERS[query.sort.removeprefix("-")]
            results = tuple(sorted(results, key=order, reverse=query.sort.startswith("-")))
        rest = results[query.limit :] if query.limit else ()
        return msgspec.structs.replace(
            self,
            results=results[: len(results) - len(rest)],
            more=self.more + len(rest),
            more_size=self.more_size + sum(result.size for result in rest),
        )


_ORDERS: dict[str, Callable[[ResultInfo], str | int]] = {
    "path": lambda result: result.path,
    "name": lambda result: result.name.casefold(),
    "node": lambda result: result.node,
    "size": lambda result: result.size,
}


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The operation is done and has no result."""


# States of drops as columns: what changed since a client last asked. Clients import it, so it does not load numpy.


class StatesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `cursor` of the answer that the client had before; empty for the states of all drops."""

    since: str = ""


class DropStates(msgspec.Struct, frozen=True, kw_only=True):
    """Drops and their states, to be applied in their order: of one drop, the last state counts.

    Attributes
    ----------
    cursor : str
        For the next request.
    drops : bytes
        Rows in the whole graph, as uint32, little-endian. Base64 in JSON.
    states : bytes
        `dropflow.states.DropState` of each of them, as uint8; of applications in WRITING `RUNNING` or `QUEUED`.
    missing : tuple of str
        Children that did not answer: the states of their drops may be old.
    """

    cursor: str = ""
    drops: bytes = b""
    states: bytes = b""
    missing: tuple[str, ...] = ()

    @property
    def rows(self) -> "npt.NDArray[np.uint32]":
        """The drops as an array."""
        import numpy as np  # noqa: PLC0415 - takes long to load

        return np.frombuffer(self.drops, dtype="<u4")

    @property
    def signs(self) -> "npt.NDArray[np.uint8]":
        """The states as an array, with the signs `RUNNING` and `QUEUED`."""
        import numpy as np  # noqa: PLC0415 - takes long to load

        return np.frombuffer(self.states, dtype=np.uint8)

    @property
    def values(self) -> "npt.NDArray[np.uint8]":
        """The states as an array of `DropState`."""
        return plain_states(self.signs)


def plain_states(signs: "npt.NDArray[np.uint8]") -> "npt.NDArray[np.uint8]":
    """Return states without the signs for what runs and what is queued: both are WRITING."""
    plain = signs.copy()
    plain[(signs == RUNNING) | (signs == QUEUED)] = DropState.WRITING
    return plain
