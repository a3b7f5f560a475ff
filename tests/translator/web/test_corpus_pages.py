"""The corpus of logical graphs: each graph has a page, with its problems."""

import html
import os

import pytest

from dropflow.failure import Severity
from tests.corpus import corpus_files, needs_corpus
from tests.translator.web.served import Served
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
        errors = [found for found in problems if found.severity is Severity.ERROR]
        page = html.unescape(served.page(served.eagle(path, name=path.name)))

        assert ("Refused" if errors else "Translated") in page, path.name
        for found in errors:
            assert found.code in page, path.name
            assert " ".join(found.text.split())[:40] in " ".join(page.split()), path.name
