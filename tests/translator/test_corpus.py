"""Every graph of the community translates, or has errors with codes: `corpus_outcomes.csv` is the whole list.

After a change that is meant, write it again: ``python -m tests.translator.test_corpus``.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from dropflow.errors import BadGraphError
from dropflow.failure import Severity
from dropflow.graph.codec import digest, dump, parse
from dropflow.graph.daliuge_read import read_pg_stream
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.order import levels
from dropflow.graph.physical import PhysicalGraph, faults
from dropflow.graph.text_ids import oids
from tests.corpus import corpus_files, daliuge_results, needs_corpus, often
from tests.graph.shapes import edges_of
from tests.nightly import nightly
from tests.translator.daliuge_defects import explain, unique_edges
from tests.translator.documents import codes, errors
from translator.differences import differences
from translator.fill_document import fill_document
from translator.formats import Family, read_logical
from translator.formats.dump import dump as corpus_mutations_dump
from translator.formats.json_document import LOGICAL, classify
from translator.formats.json_document import parse as parse_json
from translator.formats.load import _validator
from translator.graph_sizes import graph_sizes
from translator.options import PartitionOptions, ReadOptions, UnrollOptions
from translator.parameters import fill
from translator.pipeline import Checked, examine
from translator.plan.quality import quality_of
from translator.plan.registry import partition
from translator.problem_codes import CODES
from translator.unroll import unroll
from translator.validate import fixed, validate

TABLE = Path(__file__).with_name("corpus_outcomes.csv")
COLUMNS = ("file", "family", "drops", "edges", "errors")


def outcomes() -> Iterator[tuple[str, ...]]:
    """Yield a row for each logical graph: its family, and its numbers of drops and edges or the codes of its errors."""
    for path in corpus_files():
        checked = examined(path)
        if checked.outline is None:
            continue
        errors = sorted({problem.code for problem in checked.problems if problem.severity is Severity.ERROR})
        sizes = ("", "") if errors else (str(checked.outline.drops), str(checked.outline.edges))
        yield path.name, checked.family, *sizes, " ".join(errors)


def table() -> list[tuple[str, ...]]:
    """Return the rows of the committed table."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return [tuple(row[name] for name in COLUMNS) for row in csv.DictReader(lines)]


@needs_corpus
def test_the_table_of_outcomes_is_complete_and_fresh() -> None:
    """Each logical graph has one line, and it is what the translator finds."""
    assert list(outcomes()) == table()


def test_nearly_all_graphs_translate() -> None:
    """At least 199 of 215; the others have errors with codes."""
    rows = table()
    refused = [row for row in rows if row[-1]]

    assert len(rows) >= 215
    assert len(refused) <= 16


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


def _unrolled() -> list[Path]:
    """The files that DALiuGE unrolls, as they are or after migration."""
    files = corpus_files()
    rows = daliuge_results() if files else {}
    return [path for path in files if "ok" in (rows[path.name][column] for column in _UNROLLED)]


@needs_corpus
def test_every_file_has_the_family_in_the_table() -> None:
    """Each file belongs to the family that the table beside the corpus says, and both oldest ones occur."""
    families = {path.name: classify(parse_json(path.read_bytes(), ReadOptions()).value) for path in corpus_files()}
    rows = daliuge_results()

    assert {name for name, family in families.items() if family not in FAMILIES[rows[name]["format"]]} == set()
    assert Counter(families.values())[Family.GOJS] == 2
    assert len(families) == 227


@needs_corpus
@pytest.mark.parametrize("path", often(corpus_files()), ids=lambda path: path.stem)
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
@pytest.mark.parametrize("path", often(_unrolled()), ids=lambda path: path.stem)
def test_what_daliuge_translates_has_no_errors(path: Path) -> None:
    """A graph that DALiuGE unrolls, as it is or after migration, has nothing wrong for us before unrolling."""
    reading = read_logical(path.read_bytes(), name=path.stem)
    assert reading.graph is not None
    graph, filling = fill(reading.graph)

    assert errors((*reading.problems, *filling, *validate(graph))) == []
    assert len(graph.links) == int(daliuge_results()[path.name]["lg_links"])


_TABLE = Path(__file__).with_name("corpus_differences.csv")
_REFUSED = "refused"


class Row(NamedTuple):
    """One line of the table, as text."""

    file: str
    daliuge_drops: str
    our_drops: str
    daliuge_edges: str
    our_edges: str
    reason: str


@cache
def examined(path: Path) -> Checked:
    """The result of `examine` for a file; computed once."""
    return examine(path)


