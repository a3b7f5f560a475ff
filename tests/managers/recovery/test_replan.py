"""The next view after losses: every drop has an owner and settles, and no more runs again than has to."""

import random
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import ProtocolError
from dropflow.execution.decisions.events import Action, Assemble, Begin, Event, KnownStates
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, slice_for, with_placement
from dropflow.graph.templates import Kind
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row
from managers.deployment import Place
from managers.recovery.decision_text import explain_decision
from managers.recovery.records import MemberReport, RequestedChange, View, ViewDecision, pack_column, unpack_column
from managers.recovery.replan import decide
from managers.recovery.vote import PlanView
from tests.execution.decisions.interrupted_core import World, outcomes
from tests.regular_graphs import triples
from tests.strategies import expected_states, graphs

N, W, C, E, S, X = (
    DropState.INITIALIZED,
    DropState.WRITING,
    DropState.COMPLETED,
    DropState.ERROR,
    DropState.SKIPPED,
    DropState.CANCELLED,
)
NODES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")


class Cluster(World):
    """A world whose drops are on nodes. What nodes know of each other's drops may lag behind."""

    view: View
    placed: PhysicalGraph
    pieces: dict[str, Slice]
    saved: frozenset[tuple[int, int]] = frozenset()
    """Parts that survived the last loss."""
    copies: frozenset[tuple[str, int]] = frozenset()
    """Nodes that hold a copy of the content of a drop of another node."""

    def copy_some(self, share: float) -> None:
        """Copy some contents to some nodes; copies of released contents may be left."""
        names = [place.node for place in self.view.members]
        new = {(name, drop) for drop in self.contents for name in names if self.chance.random() < share}
        self.copies |= {(name, drop) for name, drop in new if self.owner(drop) != name}

    def lose_some_contents(self, share: float) -> None:
        """Lose contents, as those in the memory of processes that are started again."""
        self.contents = {drop for drop in sorted(self.contents) if self.chance.random() >= share}

    def place(self, nodes: int) -> None:
        """Place the drops anywhere, on as many nodes, with one or two parts each."""
        names = NODES[:nodes]
        parts = np.array([self.chance.randrange(nodes + 1) for _ in range(self.graph.drops)], dtype=np.int32)
        self.placed = with_placement(self.graph, parts, (*names, names[0]))
        self.view = View(0, tuple(Place(name, f"tcp://{name}", 1) for name in names), (Place("island", "", 1),))
        self.pieces = {name: slice_for(self.placed, name) for name in names}

    def act(self, action: Action) -> list[Event]:
        """Carry out one action; parts from before the loss count."""
        if isinstance(action, Assemble):
            self.parts |= self.saved
        return super().act(action)

    def owner(self, drop: int) -> str:
        """Return the node of a drop."""
        name: str = self.placed.places[self.placed.part[drop]]
        return name

    def report(self, node: str, *, tells_skips: bool) -> bytes:
        """Return the report of a node, with nonsense about drops that are not its neighbours any more."""
        piece = self.pieces[node]
        rows: list[int] = piece.drop.tolist()
        states = []
        for here, drop in enumerate(rows):
            state = self.core.drops.state(drop)
            around = len(neighbours(piece.graph, here))
            if self.owner(drop) == node:
                states.append(state)
            elif not around:
                states.append(C)
            else:
                states.append(state if state in (C, E, S) and self.chance.random() < 0.8 else N)
        pairs = {pair for pair in self.parts if node in (self.owner(pair[0]), self.owner(pair[1]))}
        if tells_skips:
            pairs |= {(app, drop) for app, chosen in self.skipped.items() if self.owner(app) == node for drop in chosen}
        pairs = {pair for pair in pairs if self.core.drops.state(pair[1]) not in (C, E, S)}
        available = [drop in self.contents and self.owner(drop) == node for drop in rows]
        causes = self.core.drops.error_causes()
        report = MemberReport(
            rows=pack_column(piece.drop),
            states=pack_column(np.array(states, dtype=np.uint8)),
            available=pack_column(np.array(available, dtype=np.uint8)),
            parts=pack_column(np.array(sorted(pairs), dtype=np.int32).reshape(-1)) if pairs else b"",
            attempts={drop: number for drop, number in self.core.drops.attempts.items() if self.owner(drop) == node},
            causes={drop: causes[drop] for drop in rows if drop in causes},
            copies=pack_column(np.array([drop for name, drop in self.copies if name == node], dtype=np.int32)),
        )
        return msgspec.msgpack.encode(report)

    def lose(
        self, lost: Collection[str], *, tells_skips: bool, changes: tuple[RequestedChange, ...] = ()
    ) -> ViewDecision:
        """Lose nodes, and go on with what is decided: in one core, as the nodes together would."""
        reporting = [place.node for place in self.view.members if place.node not in lost]
        reports = {name: self.report(name, tells_skips=tells_skips) for name in reporting}
        plan = PlanView((1, 0), self.view, reports, dict.fromkeys(lost, "silent for 15 s"), changes)
        decision = decide(self.placed, plan)
        assert decide(self.placed, plan) == decision, "every candidate decides the same"
        leaving = {node for change in changes for node in change.leave}
        left = [name for name in reporting if name not in leaving]
        joining = {place.node: place for change in changes for place in change.add if place.node not in reporting}
        if not left and not joining:
            left = reporting
        for name in joining:
            self.pieces[name] = slice_for(with_placement(self.graph, np.zeros(self.graph.drops), ("",)), name)
        self.check(decision, left, tuple(joining.values()), changes)
        self.go_on(decision, left, tells_skips=tells_skips)
        return decision

    def check(
        self, decision: ViewDecision, left: list[str], joining: tuple[Place, ...], changes: tuple[RequestedChange, ...]
    ) -> None:
        """Check that every drop has an owner, and that nothing moves or runs again that is there."""
        placement = unpack_column(decision.placement, np.uint16).tolist()
        reset = unpack_column(decision.reset, np.int32).tolist()
        assert decision.view == View(
            self.view.number + 1,
            (*(place for place in self.view.members if place.node in left), *joining),
            self.view.witnesses,
            decision.view.draining,
        )
        running = {run.drop for run in self.running}
        may_go = {node for change in changes for node in change.drain} | set(self.view.draining)
        if joining or any(change.is_rebalancing for change in changes):
            may_go |= set(left)
        assert len(placement) == self.graph.drops
        for drop, member in enumerate(placement):
            now, before = decision.places[member], self.owner(drop)
            assert now in left or now in {place.node for place in joining}
            is_rescued = drop not in self.contents and (now, drop) in self.copies and self.core.drops.state(drop) is C
            if now != before and before in left and not is_rescued:
                assert before in may_go
                assert self.core.drops.state(drop) <= W, "it is settled"
                assert drop not in running, "it runs"
                assert not any(target == drop for _, target in self.parts), "a part of it is there"
        for drop in reset:
            if self.owner(drop) in left:
                assert self.core.drops.state(drop) is C
                assert drop not in self.contents, "it is there"
        for drop in {drop for name, drop in self.copies if name in left}:
            assert drop not in reset, "there is a copy"
        for drop in {drop for name, drop in self.copies if name in left and self.owner(drop) not in left}:
            assert (decision.places[placement[drop]], drop) in self.copies
            assert unpack_column(decision.taken_over, np.uint8)[drop] == C

    def go_on(self, decision: ViewDecision, left: list[str], *, tells_skips: bool) -> None:
        """Begin again from the decision and what the members have."""
        part = unpack_column(decision.placement, np.uint16).astype(np.int32)
        drops, owner = self.core.drops, [decision.places[number] for number in part.tolist()]
        here = [self.owner(drop) in left and self.owner(drop) == owner[drop] for drop in range(self.graph.drops)]
        reset = set(unpack_column(decision.reset, np.int32).tolist())
        taken_over = unpack_column(decision.taken_over, np.uint8).tolist()
        assert len(taken_over) in (0, self.graph.drops)
        runs = [run for run in self.running if here[run.drop]]
        states = [
            (N if drop in reset else int(drops.states[drop])) if is_here else taken_over[drop]
            for drop, is_here in enumerate(here)
        ]
        self.copies = frozenset((name, drop) for name, drop in self.copies if name in left and drop not in reset)
        self.contents = {drop for drop in self.contents if here[drop] and drop not in reset}
        self.contents |= {drop for _, drop in self.copies if not here[drop]}
        causes = {
            drop: drops.error_causes()[drop] if here[drop] else decision.causes[drop]
            for drop, state in enumerate(states)
            if state == E
        }
        kinds = self.graph.kinds[self.graph.template]
        known = KnownStates(
            states=bytes(states),
            causes=causes,
            attempts={drop: attempt for drop, attempt in drops.attempts.items() if here[drop]} | decision.attempts,
            skipped={
                app: tuple(drop for drop in chosen if states[drop] <= W)
                for app, chosen in self.skipped.items()
                if tells_skips and here[app] and states[app] == C
            },
            reset=tuple(sorted(reset)),
            lost=tuple(
                drop
                for drop, state in enumerate(states)
                if state == C and kinds[drop] == Kind.DATA and drop not in self.contents
            ),
            running=tuple(sorted(run.drop for run in runs)),
        )
        self.saved = frozenset(pair for pair in self.parts if here[pair[1]] and states[pair[0]] == C)
        self.allowed = {drop for drop, state in enumerate(states) if state <= W}
        self.placed, self.view = with_placement(self.graph, part, decision.places), decision.view
        self.copies = frozenset((name, drop) for name, drop in self.copies if self.owner(drop) != name)
        self.pieces = {
            place.node: slice_for(self.placed, place.node, first=self.pieces[place.node].drop)
            for place in decision.view.members
        }
        self.begin(Begin(known))
        self.running += runs


