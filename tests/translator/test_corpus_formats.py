"""Every graph of the community is recognised and read."""

from collections import Counter
from pathlib import Path

import pytest

from tests.corpus import corpus_files, daliuge_results, needs_corpus
from tests.translator.documents import codes, errors
from translator.formats import Family, detect, read_logical
from translator.formats.detect import LOGICAL
from translator.parameters import fill
from translator.validate import validate

FAMILIES = {
    "OJS/id": {Family.OJS_ID},
    "OJS/id+key": {Family.OJS_KEY},
    "OJS/key": {Family.OJS_KEY},
    "OJS/oid": {Family.OJS_OID},
    "None/key": {Family.PRE_OJS, Family.GOJS},
    "physical-graph-list": {Family.PHYSICAL},
    "": LOGICAL,
}
"""Our families by the names in DALiuGE's results; those without a name were added later."""

_UNROLLED = ("daliuge_unroll", "unroll_after_migration")
_by_name = pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.stem)


def _unrolled() -> list[Path]:
    """The files that DALiuGE unrolls, as they are or after migration."""
    files = corpus_files()
    rows = daliuge_results() if files else {}
    return [path for path in files if "ok" in (rows[path.name][column] for column in _UNROLLED)]


@needs_corpus
def test_every_file_has_the_family_in_the_table() -> None:
    """Each file belongs to the family that the table beside the corpus says, and both oldest ones occur."""
    found = {path.name: detect(path.read_bytes()) for path in corpus_files()}
    rows = daliuge_results()

    assert {name for name, family in found.items() if family not in FAMILIES[rows[name]["format"]]} == set()
    assert Counter(found.values())[Family.GOJS] == 2
    assert len(found) == 227


@needs_corpus
@_by_name
def test_every_logical_graph_is_read(path: Path) -> None:
    """Reading, filling and validating any file gives findings with places, and raises nothing."""
    reading = read_logical(path.read_bytes(), name=path.stem)
    if reading.graph is None:
        assert codes(reading.problems) == ["LG001"]
        return
    graph, filling = fill(reading.graph)

    assert graph.nodes
    assert "LG007" not in errors(reading.problems)
    assert all(finding.where.startswith("/") for finding in (*filling, *validate(graph)))


@needs_corpus
def test_the_corpus_has_graphs_that_daliuge_translates() -> None:
    """The next test is not empty: 110 graphs unroll as they are, and 65 after migration."""
    assert len(_unrolled()) == 175


@needs_corpus
@pytest.mark.parametrize("path", _unrolled(), ids=lambda path: path.stem)
def test_what_daliuge_translates_has_no_errors(path: Path) -> None:
    """A graph that DALiuGE unrolls, as it is or after migration, has nothing wrong for us before unrolling."""
    reading = read_logical(path.read_bytes(), name=path.stem)
    assert reading.graph is not None
    graph, filling = fill(reading.graph)

    assert errors((*reading.problems, *filling, *validate(graph))) == []
    assert len(graph.links) == int(daliuge_results()[path.name]["lg_links"])
