"""The registry of applications knows the classes in graphs of the community."""

import csv

import pytest

from dropflow.apps.component_findings import check
from dropflow.graph.templates import Link, Template
from tests.corpus import corpus_files, needs_corpus
from translator.pipeline import examine

FILES = {path.name: path for path in corpus_files()}


def parts(name: str) -> tuple[tuple[Template, ...], tuple[Link, ...]]:
    """The nodes and links of a graph of the corpus; none if it cannot be used."""
    checked = examine(FILES[name])
    found = checked.plan or checked.graph
    return (tuple(found.templates), tuple(found.links)) if found is not None else ((), ())


def runs_clean() -> list[str]:
    """The graphs that DALiuGE's engine runs without an error."""
    if not FILES:
        return []
    table = next(iter(FILES.values())).parents[1] / "daliuge-6.7-runs.csv"
    with table.open(encoding="utf-8", newline="") as rows:
        return [row["file"] for row in csv.DictReader(rows) if row["runs_clean"] == "yes"]


@needs_corpus
@pytest.mark.slow
def test_every_class_in_the_corpus_is_known_or_refused_with_a_hint() -> None:
    """Every class in a real graph is known, or its problem names the node and has a hint."""
    for name in FILES:
        nodes, links = parts(name)
        known = {node.app_name or node.name for node in nodes} | {node.name for node in nodes}
        for problem in check(nodes, links):
            assert problem.code in {"DF103", "DF104", "DF105", "DF106"}, name
            assert problem.where in known, (name, problem)
            assert problem.text, name
            assert problem.hint, (name, problem)


@needs_corpus
@pytest.mark.parametrize("name", runs_clean())
def test_graphs_that_run_in_daliuge_are_accepted(name: str) -> None:
    """A graph that DALiuGE runs without an error has no class or parameter that we refuse."""
    assert check(*parts(name)) == []