def neighbours(graph: PhysicalGraph, drop: int) -> list[int]:
    """Return predecessors and successors of a drop."""
    return [
        other
        for edges in (graph.predecessors, graph.successors)
        for other in edges.neighbour[edges.ptr[drop] : edges.ptr[drop + 1]].tolist()
    ]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(graphs(), st.data())
def test_losses_do_not_change_the_outcome(graph: PhysicalGraph, data: st.DataObject) -> None:
    """After up to three losses of some nodes every drop settles as without them, and every result is there.

    Nothing runs whose outcome is known and not needed, nothing whose content has a copy that is left, and no
    application runs without an input. Contents of nodes that are left may be lost with their processes.
    """
    fails, leaves_out = outcomes(graph, data)
    fails = {drop: 99 if times else 0 for drop, times in fails.items()}  # the same outcome each time
    cluster = Cluster(
        graph,
        random.Random(data.draw(st.integers(0, 2**32))),
        fails=fails,
        leaves_out=leaves_out,
    )
    cluster.place(data.draw(st.integers(1, 6)))
    for _ in range(data.draw(st.integers(1, 3))):
        cluster.play(data.draw(st.integers(0, 2 * graph.drops)))
        cluster.copy_some(data.draw(st.sampled_from([0.0, 0.1, 0.5])))
        cluster.play(data.draw(st.integers(0, 3)))
        cluster.lose_some_contents(data.draw(st.sampled_from([0.0, 0.0, 0.3])))
        names = [place.node for place in cluster.view.members]
        lost = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
        cluster.lose(lost, tells_skips=data.draw(st.booleans()))
    cluster.play()

    cluster.check_end()
    if all(template.effective_inputs <= 0 for template in graph.templates):
        assert cluster.states() == expected_states(graph, fails=fails, leaves_out=leaves_out)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(graphs(), st.data())