def refused(path: Path) -> list[str]:
    """Codes of the errors of a file."""
    return sorted({finding.code for finding in examined(path).problems if finding.severity is Severity.ERROR})


def daliuge_counts(path: Path) -> tuple[str, str] | None:
    """Drops and unique edges that DALiuGE makes of a file, as it is or migrated; None where it fails."""
    row = daliuge_results().get(path.name, {})
    if row.get("daliuge_unroll") == "ok":
        return row["drops"], row["unique_edges"]
    return (row["mig_drops"], row["mig_unique_edges"]) if row.get("unroll_after_migration") == "ok" else None


def difference(path: Path) -> Row | None:
    """The line of the table for this file; None if there is no difference."""
    theirs = daliuge_counts(path)
    assert theirs is not None
    checked = examined(path)
    assert checked.outline is not None
    assert checked.logical is not None
    if refused(path):
        reason = "12" if refused(path) == ["LG050"] else " ".join(refused(path))
        return Row(path.name, theirs[0], _REFUSED, theirs[1], _REFUSED, reason)
    graph = unroll(checked.outline)
    ours = (str(graph.drops), str(unique_edges(graph)))
    if ours == theirs:
        return None
    return Row(path.name, theirs[0], ours[0], theirs[1], ours[1], explain(checked.logical).reasons)


def explained() -> dict[str, Row]:
    """The committed table by file; its last column is prose."""
    with _TABLE.open(encoding="utf-8", newline="") as lines:
        return {row["file"]: Row(*(row[name] for name in Row._fields)) for row in csv.DictReader(lines)}


FILES = corpus_files()
COUNTED = [path for path in FILES if daliuge_counts(path) is not None]


@needs_corpus
@pytest.mark.parametrize("path", COUNTED, ids=lambda path: path.name)
def test_counts_equal_those_of_daliuge_or_are_in_the_table(path: Path) -> None:
    """Drops and unique edges are DALiuGE's, or the table has both numbers and the reason."""
    assert difference(path) == explained().get(path.name)


@needs_corpus
@pytest.mark.parametrize("path", [path for path in COUNTED if path.name in explained()], ids=lambda path: path.name)
def test_reasons_add_up(path: Path) -> None:
    """Ours, with the named defects of DALiuGE put back in and adapters left out, is exactly DALiuGE's number."""
    checked = examined(path)
    row = explained()[path.name]
    if row.our_drops == _REFUSED:
        assert refused(path) == ["LG050"]
        return
    assert checked.logical is not None
    causes = explain(checked.logical)
    assert int(row.our_drops) + causes.adapter_drops == int(row.daliuge_drops)
    more = causes.adapter_edges + causes.loop_aware + causes.carries + causes.entries
    assert int(row.our_edges) + more == int(row.daliuge_edges)


@needs_corpus
def test_the_table_has_no_unused_line() -> None:
    """Every line is about a graph of the corpus that DALiuGE unrolls, and every reason is one that we know."""
    assert set(explained()) <= {path.name for path in COUNTED}
    assert {code for row in explained().values() for code in row.reason.split()} <= {
        "3",
        "5",
        "12",
        "adapter",
        "entry",
    }


@needs_corpus
def test_most_graphs_have_the_counts_of_daliuge() -> None:
    """Enough graphs are compared, and six of seven have no difference."""
    assert len(COUNTED) > 150
    assert len(explained()) < len(COUNTED) / 7


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_graph_raises(path: Path) -> None:
    """Any fault of a graph becomes a finding; a graph without errors unrolls to the predicted numbers."""
    checked = examined(path)
    if not refused(path) and checked.outline is not None:
        graph = unroll(checked.outline)
        assert (graph.drops, graph.edges) == (checked.outline.drops, checked.outline.edges)
    elif not refused(path):
        assert checked.graph is not None


_MOST_DROPS = 2_000


def _graphs(step: int) -> dict[str, PhysicalGraph]:
    """Every so many graphs of the corpus, if they can be translated and are not large."""
    graphs = {}
    for path in corpus_files()[::step]:
        if refused(path):
            continue
        outline = examined(path).outline
        graph = examined(path).graph if outline is None else unroll(outline)
        if graph is not None and 1 < graph.drops <= _MOST_DROPS:
            graphs[path.name] = graph
    return graphs


