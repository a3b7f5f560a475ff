"""The templates of a manager's pages, ``managers/web/templates``, and the names that they use."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from msgspec import Struct, structs

from dropflow.api.drop_records import FIRST_PAGE, DropQuery, PageQuery
from dropflow.api.node_records import ManagerInfo, cores_of_hosts
from dropflow.api.routes import Request, Response
from dropflow.api.session_records import FailureInfo
from dropflow.formatting import DASH, format_quantity, with_plain_lines
from dropflow.graph.drop_counts import failed_words
from dropflow.preview.source import FIRST_LOOK, PreviewQuery
from dropflow.web.cause_groups import causes
from dropflow.web.comparison import spelled
from dropflow.web.frame import PageLayout, PageTemplates, ServerLabel, asked, page_response, shown_name
from dropflow.web.known_servers import KnownServers
from dropflow.web.views import (
    GROUPS,
    VALUE,
    FormField,
    grouped,
    node_style,
    segments,
    session_style,
    state_style,
    state_word,
    traffic_grid,
)
from managers.web.views import FIRST_DROP_PAGE, RUN_AGAIN, TRY_AGAIN, DropPageQuery, ManagerView, session_actions

SESSIONS = (("Sessions", "/sessions"),)
"""The way to a session, at the top of its pages."""
_LARGE_RATIO = 100
"""Ratio from which no decimals are shown."""


# Addresses of pages and of the API, with names quoted.


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
    """Return the page of a drop; `query` is which of its neighbours the page lists, and how it shows the content."""
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


def drops_url(session: str, query: DropQuery) -> str:
    """Return the page of a session with the drops that match `query`."""
    return session_url(session) + asked(query, DropQuery()) + "#drops"


def _label(manager: ManagerInfo) -> ServerLabel:
    """Return the texts about a manager in the frame: its role and name, once if they are the same word."""
    name = shown_name(manager.name, 60)
    return ServerLabel(
        name=name,
        aside=name if name == manager.role else f"{manager.role} {name}",
        footer=f"dropflow {manager.version} on {shown_name(manager.host, 80)}",
        as_of=manager.time,
    )


def session_tabs(session: str) -> tuple[tuple[str, str], ...]:
    """Return words and addresses of the pages of a session."""
    own = session_url(session)
    return ("Overview", own), *((word, f"{own}/{word.lower()}") for word in ("Graph", "Timeline", "Log", "Results"))


def drop_label(name: str, oid: str) -> str:
    """Return the name of a drop for people: that of its logical node, and its indices if there are several.

    Commands take it in place of the id (`dropflow.graph.text_ids.drops_named`).
    """
    indices = oid.rpartition("_")[2].split("-")
    if not all(index.isdecimal() for index in indices):
        return name or oid
    return f"{name} {'-'.join(indices[1:])}" if len(indices) > 1 else name or oid


def _ratio_text(ratio: float | None) -> str:
    """Return a ratio of two numbers: ``× 1.25``; a dash if there is none."""
    return DASH if ratio is None else f"× {format_quantity(round(ratio, 2 if ratio < _LARGE_RATIO else 0))}"


def value_fields(parameters: Mapping[str, str]) -> list[FormField]:
    """Return the fields of a form for parameters of a drop."""
    return [
        FormField(
            name=f"{VALUE}{name}",
            title=name,
            value=value,
            kind="lines" if name == "func_code" or "\n" in with_plain_lines(value) else "text",
        )
        for name, value in parameters.items()
    ]


_NAMES: dict[str, object] = {
    "api_url": api_url,
    "picture_url": picture_url,
    "causes": causes,
    "causes_url": causes_url,
    "compare_url": compare_url,
    "cores_of_hosts": cores_of_hosts,
    "drop_label": drop_label,
    "drop_url": drop_url,
    "failed_words": failed_words,
    "failure_url": failure_url,
    "grouped": grouped,
    "groups": GROUPS,
    "origin_url": origin_url,
    "ratio_text": _ratio_text,
    "segments": segments,
    "RUN_AGAIN": RUN_AGAIN,
    "SESSIONS": SESSIONS,
    "TRY_AGAIN": TRY_AGAIN,
    "value_fields": value_fields,
    "session_actions": session_actions,
    "session_api": session_api,
    "session_style": session_style,
    "session_tabs": session_tabs,
    "session_url": session_url,
    "spelled": spelled,
    "node_style": node_style,
    "state_style": state_style,
    "state_word": state_word,
    "timeline_url": timeline_url,
    "traffic_grid": traffic_grid,
}


def manager_templates(servers: KnownServers | None = None) -> PageTemplates:
    """Return the templates; each page shows the `manager`, a `ManagerInfo`, and links to other servers (`servers`)."""
    navigation = (("Overview", "/"), ("Nodes", "/nodes"), ("Sessions", "/sessions"), ("Submit", "/submit"))
    layout = PageLayout(
        server=_label,
        navigation=navigation,
        style_sheets=("timeline.css", "traffic.css"),
        servers=servers or KnownServers(),
    )
    return PageTemplates(Path(__file__).with_name("templates"), layout=layout, names=_NAMES)


def view_page(
    templates: PageTemplates,
    call: Request,
    template: str,
    view: ManagerView,
    own: str,
    *,
    first: Struct,
    **more: object,
) -> Response:
    """Return the page of what `own` shows for the query of a call; its twin is the same as JSON.

    The template gets `own`, `address` of another part of a list, and `sort_address` of another order.

    Parameters
    ----------
    own : str
        The address without a query.
    first : Struct
        The query of the address alone.
    """

    def changed(**fields: object) -> str:
        known = {name: value for name, value in fields.items() if name in call.query.__struct_fields__}
        return own + asked(structs.replace(call.query, **known), first)

    page = templates.render(
        template,
        manager=view.manager,
        twin=f"{own}.json{asked(call.query, first)}",
        view=view,
        own=own,
        address=lambda offset: changed(offset=offset),
        sort_address=lambda sort: changed(sort=sort, offset=0),
        **more,
    )
    return page_response(page, call)
