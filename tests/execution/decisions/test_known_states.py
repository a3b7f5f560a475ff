"""A session that is interrupted at any moment, loses contents, and continues from known states."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.execution.content_table import kept_drops
from dropflow.execution.decisions.continuation import (
    must_run_again,
)
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import (
    Begin,
    Failed,
    Finish,
    Finished,
    KnownStates,
    Reported,
    Run,
    foreign,
    row_of_foreign,
)
from dropflow.execution.decisions.invariants import check
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.templates import Kind
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import draw, row
from tests.execution.decisions.core_cluster import BOOM, CoreCluster, News, Node, faults, patient, placed
from tests.execution.decisions.interrupted_core import C, E, N, S, World, known_states, outcomes
from tests.graph.shapes import slice_by_place
from tests.strategies import expected_states, graphs, pipelines


def play_with_interruptions(
    graph: PhysicalGraph, data: st.DataObject, *, streams: Sequence[int] = ()
) -> tuple[World, list[DropState]]:
    """Play to the end with one to three interruptions, some of them after the end. Returns also the oracle's states."""
    fails, leaves_out = outcomes(graph, data)
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    world = World(graph, chance, fails=fails, leaves_out=leaves_out, streams=streams)
    completed: set[int] = set()
    for _ in range(data.draw(st.integers(1, 3))):
        world.play(data.draw(st.integers(0, 2 * graph.drops)))
        lost = {drop for drop in world.contents if chance.random() < 0.5}
        settled = [drop for drop, state in enumerate(world.states()) if state in (C, E, S)]
        former = world.states()
        completed |= {drop for drop, state in enumerate(former) if state is C}
        reset = world.interrupt(lost)
        assert reset <= set(settled)
        for drop in set(settled) - reset:
            assert world.core.drops.state(drop) is former[drop]
    world.play()
    world.check_end()
    assert all(world.core.drops.state(drop) is C for drop in completed), "what had completed does so again"
    return world, expected_states(graph, fails=fails, leaves_out=leaves_out)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(graphs(), st.data())
def test_interruptions_do_not_change_the_outcome(graph: PhysicalGraph, data: st.DataObject) -> None:
    """The session ends as an undisturbed one.

    Every input is there when it is read, and every result at the end. Only drops run that have to.
    """
    world, expected = play_with_interruptions(graph, data)

    if all(template.effective_inputs <= 0 for template in graph.templates):
        assert world.states() == expected


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(pipelines(), st.data())
def test_interruptions_of_streams_do_not_change_the_outcome(graph: PhysicalGraph, data: st.DataObject) -> None:
    """The same where consumers run ahead of their inputs."""
    world, expected = play_with_interruptions(graph, data, streams=range(len(graph.links)))

    assert world.states() == expected


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(graphs(), st.data())
def test_failed_drops_run_again_with_all_of_their_tries(graph: PhysicalGraph, data: st.DataObject) -> None:
    """If the causes of failures are gone and all are tried again, no drop is in ERROR; what had completed is kept."""
    fails, leaves_out = outcomes(graph, data)
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    world = World(graph, chance, fails=fails, leaves_out=leaves_out)
    world.play()
    former = world.states()
    world.fails = Counter({drop: node.tries - 1 for drop, node in enumerate(graph.templates)})
    causes = set(world.core.drops.error_causes().values())
    reset = world.interrupt({drop for drop in world.contents if chance.random() < 0.3}, retried=causes)
    for drop in reset:
        world.fails[drop] = 0
    world.play()

    world.check_end()
    assert E not in world.states()
    # What runs again may end otherwise, because its inputs do.
    kept = [drop for drop, state in enumerate(former) if state is not E and drop not in reset]
    assert all(world.core.drops.state(drop) is former[drop] for drop in kept)


def test_an_interrupted_attempt_does_not_use_up_a_try() -> None:
    """The attempt after an interruption has the next number, and as many tries are left as before."""
    world = World(draw("A -> b", A={"tries": 2}), random.Random(1), fails={0: 1})
    world.interrupt(())

    assert world.running == [Run(0, 2)]
    world.play()
    assert world.core.status is SessionState.FINISHED
    assert world.core.drops.attempt(0) == 3
    assert world.core.drops.uncounted_attempts == {0: 1}