def test_changes_that_are_asked_for_do_not_change_the_outcome(graph: PhysicalGraph, data: st.DataObject) -> None:
    """Nodes join, drain and leave, and sessions are rebalanced, also while others are lost: all settles as without it.

    What runs, is settled, or has been written in part stays on a member that stays.
    """
    fails, leaves_out = outcomes(graph, data)
    fails = {drop: 99 if times else 0 for drop, times in fails.items()}
    cluster = Cluster(
        graph,
        random.Random(data.draw(st.integers(0, 2**32))),
        fails=fails,
        leaves_out=leaves_out,
    )
    cluster.place(data.draw(st.integers(1, 4)))
    for _ in range(data.draw(st.integers(1, 3))):
        cluster.play(data.draw(st.integers(0, 2 * graph.drops)))
        names = [place.node for place in cluster.view.members]
        lost = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
        others = st.lists(st.sampled_from(NODES), unique=True, max_size=2)
        some = st.lists(st.sampled_from(names), unique=True, max_size=2)
        change = RequestedChange(
            "one",
            add=tuple(Place(name, f"tcp://{name}", 2) for name in data.draw(others)),
            workers=dict.fromkeys(data.draw(others), 2.0),
            drain=tuple(data.draw(some)),
            leave=tuple(data.draw(some)),
            is_rebalancing=data.draw(st.booleans()),
        )
        decision = cluster.lose(lost, tells_skips=data.draw(st.booleans()), changes=(change,))
        assert decision.answered == ("one",)
    cluster.play()

    cluster.check_end()
    if all(template.effective_inputs <= 0 for template in graph.templates):
        assert cluster.states() == expected_states(graph, fails=fails, leaves_out=leaves_out)


