"""The operations of a manager's API: one table with verb, path, types and errors of each.

Everything else derives from it: the routes (`managers.routes.handlers`), the client
(`dropflow.api.client`), the OpenAPI document, and the fake manager of tests (`dropflow.testing.fake_manager`). A test
compares the table with `managers.api.Manager` and with ``docs/reference/rest.md``. To add an operation, add it here, to
the protocol and to the client.
"""

import re
from typing import Generic, TypeVar

import msgspec

from dropflow.api.contents import MEDIA_TYPE as CONTENTS_MEDIA_TYPE
from dropflow.api.contents import ContentsRequest, DataQuery, Download
from dropflow.api.logs import LogPage, LogQuery, LogTextQuery
from dropflow.api.records import (
    Child,
    ChildRequest,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    ManagerStatus,
    MomentQuery,
    NodeHistory,
    PageQuery,
    ProbeRequest,
    SessionDetail,
    SessionInfo,
    SessionMoment,
    SubmitQuery,
)
from dropflow.api.requests import (
    ArchiveQuery,
    CancelRequest,
    ChildList,
    ChildQuery,
    DeleteQuery,
    DeploymentQuery,
    Done,
    DrainReply,
    DrainRequest,
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
    StatisticsQuery,
    TimesQuery,
    WatchQuery,
)
from dropflow.api.state_records import DropStates, StatesQuery
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

__all__ = [
    "DEPLOYMENT_MEDIA_TYPE",
    "GRAPH_MEDIA_TYPE",
    "OPERATIONS",
    "Operation",
]


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
        The method of `managers.api.Manager` and of `dropflow.api.client.Client`.
    method, path : str
        Verb and path of the request. Variables of the path are arguments of the method.
    answer : type
        A struct, sent as JSON, or `Download` for anything else.
    summary : str
        One line for the OpenAPI document.
    tag : str
        Its group there.
    query, body : type or None
        Structs of the query string and of a JSON body. One of them at most.
    by_field : bool
        Whether the fields of `query` or `body` are arguments of the method, rather than the struct.
    field : str
        The field of `answer` that holds what the method returns; empty if it returns the answer.
    also : str
        Another method that is served by the same route.
    takes, gives : str
        Media types of a body and of an answer that are not JSON.
    status : int
        Of a success.
    public : bool
        Whether it needs no credential.
    for_managers : bool
        Whether `managers.api.Manager` has the method. The server itself answers the other operations.
    patience : float
        Seconds that the answer may take to begin, beyond the timeout of the client.
    repeatable : bool
        Whether a client may send it again if a kept connection turns out to be closed.
    errors : tuple of types
        What it may raise besides refusals of the request itself.
    """

    name: str
    method: str
    path: str
    answer: type[Answer_co]
    summary: str
    tag: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    by_field: bool = False
    field: str = ""
    also: str = ""
    takes: str = ""
    gives: str = ""
    status: int = 200
    public: bool = False
    for_managers: bool = True
    patience: float = 0.0
    repeatable: bool = True
    errors: tuple[type[DropflowError], ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables in the path."""
        return tuple(_VARIABLE.findall(self.path))


READY = Operation(
    name="ready",
    method="GET",
    path="/ready",
    answer=Readiness,
    summary="Whether a manager answers",
    tag="managers",
    public=True,
    for_managers=False,
)
INFO = Operation(
    name="info", method="GET", path="/api/v1/info", answer=ManagerInfo, summary="About the manager", tag="managers"
)
STATUS = Operation(
    name="status",
    method="GET",
    path="/api/v1/status",
    answer=ManagerStatus,
    summary="The manager, its nodes and its sessions, for a manager above",
    tag="managers",
)
NODES = Operation(
    name="nodes",
    method="GET",
    path="/api/v1/nodes",
    answer=NodeList,
    field="nodes",
    summary="All node managers at or below it",
    tag="managers",
)
CHILDREN = Operation(
    name="children",
    method="GET",
    path="/api/v1/children",
    answer=ChildList,
    field="children",
    summary="Its direct children",
    tag="managers",
)
ADD_CHILD = Operation(
    name="add_child",
    method="POST",
    path="/api/v1/children",
    answer=Child,
    body=ChildRequest,
    by_field=True,
    summary="Add a child",
    tag="managers",
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
    tag="managers",
    errors=(UsageError, NotFoundError),
)
DRAIN = Operation(
    name="drain",
    method="POST",
    path="/api/v1/nodes/{node}/drain",
    answer=DrainReply,
    body=DrainRequest,
    summary="Have a node give its sessions to their other nodes, and end",
    tag="managers",
    errors=(NotFoundError, LinkError),
)
NODE_HISTORY = Operation(
    name="node_history",
    method="GET",
    path="/api/v1/nodes/{node}/history",
    answer=NodeHistory,
    summary="The load of a node during the last hour",
    tag="managers",
    errors=(NotFoundError, LinkError),
)
MANAGER_LOG = Operation(
    name="manager_log",
    method="GET",
    path="/api/v1/nodes/{node}/log",
    answer=LogPage,
    query=LogQuery,
    summary="A page of the log of a manager: this one, or a node or island below it",
    tag="managers",
    errors=(NotFoundError, LinkError),
)
MANAGER_LOG_TEXT = Operation(
    name="manager_log_text",
    method="GET",
    path="/api/v1/nodes/{node}/log/text",
    answer=Download,
    query=LogTextQuery,
    gives="text/plain",
    summary="Download the log of a manager",
    tag="managers",
    for_managers=False,
    errors=(NotFoundError, LinkError),
)
PROBE = Operation(
    name="probe",
    method="POST",
    path="/api/v1/probe",
    answer=ProbeResultList,
    field="reaches",
    body=ProbeRequest,
    summary="Which other managers it can reach",
    tag="managers",
    for_managers=False,
)