def test_a_drop_that_is_reset_has_all_of_its_tries() -> None:
    """An application that had succeeded and is reset may fail as often as at first."""
    world = World(draw("A -> b -> C -> d", A={"tries": 2}), random.Random(1), fails={0: 1})
    world.play(2)
    world.fails[0] = 1
    reset = world.interrupt([1])

    assert reset == {0, 1}
    assert world.running == [Run(0, 3)]
    world.play()
    assert world.core.status is SessionState.FINISHED
    assert world.runs[0] == 2


def test_contents_without_consumers_left_are_released() -> None:
    """What was released before is released again, and what has consumers left is not."""
    graph = draw("a -> B -> c -> D -> e")
    world = World(graph, random.Random(1))
    world.play(2)
    world.contents.add(row(graph, "a"))  # as if the process had ended before it was removed
    world.interrupt(())

    assert world.contents == {row(graph, "c")}
    assert [run.drop for run in world.running] == [row(graph, "D")]


def test_an_application_runs_again_on_the_inputs_that_it_had() -> None:
    """One that waits for two of three inputs, and ran on two that completed, does not count the third, which failed."""
    graph = draw("A -> x -> G, B -> y -> G, D -> z -> G, G -> r", G={"effective_inputs": 2})
    world = World(graph, random.Random(1), fails={row(graph, "D"): 9})
    for name in ("A", "B", "G", "D"):
        world.step(row(graph, name))
    reset = world.interrupt(range(graph.drops))
    world.play()

    assert row(graph, "G") in reset
    assert world.core.drops.state(row(graph, "z")) is E
    assert world.core.drops.state(row(graph, "r")) is C


@pytest.mark.parametrize("block_skip", [False, True])
def test_an_application_is_decided_again_as_it_was(*, block_skip: bool) -> None:
    """One that ran on one of its inputs and another one that it tolerates does so again, whatever came after that."""
    fields = {"effective_inputs": 2, "block_skip": block_skip, "error_threshold": 0.0 if block_skip else 50.0}
    drawing = "A -> x, E -> failed, S -> skipped, "
    drawing += "failed -> G, skipped -> G, x -> G" if block_skip else "skipped -> G, failed -> G, x -> G"
    graph = draw(drawing + ", G -> r", G=fields)
    fails, leaves_out = {row(graph, "E"): 9}, {row(graph, "S"): [row(graph, "skipped")]}
    world = World(graph, random.Random(1), fails=fails, leaves_out=leaves_out)
    for name in ("A", "S" if block_skip else "E", "G", "E" if block_skip else "S"):
        world.step(row(graph, name))
    reset = world.interrupt(range(graph.drops))
    world.play()

    assert row(graph, "G") in reset
    assert world.core.drops.state(row(graph, "r")) is C


def test_the_reports_of_known_failures_decide_at_once() -> None:
    """A drop that is not settled though all its inputs are is decided when the core begins."""
    graph = draw("A -> x -> C -> y")
    core = Core(graph)
    core.handle([Begin(), Failed(row(graph, "A"), 1, BOOM)])
    none = np.zeros(graph.drops, dtype=np.bool_)
    known = known_states(graph, core.drops, none, (), repeated=(row(graph, "C"), row(graph, "y")))
    again = Core(graph)

    assert again.handle([Begin(known)]) == [Finish(SessionState.FAILED)]
    assert again.drops.error_causes() == dict.fromkeys(range(4), row(graph, "A"))


def _continued(*, effective: int = -1) -> tuple[Core, int, list[int]]:
    """Return a core in which A runs while its input p is made again and q is there, and the rows of A, p and q."""
    graph = draw("p -> A, q -> A, A -> b", A={"tries": 3, "effective_inputs": effective})
    rows = [row(graph, name) for name in "Apq"]
    states = bytearray(graph.drops)
    states[rows[0]], states[rows[2]] = DropState.WRITING, C
    core = Core(graph)
    core.handle([Begin(KnownStates(states=bytes(states), reset=(rows[1],), running=(rows[0],)))])
    return core, rows[0], rows[1:]


def test_an_attempt_that_fails_waits_for_an_input_that_is_made_again() -> None:
    """The next attempt begins when all inputs have contents again, and not before."""
    core, app, (lost, _) = _continued()
    assert core.handle([Failed(app, 1, BOOM)]) == []
    check(core)
    assert core.drops.state(app) is N

    assert core.handle([Finished(lost, 1)])[0] == Run(app, 2)
    check(core)
    core.handle([Finished(app, 2)])
    assert core.status is SessionState.FINISHED


