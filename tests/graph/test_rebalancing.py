"""Which drops leave members that have more than their share."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.reassign import app_weights, excess_drops
from dropflow.testing.drawing import triples
from tests.graph.shapes import graphs


@settings(max_examples=80, deadline=None)
@given(graphs(), st.integers(0, 2**32), st.integers(1, 5))
def test_no_member_gives_more_than_it_has_too_much(graph: PhysicalGraph, seed: int, count: int) -> None:
    """Only what may move is chosen, and each member keeps at least its share, or what it had."""
    chance = random.Random(seed)  # noqa: S311 - Hypothesis owns the seed
    owner = np.array([chance.choice([*range(count), -1]) for _ in range(graph.drops)], dtype=np.int32)
    movable = np.array([chance.random() < 0.7 for _ in range(graph.drops)], dtype=np.bool_)
    capacities = [chance.choice([1.0, 4.0]) for _ in range(count)]
    work = app_weights(graph)
    chosen = excess_drops(graph, owner, movable, work, members=range(count), capacities=capacities)

    assert not (chosen & ~movable).any()
    load = np.bincount(owner[owner >= 0], weights=work[owner >= 0], minlength=count)
    gives = np.bincount(owner[chosen], weights=work[chosen], minlength=count)
    share = load.sum() * np.array(capacities) / sum(capacities)
    assert (gives <= np.maximum(load - share, 0.0) + 1e-9).all()
    again = excess_drops(graph, owner, movable, work, members=range(count), capacities=capacities)
    assert (chosen == again).all()


def test_what_is_left_is_the_share_but_for_one_chain() -> None:
    """Of equal chains on one member, as many leave as the others lack."""
    graph = triples(3 * 100, 1)
    owner = np.zeros(graph.drops, dtype=np.int32)
    movable = np.ones(graph.drops, dtype=np.bool_)
    work = app_weights(graph)
    chosen = excess_drops(graph, owner, movable, work, members=[0, 1, 2], capacities=[1.0, 1.0, 3.0])

    assert work[chosen].sum() == 80 * work.max()
    assert chosen.sum() == 240
