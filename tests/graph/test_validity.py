from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.graph.physical import Adjacency, PhysicalGraph, faults
from dropflow.graph.templates import Axis, Kind, Link
from tests.graph.shapes import scatter

GRAPH = scatter(2)


def _column(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def _edges(**changed: Any) -> PhysicalGraph:
    out = GRAPH.successors
    columns = {"ptr": out.ptr, "neighbour": out.neighbour, "link": out.link}
    return replace(GRAPH, successors=Adjacency(**{**columns, **changed}))


def _template(row: int, **changed: Any) -> PhysicalGraph:
    templates = list(GRAPH.templates)
    templates[row] = msgspec.structs.replace(templates[row], **changed)
    return replace(GRAPH, templates=tuple(templates))


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (replace(GRAPH, instance=_column(0)), "column instance has 1 rows, not 7"),
        (replace(GRAPH, oids=("a",)), "there are 1 text ids for 7 drops"),
        (replace(GRAPH, template=_column(0, 0, 1, 1, 2, 2, 4)), "a drop has a template that does not exist"),
        (replace(GRAPH, instance=_column(0, 2, 0, 1, 0, 1, 0)), "outside the index space of its template"),
        (_template(3, axes=(Axis("", "", "", 1 << 40),)), "outside the index space of its template"),
        (replace(GRAPH, instance=_column(0, 0, 0, 1, 0, 1, 0)), "two drops are the same instance of a template"),
        (replace(GRAPH, oids=("a",) * 7), "two drops have the same text id"),
        (replace(GRAPH, part=_column(0, 0, 0, 0, 0, 0, -1)), "a drop is in a part that does not exist"),
        (replace(GRAPH, part=_column(0, 0, 0, 0, 0, 0, 2), places=("a", "b")), "a part that does not exist"),
        (_edges(ptr=np.arange(7)), "the columns of the edges differ in length"),
        (_edges(link=_column(0)), "the columns of the edges differ in length"),
        (_edges(ptr=np.array([0, 2, 1, 3, 4, 5, 6, 6])), "the pointers to the edges are not ascending"),
        (_edges(ptr=np.array([0, 1, 2, 3, 4, 5, 6, 7])), "the pointers to the edges are not ascending"),
        (_edges(neighbour=_column(2, 3, 4, 5, 6, 7)), "an edge ends on a drop that does not exist"),
        (_edges(link=_column(0, 0, 1, 1, 2, 3)), "an edge belongs to a link that does not exist"),
        (_edges(neighbour=_column(2, 4, 4, 5, 6, 6)), "an edge joins drops of other templates than its link"),
        (_edges(ptr=np.array([0, 2, 2, 3, 4, 5, 6, 6]), neighbour=_column(3, 2, 4, 5, 6, 6)), "are not sorted"),
        (_template(1, kind=Kind.DATA), "a link joins two templates of the same kind"),
        (_template(1, error_threshold=float("nan")), "an error threshold that is not a number"),
        (replace(GRAPH, links=(Link(source=0, target=9),)), "a link ends on a template that does not exist"),
    ],
)
def test_every_rule_of_a_graph_is_checked(graph: PhysicalGraph, fault: str) -> None:
    """Each rule that a graph can break is checked, with a text."""
    assert any(fault in found for found in faults(graph))


def test_a_sound_graph_has_no_fault() -> None:
    """A valid graph has no faults, also if its drops are not grouped by template."""
    assert faults(GRAPH) == []
    assert faults(replace(GRAPH, oids=tuple("abcdefg"))) == []


def test_several_faults_are_reported_together() -> None:
    """A graph that breaks two rules gives both texts."""
    assert len(faults(replace(GRAPH, oids=("a",) * 7, part=_column(0, 0, 0, 0, 0, 0, -1)))) == 2
