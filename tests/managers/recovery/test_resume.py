"""The deployment with which a session that was stopped goes on: which copies count, and what is refused."""

import msgspec
import numpy as np
import pytest

from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import ResumeRequest, RetryRequest
from dropflow.errors import ConflictError, GoneError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_for, with_placement
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row
from managers.deployment import Deployment, Place
from managers.recovery.records import (
    MemberReport,
    StoppedPart,
    View,
    ViewDecision,
    decode_decision,
    pack_column,
    unpack_column,
)
from managers.recovery.replan import Durations, measure
from managers.recovery.resume import plan_resumption

NAMES = ("a", "b", "c")
N, C, E = DropState.INITIALIZED, DropState.COMPLETED, DropState.ERROR


def _graph() -> PhysicalGraph:
    """Return a chain of six drops, two on each node."""
    graph = draw("A -> x -> B -> y -> C -> z")
    part = np.zeros(graph.drops, dtype=np.int32)
    for at, names in enumerate((("A", "x"), ("B", "y"), ("C", "z"))):
        for name in names:
            part[row(graph, name)] = at
    return with_placement(graph, part, NAMES)


def _part(
    graph: PhysicalGraph,
    node: str,
    states: dict[str, DropState],
    *,
    version: tuple[int, int] = (1, 0),
    members: tuple[str, ...] = NAMES,
    **more: object,
) -> StoppedPart:
    """Return what a node reports: the states of its drops, whose contents are all there."""
    places = tuple(Place(name, f"tcp://{name}", 1) for name in members)
    deployment = Deployment(session="s", epoch=version[0], graph="g", drops=graph.drops, created=0.0, places=places)
    rows = slice_for(graph, node).drop
    column = np.array([states.get(graph.templates[graph.template[drop]].name, N) for drop in rows], dtype=np.uint8)
    causes = {int(drop): int(drop) for drop, state in zip(rows, column, strict=True) if state == E}
    report = MemberReport(
        rows=pack_column(rows),
        states=pack_column(column),
        available=pack_column((column == C).astype(np.uint8)),
        causes=causes,
    )
    decision = None
    if version[1]:
        decision = ViewDecision(
            view=View(version[1], places), places=graph.places, placement=pack_column(graph.part.astype(np.uint16))
        )
    part = StoppedPart(
        node=node,
        status="FAILED",
        deployment=deployment,
        view=version[1],
        decision=decision,
        report=msgspec.msgpack.encode(report),
    )
    return msgspec.structs.replace(part, **more)


def _nodes(*names: str) -> list[NodeInfo]:
    return [NodeInfo(name=name, links=f"tcp://new-{name}", incarnation=7) for name in names]


DONE = {"A": C, "x": C, "B": C}


def test_all_nodes_go_on_at_their_new_addresses() -> None:
    """Nothing moves, nothing that is there runs again, and the deployment has a later epoch and the next view."""
    graph = _graph()
    parts = [_part(graph, name, DONE) for name in NAMES]
    plan = plan_resumption(graph, parts, ResumeRequest(), _nodes(*NAMES), now=100.0)
    decision = decode_decision(plan.decision)

    assert (plan.epoch, plan.view) == (100_000_000, 1)
    assert plan.places == tuple(Place(name, f"tcp://new-{name}", 7) for name in NAMES)
    assert plan.copies == dict.fromkeys(NAMES, (1, 0))
    assert not decision.lost
    placement = unpack_column(decision.placement, np.uint16)
    assert [decision.places[at] for at in placement.tolist()] == [graph.places[at] for at in graph.part.tolist()]
    # B has completed, and what it wrote had not reached its drop.
    assert unpack_column(decision.reset, np.int32).tolist() == [row(graph, "B")]
    assert plan.notes[-1].endswith("UTC: 2 drops kept, 1 completed drop run again because contents are lost")


def test_a_session_that_is_not_over_somewhere_is_refused() -> None:
    """The error has the node and what the session is doing there."""
    graph = _graph()
    parts = [_part(graph, "a", DONE), StoppedPart(node="b", status="RUNNING")]
    with pytest.raises(ConflictError, match="it is RUNNING on b"):
        plan_resumption(graph, parts, ResumeRequest(), _nodes(*NAMES), now=1.0)