def test_an_attempt_that_succeeds_needs_no_input_again() -> None:
    """An attempt that has read its inputs counts, although one of them was lost meanwhile."""
    core, app, _ = _continued()

    core.handle([Finished(app, 1)])

    assert core.drops.state(app) is C


def test_inputs_are_counted_anew_for_the_next_attempt() -> None:
    """An application that tolerates its failed input does so again after it waited for the other one."""
    graph = draw("A -> x -> G, B -> y -> G, G -> r", G={"error_threshold": 50.0, "tries": 2})
    failed, lost, app = (row(graph, name) for name in "xyG")
    states, again = bytearray(graph.drops), row(graph, "B")
    states[row(graph, "A")], states[failed], states[app] = E, E, DropState.WRITING
    causes = dict.fromkeys((row(graph, "A"), failed), row(graph, "A"))
    core = Core(graph)
    core.handle([Begin(KnownStates(states=bytes(states), causes=causes, reset=(lost, again), running=(app,)))])

    assert core.handle([Failed(app, 1, BOOM)]) == []
    check(core)
    assert Run(app, 2) in core.handle([Finished(again, 1)])
    core.handle([Finished(app, 2)])
    assert core.drops.state(row(graph, "r")) is C


def test_inputs_beyond_the_effective_ones_are_not_waited_for() -> None:
    """An attempt on two of three inputs, one of them failed, is repeated after its delay, and the third is not lost."""
    drawing = "A -> x -> G, B -> y -> G, D -> z -> G, G -> r"
    graph = draw(drawing, G={"effective_inputs": 2, "error_threshold": 50.0, "tries": 3})
    first, second, app = (row(graph, name) for name in "ABG")
    core = Core(graph)
    core.handle([Begin(KnownStates(states=bytes(graph.drops)))])
    assert Run(app, 1) in core.handle([Failed(first, 1, BOOM), Finished(second, 1)])

    assert core.handle([Failed(app, 1, BOOM)]) == [Run(app, 2)]
    (repeated,) = core.handle([Failed(app, 2, msgspec.structs.replace(BOOM, infrastructure=True))])
    check(core)
    assert isinstance(repeated, Run)
    assert repeated.delay > 0


def test_enough_effective_inputs_are_not_waited_for() -> None:
    """An application that needs one of two inputs runs again at once if the other one is there."""
    core, app, _ = _continued(effective=1)

    assert core.handle([Failed(app, 1, BOOM)]) == [Run(app, 2)]
    check(core)


# Sessions of several nodes that stop, lose contents, and continue with known states on other nodes.


def slice_states(known: KnownStates, piece: Slice) -> KnownStates:
    """Return what one node needs of the known states of a whole graph.

    Parameters
    ----------
    known : KnownStates
        By rows of the whole graph.
    piece : Slice
        The slice of the node.
    """

    def rows(drops: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(row for drop in drops if (row := piece.local(drop)) is not None))

    def column(values: Mapping[int, int]) -> dict[int, int]:
        return {row: value for drop, value in values.items() if (row := piece.local(drop)) is not None}

    causes = column(known.causes).items()
    skipped = ((piece.local(app), rows(chosen)) for app, chosen in known.skipped.items())
    return KnownStates(
        states=np.frombuffer(known.states, dtype=np.uint8)[piece.drop].tobytes(),
        causes={row: foreign(cause) if (here := piece.local(cause)) is None else here for row, cause in causes},
        attempts=column(known.attempts),
        uncounted_attempts=column(known.uncounted_attempts),
        skipped={row: chosen for row, chosen in skipped if row is not None and chosen},
        reset=rows(known.reset),
        lost=rows(known.lost),
        reason=known.reason,
    )


