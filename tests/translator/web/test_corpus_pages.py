"""The corpus of logical graphs: each graph has a page, with its problems."""

import html
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from dropflow.failure import Severity
from tests.corpus import corpus_files, needs_corpus
from tests.translator.web.served import TOKEN, Served
from translator.options import ComponentOptions
from translator.pipeline import examine

_STEP = int(os.environ.get("DROPFLOW_CORPUS_STEP", "12"))
"""Every twelfth graph, or all with 1."""


@pytest.mark.exhaustive
@needs_corpus
@pytest.mark.slow
def test_every_graph_of_the_corpus_has_a_page(served: Served) -> None:
    """A graph is translated or refused as by the command line, and the page has the text of every error."""
    for path in corpus_files()[::_STEP]:
        problems = examine(path, component_options=ComponentOptions()).problems
        errors = [problem for problem in problems if problem.severity is Severity.ERROR]
        page = html.unescape(served.page(served.eagle(path, name=path.name)))

        assert ("Refused" if errors else "Translated") in page, path.name
        for error in errors:
            assert error.code in page, path.name
            assert " ".join(error.text.split())[:40] in " ".join(page.split()), path.name


# The log of the translator, as page and as text.


_LOG = """2026-11-22T20:15:04.113Z INFO    translator.web.translator_service: translation 1 begins
2026-11-22T20:15:05.000Z WARNING translator.web.translation_process: <b>no</b> memory
"""


@pytest.mark.slow
def test_the_log_is_shown_searched_and_downloaded(serve: Callable[..., Served], tmp_path: Path) -> None:
    """With the login only; other names are not found, since the translator has no managers below it."""
    path = tmp_path / "manager.log"
    path.write_text(_LOG)
    served = serve(log=path)
    page = served.ask("GET", "/nodes/translator/log?level=WARNING", token=True, Accept="text/html").text
    log_page = served.ask("GET", f"/api/v1/nodes/translator/log?text={quote('TRANSLATION 1')}", token=True).json()
    text = served.ask("GET", "/api/v1/nodes/translator/log/text", token=True).text

    assert "&lt;b&gt;no&lt;/b&gt; memory" in page
    assert "translation 1 begins" not in page
    assert [line["text"] for line in log_page["lines"]] == ["translation 1 begins"]
    assert "no</b> memory" in text
    for address in ("/nodes/translator/log.json", "/api/v1/nodes/translator/log", "/api/v1/nodes/translator/log/text"):
        assert served.ask("GET", address).status == 401, address
        other = served.ask("GET", address.replace("translator", "node-1"), token=True)
        assert (other.status, TOKEN in other.text) == (404, False)


@pytest.mark.slow
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