def test_copies_that_cannot_be_read_are_named() -> None:
    """If none can be, there is nothing to continue from."""
    parts = [StoppedPart(node="a", status="FAILED", finding="node a: the journal is damaged before its end")]
    with pytest.raises(GoneError, match="node a: the journal is damaged"):
        plan_resumption(_graph(), parts, ResumeRequest(), _nodes(*NAMES), now=1.0)


def test_the_latest_view_counts() -> None:
    """Members of it that never began it count with their copy of the view before; others do not, and are named."""
    graph = _graph()
    parts = [
        _part(graph, "a", DONE, version=(1, 2), members=("a", "b")),
        _part(graph, "b", DONE, version=(1, 1), members=("a", "b")),
        _part(graph, "c", DONE, version=(1, 1)),
    ]
    plan = plan_resumption(graph, parts, ResumeRequest(without_missing=True), _nodes(*NAMES), now=1.0)

    assert plan.copies == {"a": (1, 2), "b": (1, 1)}
    assert plan.view == 3
    assert "older copies on c were left out" in plan.notes[-1]
    assert [place.node for place in plan.places] == ["a", "b", "c"]  # the last one stands by

    parts[1] = _part(graph, "b", DONE, version=(1, 0), members=("a", "b"))
    plan = plan_resumption(graph, parts, ResumeRequest(without_missing=True), _nodes(*NAMES), now=1.0)
    assert plan.copies == {"a": (1, 2)}
    assert "without node b (its copy is older than those of others)" in plan.notes[-1]


@pytest.mark.parametrize(("there", "is_refused"), [("abc", False), ("ab", False), ("a", True)])
def test_nodes_that_could_have_gone_on_are_not_ignored(there: str, *, is_refused: bool) -> None:
    """With three members, one may be missing: two of them could have decided to go on."""
    graph = _graph()
    parts = [_part(graph, name, DONE) for name in there]
    if is_refused:
        with pytest.raises(ConflictError, match=r"1 of its 3 nodes are there \(b: it does not answer; c"):
            plan_resumption(graph, parts, ResumeRequest(), _nodes(*there), now=1.0)
    plan = plan_resumption(graph, parts, ResumeRequest(without_missing=is_refused), _nodes(*there), now=1.0)

    assert tuple(place.node for place in plan.places) == tuple(there)
    assert decode_decision(plan.decision).lost.keys() == set(NAMES) - set(there)


def test_two_nodes_that_could_not_go_on_alone_are_continued_by_one() -> None:
    """A session without enough voters to survive a loss has failed on the other node, too."""
    graph = with_placement(_graph(), np.zeros(6, dtype=np.int32), ("a",))
    parts = [_part(graph, "a", DONE, members=("a", "b"))]
    plan = plan_resumption(graph, parts, ResumeRequest(), _nodes("a"), now=1.0)

    assert [place.node for place in plan.places] == ["a"]


def test_a_session_whose_nodes_were_lost_after_its_last_drop_ends() -> None:
    """Nothing runs again: the session is continued, so that it is FINISHED."""
    graph = _graph()
    parts = [_part(graph, name, dict.fromkeys(("A", "x", "B", "y", "C", "z"), C)) for name in NAMES]
    plan = plan_resumption(graph, parts, ResumeRequest(), _nodes(*NAMES), now=1.0)
    decision = decode_decision(plan.decision)

    assert [place.node for place in plan.places] == list(NAMES)
    assert [*unpack_column(decision.reset, np.int32), *unpack_column(decision.repeated, np.int32)] == []


def test_a_session_that_has_ended_is_refused() -> None:
    """Nothing is left to run, or only a retry would run something."""
    graph = _graph()
    ended = dict.fromkeys(("A", "x", "B", "y", "C", "z"), C)
    parts = [msgspec.structs.replace(_part(graph, name, ended), status="FINISHED") for name in NAMES]
    with pytest.raises(ConflictError, match="nothing is left to run") as refused:
        plan_resumption(graph, parts, ResumeRequest(), _nodes(*NAMES), now=1.0)
    assert "dropflow fetch" in refused.value.hint

    failed = ended | {"B": E, "y": E, "C": E, "z": E}
    parts = [_part(graph, name, failed) for name in NAMES]
    with pytest.raises(ConflictError, match="nothing is left to run") as refused:
        plan_resumption(graph, parts, ResumeRequest(), _nodes(*NAMES), now=1.0)
    assert "dropflow retry" in refused.value.hint