class StoppingCluster(CoreCluster):
    """A cluster that processes so many events, or all, and begins with known states, if there are any."""

    def __init__(
        self,
        graph: PhysicalGraph,
        chance: random.Random,
        *,
        fails: Mapping[int, int],
        leaves_out: Mapping[int, Sequence[int]],
        most: int | None = None,
        known: KnownStates | None = None,
    ) -> None:
        super().__init__(graph, chance, fails=fails, leaves_out=leaves_out)
        self.graph, self.most, self.known = graph, most, known

    def step(self, node: Node, event: Begin | News) -> None:
        """Process one event, unless the cluster has stopped."""
        if self.most is not None:
            if not self.most:
                return
            self.most -= 1
        if isinstance(event, Begin) and self.known is not None:
            event = Begin(slice_states(self.known, node.piece))
        super().step(node, event)

    def table(self) -> DropTable:
        """Return the drops of the whole graph, from the nodes on which they are."""
        whole = DropTable(self.graph, ())
        for node in self.nodes.values():
            drops, rows = node.core.drops, node.piece.drop
            for own in np.flatnonzero(node.piece.is_own).tolist():
                drop = int(rows[own])
                whole.states[drop] = drops.states[own]
                cause = drops.cause(own)
                if cause is not None:
                    whole.causes[drop] = int(rows[cause]) if cause >= 0 else row_of_foreign(cause)
                if own in drops.attempts:
                    whole.attempts[drop] = drops.attempts[own]
                if own in drops.uncounted_attempts:
                    whole.uncounted_attempts[drop] = drops.uncounted_attempts[own]
            whole.running |= {int(rows[own]) for own in drops.running}
        return whole


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 4))
def test_a_session_continues_on_other_nodes(graph: PhysicalGraph, seed: int, first: int, second: int) -> None:
    """After a stop at any event with any contents lost, drops end as they would have. Only those run that must."""
    graph = patient(graph)
    chance = random.Random(seed)
    fails, leaves_out = faults(graph, chance, 0.3)
    most = chance.randrange(3 * graph.drops + 1)
    stopped = StoppingCluster(placed(graph, chance, first), chance, fails=fails, leaves_out=leaves_out, most=most)
    stopped.run()
    table = stopped.table()
    is_data = graph.kinds[graph.template] == Kind.DATA
    is_completed = np.frombuffer(bytes(table.states), dtype=np.uint8) == DropState.COMPLETED
    available = is_completed & is_data & np.array([chance.random() < 0.6 for _ in range(graph.drops)], dtype=np.bool_)
    skipped = {app: tuple(chosen) for app, chosen in leaves_out.items() if is_completed[app]}
    parts = [(app, drop) for app, chosen in skipped.items() for drop in chosen]
    reset = must_run_again(graph, table.states, available, kept=kept_drops(graph), parts=parts)
    table.skipped_outputs = skipped
    known = known_states(graph, table, reset, np.flatnonzero(available).tolist())
    continued = StoppingCluster(
        placed(graph, chance, second), chance, fails=stopped.fails, leaves_out=leaves_out, known=known
    )
    continued.run()

    assert continued.states() == dict(enumerate(expected_states(graph, fails=fails, leaves_out=leaves_out)))
    assert all(node.core.status.is_terminal for node in continued.nodes.values())
    assert {known.states[drop] for drop in continued.runs} <= {DropState.INITIALIZED}


def test_a_node_gets_the_states_of_its_slice() -> None:
    """Rows are those of the slice. A cause on a third node stands for its row in the whole graph."""
    graph = draw("F -> f -> G -> g, A -> x, B -> x -> C -> c, g -> C")
    names = ["F", "f", "G", "g", "A", "x", "B", "C", "c"]
    homes = {name: "b" if name in "xCc" else "a" for name in names}
    part = np.zeros(graph.drops, dtype=np.int32)
    for name, home in homes.items():
        part[row(graph, name)] = "ab".index(home)
    piece = slice_by_place(replace(graph, part=part, places=("a", "b")))["b"]
    states = bytearray(graph.drops)
    for name in "FfGg":
        states[row(graph, name)] = DropState.ERROR
    states[row(graph, "A")] = DropState.COMPLETED
    a, b, c, x, g = (piece.local(row(graph, name)) for name in "ABCxg")
    known = KnownStates(
        states=bytes(states),
        causes={row(graph, name): row(graph, "F") for name in "FfGg"},
        attempts={row(graph, "B"): 3, row(graph, "F"): 2},
        skipped={row(graph, "A"): (row(graph, "x"),)},
        reset=(row(graph, "B"),),
        reason="test",
    )
    here = slice_states(known, piece)

    assert here.causes == {g: foreign(row(graph, "F"))}
    assert (here.attempts, here.skipped, here.reset, here.reason) == ({b: 3}, {a: (x,)}, (b,), "test")
    core = Core(piece.graph, remote=piece.ghosts.tolist())
    core.handle([Begin(here)])
    assert b is not None
    core.handle([Reported(b, DropState.COMPLETED)])
    assert x is not None
    assert core.drops.state(x) is DropState.SKIPPED, "one of its producers skipped it before"
    assert c is not None
    assert core.drops.cause(c) == foreign(row(graph, "F"))
