"""Read pages as a program does: request a page and parse its HTML."""

import contextlib
import http.client
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import msgspec

_ADDRESSES = {"href", "src", "action"}


class Page(msgspec.Struct, frozen=True):
    """An answer: the path and query of the request, its status, headers (lower case) and body."""

    path: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def ask(url: str, path: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> Page:
    """Send a request as a browser that navigates; underscores in names of headers become dashes."""
    given = {"Accept": "text/html,*/*"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        with contextlib.suppress(BrokenPipeError):  # it has answered before it has read all: there is an answer
            connection.request(method, path, body or None, given)
        answer = connection.getresponse()
        answered = {name.lower(): value for name, value in answer.getheaders()}
        return Page(path, answer.status, answered, answer.read())
    finally:
        connection.close()


class _Reader(HTMLParser):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given | {name: urljoin(self._path, given[name]) for name in _ADDRESSES & given.keys()}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(page: Page) -> tuple[list[tuple[str, dict[str, str]]], str]:
    """Return the tags of a page with their attributes, and all its text. Addresses on its server are paths."""
    reader = _Reader(page.path)
    reader.feed(page.text)
    reader.close()
    return reader.tags, " ".join(reader.texts)