def test_failed_drops_are_tried_again() -> None:
    """The drops that failed by themselves have all their tries again; contents that they need are kept."""
    graph = _graph()
    parts = [_part(graph, name, {"A": C, "x": C, "B": E}) for name in NAMES]
    plan = plan_resumption(graph, parts, RetryRequest(), _nodes(*NAMES), now=1.0)
    decision = decode_decision(plan.decision)

    assert decision.retried == (row(graph, "B"),)
    assert unpack_column(decision.repeated, np.int32).tolist() == [row(graph, "B")]
    assert not len(unpack_column(decision.reset, np.int32))
    with pytest.raises(ConflictError, match="did not fail: it is COMPLETED"):
        plan_resumption(graph, parts, RetryRequest(drops=("A_0",)), _nodes(*NAMES), now=1.0)


ENDED = dict.fromkeys(("A", "x", "B", "y", "C", "z"), C)


def _rows(graph: PhysicalGraph, packed: bytes) -> set[str]:
    return {graph.templates[graph.template[drop]].name for drop in unpack_column(packed, np.int32).tolist()}


def test_drops_run_again_with_all_that_depends_on_them() -> None:
    """They have all of their tries; the others stay, and what is gone and needed is made again."""
    graph = _graph()
    parts = [_part(graph, name, ENDED) for name in NAMES]
    plan = plan_resumption(graph, parts, RetryRequest(start=("B",)), _nodes(*NAMES), now=1.0)
    decision = decode_decision(plan.decision)

    assert (_rows(graph, decision.repeated), _rows(graph, decision.reset)) == (set("ByCz"), set())
    assert decision.retried == tuple(sorted(row(graph, name) for name in "BC"))
    assert decision.why == "drops were run again with 'dropflow retry --from'"
    assert plan.notes[-1].startswith("run again at ")
    assert plan.notes[-1].endswith(": 2 drops kept, 4 drops run again as was asked for")

    lost = msgspec.structs.replace(
        msgspec.msgpack.decode(parts[0].report, type=MemberReport), available=pack_column(np.zeros(3, dtype=np.uint8))
    )
    parts[0] = msgspec.structs.replace(parts[0], report=msgspec.msgpack.encode(lost))
    plan = plan_resumption(graph, parts, RetryRequest(start=("B",)), _nodes(*NAMES), now=1.0)
    assert _rows(graph, decode_decision(plan.decision).reset) == {"A", "x"}
    assert plan.notes[-1].endswith("1 completed drop run again because contents are lost")


def test_a_node_that_never_began_to_run_drops_again_does_so_later() -> None:
    """Its copy has them as completed, with the contents from before: they count no more since the others began."""
    graph = _graph()
    before = [_part(graph, name, ENDED) for name in NAMES]
    first = plan_resumption(graph, before, RetryRequest(start=("A",)), _nodes(*NAMES), now=1.0)
    decision = decode_decision(first.decision)
    assert first.view == 1
    parts = [
        msgspec.structs.replace(
            _part(graph, name, {"A": C, "x": C}, version=(first.epoch, 1)), deployment=first, decision=decision
        )
        for name in "ac"
    ]
    plan = plan_resumption(graph, [*parts, before[1]], ResumeRequest(), _nodes(*NAMES), now=2.0)
    again = decode_decision(plan.decision)

    assert _rows(graph, again.repeated) == {"B", "y"}
    assert again.retried == (row(graph, "B"),)
    # Once it has begun, what it has completed counts.
    parts.append(
        msgspec.structs.replace(
            _part(graph, "b", {"B": C, "y": C}, version=(first.epoch, 1)), deployment=first, decision=decision
        )
    )
    plan = plan_resumption(graph, parts, ResumeRequest(), _nodes(*NAMES), now=2.0)
    assert not decode_decision(plan.decision).repeated


