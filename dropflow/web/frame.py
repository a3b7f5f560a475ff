"""HTML pages from templates with one layout, for all servers of dropflow.

`PageTemplates` renders the templates of one package; ``templates/layout.tpl`` is the frame of every page.
Bottle's SimpleTemplate escapes everything that ``{{...}}`` shows; only the layout inserts text unescaped, the page.
"""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import bottle
import msgspec

from dropflow.api.error_pages import relative_page
from dropflow.api.logs import ALL_LINES, LAST_LINES, LEVELS, LogLine, LogPage, LogQuery, LogTextQuery, severity
from dropflow.api.routes import Request, Response, Route
from dropflow.formatting import (
    format_brief,
    format_count,
    format_duration,
    format_quantity,
    format_rate,
    format_remaining,
    format_size,
    format_stamp,
    format_time,
    plural,
    single_line,
)
from dropflow.web.known_servers import KnownServers, hop_url

_FOLDER = Path(__file__).with_name("templates")
_HTML = "text/html; charset=utf-8"
_FEWEST_PACKED_BYTES = 2048
"""Bytes of a page above which it is compressed."""
_MAIN = '<main id="main">'
"""The place where the frame of a page ends and its content begins."""

# Browsers send the origin of a form only to sites that may get the referrer; without it the server refuses the form.
_REFERRER = ("Referrer-Policy", "same-origin")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILTERS = ("text", "level", "drop", "oid", "node")


class ServerLabel(msgspec.Struct, frozen=True, kw_only=True):
    """Texts about the server in the frame of a page: in its title, at its top and its bottom, and the time there."""

    name: str = ""
    aside: str = ""
    footer: str = ""
    as_of: float = 0.0


class PageLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The frame of all pages of a server.

    Attributes
    ----------
    server : callable
        Returns the texts about the server in the frame, from the `manager` that a page was rendered with.
    navigation : sequence of (str, str)
        Words and addresses of the links at the top.
    style_sheets : sequence of str
        Files in ``/static`` besides ``dropflow.css``.
    servers : KnownServers
        The other servers of the cluster, which every page links to.
    """

    server: Callable[[Any], ServerLabel] = lambda _: ServerLabel()
    navigation: Sequence[tuple[str, str]]
    style_sheets: Sequence[str] = ()
    servers: KnownServers = KnownServers()

    def elsewhere(self) -> list[tuple[str, str]]:
        """Return words and addresses of the links to other servers: the front door, and the translator."""
        door = self.servers.door()
        links: list[tuple[str, str]] = []
        for server in self.servers.neighbours():
            if server.url == door:
                links.insert(0, ("Cluster", hop_url(server.url, "/")))
            elif server.role == "translator":
                links.append(("Translate", hop_url(server.url, "/")))
        return links


class PageTemplates:
    """The templates in one folder, each compiled when it is first used. May be used from any thread.

    Parameters
    ----------
    folder : Path
        Where they are. They may include each other and rebase on ``layout.tpl``.
    layout : PageLayout
        The frame of the pages.
    names : mapping
        Functions and values that the templates use, besides those of `dropflow.formatting`.
    """

    def __init__(self, folder: Path, *, layout: PageLayout, names: Mapping[str, object]) -> None:
        self._lookup = [str(folder), str(_FOLDER)]
        self._names = {**_NAMES, **names, "layout": layout}
        self._compiled: dict[str, Any] = {}

    def render(self, name: str, *, twin: str = "", **given: object) -> str:
        """Return the page of the template ``NAME.tpl``.

        Parameters
        ----------
        name : str
            Name of the template, without its suffix.
        twin : str
            Address of the same page as JSON; empty when there is none.
        **given
            Values that the template shows.
        """
        template = self._compiled.get(name)
        if template is None:  # no lock: two threads may both compile it, and either result can be kept
            template = self._compiled[name] = bottle.SimpleTemplate(name=f"{name}.tpl", lookup=self._lookup)
        page: str = template.render(**self._names, twin=twin, **given)
        return page


def page_response(page: str, request: Request, *, form_targets: Sequence[str] = (), status: int = 200) -> Response:
    """Return a page of HTML, compressed if the browser accepts gzip: a page of many rows shrinks to a tenth.

    Its addresses on this server become relative. Half of a surrogate pair, from the name of a file, becomes a question
    mark.

    Parameters
    ----------
    form_targets : sequence of str
        Addresses of servers to which forms of the page may be posted or redirected, besides this one. Browsers check
        the targets of redirects.
    """
    body = relative_page(page, request.target).encode(errors="replace")
    headers = [_REFERRER, ("Vary", "Accept-Encoding")]
    if form_targets:
        headers.append(("Content-Security-Policy", _policy(form_targets)))
    if len(body) > _FEWEST_PACKED_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers.append(("Content-Encoding", "gzip"))
    return Response(body=body, content_type=_HTML, status=status, headers=tuple(headers))


def streamed_page(frame: str, page: Callable[[], str], request: Request) -> Response:
    """Return a page whose first part, with its style sheets and scripts, is sent before the rest is read.

    Parameters
    ----------
    frame : str
        The page without content: what comes before its content is the same as in the page.
    page : callable
        Returns the page.
    """
    is_packed = "gzip" in request.headers.get("Accept-Encoding", "")

    packer = zlib.compressobj(1, wbits=31) if is_packed else None

    def sent(text: str) -> bytes:
        body = relative_page(text, request.target).encode(errors="replace")
        return body if packer is None else packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH)

    def parts() -> Iterator[bytes]:
        yield sent("".join(frame.partition(_MAIN)[:2]))
        yield sent(page().partition(_MAIN)[2])
        if packer is not None:
            yield packer.flush()

    headers = (_REFERRER, ("Vary", "Accept-Encoding"), *((("Content-Encoding", "gzip"),) if is_packed else ()))
    return Response(body=parts(), content_type=_HTML, headers=headers)


def redirect(address: str, *, status: int = 303, headers: Sequence[tuple[str, str]] = ()) -> Response:
    """Return a redirect to `address`: 303 to use GET, 307 to use the method of this request again.

    The server sends an address of its own as a relative one.
    """
    return Response(status=status, content_type=_HTML, headers=(_REFERRER, ("Location", address), *headers))


def shown_name(name: str, max_length: int = 400) -> str:
    """Return a name on one line; a link with an empty text could not be clicked."""
    return single_line(name, max_length) or "(no name)"


def _policy(form_targets: Sequence[str]) -> str:
    targets = " ".join(("'self'", *map(_origin, form_targets)))
    return f"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action {targets}; object-src 'none'"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


_NAMES: Mapping[str, object] = {
    "format_brief": format_brief,
    "format_count": format_count,
    "format_duration": format_duration,
    "format_remaining": format_remaining,
    "format_quantity": format_quantity,
    "format_rate": format_rate,
    "format_size": format_size,
    "format_time": format_time,
    "hop_url": hop_url,
    "plural": plural,
    "quoted": lambda text: quote(str(text), safe=""),
    "shown_name": shown_name,
    "single_line": single_line,
}


# Static files of the pages: style sheets, scripts and pictures of a folder inside a package.
#
# Every file is a route of its own and is read once, so that no path of a request reaches the file system. Browsers
# revalidate each file with the digest that they have: a new version is loaded immediately, an unchanged one is not
# sent.

STATIC = Path(__file__).with_name("static")
"""The folder of the files that all pages use: ``dropflow.css`` and ``favicon.svg``."""


def asset_routes(*folders: Path) -> list[Route]:
    """Return a public route for each style sheet, script and picture in `folders`.

    Parameters
    ----------
    folders : Path
        Such as `STATIC`. A file of a later folder replaces one of the same name.
    """
    files = {path.name: path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in _TYPES}
    return [
        Route(
            method="GET",
            path=f"/static/{name}",
            handler=_handler(path.read_bytes(), _TYPES[path.suffix]),
            summary=f"The file {name} of the pages.",
            public=True,
            tag="pages",
        )
        for name, path in files.items()
    ]


def _handler(content: bytes, content_type: str) -> Callable[[Request], Response]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = (("ETag", tag), ("Cache-Control", "no-cache"))

    def serve(call: Request) -> Response:
        known = next((value for name, value in call.headers.items() if name.lower() == "if-none-match"), "")
        if tag in known:
            return Response(status=304, content_type=content_type, headers=headers)
        return Response(body=content, content_type=content_type, headers=headers)

    return serve


# Queries of addresses, from records.


def asked(query: msgspec.Struct, default: msgspec.Struct) -> str:
    """Return the fields of a query that differ from `default`, as the end of an address."""
    fields = query.__struct_fields__
    given = {name: getattr(query, name) for name in fields if getattr(query, name) != getattr(default, name)}
    return f"?{urlencode(given)}" if given else ""


# The page of a log, for all servers: with filters, back to the first line, and live.

_WARNING, _ERROR = severity("WARNING"), severity("ERROR")


class LogSource(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a page of a log besides its lines.

    Attributes
    ----------
    name, about : str
        Name of the session, drop or manager, and a description of its log.
    heading : str
        Heading of the page.
    crumbs, tabs : tuple of (str, str)
        Words and addresses of the pages that are above this one, and beside it.
    controls : str
        Name of the template of its buttons, if it has some.
    here : str
        The part of the navigation to which the page belongs.
    page, api : str
        The addresses of what its log is below, as a page and in the API.
    nodes : tuple of str
        The nodes that lines may come from.
    origin : str
        Origin of a line besides its node; empty if there is only one.
    ends : bool
        Whether it ends with its session.
    is_live : bool
        Whether lines may be added.
    """

    name: str
    about: str
    heading: str = "Log"
    crumbs: tuple[tuple[str, str], ...]
    tabs: tuple[tuple[str, str], ...] = ()
    controls: str = ""
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
