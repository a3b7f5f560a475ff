"""Parts of graphs are assigned to nodes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dropflow.api.node_records import Lack, NodeComponents, NodeInfo
from dropflow.api.session_records import SessionDetail
from dropflow.errors import BadGraphError, LinkError
from dropflow.failure import Problem
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from managers.composite.members import Imbalance
from managers.composite.merging import Freshness, SessionPart
from managers.planning import assign, where_they_run
from tests.regular_graphs import fan

_ALIVE = [
    NodeInfo(name="n2", url="http://10.0.0.2:8000", host="h2"),
    NodeInfo(name="n1", url="http://10.0.0.1:8000", host="h1"),
    NodeInfo(name="n3", url="http://10.0.0.3:8000", host="h3", state="lost", text="silent for 15 s"),
]


def _graph(parts: int, places: tuple[str, ...] = ()) -> PhysicalGraph:
    graph = fan(20)
    part = graph.part.copy()
    part[:parts] = range(parts)
    return replace(graph, part=part, places=places)


def test_parts_without_nodes_are_spread_over_those_alive() -> None:
    """Part k is on the k-th living node by name, and again from the first when there are more parts."""
    assert assign(_graph(5), _ALIVE).places == ("n1", "n2", "n1", "n2", "n1")


def test_named_nodes_are_kept() -> None:
    """A placed graph uses the nodes that it names: by name, host, address, or address with port."""
    places = ("n2", "h1", "10.0.0.2", "10.0.0.1:8000")

    assert assign(_graph(4, places), _ALIVE).places == ("n2", "n1", "n2", "n1")


def test_anew_ignores_the_nodes_that_the_graph_names() -> None:
    """`anew` spreads a graph that was placed on nodes of another cluster."""
    assert assign(_graph(2, ("x", "y")), _ALIVE, anew=True).places == ("n1", "n2")


def test_all_nodes_that_cannot_be_used_are_named_at_once() -> None:
    """Unknown and lost nodes are named in one error, with the nodes that are alive."""
    with pytest.raises(BadGraphError, match=r"'m9' is unknown.*'n3' is lost: silent for 15 s") as refused:
        assign(_graph(3, ("n1", "n3", "m9")), _ALIVE)

    assert "n1, n2" in refused.value.hint


def test_a_host_with_two_nodes_is_ambiguous() -> None:
    """The name of a host with one living node is accepted; with several nodes it is refused."""
    nodes = [NodeInfo(name="a", host="h"), NodeInfo(name="b", host="h"), NodeInfo(name="c", host="h", state="lost")]

    with pytest.raises(BadGraphError, match="'h' may be any of a, b"):
        assign(_graph(1, ("h",)), nodes)
    assert assign(_graph(1, ("h",)), [nodes[0], nodes[2]]).places == ("a",)


@pytest.mark.parametrize("places", [("x", "y"), ("localhost", "localhost"), ("127.0.0.1:8000:5555:6666", "::1")])
def test_a_graph_of_another_cluster_is_spread_with_a_note(places: tuple[str, str]) -> None:
    """If all its nodes are unknown, a graph is placed as one that names none; the note has the names."""
    assignment = assign(_graph(2, places), _ALIVE)

    assert assignment.places == ("n1", "n2")
    assert f"names unknown nodes ({places[0]!r}" in assignment.note
    assert "n1, n2" in assignment.note


@pytest.mark.parametrize("places", [("localhost", "h7"), ("n1", "h7"), ("h7:8000", "h8:8000")])
def test_the_only_node_takes_all_parts(places: tuple[str, str]) -> None:
    """A single node gets all parts, even if the graph names other nodes."""
    assignment = assign(_graph(2, places), [_ALIVE[1]])

    assert assignment.places == ("n1", "n1")
    assert "'h7" in assignment.note


def test_localhost_means_the_only_node() -> None:
    """A graph that names localhost is placed on a single node, without a note."""
    assert assign(_graph(1, ("localhost",)), [_ALIVE[1]]).note == ""


def test_nodes_in_the_spelling_of_daliuge_are_found() -> None:
    """Names of nodes may have DALiuGE's ports for events and calls."""
    assert assign(_graph(2, ("10.0.0.2:8000:5555:6666", "10.0.0.1:8000")), _ALIVE).places == ("n2", "n1")


def test_a_typo_gets_a_suggestion() -> None:
    """The error about a misspelled name suggests the right one."""
    with pytest.raises(BadGraphError, match="did it mean 'node-1'"):
        assign(_graph(2, ("node1", "node-2")), [NodeInfo(name="node-1"), NodeInfo(name="node-2")])


def test_without_a_living_node_nothing_is_assigned() -> None:
    """The error names the known nodes; it is one that a retry may solve."""
    with pytest.raises(LinkError, match=r"no node is alive: n3 \(lost\)") as refused:
        assign(_graph(1), _ALIVE[2:])
    assert refused.value.retryable


def test_an_incomplete_placement_is_refused() -> None:
    """A graph that names nodes for only some of its parts is refused."""
    with pytest.raises(BadGraphError, match="3 parts but names nodes for 1 only"):
        assign(_graph(3, ("n1",)), _ALIVE)


