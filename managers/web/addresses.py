"""Addresses of pages and of the API, with names quoted."""

from urllib.parse import quote, urlencode

from dropflow.preview.records import FIRST_LOOK, PreviewQuery
from dropflow.rest.pages.query_text import asked
from dropflow.rest.session_records import FIRST_PAGE, DropQuery, FailureInfo, PageQuery
from managers.web.views import FIRST_DROP_PAGE, DropPageQuery, NodeQuery, SessionQuery

__all__ = [
    "again_url",
    "api_url",
    "causes_url",
    "compare_url",
    "drop_url",
    "drops_url",
    "failure_url",
    "nodes_url",
    "origin_url",
    "picture_url",
    "quoted",
    "retry_url",
    "session_api",
    "session_url",
    "sessions_url",
    "timeline_url",
]


def quoted(text: object) -> str:
    """Return `text` as one segment of a path."""
    return quote(str(text), safe="")


def session_url(session: str) -> str:
    """Return the page of a session."""
    return f"/sessions/{quoted(session)}"


def causes_url(session: str, query: PageQuery = FIRST_PAGE) -> str:
    """Return the page of the root causes of a session."""
    return f"{session_url(session)}/causes{asked(query, FIRST_PAGE)}"


def drop_url(session: str, oid: str, query: DropPageQuery = FIRST_DROP_PAGE) -> str:
    """Return the page of a drop; `query` says which of its neighbours it lists, and how it shows its content."""
    return f"{session_url(session)}/drops/{quoted(oid)}{asked(query, FIRST_DROP_PAGE)}"


def origin_url(session: str, oid: str, query: PageQuery = FIRST_PAGE) -> str:
    """Return the page of what a drop was made from."""
    return f"{drop_url(session, oid)}/origin{asked(query, FIRST_PAGE)}"


def picture_url(session: str, oid: str, query: PreviewQuery = FIRST_LOOK) -> str:
    """Return the address of a drop's content as a picture, if it has one."""
    return f"{session_url(session)}/pictures/{quoted(oid)}{asked(query, FIRST_LOOK)}"


def failure_url(session: str, failure: FailureInfo) -> str:
    """Return the page of the drop that failed, or the list that shows it if only its row is known."""
    return drop_url(session, failure.drop) if failure.node else drops_url(session, DropQuery(row=failure.row))


def timeline_url(session: str) -> str:
    """Return the page of the timeline of a session."""
    return f"{session_url(session)}/timeline"


def compare_url(session: str, other: str = "") -> str:
    """Return the page that compares a session with another one, or lists sessions to choose from."""
    return f"{session_url(session)}/compare" + (f"?{urlencode({'other': other})}" if other else "")


def session_api(session: str) -> str:
    """Return the address of a session in the API."""
    return f"/api/v1/sessions/{quoted(session)}"


def api_url(session: str, oid: str, what: str) -> str:
    """Return the address of the ``log`` or the ``data`` of a drop in the API."""
    return f"{session_api(session)}/drops/{quoted(oid)}/{what}"


def retry_url(session: str, oid: str) -> str:
    """Return the page that asks whether a failed drop is tried again."""
    return f"{session_url(session)}/retry?{urlencode({'drop': oid})}"


def drops_url(session: str, query: DropQuery) -> str:
    """Return the page of a session with the drops that match `query`."""
    return session_url(session) + asked(query, DropQuery()) + "#drops"


def sessions_url(query: SessionQuery) -> str:
    """Return the page of the sessions that match `query`."""
    return "/sessions" + asked(query, SessionQuery())


def nodes_url(query: NodeQuery) -> str:
    """Return the page of the nodes that match `query`."""
    return "/nodes" + asked(query, NodeQuery())


def again_url(session: str, oid: str) -> str:
    """Return the page that asks whether a session is run again from a drop."""
    return f"{session_url(session)}/retry?{urlencode({'start': oid})}"