def _asked(plan: PlanView, **change: Any) -> PlanView:
    return msgspec.structs.replace(plan, changes=(RequestedChange("one", **change),))


def test_a_node_that_joins_gets_its_share_of_what_has_not_begun() -> None:
    """Whole chains move to it, and what runs or is settled stays."""
    drawing = ", ".join(f"A{number} -> b{number} -> C{number} -> d{number}" for number in range(10))
    names = {letter: [f"{letter}{number}" for number in range(10)] for letter in "AbCd"}
    graph = placed(drawing, alpha=" ".join(name for letter in names.values() for name in letter))
    graph = with_placement(graph, graph.part, ("alpha", "beta"))
    states = {"A0": C, "b0": C, "C0": W, "A1": W}
    plan = _asked(plan_of(graph, states, [], available="b0"), add=(Place("gamma", "tcp://g", 1),))
    decision = decide(graph, plan)
    owner = owners(graph, decision)

    counts = {node: sum(owner[row(graph, name)] == node for name in names["C"]) for node in ("alpha", "beta", "gamma")}
    assert counts == {"alpha": 4, "beta": 3, "gamma": 3}
    assert all(len({owner[row(graph, f"{letter}{number}")] for letter in "AbCd"}) == 1 for number in range(10))
    assert (owner[row(graph, "A0")], owner[row(graph, "A1")]) == ("alpha", "alpha")
    assert explain_decision(graph, decision) == (
        "node gamma has joined; 24 drops had not begun and move to beta (12) and gamma (12)"
    )


def test_a_slow_member_gets_less() -> None:
    """Capacities are the numbers of workers, times the speed that was measured on each member."""
    graph = placed(
        ", ".join(f"A{number} -> b{number}" for number in range(40)),
        alpha=" ".join(f"A{number} b{number}" for number in range(20)),
        beta=" ".join(f"A{number} b{number}" for number in range(20, 40)),
    )
    plan = plan_of(graph, {}, [])
    template = int(graph.template[row(graph, "A0")])
    reports = {}
    for name, seconds in {"alpha": 40.0, "beta": 10.0}.items():
        report = msgspec.msgpack.decode(plan.reports[name], type=MemberReport)
        measured = msgspec.structs.replace(report, durations={template: (10, seconds)})
        reports[name] = msgspec.msgpack.encode(measured)
    plan = _asked(msgspec.structs.replace(plan, reports=reports), is_rebalancing=True)
    owner = owners(graph, decide(graph, plan))

    assert [sum(owner[row(graph, f"A{at}")] == node for at in range(40)) for node in ("alpha", "beta")] == [9, 31]


def test_a_member_that_drains_keeps_what_it_has_begun() -> None:
    """It gets nothing more, also when another one is lost later; when it leaves, its contents are gone."""
    graph = placed("A -> b -> C -> d, X -> y -> Z -> w", alpha="A b C d", beta="X y Z w")
    states = {"A": C, "b": C, "X": W}
    draining = decide(graph, _asked(plan_of(graph, states, [], available="b"), drain=("alpha",)))
    assert (draining.view.draining, draining.lost) == (("alpha",), {})
    assert owners(graph, draining) == [
        "alpha" if name in ("A", "b") else "beta" for name in ("A", "b", "C", "d", "X", "y", "Z", "w")
    ]
    leaving = decide(graph, _asked(plan_of(graph, states, [], available="b"), leave=("alpha",)))
    assert [place.node for place in leaving.view.members] == ["beta"]
    assert unpack_column(leaving.reset, np.int32).tolist() == named(graph, "A b")
    assert explain_decision(graph, leaving) == (
        "node alpha has left, as was asked for: 4 drops go to beta (4); "
        "2 completed drops run again because their contents were lost"
    )


