"""A translator behind its server, and requests as EAGLE sends them."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from dropflow.api.auth import cookie_value
from dropflow.api.routes import StreamSlots
from tests.fake_manager import FakeManager
from translator.web.translator_service import TranslatorService

TOKEN = "a token of the tests"
COOKIE = f"dropflow={cookie_value(TOKEN)}"
LINKED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""Headers that a browser sends when it follows a link on another site."""

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
EAGLE = {
    "algo": "metis",
    "test": "false",
    "num_islands": "0",
    "num_par": "1",
    "par_label": "Partition",
    "max_load_imb": "100",
    "max_cpu": "8",
    "num_parallel_task_streams": "1",
    "rmode": "0",
}


@dataclass(frozen=True)
class Reply:
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Served:
    """A translator behind its server, and a plain HTTP client that follows no redirects."""

    def __init__(
        self, url: str, service: TranslatorService, streams: StreamSlots, *, manager: FakeManager, manager_url: str
    ) -> None:
        self.url, self.service, self.streams = url, service, streams
        self.manager, self.manager_url = manager, manager_url
        self.token = TOKEN

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, str] | None = None,
        *,
        token: bool = False,
        **headers: str,
    ) -> Reply:
        """Send one request; a mapping is sent as a form. Underscores in names of headers become dashes.

        The answer has a relative address of a redirect as a path.
        """
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, Mapping):
            body = urlencode(body).encode()
            given.setdefault("Content-Type", "application/x-www-form-urlencoded")
        if token:
            given["Authorization"] = f"Bearer {TOKEN}"
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            given = dict(answer.headers)
            if "Location" in given and "://" not in given["Location"]:
                given["Location"] = urljoin(path, given["Location"])
            return Reply(answer.status, given, answer.read())
        finally:
            connection.close()

    def translate(self, graph: bytes | Path, **query: str) -> dict[str, Any]:
        """Translate a graph and return the JSON of the translation."""
        data = graph.read_bytes() if isinstance(graph, Path) else graph
        path = "/api/v1/translations?" + urlencode({"seconds": "60", **query})
        reply = self.ask("POST", path, data, token=True)
        assert reply.status == 202, reply.text
        info: dict[str, Any] = reply.json()
        assert info["report"] is not None
        return info

    def eagle(self, graph: bytes | Path, name: str = "hello.graph", **fields: str) -> Reply:
        """Post a graph as a browser does from EAGLE's page, and return the answer."""
        text = graph.read_text() if isinstance(graph, Path) else graph.decode()
        form = {"json_data": text, "lg_name": name, **EAGLE, **fields}
        return self.ask("POST", "/gen_pgt", form, Origin="http://localhost:8888", **LINKED)

    def page(self, reply: Reply) -> str:
        """Return the page to which a post redirects, once the translation is over."""
        assert reply.status == 303, reply.text
        path = reply.headers["Location"]
        self.service.get(path.rpartition("/")[2].partition("?")[0], seconds=60)
        return self.ask("GET", path, Accept="text/html", **LINKED).text
