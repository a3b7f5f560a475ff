"""Rendering: the templates of ``managers/web/templates``, with the words and shapes that all of them use.

Bottle's SimpleTemplate escapes everything that ``{{...}}`` shows; nothing here shows a name unescaped.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import bottle

from dropflow.rest.schema import DropQuery, ManagerInfo
from managers.web.bars import GROUPS, grouped, segments, session_style, state_style, state_word
from managers.web.causes import causes
from managers.web.views import SessionQuery, is_over
from managers.web.wording import count, per_second, shown, size, span, stamp

__all__ = ["Pages", "api_url", "drop_url", "drops_url", "session_api", "session_url", "sessions_url"]

_FOLDER = Path(__file__).with_name("templates")


def _quoted(text: object) -> str:
    return quote(str(text), safe="")


def session_url(session: str) -> str:
    """Page of a session."""
    return f"/sessions/{_quoted(session)}"


def drop_url(session: str, drop: str | int) -> str:
    """Page of a drop, by its row or its id."""
    return f"{session_url(session)}/drops/{_quoted(drop)}"


def session_api(session: str) -> str:
    """A session in the API."""
    return f"/api/v1/sessions/{_quoted(session)}"


def api_url(session: str, drop: str | int, what: str) -> str:
    """``log`` or ``data`` of a drop in the API."""
    return f"{session_api(session)}/drops/{_quoted(drop)}/{what}"


def drops_url(session: str, query: DropQuery) -> str:
    """Page of a session that shows the drops which match `query`."""
    return session_url(session) + _asked(query, DropQuery()) + "#drops"


def sessions_url(query: SessionQuery) -> str:
    """Page of the sessions which match `query`."""
    return "/sessions" + _asked(query, SessionQuery())


def _asked(query: DropQuery | SessionQuery, default: DropQuery | SessionQuery) -> str:
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
    "count": count,
    "drop_url": drop_url,
    "grouped": grouped,
    "groups": GROUPS,
    "over": is_over,
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