def plan_of(graph: PhysicalGraph, states: dict[str, DropState], lost: list[str], available: str = "") -> PlanView:
    """Return a plan for the loss of nodes of a drawing, each of whose nodes knows all states that it can know.

    States are those of drops by name, and INITIALIZED for the others; `available` are the names of contents.
    """
    by_row = np.zeros(graph.drops, dtype=np.uint8)
    contents = np.zeros(graph.drops, dtype=np.uint8)
    for name, state in states.items():
        by_row[row(graph, name)] = state
    for name in available.split():
        contents[row(graph, name)] = 1
    reports = {}
    for name in set(graph.places) - set(lost):
        piece = slice_for(graph, name)
        own = contents[piece.drop] * piece.is_own
        report = MemberReport(pack_column(piece.drop), pack_column(by_row[piece.drop]), pack_column(own))
        reports[name] = msgspec.msgpack.encode(report)
    members = tuple(Place(name, "", 1) for name in sorted(set(graph.places)))
    return PlanView((1, 0), View(3, members), reports, dict.fromkeys(lost, "silent for 15 s"))


def placed(drawing: str, **nodes: str) -> PhysicalGraph:
    """Return the graph of a drawing whose drops are on nodes: ``alpha="a B", beta="c"``."""
    graph = draw(drawing)
    part = np.zeros(graph.drops, dtype=np.int32)
    for number, names in enumerate(nodes.values()):
        part[[row(graph, name) for name in names.split()]] = number
    return with_placement(graph, part, tuple(nodes))


def named(graph: PhysicalGraph, names: str) -> list[int]:
    """Return the rows of drops, ascending."""
    return sorted(row(graph, name) for name in names.split())


def test_what_a_member_cannot_run_goes_to_one_that_can() -> None:
    """A drop of a lost node goes to the other member if the first choice lacks what it needs; if both do, it stays."""
    graph = placed("a -> B -> c, d -> E -> f, g -> H -> i", alpha="a B c", beta="d E f", gamma="g H i")
    plan, at = plan_of(graph, {}, ["alpha"]), row(graph, "B")
    reports = {name: msgspec.msgpack.decode(report, type=MemberReport) for name, report in plan.reports.items()}
    nodes = [owners(graph, decide(graph, plan))[at]]
    for name in (nodes[0], *({"beta", "gamma"} - {nodes[0]})):
        lacking = msgspec.structs.replace(reports[name], unable=(int(graph.template[at]),))
        plan = msgspec.structs.replace(plan, reports={**plan.reports, name: msgspec.msgpack.encode(lacking)})
        nodes.append(owners(graph, decide(graph, plan))[at])

    assert {nodes[0], nodes[1]} == {"beta", "gamma"}
    assert nodes[2] in ("beta", "gamma")


def owners(graph: PhysicalGraph, decision: ViewDecision) -> list[str]:
    """Return the node of every drop after a decision."""
    part = unpack_column(decision.placement, np.uint16)
    assert len(part) == graph.drops
    return [decision.places[number] for number in part.tolist()]


def test_without_losses_nothing_changes() -> None:
    """If all members report, every drop stays, and nothing runs again."""
    graph = placed("A -> b -> C -> d", alpha="A b", beta="C d")
    plan = plan_of(graph, {"A": C, "b": C, "C": W}, [], available="b")
    decision = decide(graph, plan)

    assert owners(graph, decision) == ["alpha", "alpha", "beta", "beta"]
    assert decision.view == View(4, plan.view.members)
    assert not len(unpack_column(decision.reset, np.int32))
    assert (decision.taken_over, decision.causes, decision.attempts, decision.lost) == (b"", {}, {}, {})
    assert explain_decision(graph, decision) == "all members stay, and nothing moves"


