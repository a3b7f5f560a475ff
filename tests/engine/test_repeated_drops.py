"""A session that is over runs again from some drops, after contents were lost, and ends as a whole new run."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.engine.events import Action, Assemble, Begin, Event, Finished
from dropflow.engine.recovery import has_attempts, must_run_again
from dropflow.errors import ConflictError
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.sessions.again import RepeatedDrops, drops_to_repeat
from dropflow.states import DropState
from dropflow.testing import drawing
from dropflow.testing.strategies import graphs
from tests.engine.test_known_states import World, known_states, outcomes

C, E, S = DropState.COMPLETED, DropState.ERROR, DropState.SKIPPED


class _Values(World):
    """A core whose contents have values: what each attempt has read, and the version of its drop."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.version: Counter[int] = Counter()
        self.values: dict[int, object] = {}
        self.written: dict[tuple[int, int], object] = {}
        super().__init__(*arguments, **more)

    def ended(self, event: Event) -> list[Event]:
        """Give values to what an attempt commits."""
        before, parts = set(self.contents), set(self.parts)
        followed = super().ended(event)
        if isinstance(event, Finished):
            drop = event.drop
            read = tuple(
                self.values.get(data) if self.core.drops.state(data) is C else None for data in self.inputs(drop)
            )
            value = drop, self.version[drop], read
            self.values.update(dict.fromkeys(self.contents - before, value))
            self.written.update(dict.fromkeys(self.parts - parts, value))
        return followed

    def act(self, action: Action) -> list[Event]:
        """Give a value to what is assembled from parts."""
        followed = super().act(action)
        if isinstance(action, Assemble):
            parts = [self.written[pair] for pair in sorted(self.parts) if pair[1] == action.drop]
            self.values[action.drop] = tuple(parts)
        return followed

    def run_again(self, again: RepeatedDrops, lost: set[int]) -> set[int]:
        """Continue with what is left, and the drops that are repeated; return what else was reset."""
        graph, drops = self.graph, self.core.drops
        self.contents -= lost | set(again.drops)
        available = np.zeros(graph.drops, dtype=np.bool_)
        available[list(self.contents)] = True
        states = bytearray(drops.states)
        for drop in again.drops:
            states[drop] = DropState.INITIALIZED
        parts = [(app, data) for app, chosen in self.skipped.items() for data in chosen]
        reset = must_run_again(graph, states, available, kept=self.kept, parts=parts)
        known = known_states(graph, drops, reset, self.contents, repeated=again.drops, retried=again.begun)
        self.allowed = {drop for drop in range(graph.drops) if known.states[drop] == DropState.INITIALIZED}
        self.begin(msgspec.msgpack.decode(msgspec.msgpack.encode(Begin(known)), type=Begin))
        return set(np.flatnonzero(reset).tolist())


def _expected_values(
    graph: PhysicalGraph, states: list[DropState], leaves_out: Mapping[int, list[int]], version: Mapping[int, int]
) -> dict[int, object]:
    """Return the value of every completed drop in a run of its own, computed recursively."""
    before = graph.predecessors
    found: dict[int, object] = {}

    def value(drop: int) -> object:
        if drop not in found:
            inputs = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
            if graph.templates[drop].kind is Kind.APP or not inputs:
                read = tuple(value(data) if states[data] is C else None for data in inputs)
                found[drop] = drop, version[drop], read
            else:
                writers = [app for app in inputs if states[app] is C and drop not in leaves_out.get(app, ())]
                found[drop] = value(writers[0]) if len(inputs) == 1 else tuple(value(app) for app in sorted(writers))
        return found[drop]

    return {drop: value(drop) for drop in range(graph.drops) if states[drop] is C}


@settings(max_examples=20, deadline=None)
@given(graphs(most=10), st.data())
def test_drops_run_again_as_in_a_whole_new_run(graph: PhysicalGraph, data: st.DataObject) -> None:
    """What is named behaves in another way from then on: fails, skips other outputs, or writes something else.

    States and contents are those of a new run in which it always did so. What does not depend on it is not touched.
    """
    _play_and_compare(graph, data)


def _play_and_compare(graph: PhysicalGraph, data: st.DataObject) -> None:
    plain = tuple(msgspec.structs.replace(one, effective_inputs=-1) for one in graph.templates)
    graph = replace(graph, templates=plain)
    fails, leaves_out = outcomes(graph, data)
    chance = random.Random(data.draw(st.integers(0, 2**32)))  # noqa: S311 - to be the same each time
    world = _Values(graph, chance, fails=fails, leaves_out=leaves_out)
    world.play()
    names = data.draw(st.lists(st.integers(0, graph.drops - 1), min_size=1, max_size=3, unique=True))
    for _ in range(data.draw(st.integers(1, 2))):
        states = np.frombuffer(bytes(world.core.drops.states), dtype=np.uint8)
        causes = world.core.drops.error_causes()
        try:
            again = drops_to_repeat(graph, states, causes, [oid(graph, drop) for drop in names])
        except ConflictError:
            _check_refused(world, names)
            return
        former, kept = world.states(), dict(world.values)
        more_fails, more_left_out = outcomes(graph, data)
        repeated = set(again.drops)
        fails = {drop: (more_fails if drop in repeated else fails)[drop] for drop in range(graph.drops)}
        leaves_out = {
            drop: targets
            for source, is_new in ((more_left_out, True), (leaves_out, False))
            for drop, targets in source.items()
            if (drop in repeated) is is_new
        }
        world.leaves_out = leaves_out
        world.fails = Counter({drop: fails[drop] for drop in repeated})
        world.version.update(again.starts)
        lost = {drop for drop in world.contents if chance.random() < 0.4}
        reset = world.run_again(again, lost)
        assert not reset & repeated
        world.play()

        world.check_end()
        expected = drawing.expected_states(graph, fails=fails, leaves_out=leaves_out)
        values = _expected_values(graph, expected, leaves_out, world.version)
        assert world.states() == expected
        assert {drop: world.values[drop] for drop in world.contents} == {drop: values[drop] for drop in world.contents}
        for drop in set(range(graph.drops)) - repeated - reset:
            assert world.states()[drop] is former[drop]
            assert world.values.get(drop) is kept.get(drop)
            assert not world.runs[drop]


@pytest.mark.exhaustive
@settings(max_examples=1000, deadline=None)
@given(graphs(), st.data())
def test_many_drops_run_again_as_in_a_whole_new_run(graph: PhysicalGraph, data: st.DataObject) -> None:
    """The same with more and larger graphs."""
    _play_and_compare(graph, data)


def _check_refused(world: _Values, names: list[int]) -> None:
    """Check that nothing would run from one of these drops."""
    runs, causes = has_attempts(world.graph), world.core.drops.error_causes()

    def has_run(drop: int) -> bool:
        return world.core.drops.state(drop) is C or causes.get(drop) == drop

    writers = [[drop] if runs[drop] else world.inputs(drop) for drop in names]
    assert any(not any(has_run(app) for app in apps) for apps in writers)
