"""HTML pages from templates with one layout, for all servers of dropflow.

`PageTemplates` renders the templates of one package; ``templates/layout.tpl`` is the frame of every page.
Bottle's SimpleTemplate escapes everything that ``{{...}}`` shows; only the layout inserts text unescaped, the page.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import bottle
import msgspec

from dropflow.formatting import (
    format_brief,
    format_count,
    format_duration,
    format_quantity,
    format_rate,
    format_remaining,
    format_size,
    format_time,
    plural,
    single_line,
)
from dropflow.rest.pages.places import Places, hop_url
from dropflow.rest.server.relative import relative_page
from dropflow.rest.server.route import Request, Response

__all__ = ["PageLayout", "PageTemplates", "page_response", "redirect", "shown_name", "streamed_page"]

_FOLDER = Path(__file__).with_name("templates")
_HTML = "text/html; charset=utf-8"
_MIN_COMPRESSED = 2048
_MAIN = '<main id="main">'
"""Where the frame of a page ends and its content begins."""

# Browsers send the origin of a form only to sites that may get the referrer; without it the server refuses the form.
_REFERRER = ("Referrer-Policy", "same-origin")


class PageLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The frame of all pages of a server.

    Attributes
    ----------
    navigation : sequence of (str, str)
        Words and addresses of the links at the top.
    style_sheets : sequence of str
        Files in ``/static`` besides ``dropflow.css``.
    places : Places
        The other servers of the cluster, which every page links to.
    """

    navigation: Sequence[tuple[str, str]]
    style_sheets: Sequence[str] = ()
    places: Places = Places()

    def elsewhere(self) -> list[tuple[str, str]]:
        """Return words and addresses of the links to other servers: the front door, and the translator."""
        door = self.places.door()
        found: list[tuple[str, str]] = []
        for place in self.places.neighbours():
            if place.url == door:
                found.insert(0, ("Cluster", hop_url(place.url, "/")))
            elif place.role == "translator":
                found.append(("Translate", hop_url(place.url, "/")))
        return found


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
            Of the template, without its suffix.
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
    if len(body) > _MIN_COMPRESSED and "gzip" in request.headers.get("Accept-Encoding", ""):
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
    "shown_name": shown_name,
    "single_line": single_line,
}