SESSIONS = Operation(
    name="sessions",
    method="GET",
    path="/api/v1/sessions",
    answer=SessionList,
    field="sessions",
    summary="All sessions, the youngest first",
    tag="sessions",
)
SUBMIT = Operation(
    name="submit",
    method="POST",
    path="/api/v1/sessions",
    answer=SessionInfo,
    query=SubmitQuery,
    takes=GRAPH_MEDIA_TYPE,
    summary="Deploy a graph and start it",
    tag="sessions",
    status=201,
    patience=120.0,
    repeatable=False,
    errors=(BadFileError, BadGraphError, ConflictError, WorldError),
)
SESSION = Operation(
    name="session",
    also="watch",
    method="GET",
    path=_SESSION,
    answer=SessionDetail,
    query=WatchQuery,
    summary="One session; may wait until it changes",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
DELETE = Operation(
    name="delete",
    method="DELETE",
    path=_SESSION,
    answer=Done,
    query=DeleteQuery,
    by_field=True,
    summary="Delete a session and its files",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
CANCEL = Operation(
    name="cancel",
    method="POST",
    path=_SESSION + "/cancel",
    answer=SessionInfo,
    body=CancelRequest,
    by_field=True,
    summary="Cancel a session",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
PAUSE = Operation(
    name="pause",
    method="POST",
    path=_SESSION + "/pause",
    answer=SessionInfo,
    summary="Start nothing more of a session",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
UNPAUSE = Operation(
    name="unpause",
    method="POST",
    path=_SESSION + "/continue",
    answer=SessionInfo,
    summary="Continue a session after a pause",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
DEPLOYMENT = Operation(
    name="deployment",
    method="GET",
    path=_SESSION + "/deployment",
    answer=Download,
    gives=DEPLOYMENT_MEDIA_TYPE,
    summary="What a node needs to join a session, for a manager above",
    tag="sessions",
    errors=(NotFoundError, ConflictError, LinkError),
)
ADD_MEMBER = Operation(
    name="add_member",
    method="POST",
    path=_SESSION + "/members",
    answer=Done,
    body=MemberRequest,
    summary="Have a node that is prepared become a member, for a manager above",
    tag="sessions",
    patience=65.0,
    errors=(NotFoundError, ConflictError, LinkError),
)
REBALANCE = Operation(
    name="rebalance",
    method="POST",
    path=_SESSION + "/rebalance",
    answer=SessionInfo,
    summary="Move what has not begun, so that all nodes end at about the same time",
    tag="sessions",
    patience=65.0,
    errors=(NotFoundError, ConflictError, LinkError),
)
FORCE_CONTINUE = Operation(
    name="force_continue",
    method="POST",
    path=_SESSION + "/force-continue",
    answer=SessionInfo,
    summary="Have the nodes that are left go on without a majority",
    tag="sessions",
    patience=65.0,
    errors=(NotFoundError, ConflictError, LinkError),
)
RESUME = Operation(
    name="resume",
    method="POST",
    path=_SESSION + "/resume",
    answer=SessionInfo,
    body=ResumeRequest,
    summary="Continue a session that was stopped",
    tag="sessions",
    patience=900.0,
    repeatable=False,
    errors=(NotFoundError, ConflictError, GoneError, BadGraphError, WorldError),
)
RETRY = Operation(
    name="retry",
    method="POST",
    path=_SESSION + "/retry",
    answer=SessionInfo,
    body=RetryRequest,
    summary="Try the failed drops of a session again, while it runs or after its end; or run other drops again",
    tag="sessions",
    patience=900.0,
    repeatable=False,
    errors=(NotFoundError, ConflictError, UsageError, GoneError, BadGraphError, WorldError),
)
REMAINS = Operation(
    name="remains",
    method="GET",
    path=_SESSION + "/remains",
    answer=Remains,
    field="parts",
    query=RemainsQuery,
    by_field=True,
    summary="What is left of a session, for a manager above that continues it",
    tag="sessions",
    patience=600.0,
    errors=(NotFoundError, LinkError),
)
EVENTS = Operation(
    name="events",
    method="GET",
    path=_SESSION + "/events",
    answer=Download,
    gives=EVENTS_MEDIA_TYPE,
    summary="Changes of a session as they happen",
    tag="sessions",
    for_managers=False,
    errors=(NotFoundError,),
)
STATES = Operation(
    name="states",
    method="GET",
    path=_SESSION + "/states",
    answer=DropStates,
    query=StatesQuery,
    by_field=True,
    summary="States of all drops, or what has changed since an answer",
    tag="sessions",
    errors=(NotFoundError, GoneError, LinkError),
)
STATE_EVENTS = Operation(
    name="state_events",
    method="GET",
    path=_SESSION + "/states/events",
    answer=Download,
    gives=EVENTS_MEDIA_TYPE,
    summary="Changes of the states of drops as they happen",
    tag="sessions",
    for_managers=False,
    errors=(NotFoundError, GoneError),
)
MOMENT = Operation(
    name="moment",
    method="GET",
    path=_SESSION + "/moment",
    answer=SessionMoment,
    query=MomentQuery,
    summary="A session as it was at a moment",
    tag="sessions",
    errors=(NotFoundError, LinkError, ProtocolError),
)
FAILURES = Operation(
    name="failures",
    method="GET",
    path=_SESSION + "/failures",
    answer=FailureList,
    query=FailureQuery,
    summary="Root causes",
    tag="sessions",
    errors=(NotFoundError,),
)
RESULTS = Operation(
    name="results",
    method="GET",
    path=_SESSION + "/results",
    answer=ResultList,
    query=ResultsQuery,
    summary="Results of the session",
    tag="sessions",
    errors=(NotFoundError,),
)
CONTENTS = Operation(
    name="contents",
    method="POST",
    path=_SESSION + "/contents",
    answer=Download,
    body=ContentsRequest,
    gives=CONTENTS_MEDIA_TYPE,
    summary="Download contents",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
RELEASE = Operation(
    name="release",
    method="POST",
    path=_SESSION + "/release",
    answer=Done,
    body=ReleaseRequest,
    by_field=True,
    summary="Remove results of a session that is FINISHED",
    tag="sessions",
    errors=(NotFoundError, ConflictError, LinkError),
)
SESSION_LOG = Operation(
    name="session_log",
    method="GET",
    path=_SESSION + "/log",
    answer=LogPage,
    query=LogQuery,
    summary="A page of the lines that all drops wrote to their logs, in the order of time",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
SESSION_LOG_TEXT = Operation(
    name="session_log_text",
    method="GET",
    path=_SESSION + "/log/text",
    answer=Download,
    query=LogTextQuery,
    gives="text/plain",
    summary="Download the lines that all drops wrote to their logs, in the order of time",
    tag="sessions",
    for_managers=False,
    errors=(NotFoundError, LinkError),
)
ARCHIVE = Operation(
    name="archive",
    method="GET",
    path=_SESSION + "/results/archive",
    answer=Download,
    query=ArchiveQuery,
    gives=_BYTES,
    summary="Download results as one tar or zip file",
    tag="sessions",
    for_managers=False,
    errors=(NotFoundError, LinkError),
)
JOURNAL = Operation(
    name="journal",
    method="GET",
    path=_SESSION + "/journal",
    answer=Download,
    gives=_BYTES,
    summary="Download the journal",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
TIMES = Operation(
    name="times",
    method="GET",
    path=_SESSION + "/times",
    answer=Download,
    query=TimesQuery,
    gives=TIMES_MEDIA_TYPE,
    summary="Times of attempts that have ended, as columns",
    tag="sessions",
    errors=(NotFoundError, LinkError),
)
TIMES_ANALYSIS = Operation(
    name="times_analysis",
    method="GET",
    path=_SESSION + "/times/analysis",
    answer=Download,
    gives=TIMES_MEDIA_TYPE,
    summary="What each attempt waited for, its slack, and the critical path, as columns",
    tag="sessions",
    errors=(NotFoundError, LinkError, ProtocolError),
)
TIMES_STATISTICS = Operation(
    name="times_statistics",
    method="GET",
    path=_SESSION + "/times/statistics",
    answer=TimesStatistics,
    query=StatisticsQuery,
    summary="Times by logical node, slowest attempts, critical path, use of workers",
    tag="sessions",
    errors=(NotFoundError, LinkError, ProtocolError),
)
GRAPH = Operation(
    name="graph",
    method="GET",
    path=_SESSION + "/graph",
    answer=Download,
    query=GraphQuery,
    gives=GRAPH_MEDIA_TYPE,
    summary="Download the graph",
    tag="sessions",
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
    tag="sessions",
    errors=(BadFileError, BadGraphError, ConflictError, WorldError),
)
START = Operation(
    name="start",
    method="POST",
    path=_SESSION + "/start",
    answer=Done,
    body=EpochRequest,
    summary="Second half of a deployment",
    tag="sessions",
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
    tag="sessions",
    patience=30.0,
    errors=(WorldError,),
)

DROPS = Operation(
    name="drops",
    method="GET",
    path=_SESSION + "/drops",
    answer=DropPage,
    query=DropQuery,
    summary="A page of the drops that match",
    tag="drops",
    errors=(NotFoundError, UsageError),
)
DROP = Operation(
    name="drop",
    method="GET",
    path=_DROP,
    answer=DropDetail,
    query=PageQuery,
    summary="One drop, and a page of its neighbours",
    tag="drops",
    errors=(NotFoundError, AmbiguousError, LinkError),
)
CANCEL_DROP = Operation(
    name="cancel_drop",
    method="POST",
    path=_DROP + "/cancel",
    answer=DropDetail,
    body=CancelRequest,
    by_field=True,
    summary="Cancel a drop; the session goes on",
    tag="drops",
    errors=(NotFoundError, AmbiguousError, ConflictError, LinkError),
)
LOG = Operation(
    name="log",
    method="GET",
    path=_DROP + "/log",
    answer=Download,
    gives="text/plain",
    summary="Download the log of a drop",
    tag="drops",
    errors=(NotFoundError, AmbiguousError, LinkError),
)
DATA = Operation(
    name="data",
    method="GET",
    path=_DROP + "/data",
    answer=Download,
    query=DataQuery,
    gives=_BYTES,
    summary="Download the content of a data drop, or with the header Range a part of it (206)",
    tag="drops",
    errors=(NotFoundError, AmbiguousError, GoneError, RangeError, LinkError),
)
PREVIEW = Operation(
    name="preview",
    method="GET",
    path=_DROP + "/preview",
    answer=Preview,
    query=PreviewQuery,
    summary="A bounded part of the content of a data drop, for people: text, table, statistics",
    tag="drops",
    errors=(NotFoundError, AmbiguousError, GoneError, PreviewError, LinkError),
)
PICTURE = Operation(
    name="picture",
    method="GET",
    path=_DROP + "/picture",
    answer=Download,
    query=PreviewQuery,
    gives="image/png",
    summary="The content of a data drop as a picture",
    tag="drops",
    errors=(NotFoundError, AmbiguousError, BadFileError, GoneError, PreviewError, LinkError),
)

OPERATIONS: tuple[Operation[object], ...] = (
    READY,
    INFO,
    STATUS,
    NODES,
    CHILDREN,
    ADD_CHILD,
    REMOVE_CHILD,
    DRAIN,
    NODE_HISTORY,
    MANAGER_LOG,
    MANAGER_LOG_TEXT,
    PROBE,
    SESSIONS,
    SUBMIT,
    SESSION,
    DELETE,
    CANCEL,
    PAUSE,
    UNPAUSE,
    DEPLOYMENT,
    ADD_MEMBER,
    REBALANCE,
    FORCE_CONTINUE,
    RESUME,
    RETRY,
    REMAINS,
    EVENTS,
    STATES,
    STATE_EVENTS,
    MOMENT,
    FAILURES,
    RESULTS,
    CONTENTS,
    RELEASE,
    ARCHIVE,
    SESSION_LOG,
    SESSION_LOG_TEXT,
    JOURNAL,
    TIMES,
    TIMES_ANALYSIS,
    TIMES_STATISTICS,
    GRAPH,
    PREPARE,
    START,
    UNDO,
    DROPS,
    DROP,
    CANCEL_DROP,
    LOG,
    DATA,
    PREVIEW,
    PICTURE,
)
"""All of them, in the order of the OpenAPI document."""