def _ends_by_name(graph: PhysicalGraph) -> list[tuple[str, str, str, str]]:
    names = oids(graph, range(graph.drops))
    links = graph.links
    return sorted(
        (names[source], names[target], links[link].source_port, links[link].target_port)
        for source, link, target in edges_of(graph)
    )


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("step", [5, *nightly(1)])
def test_graphs_of_the_community_round_trip_and_are_partitioned(step: int) -> None:
    """Each unrolled graph is valid, equal after both kinds of files, and partitioned without an empty part."""
    checked = 0
    for name, graph in _graphs(step).items():
        stream = io.BytesIO()
        write_pg(graph, stream)
        stream.seek(0)
        again = read_pg_stream(stream, name=name)
        assert faults(graph) == faults(again) == [], name
        assert _ends_by_name(again) == _ends_by_name(graph), name
        assert digest(parse(b"".join(dump(graph)))) == digest(graph), name
        for algorithm in ("blocks", "metis"):
            quality = quality_of(partition(graph, PartitionOptions(algorithm=algorithm, parts=2)))
            assert min(quality.drops) > 0, name
        checked += 1

    assert checked


if __name__ == "__main__":
    with TABLE.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(outcomes())

# Graphs of the community with faults: findings, and never an exception or a hang.


_LARGEST = 40_000
_JUNK = [None, True, 0, -1, 3, 10**30, 0.5, "", "x", "{n}", "{n} * 2", "$n", [], {}, [1], {"id": "x"}, "Scatter", "MKN"]


_JUNK += ["Service", "ExclusiveForceNode", "Mpi", "Gather", "V4", "1e400", "\x00"]


_OPTIONS = UnrollOptions(max_drops=20_000, max_edges=100_000)


@cache
def text_of(path: Path) -> str:
    """Return a graph file; empty if it is too large, or a physical graph."""
    text = path.read_text(encoding="utf-8-sig")
    return text if len(text) < _LARGEST and text.lstrip().startswith("{") else ""


@cache
def files() -> list[Path]:
    """Return the logical graphs of ordinary size."""
    return [path for path in corpus_files() if text_of(path)]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container of a document with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def mutated(draw: Any, document: Any) -> None:
    """Remove, replace, repeat or exchange values of a document."""
    for _ in range(draw(st.integers(1, 4))):
        found_places = places(document)
        if not found_places:
            return
        holder, key = found_places[draw(st.integers(0, len(found_places) - 1))]
        how = draw(st.sampled_from(["remove", "replace", "repeat", "exchange"]))
        if how == "remove":
            del holder[key]
        elif how == "replace":
            holder[key] = draw(st.sampled_from(_JUNK))
        elif how == "repeat" and isinstance(holder, list):
            holder.append(holder[key])
        else:
            other, place = found_places[draw(st.integers(0, len(found_places) - 1))]
            if json.dumps(holder[key]) != json.dumps(other[place]) and not isinstance(other[place], dict | list):
                holder[key] = other[place]


def is_ordered(graph: PhysicalGraph) -> bool:
    """Return whether no drops wait for each other, which outlines do not show, and `graph_sizes` refuses."""
    try:
        levels(graph)
    except BadGraphError:
        return False
    return True


@pytest.mark.slow
@needs_corpus
@given(st.data())
@settings(
    max_examples=200,
    deadline=None,
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow],
)
def test_a_damaged_graph_gives_findings(data: st.DataObject) -> None:
    """All stages and tools take it: checks, sizes, unrolling, filling, corrections, comparison and writing."""
    path = data.draw(st.sampled_from(files()), label="file")
    document = json.loads(text_of(path))
    mutated(data.draw, document)
    content = json.dumps(document).encode()
    assume(len(content) < 2 * _LARGEST)
    checked = examine(content, name="g", unroll_options=_OPTIONS)

    assert all(problem.code in CODES for problem in checked.problems)
    filled = fill_document(content, name="g", settings={"n": 2})
    assert filled.document or any(problem.severity is Severity.ERROR for problem in filled.problems)
    graph = read_logical(content, name="g").graph
    if graph is not None:
        # The check that precedes jsonschema lets nothing pass that jsonschema would not.
        schema = _validator("ojs" if "nodeDataArray" in document else "v4")
        assert schema.is_valid(document) or any(problem.code == "LG007" for problem in checked.problems)
        assert differences(graph, graph) == ()
        fixed(json.loads(content), graph, checked.problems)
        for family in (Family.OJS_ID, Family.V4):
            json.dumps(corpus_mutations_dump(graph, family))
    if checked.outline is not None and not any(problem.severity is Severity.ERROR for problem in checked.problems):
        made = unroll(checked.outline)
        assert (made.drops, made.edges) == (checked.outline.drops, checked.outline.edges)
        assert checked.logical is not None
        with nullcontext() if is_ordered(made) else suppress(BadGraphError):
            assert graph_sizes(checked.logical, checked.outline, _OPTIONS).drops == made.drops
