"""Planning never raises: every graph has a plan, with problems if it cannot be used."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.failure import Severity
from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.options import UnrollOptions
from translator.problem_codes import CODES
from translator.unroll import plan, unroll

pytestmark = pytest.mark.slow

IDS = [f"n{number}" for number in range(7)]
CATEGORIES = {
    NodeKind.DATA: ["Memory", "File", "Odd"],
    NodeKind.APP: ["DALiuGEApp", "Mpi", "Branch"],
    NodeKind.CONSTRUCT: [
        "Scatter",
        "Gather",
        "GroupBy",
        "Loop",
        "SubGraph",
        "ExclusiveForceNode",
        "MKN",
        "Service",
        "Odd",
    ],
    NodeKind.NOTE: ["Comment"],
    NodeKind.GLOBALS: ["GlobalVariables"],
}
NAMES = [
    "num_of_copies",
    "num_of_iter",
    "num_of_inputs",
    "group_key",
    "group_start",
    "group_end",
    "num_of_procs",
    "m",
    "k",
    "n",
    "zip_with",
]
VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 3, "2", "n0", "n0,n1", True, False, None, "", -1, 1.5, [], {}, "x", [1, "n2"]]),
    st.integers(-5, 10**20),
    st.text(max_size=3),
)


@st.composite
def wild_graphs(draw: Any) -> LogicalGraph:
    """Draw random nodes and links: missing parents and ends, cycles, any value in any field."""
    any_node = st.sampled_from([*IDS, "missing"])
    nodes = []
    for name in draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True)):
        kind = draw(st.sampled_from([*NodeKind]))
        embedded = draw(st.one_of(st.none(), st.none(), any_node)) if kind is NodeKind.APP else None
        values = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
        nodes.append(
            LogicalNode(
                id=name,
                name=name,
                category=draw(st.sampled_from(CATEGORIES[kind])),
                kind=kind,
                parent=draw(st.one_of(st.none(), any_node)),
                embedded_in=embedded,
                role=draw(st.sampled_from(Role)) if embedded else Role.NONE,
                fields=tuple(Field(id=key, name=key, value=value) for key, value in values.items()),
            )
        )
    link = st.builds(LogicalLink, source=any_node, target=any_node, loop_aware=st.booleans(), closes_loop=st.booleans())
    return LogicalGraph(name="wild", family="wild", nodes=tuple(nodes), links=tuple(draw(st.lists(link, max_size=10))))


@settings(max_examples=500, deadline=None)
@given(wild_graphs(), st.booleans(), st.booleans(), st.sampled_from(["all", "innermost"]))
def test_every_graph_has_a_plan(
    graph: LogicalGraph,
    zip_scatters: bool,  # noqa: FBT001 - drawn
    adapters: bool,  # noqa: FBT001 - drawn
    loop_aware: Any,
) -> None:
    """Every finding has a known code; a plan without errors unrolls to exactly what it predicts."""
    options = UnrollOptions(max_drops=5000, zip_scatters=zip_scatters, adapters=adapters, loop_aware=loop_aware)
    made = plan(graph, options)
    assert all(finding.code in CODES for finding in made.problems)
    assert len({template.key for template in made.templates}) == len(made.templates)
    if all(finding.severity is not Severity.ERROR for finding in made.problems):
        unrolled = unroll(made)
        assert (unrolled.drops, unrolled.edges) == (made.drops, made.edges)
