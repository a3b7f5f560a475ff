"""Rendering: the templates of ``managers/web/templates``, with the words and shapes that all of them use.

Bottle's SimpleTemplate escapes everything that ``{{...}}`` shows; nothing here shows a name unescaped.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import bottle

from dropflow.rest.schema import FIRST_PAGE, DropQuery, FailureInfo, ManagerInfo, PageQuery
from managers.web.bars import GROUPS, grouped, segments, session_style, state_style, state_word
from managers.web.causes import causes
from managers.web.views import SessionQuery
from managers.web.wording import count, per_second, shown, size, span, stamp

__all__ = [
    "Pages",
    "api_url",
    "causes_url",
    "drop_url",
    "drops_url",
    "failure_url",
    "picture_url",
    "session_api",
    "session_url",
    "sessions_url",
]

_Query = DropQuery | SessionQuery | PageQuery
_FOLDER = Path(__file__).with_name("templates")


def _quoted(text: object) -> str:
    return quote(str(text), safe="")


def session_url(session: str) -> str:
    """Page of a session."""
    return f"/sessions/{_quoted(session)}"


def causes_url(session: str, query: PageQuery = FIRST_PAGE) -> str:
    """Return the page of the root causes of a session."""
    return f"{session_url(session)}/causes{_asked(query, FIRST_PAGE)}"


def drop_url(session: str, oid: str, query: PageQuery = FIRST_PAGE) -> str:
    """Return the page of a drop; `query` says which of its neighbours it lists."""
    return f"{session_url(session)}/drops/{_quoted(oid)}{_asked(query, FIRST_PAGE)}"


def picture_url(session: str, oid: str) -> str:
    """Return the address of a drop's content, if that is a picture."""
    return f"{session_url(session)}/pictures/{_quoted(oid)}"


def failure_url(session: str, failure: FailureInfo) -> str:
    """Return the page of the drop that failed, or the list that shows it if only its row is known."""
    return drop_url(session, failure.drop) if failure.node else drops_url(session, DropQuery(row=failure.row))


def session_api(session: str) -> str:
    """A session in the API."""
    return f"/api/v1/sessions/{_quoted(session)}"


def api_url(session: str, oid: str, what: str) -> str:
    """``log`` or ``data`` of a drop in the API."""
    return f"{session_api(session)}/drops/{_quoted(oid)}/{what}"


def drops_url(session: str, query: DropQuery) -> str:
    """Page of a session that shows the drops which match `query`."""
    return session_url(session) + _asked(query, DropQuery()) + "#drops"


def sessions_url(query: SessionQuery) -> str:
    """Page of the sessions which match `query`."""
    return "/sessions" + _asked(query, SessionQuery())


def _asked(query: _Query, default: _Query) -> str:
    fields = query.__struct_fields__
    given = {name: getattr(query, name) for name in fields if getattr(query, name) != getattr(default, name)}
    return f"?{urlencode(given)}" if given else ""


class Pages:
    """The templates, each compiled when it is first needed. May be used from any thread."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}

    def render(self, name: str, *, manager: ManagerInfo, twin: str = "", **given: object) -> str:
        """The page ``templates/NAME.tpl``.

        Parameters
        ----------
        name : str
            Of the template, without its suffix.
        manager : ManagerInfo
            Who answers.
        twin : str
            Address of the same page as JSON; empty when there is none.
        **given
            What the template shows.
        """
        if name not in self._compiled:  # two threads may both compile it; either result serves
            self._compiled[name] = bottle.SimpleTemplate(name=f"{name}.tpl", lookup=[str(_FOLDER)])
        page: str = self._compiled[name].render(**_SHARED, manager=manager, twin=twin, **given)
        return page


_SHARED: dict[str, object] = {
    "api_url": api_url,
    "causes": causes,
    "causes_url": causes_url,
    "count": count,
    "drop_url": drop_url,
    "failure_url": failure_url,
    "grouped": grouped,
    "groups": GROUPS,
    "per_second": per_second,
    "quoted": _quoted,
    "segments": segments,
    "session_api": session_api,
    "session_style": session_style,
    "session_url": session_url,
    "shown": shown,
    "size": size,
    "span": span,
    "stamp": stamp,
    "state_style": state_style,
    "state_word": state_word,
}