@pytest.mark.parametrize(
    ("persist", "reset", "note"),
    [
        (None, "", "1 file that nothing needs any more is gone (with persist set, a file is made again)"),
        (True, "A b", "2 completed drops run again because their contents were lost"),
    ],
)
def test_a_file_that_is_gone_with_its_node_is_told(*, persist: bool | None, reset: str, note: str) -> None:
    """It was a result as all files are, but only one that is to persist is made again when nothing needs it."""
    graph = placed("A -> b -> C -> d -> E -> f", alpha="A b", beta="C d E f")
    number = int(graph.template[row(graph, "b")])
    changed = msgspec.structs.replace(graph.templates[number], category="File", persist=persist)
    graph = replace(graph, templates=(*graph.templates[:number], changed, *graph.templates[number + 1 :]))
    decision = decide(graph, plan_of(graph, dict.fromkeys("AbCd", C) | {"E": W}, ["alpha"], available="d"))

    assert unpack_column(decision.reset, np.int32).tolist() == named(graph, reset)
    assert explain_decision(graph, decision) == f"node alpha is lost (silent for 15 s): 2 drops go to beta (2); {note}"


def test_only_what_is_needed_runs_again() -> None:
    """The content that was lost is made again from what is left; what was used up and is not needed is not."""
    graph = placed("a -> B -> c -> D -> e -> F -> g", alpha="a B F g", beta="c D e", gamma="")
    decision = decide(graph, plan_of(graph, dict.fromkeys("aBcDe", C) | {"F": W}, ["beta"], available="a"))

    assert unpack_column(decision.reset, np.int32).tolist() == named(graph, "B c D e")
    assert explain_decision(graph, decision) == (
        "node beta is lost (silent for 15 s): 3 drops go to alpha (3); "
        "4 completed drops run again because their contents were lost"
    )


def test_what_led_to_a_result_of_a_member_does_not_run_again() -> None:
    """A path inside of a lost node has completed if what it led to has, also where no member was told of it."""
    graph = placed("a -> B -> c -> D -> e -> F -> g", alpha="F g", beta="a B c D e", gamma="")
    decision = decide(graph, plan_of(graph, dict.fromkeys("eFg", C), ["beta"], available="g"))

    assert bytes(unpack_column(decision.taken_over, np.uint8))[:5] == bytes([C] * 5)
    assert set(owners(graph, decision)) <= {"alpha", "gamma"}
    assert not len(unpack_column(decision.reset, np.int32))


def test_a_drop_that_was_cancelled_alone_does_not_run_again() -> None:
    """Neither if its node goes on, nor if it is lost; what led to it does not run again for it."""
    graph = placed("A -> b -> C -> d -> E, F -> g", alpha="A b", beta="C", gamma="d E F g")
    plan = plan_of(graph, dict.fromkeys("Ab", C) | {"C": X, "d": E, "E": E}, [])
    report = msgspec.msgpack.decode(plan.reports["gamma"], type=MemberReport)
    causes = dict.fromkeys(named(graph, "d E"), row(graph, "C"))
    told = msgspec.msgpack.encode(msgspec.structs.replace(report, causes=causes))
    plan = msgspec.structs.replace(plan, reports={**plan.reports, "gamma": told})
    stays = decide(graph, plan)
    without = {node: packed for node, packed in plan.reports.items() if node != "beta"}
    lost = decide(graph, msgspec.structs.replace(plan, reports=without, lost={"beta": "silent"}))

    assert not len(unpack_column(stays.reset, np.int32))
    assert not len(unpack_column(lost.reset, np.int32))
    assert unpack_column(lost.taken_over, np.uint8)[row(graph, "C")] == X


def with_copies(plan: PlanView, node: str, drops: list[int]) -> PlanView:
    """Return a plan in which a node reports copies."""
    report = msgspec.msgpack.decode(plan.reports[node], type=MemberReport)
    told = msgspec.structs.replace(report, copies=pack_column(np.array(drops, dtype=np.int32)))
    return msgspec.structs.replace(plan, reports={**plan.reports, node: msgspec.msgpack.encode(told)})


