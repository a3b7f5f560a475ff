"""Sessions of several nodes that stop, lose contents, and continue with known states on other nodes."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.engine.content_table import kept_drops
from dropflow.engine.core import Core
from dropflow.engine.drop_table import DropTable
from dropflow.engine.events import Begin, KnownStates, Reported, foreign, row_of_foreign
from dropflow.engine.recovery import must_run_again
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice, slice_by_place
from dropflow.graph.templates import Kind
from dropflow.states import DropState
from dropflow.testing import drawing
from dropflow.testing.drawing import draw, row
from dropflow.testing.strategies import graphs
from tests.engine.test_core_slices import Cluster, News, Node, _chance, _patient, _placed
from tests.engine.test_known_states import known_states


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


class StoppingCluster(Cluster):
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
    graph = _patient(graph)
    chance = _chance(seed)
    fails = {drop: chance.randrange(3) for drop in range(graph.drops) if chance.random() < 0.3}
    out = graph.successors
    leaves_out = {
        drop: [other for other in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist() if chance.random() < 0.5]
        for drop in range(graph.drops)
        if chance.random() < 0.3 and graph.templates[graph.template[drop]].kind
    }
    most = chance.randrange(3 * graph.drops + 1)
    stopped = StoppingCluster(_placed(graph, chance, first), chance, fails=fails, leaves_out=leaves_out, most=most)
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
        _placed(graph, chance, second), chance, fails=stopped.fails, leaves_out=leaves_out, known=known
    )
    continued.run()

    assert continued.states() == dict(enumerate(drawing.expected_states(graph, fails=fails, leaves_out=leaves_out)))
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