def test_drops_of_a_lost_node_run_again_elsewhere() -> None:
    """What is implied to have completed on the lost node may be named, and goes to the others."""
    graph = _graph()
    parts = [_part(graph, name, ENDED) for name in "ac"]
    plan = plan_resumption(graph, parts, RetryRequest(start=("B",)), _nodes("a", "c"), now=1.0)
    decision = decode_decision(plan.decision)
    placement = unpack_column(decision.placement, np.uint16)

    assert _rows(graph, decision.repeated) == set("ByCz")
    assert {decision.places[placement[row(graph, name)]] for name in "By"} <= {"a", "c"}


def test_inputs_that_have_changed_are_found_on_all_nodes() -> None:
    """A node reports them, and the request is refused if results would be mixed."""
    graph = draw("r -> A -> x -> B -> y, r -> C -> z", r={"component": "dlg.data.drops.file.FileDROP"})
    graph = with_placement(graph, np.array([0, 1, 0, 1, 0, 1, 0], dtype=np.int32), ("a", "b"))
    ended = dict.fromkeys("rAxByCz", C)
    parts = [_part(graph, name, ended, members=("a", "b")) for name in "ab"]
    request = RetryRequest(start=("A",))
    assert plan_resumption(graph, parts, request, _nodes("a", "b"), now=1.0).decision

    parts[0] = msgspec.structs.replace(parts[0], changed_inputs=(row(graph, "r"),))
    with pytest.raises(ConflictError, match="drawing_r_0 has changed since the session read it"):
        plan_resumption(graph, parts, request, _nodes("a", "b"), now=1.0)
    assert plan_resumption(graph, parts, RetryRequest(start=("r",)), _nodes("a", "b"), now=1.0).decision


# How fast members are, from what their attempts took.


def _template(graph: PhysicalGraph, name: str) -> int:
    return int(graph.template[row(graph, name)])


def test_without_measurements_weights_and_workers_count() -> None:
    """Applications take as long as the graph gives, and data nothing."""
    graph = draw("a -> B, a -> C", B={"weight": 3.0}, C={"weight": 5.0})
    speeds = measure(graph, [4, 0], [{}, {}])
    assert [speeds.seconds[_template(graph, name)] for name in "aBC"] == [0.0, 3.0, 5.0]
    assert speeds.capacities == [4.0, 1.0]


def test_one_template_on_several_members_shows_their_speeds() -> None:
    """Whatever the weight is: a member that takes four times as long has a quarter of the speed."""
    graph = draw("a -> B", B={"weight": 7.0})
    template = _template(graph, "B")
    speeds = measure(graph, [1, 2, 1], [{template: (1000, 4000.0)}, {template: (1000, 1000.0)}, {}])
    slow, fast, unknown = speeds.capacities
    assert fast / slow == pytest.approx(8.0, rel=0.02)
    assert unknown == 1.0


def test_templates_that_ran_on_one_member_each_are_compared_by_their_weights() -> None:
    """A member whose attempts take longer than their weights suggest is slow."""
    graph = draw("a -> B, a -> C", B={"weight": 1.0}, C={"weight": 10.0})
    durations: list[Durations] = [{_template(graph, "B"): (50, 100.0)}, {_template(graph, "C"): (50, 250.0)}]
    slow, fast = measure(graph, [1, 1], durations).capacities
    assert fast / slow == pytest.approx(4.0, rel=0.1)


def test_a_template_that_is_heavier_than_its_weight_does_not_make_its_members_slow() -> None:
    """What runs on several members counts as measured, so that those who have run more of it are not slower."""
    graph = draw("a -> B, a -> C")
    light, heavy = _template(graph, "B"), _template(graph, "C")
    durations: list[Durations] = [
        {light: (100, 100.0), heavy: (10, 1000.0)},
        {light: (100, 100.0), heavy: (100, 10000.0)},
    ]
    first, second = measure(graph, [1, 1], durations).capacities
    assert first / second == pytest.approx(1.0, rel=0.1)