def test_a_drop_with_a_copy_goes_to_the_copy_and_does_not_run_again() -> None:
    """What led to it does not either; a path that has no copy runs again from the last content that is left."""
    graph = placed("A -> b -> C -> d -> E -> f", alpha="", beta="A b C d E f", gamma="")
    plan = plan_of(graph, {}, ["beta"])
    decision = decide(graph, with_copies(plan, "gamma", named(graph, "d")))

    assert owners(graph, decision)[row(graph, "d")] == "gamma"
    assert unpack_column(decision.taken_over, np.uint8).tolist() == [C, C, C, C, N, N]
    assert not len(unpack_column(decision.reset, np.int32))


def test_copies_of_drops_of_members_change_nothing() -> None:
    """Only drops of lost nodes go where their copies are."""
    graph = placed("A -> b -> C, D -> e", alpha="A b", beta="C", gamma="D e")
    plan = plan_of(graph, dict.fromkeys("Ab", C), ["gamma"], available="b")

    assert decide(graph, with_copies(plan, "beta", named(graph, "b"))) == decide(graph, plan)


@pytest.mark.parametrize("fields", [{"error_threshold": 50.0}, {"effective_inputs": 1}, {"block_skip": True}])
def test_what_an_application_tolerates_is_not_taken_as_completed(fields: dict[str, Any]) -> None:
    """Inputs that may have failed or been skipped, as far as members know, run again."""
    graph = draw("a -> B, c -> B, B -> d -> E -> f", B=fields)
    graph = with_placement(graph, np.array([1, 1, 1, 1, 0, 0]), ("alpha", "beta"))
    decision = decide(graph, plan_of(graph, dict.fromkeys("dEf", C), ["beta"], available="f"))
    taken_over = unpack_column(decision.taken_over, np.uint8)

    assert [taken_over[row(graph, name)] for name in "acBd"] == [N, N, C, C]


def test_states_of_lost_drops_come_from_their_neighbours() -> None:
    """What a neighbour was told holds; of a failure, also its cause, even if no member has a neighbour of it."""
    graph = placed("A -> b -> C -> d -> E -> f", alpha="E f", beta="A b C d")
    plan = plan_of(graph, {"A": E, "b": E, "C": E, "d": E, "E": E, "f": E}, ["beta"])
    report = msgspec.msgpack.decode(plan.reports["alpha"], type=MemberReport)
    causes = dict.fromkeys(named(graph, "d E f"), row(graph, "A"))
    told = {"alpha": msgspec.msgpack.encode(msgspec.structs.replace(report, causes=causes))}
    decision = decide(graph, msgspec.structs.replace(plan, reports=told))

    assert unpack_column(decision.taken_over, np.uint8).tolist() == [E, N, N, E, N, N]
    assert decision.causes == dict.fromkeys(named(graph, "A d"), row(graph, "A"))


def test_only_neighbours_know_about_lost_drops() -> None:
    """A member may have rows of drops from an earlier view that it hears nothing about: these do not count."""
    graph = placed("A -> b, C", alpha="A b", beta="C")
    rows, states = np.arange(3, dtype=np.int32), np.array([N, N, C], dtype=np.uint8)
    report = MemberReport(pack_column(rows), pack_column(states), pack_column(np.zeros(3, dtype=np.uint8)))
    plan = plan_of(graph, {}, ["beta"])
    plan = msgspec.structs.replace(plan, reports={"alpha": msgspec.msgpack.encode(report)})

    assert unpack_column(decide(graph, plan).taken_over, np.uint8).tolist() == [N, N, N]


@pytest.mark.parametrize(
    ("nodes", "again"),
    [({"alpha": "A", "beta": "B d"}, ["A"]), ({"alpha": "B d", "beta": "A"}, []), ({"alpha": "A B d", "beta": ""}, [])],
)
def test_parts_count_where_their_drop_is(nodes: dict[str, str], again: list[str]) -> None:
    """A part that is with its drop need not be written again; one that was written for a lost node has to be."""
    graph = placed("A -> d, B -> d", **nodes)
    plan = plan_of(graph, {"A": C}, ["beta"])
    report = msgspec.msgpack.decode(plan.reports["alpha"], type=MemberReport)
    pair = pack_column(np.array([row(graph, "A"), row(graph, "d")], dtype=np.int32))
    told = {"alpha": msgspec.msgpack.encode(msgspec.structs.replace(report, parts=pair))}
    decision = decide(graph, msgspec.structs.replace(plan, reports=told))

    assert unpack_column(decision.reset, np.int32).tolist() == [row(graph, name) for name in again]


