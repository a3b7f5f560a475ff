"""The operations of a manager's API: one table with verb, path, types and errors of each.

Everything else derives from it: the routes (`managers.routes.handlers`), the requests of the client
(`dropflow.api.client`), the OpenAPI document and the site's page of operations. A test compares the table with
`dropflow.api.manager.Manager`. To add an operation, add it here and to `Manager`.
"""

import re
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from dropflow.api.contents_answer import MEDIA_TYPE as CONTENTS_MEDIA_TYPE
from dropflow.api.contents_answer import ContentsRequest, DataQuery, Download
from dropflow.api.drop_records import DropDetail, DropPage, DropQuery, PageQuery
from dropflow.api.logs import LogPage, LogQuery, LogTextQuery
from dropflow.api.node_records import Child, ChildRequest, ManagerInfo, ManagerStatus, NodeHistory, ProbeRequest
from dropflow.api.requests import (
    ArchiveQuery,
    CancelRequest,
    ChildList,
    ChildQuery,
    ComponentsReply,
    ComponentsRequest,
    DeleteQuery,
    DeploymentQuery,
    Done,
    DrainReply,
    DrainRequest,
    DropStates,
    EpochRequest,
    FailureList,
    FailureQuery,
    GraphQuery,
    MemberRequest,
    NodeList,
    ProbeResultList,
    Readiness,
    ReleaseRequest,
    Remains,
    RemainsQuery,
    ResultList,
    ResultsQuery,
    ResumeRequest,
    RetryRequest,
    SessionList,
    StatesQuery,
    StatisticsQuery,
    SubmitQuery,
    TimesQuery,
    WatchQuery,
)
from dropflow.api.session_records import MomentQuery, SessionDetail, SessionInfo, SessionMoment
from dropflow.errors import (
    AmbiguousError,
    BadFileError,
    BadGraphError,
    ConflictError,
    DropflowError,
    GoneError,
    LinkError,
    NotFoundError,
    PreviewError,
    ProtocolError,
    RangeError,
    UsageError,
    WorldError,
)
from dropflow.preview.source import Preview, PreviewQuery
from dropflow.times.statistics import TimesStatistics

GRAPH_MEDIA_TYPE = "application/vnd.dropflow.graph"
DEPLOYMENT_MEDIA_TYPE = "application/vnd.dropflow.deployment"
TIMES_MEDIA_TYPE = "application/vnd.dropflow.times"
EVENTS_MEDIA_TYPE = "text/event-stream"
_BYTES = "application/octet-stream"

Answer_co = TypeVar("Answer_co", covariant=True)

_VARIABLE = re.compile(r"\{(\w+)\}")
_SESSION = "/api/v1/sessions/{session}"
_DROP = _SESSION + "/drops/{drop}"


