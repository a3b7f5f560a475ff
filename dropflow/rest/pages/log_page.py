"""The page of a log, for all servers: with filters, back to the first line, and live."""

import msgspec

from dropflow.formatting import format_stamp
from dropflow.logs.records import ALL_LINES, LAST_LINES, LEVELS, LogLine, LogPage, LogQuery, LogTextQuery, severity
from dropflow.rest.pages.query_text import asked

__all__ = ["LogSource", "shown_log"]

_FILTERS = ("text", "level", "drop", "oid", "node")
_WARNING, _ERROR = severity("WARNING"), severity("ERROR")


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of a log has besides its lines.

    Attributes
    ----------
    name, about : str
        Of the session, drop or manager, and what its log has.
    crumbs : tuple of (str, str)
        Words and addresses of the pages that are above this one.
    here : str
        The part of the navigation to which the page belongs.
    page, api : str
        The addresses of what its log is below, as a page and in the API.
    nodes : tuple of str
        The nodes that lines may come from.
    origin : str
        What a line comes from besides its node; empty if there is only one.
    ends : bool
        Whether it ends with its session.
    is_live : bool
        Whether lines may be added.
    """

    name: str
    about: str
    crumbs: tuple[tuple[str, str], ...]
    here: str
    page: str
    api: str
    nodes: tuple[str, ...] = ()
    origin: str
    ends: bool = False
    is_live: bool


def shown_log(source: LogSource, query: LogQuery, log: LogPage) -> tuple[dict[str, object], str]:
    """Return what the template ``log.tpl`` shows, and the address of the same as JSON."""
    filters = LogTextQuery(**{field: getattr(query, field) for field in _FILTERS})
    own = f"{source.page}/log"

    def address(*, before: str = "") -> str:
        return own + asked(LogQuery(**msgspec.structs.asdict(filters), before=before), LAST_LINES)

    shown: dict[str, object] = {
        "source": source,
        "query": query,
        "log": log,
        "address": address,
        "download": f"{source.api}/log/text{asked(filters, ALL_LINES)}",
        "levels": LEVELS,
        "style_of": _style,
        "moment_of": _moment,
        "is_live": source.is_live and not query.before,
    }
    return shown, address(before=query.before).replace(own, f"{own}.json", 1)


def _style(line: LogLine) -> str:
    """Return the class of a line."""
    return "error" if severity(line.level) >= _ERROR else "warning" if severity(line.level) >= _WARNING else "plain"


def _moment(line: LogLine) -> str:
    return format_stamp(line.time).replace("T", " ")