def _needing(*programs: str) -> PhysicalGraph:
    """Return a graph with a command for each program, all on n1, and a data drop after each."""
    builder = GraphBuilder("g")
    for at, program in enumerate(programs):
        command = Argument(name="command", value=f"{program} {{d}}")
        builder.app(f"a{at}", component="dlg.apps.bash_shell_app.BashShellApp", arguments=(command,)).data(f"d{at}")
        builder.connect(f"a{at}", f"d{at}")
    return replace(builder.build(), places=("n1",))


def _lacking(node: str, *programs: str) -> NodeComponents:
    lacks = (Lack(need=f"program:{program}", text=f"no {program}", hint=f"install {program}") for program in programs)
    return NodeComponents(node=node, lacks=tuple(lacks))


def _nodes_of(graph: PhysicalGraph, name: str) -> set[str]:
    rows = [row for row, template in enumerate(graph.templates) if template.name == name]
    return {graph.places[part] for part in graph.part[np.isin(graph.template, rows)].tolist()}


def test_drops_go_to_the_nodes_that_have_what_they_need() -> None:
    """What n1 lacks goes to the node that has it; the rest, and data, stay."""
    answers = [_lacking("n1", "wsclean"), _lacking("n2", "wsclean", "DP3"), _lacking("n3")]

    graph, note = where_they_run(_needing("wsclean", "DP3", "cp"), ["n1", "n2", "n3"], answers, is_movable=True)

    assert [_nodes_of(graph, name) for name in ("a0", "a1", "a2", "d0")] == [{"n3"}, {"n1"}, {"n1"}, {"n1"}]
    assert note == "1 drop moved to n3, because other nodes lack what they need"


def test_a_placed_graph_is_refused_with_what_its_nodes_lack() -> None:
    """There is one problem for each component and node, although another node could run it."""
    with pytest.raises(BadGraphError, match=r"cannot run the drops placed on them: a0 on n1, a1 on n1") as refused:
        where_they_run(_needing("wsclean", "DP3"), ["n1", "n2"], [_lacking("n1", "wsclean", "DP3")], is_movable=False)

    problems = [problem for problem in refused.value.problems if isinstance(problem, Problem)]
    assert [(problem.where, problem.text, problem.hint) for problem in problems] == [
        ("a0 on n1", "no wsclean", "install wsclean"),
        ("a1 on n1", "no DP3", "install DP3"),
    ]
    assert "--anew" in refused.value.hint


def test_what_no_node_can_run_is_refused() -> None:
    """A node without an answer counts as able; if all lack something, nothing is placed."""
    answers = [_lacking("n1", "wsclean"), _lacking("n2", "wsclean")]
    graph, _ = where_they_run(_needing("wsclean"), ["n1", "n2", "n3"], answers, is_movable=True)

    assert _nodes_of(graph, "a0") == {"n3"}
    with pytest.raises(BadGraphError, match="no node can run all that it would get: a0 on n1, a0 on n2"):
        where_they_run(_needing("wsclean"), ["n1", "n2"], answers, is_movable=True)


# When sessions are rebalanced by themselves.


_SESSION = SessionDetail(session="s", graph="g", status="RUNNING", epoch=1)


def _parts(*remaining: float | None, drops: int = 100) -> list[SessionPart]:
    """Return parts with so many seconds left; those with 0 have no open drops."""
    details = [
        SessionDetail(
            session="s",
            graph="g",
            status="RUNNING",
            epoch=1,
            drops=drops,
            settled=drops if seconds == 0 else 0,
            remaining=None if seconds == 0 else seconds,
        )
        for seconds in remaining
    ]
    return [SessionPart(f"n{number}", detail, Freshness.CURRENT) for number, detail in enumerate(details)]


@pytest.mark.parametrize(
    ("remaining", "is_due"),
    [
        ((200.0, 20.0, 20.0), True),
        ((200.0, 0, 0), True),
        ((60.0, 50.0, 40.0), False),
        ((20.0, 1.0, 1.0), False),
        ((900.0, 880.0, 860.0), False),
        ((200.0,), False),
        ((200.0, None, 20.0), False),
        ((), False),
    ],
)
def test_only_long_differences_count(remaining: tuple[float | None, ...], is_due: bool) -> None:  # noqa: FBT001 - drawn
    """A session is uneven if its slowest part ends much later than the mean, as far as that is known of all."""
    rule = Imbalance()

    assert not rule.is_due(_SESSION, _parts(*remaining), 0.0)
    assert rule.is_due(_SESSION, _parts(*remaining), 11.0) == is_due


def test_a_difference_must_last() -> None:
    """A difference that goes away does not count, and a moment without a rate changes nothing."""
    rule, uneven, even = Imbalance(), _parts(200.0, 10.0), _parts(100.0, 90.0)
    assert not rule.is_due(_SESSION, uneven, 0.0)
    assert not rule.is_due(_SESSION, even, 9.0)
    assert not rule.is_due(_SESSION, uneven, 12.0)
    assert not rule.is_due(_SESSION, _parts(None, 10.0), 18.0)

    assert rule.is_due(_SESSION, uneven, 23.0)


def test_a_session_is_rebalanced_only_a_few_times() -> None:
    """Each rebalance stops all nodes for a moment: there are at most five, a minute apart."""
    rule, uneven = Imbalance(), _parts(500.0, 10.0)
    due = [now for now in range(2000) if rule.is_due(_SESSION, uneven, float(now))]

    assert len(due) == 5
    assert min(later - earlier for earlier, later in pairwise(due)) >= 60