def test_attempts_of_lost_drops_go_on_from_the_last_known_number() -> None:
    """A drop that runs again, or has still to run, has the next number, and one that is settled the last one."""
    graph = placed("A -> b -> C, D -> e -> F -> g, H -> i", alpha="C F g", beta="A b D e H i")
    plan = plan_of(graph, dict.fromkeys("AbDeFg", C), ["beta"], available="g")
    report = msgspec.msgpack.decode(plan.reports["alpha"], type=MemberReport)
    attempts = {row(graph, "A"): 2, row(graph, "D"): 3, row(graph, "H"): 4, row(graph, "F"): 5}
    told = {"alpha": msgspec.msgpack.encode(msgspec.structs.replace(report, attempts=attempts))}
    decision = decide(graph, msgspec.structs.replace(plan, reports=told))

    assert unpack_column(decision.reset, np.int32).tolist() == named(graph, "A b")
    assert decision.attempts == {row(graph, "A"): 3, row(graph, "D"): 3, row(graph, "H"): 5}


def test_the_explanation_names_every_lost_node() -> None:
    """One clause for each, also for one that had no drops; counts of one are singular."""
    graph = placed("A -> b, C -> d", alpha="A", beta="b", gamma="C d", delta="")
    plan = plan_of(graph, {}, ["beta", "gamma", "delta"])
    text = explain_decision(graph, decide(graph, plan))

    assert text == (
        "node beta is lost (silent for 15 s): 1 drop goes to alpha (1); "
        "node gamma is lost (silent for 15 s): 2 drops go to alpha (2); "
        "node delta is lost (silent for 15 s): it had no drops"
    )


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ({}, "no member of the session has reported"),
        ({"alpha": b"\xc1"}, "the report of node alpha cannot be read"),
        ({"alpha": msgspec.msgpack.encode(MemberReport(b"zip", b"", b""))}, "a column of a view cannot be read"),
        (
            {"alpha": msgspec.msgpack.encode(MemberReport(pack_column(np.array([9], dtype=np.int32)), b"", b""))},
            "the report of node alpha is not about the graph 'drawing'",
        ),
    ],
)
def test_reports_that_cannot_be_used_are_refused(reports: dict[str, bytes], message: str) -> None:
    """The message names the node."""
    graph = placed("A -> b", alpha="A", beta="b")
    plan = PlanView((1, 0), View(0, (Place("alpha", "", 1), Place("beta", "", 1))), reports, {"beta": "gone"})

    with pytest.raises(ProtocolError, match=message):
        decide(graph, plan)


@pytest.mark.slow
def test_a_decision_about_many_drops(capsys: pytest.CaptureFixture[str]) -> None:
    """100,000 drops on four nodes, half of them completed, one node lost: all have an owner. Prints the time."""
    graph = with_placement(triples(100_000, 4), triples(100_000, 4).part, NODES[:4])
    reports = {}
    for name in ("alpha", "beta", "delta"):
        piece = slice_for(graph, name)
        states = np.where(graph.instance[piece.drop] % 2, np.uint8(C), np.uint8(N))
        contents = (states == C) & piece.is_own
        report = MemberReport(pack_column(piece.drop), pack_column(states), pack_column(contents.astype(np.uint8)))
        reports[name] = msgspec.msgpack.encode(report)
    members = tuple(Place(name, "", 1) for name in NODES[:4])
    began = time.perf_counter()
    decision = decide(graph, PlanView((1, 0), View(0, members), reports, {"gamma": "gone"}))
    seconds = time.perf_counter() - began
    with capsys.disabled():
        print(f" decided about {graph.drops} drops in {seconds:.3f} s")  # noqa: T201 - the promise

    assert set(owners(graph, decision)) == {"alpha", "beta", "delta"}
