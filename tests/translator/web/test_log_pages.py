"""The log of the translator, as page and as text."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.translator.web.served import TOKEN, Served

pytestmark = pytest.mark.slow

_LOG = """2026-11-22T20:15:04.113Z INFO    translator.web.service: translation 1 begins
2026-11-22T20:15:05.000Z WARNING translator.web.worker: <b>no</b> memory
"""


def test_the_log_is_shown_searched_and_downloaded(serve: Callable[..., Served], tmp_path: Path) -> None:
    """With the login only; other names are not found, since the translator has no managers below it."""
    path = tmp_path / "manager.log"
    path.write_text(_LOG)
    served = serve(log=path)
    page = served.ask("GET", "/nodes/translator/log?level=WARNING", token=True, Accept="text/html").text
    found = served.ask("GET", f"/api/v1/nodes/translator/log?text={quote('TRANSLATION 1')}", token=True).json()
    text = served.ask("GET", "/api/v1/nodes/translator/log/text", token=True).text

    assert "&lt;b&gt;no&lt;/b&gt; memory" in page
    assert "translation 1 begins" not in page
    assert [line["text"] for line in found["lines"]] == ["translation 1 begins"]
    assert "no</b> memory" in text
    for address in ("/nodes/translator/log.json", "/api/v1/nodes/translator/log", "/api/v1/nodes/translator/log/text"):
        assert served.ask("GET", address).status == 401, address
        other = served.ask("GET", address.replace("translator", "node-1"), token=True)
        assert (other.status, TOKEN in other.text) == (404, False)


def test_new_lines_are_waited_for(serve: Callable[..., Served], tmp_path: Path) -> None:
    """A request for lines after a cursor is answered when its time is over; without a log there is an answer, too."""
    path = tmp_path / "manager.log"
    path.write_text(_LOG)
    served = serve(log=path)
    page = served.ask("GET", "/api/v1/nodes/translator/log", token=True).json()
    later = served.ask("GET", f"/api/v1/nodes/translator/log?after={quote(page['newer'])}&seconds=0.1", token=True)

    assert len(page["lines"]) == 2
    assert later.json()["lines"] == []
    assert serve().ask("GET", "/api/v1/nodes/translator/log", token=True).status == 404