class Operation(msgspec.Struct, Generic[Answer_co], frozen=True, kw_only=True):
    """One operation.

    Attributes
    ----------
    name : str
        The method of `dropflow.api.manager.Manager`.
    method, path : str
        Verb and path of the request. Variables of the path are arguments of the method.
    answer : type
        A struct, sent as JSON, or `Download` for anything else.
    summary : str
        One line for the OpenAPI document.
    query, body : type or None
        Structs of the query string and of a JSON body. One of them at most.
    by_field : bool
        Whether the fields of `query` or `body` are arguments of the method, rather than the struct.
    field : str
        The field of `answer` that holds what the method returns; empty if it returns the answer.
    takes, gives : str
        Media types of a body and of an answer that are not JSON.
    status : int
        HTTP status of a success.
    public : bool
        Whether it needs no credential.
    users : str
        For which users their key is enough, if the method is not GET: ``all``, the ``owner`` of the session, or
        ``none`` for what managers do among each other.
    to : str
        Who carries it out for an island or a master: the node that is named in the path, the node of the drop, a member
        of the session, or all children, whose answers are merged; ``own``: code of its own. What is to the ``server``
        is done by the server of any manager, and `dropflow.api.manager.Manager` has no method for it.
    patience : float
        Seconds that the answer may take to begin, beyond the timeout of the client.
    waits : bool
        Whether it may take the seconds in the field ``seconds`` of its query or body in addition.
    repeatable : bool
        Whether a client may send it again if a kept connection turns out to be closed.
    errors : tuple of types
        Errors that it may raise besides refusals of the request itself.
    """

    name: str
    method: str = "GET"
    path: str
    answer: type[Answer_co]
    summary: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    by_field: bool = False
    field: str = ""
    takes: str = ""
    gives: str = ""
    status: int = 200
    public: bool = False
    users: Literal["none", "all", "owner"] = "none"
    to: Literal["own", "node", "drop", "member", "all", "server"] = "own"
    patience: float = 0.0
    waits: bool = False
    repeatable: bool = True
    errors: tuple[type[DropflowError], ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables in the path."""
        return tuple(_VARIABLE.findall(self.path))

    @property
    def tag(self) -> str:
        """Its group in the OpenAPI document."""
        groups = (group for group in ("drops", "sessions") if f"/{group}" in self.path)
        return next(groups, "managers")

    def given(self, arguments: Mapping[str, Any]) -> msgspec.Struct | None:
        """Return its query or body, from the arguments of its method that are not in the path."""
        kind = self.query or self.body
        if kind is not None and self.by_field:
            return kind(**arguments)
        return next(iter(arguments.values()), None)

    def answered(self, value: Any) -> Answer_co:
        """Return what its method returned as its answer."""
        if self.answer is Done:
            return self.answer()
        return self.answer(**{self.field: value}) if self.field else value


READY = Operation(
    name="ready",
    path="/ready",
    answer=Readiness,
    summary="Whether a manager answers",
    public=True,
    to="server",
)
INFO = Operation(name="info", path="/api/v1/info", answer=ManagerInfo, summary="About the manager")
STATUS = Operation(
    name="status",
    path="/api/v1/status",
    answer=ManagerStatus,
    summary="The manager, its nodes and its sessions, for a manager above",
)
NODES = Operation(
    name="nodes",
    path="/api/v1/nodes",
    answer=NodeList,
    field="nodes",
    summary="All node managers at or below it",
)
COMPONENTS = Operation(
    name="components",
    method="POST",
    users="all",
    path="/api/v1/components",
    answer=ComponentsReply,
    field="nodes",
    body=ComponentsRequest,
    by_field=True,
    summary="The components that nodes can run, and the needs of a graph that they lack",
)
CHILDREN = Operation(
    name="children",
    path="/api/v1/children",
    answer=ChildList,
    field="children",
    summary="Its direct children",
)
ADD_CHILD = Operation(
    name="add_child",
    method="POST",
    path="/api/v1/children",
    answer=Child,
    body=ChildRequest,
    by_field=True,
    summary="Add a child",
    status=201,
    errors=(UsageError,),
)
REMOVE_CHILD = Operation(
    name="remove_child",
    method="DELETE",
    path="/api/v1/children",
    answer=Done,
    query=ChildQuery,
    by_field=True,
    summary="Remove a child",
    errors=(UsageError, NotFoundError),
)
DRAIN = Operation(
    name="drain",
    method="POST",
    path="/api/v1/nodes/{node}/drain",
    answer=DrainReply,
    body=DrainRequest,
    summary="Have a node give its sessions to their other nodes, and end",
    to="node",
    errors=(NotFoundError, LinkError),
)
NODE_HISTORY = Operation(
    name="node_history",
    path="/api/v1/nodes/{node}/history",
    answer=NodeHistory,
    summary="The load of a node during the last hour",
    to="node",
    errors=(NotFoundError, LinkError),
)
MANAGER_LOG = Operation(
    name="manager_log",
    path="/api/v1/nodes/{node}/log",
    answer=LogPage,
    query=LogQuery,
    summary="A page of the log of a manager: this one, or a node or island below it",
    to="node",
    waits=True,
    errors=(NotFoundError, LinkError),
)
MANAGER_LOG_TEXT = Operation(
    name="manager_log_text",
    path="/api/v1/nodes/{node}/log/text",
    answer=Download,
    query=LogTextQuery,
    gives="text/plain",
    summary="Download the log of a manager",
    to="server",
    errors=(NotFoundError, LinkError),
)
PROBE = Operation(
    name="probe",
    method="POST",
    users="all",
    path="/api/v1/probe",
    answer=ProbeResultList,
    field="reaches",
    body=ProbeRequest,
    summary="Which other managers it can reach",
    waits=True,
    to="server",
)
SESSIONS = Operation(
    name="sessions",
    path="/api/v1/sessions",
    answer=SessionList,
    field="sessions",
    summary="All sessions, the youngest first",
)
SUBMIT = Operation(
    name="submit",
    method="POST",
    users="all",
    path="/api/v1/sessions",
    answer=SessionInfo,
    query=SubmitQuery,
    takes=GRAPH_MEDIA_TYPE,
    summary="Deploy a graph and start it",
    status=201,
    patience=900.0,
    repeatable=False,
    errors=(BadFileError, BadGraphError, ConflictError, WorldError),
)
SESSION = Operation(
    name="session",
    path=_SESSION,
    answer=SessionDetail,
    query=WatchQuery,
    summary="One session; may wait until it changes",
    waits=True,
    errors=(NotFoundError, LinkError),
)
DELETE = Operation(
    name="delete",
    method="DELETE",
    users="owner",
    path=_SESSION,
    answer=Done,
    query=DeleteQuery,
    by_field=True,
    summary="Delete a session and its files",
    errors=(NotFoundError, LinkError),
)
CANCEL = Operation(
    name="cancel",
    method="POST",
    users="owner",
    path=_SESSION + "/cancel",
    answer=SessionInfo,
    body=CancelRequest,
    by_field=True,
    summary="Cancel a session",
    errors=(NotFoundError, LinkError),
)
PAUSE = Operation(
    name="pause",
    method="POST",
    users="owner",
    path=_SESSION + "/pause",
    answer=SessionInfo,
    summary="Start nothing more of a session",
    errors=(NotFoundError, LinkError),
)
UNPAUSE = Operation(
    name="unpause",
    method="POST",
    users="owner",
    path=_SESSION + "/continue",
    answer=SessionInfo,
    summary="Continue a session after a pause",
    errors=(NotFoundError, LinkError),
)
DEPLOYMENT = Operation(
    name="deployment",
    path=_SESSION + "/deployment",
    answer=Download,
    gives=DEPLOYMENT_MEDIA_TYPE,
    summary="What a node needs to join a session, for a manager above",
    to="member",
    errors=(NotFoundError, ConflictError, LinkError),
)
ADD_MEMBER = Operation(
    name="add_member",
    method="POST",
    path=_SESSION + "/members",
    answer=Done,
    body=MemberRequest,
    summary="Have a node that is prepared become a member, for a manager above",
    to="member",
    patience=65.0,
    errors=(NotFoundError, ConflictError, LinkError),
)
REBALANCE = Operation(
    name="rebalance",
    method="POST",
    users="owner",
    path=_SESSION + "/rebalance",
    answer=SessionInfo,
    summary="Move drops that have not begun, so that all nodes end at about the same time",
    to="member",
    patience=65.0,
    errors=(NotFoundError, ConflictError, LinkError),
)
FORCE_CONTINUE = Operation(
    name="force_continue",
    method="POST",
    users="owner",
    path=_SESSION + "/force-continue",
    answer=SessionInfo,
    summary="Have the nodes that are left go on without a majority",
    to="member",
    patience=65.0,
    errors=(NotFoundError, ConflictError, LinkError),
)
RESUME = Operation(
    name="resume",
    method="POST",
    users="owner",
    path=_SESSION + "/resume",
    answer=SessionInfo,
    body=ResumeRequest,
    summary="Continue a session that was stopped",
    patience=900.0,
    repeatable=False,
    errors=(NotFoundError, ConflictError, GoneError, BadGraphError, WorldError),
)
RETRY = Operation(
    name="retry",
    method="POST",
    users="owner",
    path=_SESSION + "/retry",
    answer=SessionInfo,
    body=RetryRequest,
    summary="Try the failed drops of a session again, while it runs or after its end; or run other drops again",
    patience=900.0,
    repeatable=False,
    errors=(NotFoundError, ConflictError, UsageError, GoneError, BadGraphError, WorldError),
)
REMAINS = Operation(
    name="remains",
    path=_SESSION + "/remains",
    answer=Remains,
    field="parts",
    query=RemainsQuery,
    by_field=True,
    summary="What is left of a session, for a manager above that continues it",
    patience=600.0,
    errors=(NotFoundError, LinkError),
)
EVENTS = Operation(
    name="events",
    path=_SESSION + "/events",
    answer=Download,
    gives=EVENTS_MEDIA_TYPE,
    summary="Changes of a session as they happen",
    to="server",
    errors=(NotFoundError,),
)
STATES = Operation(
    name="states",
    path=_SESSION + "/states",
    answer=DropStates,
    query=StatesQuery,
    by_field=True,
    summary="States of all drops, or what has changed since an answer",
    errors=(NotFoundError, GoneError, LinkError),
)
STATE_EVENTS = Operation(
    name="state_events",
    path=_SESSION + "/states/events",
    answer=Download,
    gives=EVENTS_MEDIA_TYPE,
    summary="Changes of the states of drops as they happen",
    to="server",
    errors=(NotFoundError, GoneError),
)
MOMENT = Operation(
    name="moment",
    path=_SESSION + "/moment",
    answer=SessionMoment,
    query=MomentQuery,
    summary="A session as it was at a moment",
    errors=(NotFoundError, LinkError, ProtocolError),
)
FAILURES = Operation(
    name="failures",
    path=_SESSION + "/failures",
    answer=FailureList,
    query=FailureQuery,
    summary="Root causes",
    errors=(NotFoundError,),
)
RESULTS = Operation(
    name="results",
    path=_SESSION + "/results",
    answer=ResultList,
    query=ResultsQuery,
    summary="Results of the session",
    errors=(NotFoundError,),
)
CONTENTS = Operation(
    name="contents",
    method="POST",
    users="all",
    path=_SESSION + "/contents",
    answer=Download,
    body=ContentsRequest,
    gives=CONTENTS_MEDIA_TYPE,
    summary="Download contents",
    errors=(NotFoundError, LinkError),
)
RELEASE = Operation(
    name="release",
    method="POST",
    users="owner",
    path=_SESSION + "/release",
    answer=Done,
    body=ReleaseRequest,
    by_field=True,
    summary="Remove results of a session that is FINISHED",
    errors=(NotFoundError, ConflictError, LinkError),
)
ARCHIVE = Operation(
    name="archive",
    path=_SESSION + "/results/archive",
    answer=Download,
    query=ArchiveQuery,
    gives=_BYTES,
    summary="Download results as one tar or zip file",
    to="server",
    errors=(NotFoundError, LinkError),
)
SESSION_LOG = Operation(
    name="session_log",
    path=_SESSION + "/log",
    answer=LogPage,
    query=LogQuery,
    summary="A page of the lines that all drops wrote to their logs, in the order of time",
    to="all",
    waits=True,
    errors=(NotFoundError, LinkError),
)
SESSION_LOG_TEXT = Operation(
    name="session_log_text",
    path=_SESSION + "/log/text",
    answer=Download,
    query=LogTextQuery,
    gives="text/plain",
    summary="Download the lines that all drops wrote to their logs, in the order of time",
    to="server",
    errors=(NotFoundError, LinkError),
)
JOURNAL = Operation(
    name="journal",
    path=_SESSION + "/journal",
    answer=Download,
    gives=_BYTES,
    summary="Download the journal",
    to="all",
    errors=(NotFoundError, LinkError),
)
TIMES = Operation(
    name="times",
    path=_SESSION + "/times",
    answer=Download,
    query=TimesQuery,
    gives=TIMES_MEDIA_TYPE,
    summary="Times of attempts that have ended, as columns",
    to="all",
    errors=(NotFoundError, LinkError),
)
TIMES_ANALYSIS = Operation(
    name="times_analysis",
    path=_SESSION + "/times/analysis",
    answer=Download,
    gives=TIMES_MEDIA_TYPE,
    summary="What each attempt waited for, its slack, and the critical path, as columns",
    errors=(NotFoundError, LinkError, ProtocolError),
)
TIMES_STATISTICS = Operation(
    name="times_statistics",
    path=_SESSION + "/times/statistics",
    answer=TimesStatistics,
    query=StatisticsQuery,
    summary="Times by logical node, slowest attempts, critical path, use of workers",
    errors=(NotFoundError, LinkError, ProtocolError),
)
GRAPH = Operation(
    name="graph",
    path=_SESSION + "/graph",
    answer=Download,
    query=GraphQuery,
    gives=GRAPH_MEDIA_TYPE,
    summary="Download the graph",
    errors=(NotFoundError, LinkError),
)
PREPARE = Operation(
    name="prepare",
    method="PUT",
    path=_SESSION + "/deployment",
    answer=Done,
    query=DeploymentQuery,
    takes=DEPLOYMENT_MEDIA_TYPE,
    summary="First half of a deployment, by a manager above",
    waits=True,
    errors=(BadFileError, BadGraphError, ConflictError, WorldError),
)
START = Operation(
    name="start",
    method="POST",
    path=_SESSION + "/start",
    answer=Done,
    body=EpochRequest,
    by_field=True,
    summary="Second half of a deployment",
    patience=30.0,
    errors=(NotFoundError, ConflictError, WorldError),
)
UNDO = Operation(
    name="undo",
    method="POST",
    path=_SESSION + "/undo",
    answer=Done,
    body=EpochRequest,
    by_field=True,
    summary="Undo a deployment",
    patience=30.0,
    errors=(WorldError,),
)
DROPS = Operation(
    name="drops",
    path=_SESSION + "/drops",
    answer=DropPage,
    query=DropQuery,
    summary="A page of the drops that match",
    errors=(NotFoundError, UsageError),
)
DROP = Operation(
    name="drop",
    path=_DROP,
    answer=DropDetail,
    query=PageQuery,
    summary="One drop, and a page of its neighbours",
    errors=(NotFoundError, AmbiguousError, LinkError),
)
CANCEL_DROP = Operation(
    name="cancel_drop",
    method="POST",
    users="owner",
    path=_DROP + "/cancel",
    answer=DropDetail,
    body=CancelRequest,
    by_field=True,
    summary="Cancel a drop; the session goes on",
    to="drop",
    errors=(NotFoundError, AmbiguousError, ConflictError, LinkError),
)
LOG = Operation(
    name="log",
    path=_DROP + "/log",
    answer=Download,
    gives="text/plain",
    summary="Download the log of a drop",
    to="drop",
    errors=(NotFoundError, AmbiguousError, LinkError),
)
DATA = Operation(
    name="data",
    path=_DROP + "/data",
    answer=Download,
    query=DataQuery,
    gives=_BYTES,
    summary="Download the content of a data drop, or with the header Range a part of it (206)",
    errors=(NotFoundError, AmbiguousError, GoneError, RangeError, LinkError),
)
PREVIEW = Operation(
    name="preview",
    path=_DROP + "/preview",
    answer=Preview,
    query=PreviewQuery,
    summary="A bounded part of the content of a data drop, for people: text, table, statistics",
    to="drop",
    errors=(NotFoundError, AmbiguousError, GoneError, PreviewError, LinkError),
)
PICTURE = Operation(
    name="picture",
    path=_DROP + "/picture",
    answer=Download,
    query=PreviewQuery,
    gives="image/png",
    summary="The content of a data drop as a picture",
    to="drop",
    errors=(NotFoundError, AmbiguousError, BadFileError, GoneError, PreviewError, LinkError),
)

OPERATIONS: tuple[Operation[object], ...] = tuple(value for value in vars().values() if isinstance(value, Operation))
"""All of the above, in the order of the OpenAPI document."""

WATCH = msgspec.structs.replace(SESSION, name="watch", by_field=True)
"""The method that waits for a change. The route of `SESSION` serves it."""
