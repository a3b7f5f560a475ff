"""Our numbers of drops and edges against those of DALiuGE 6.7, for the graphs of the community.

`corpus_differences.csv` explains every difference. Its reasons are numbers of the list of DALiuGE's silent wrong
results (spec 9.2: 3 carries of loops between all ends and starts, 5 loop-aware links that ignore outer loops, 12
cycles that are accepted), ``adapter`` for drops that we put between two nodes of the same kind, and ``entry`` for edges
into a loop at a port that a carry feeds from the second iteration on.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from dropflow.failure import Severity
from tests.corpus import corpus_files, daliuge_results, needs_corpus
from tests.translator.daliuge_defects import explain, unique_edges
from translator.pipeline import Checked, examine
from translator.unroll import unroll

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
    return sorted({found.code for found in examined(path).problems if found.severity is Severity.ERROR})


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
    found = examined(path)
    assert found.plan is not None
    assert found.logical is not None
    if refused(path):
        reason = "12" if refused(path) == ["LG050"] else " ".join(refused(path))
        return Row(path.name, theirs[0], _REFUSED, theirs[1], _REFUSED, reason)
    graph = unroll(found.plan)
    ours = (str(graph.drops), str(unique_edges(graph)))
    if ours == theirs:
        return None
    return Row(path.name, theirs[0], ours[0], theirs[1], ours[1], explain(found.logical).reasons)


def table() -> dict[str, Row]:
    """The committed table by file; its last column is prose."""
    with _TABLE.open(encoding="utf-8", newline="") as lines:
        return {row["file"]: Row(*(row[name] for name in Row._fields)) for row in csv.DictReader(lines)}


FILES = corpus_files()
COUNTED = [path for path in FILES if daliuge_counts(path) is not None]


@needs_corpus
@pytest.mark.parametrize("path", COUNTED, ids=lambda path: path.name)
def test_counts_equal_those_of_daliuge_or_are_in_the_table(path: Path) -> None:
    """Drops and unique edges are DALiuGE's, or the table has both numbers and the reason."""
    assert difference(path) == table().get(path.name)


@needs_corpus
@pytest.mark.parametrize("path", [path for path in COUNTED if path.name in table()], ids=lambda path: path.name)
def test_reasons_add_up(path: Path) -> None:
    """Ours, with the named defects of DALiuGE put back in and adapters left out, is exactly DALiuGE's number."""
    found = examined(path)
    row = table()[path.name]
    if row.our_drops == _REFUSED:
        assert refused(path) == ["LG050"]
        return
    assert found.logical is not None
    causes = explain(found.logical)
    assert int(row.our_drops) + causes.adapter_drops == int(row.daliuge_drops)
    more = causes.adapter_edges + causes.loop_aware + causes.carries + causes.entries
    assert int(row.our_edges) + more == int(row.daliuge_edges)


@needs_corpus
def test_the_table_has_no_unused_line() -> None:
    """Every line is about a graph of the corpus that DALiuGE unrolls, and every reason is one that we know."""
    assert set(table()) <= {path.name for path in COUNTED}
    assert {code for row in table().values() for code in row.reason.split()} <= {"3", "5", "12", "adapter", "entry"}


@needs_corpus
def test_most_graphs_have_the_counts_of_daliuge() -> None:
    """Enough graphs are compared, and six of seven have no difference."""
    assert len(COUNTED) > 150
    assert len(table()) < len(COUNTED) / 7


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_graph_raises(path: Path) -> None:
    """Any fault of a graph becomes a finding; a graph without errors unrolls to the predicted numbers."""
    found = examined(path)
    if not refused(path) and found.plan is not None:
        graph = unroll(found.plan)
        assert (graph.drops, graph.edges) == (found.plan.drops, found.plan.edges)
    elif not refused(path):
        assert found.graph is not None
