"""Where drops go whose node is lost in graphs with placement groups: groups together, and exclusive ones alone."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.reassign import app_weights, excess_drops, may_move, reassign, reassign_together
from dropflow.graph.slices import placement_groups
from tests.graph.constrained import exclusive_and_mpi
from tests.graph.shapes import scatter
from tests.graph.test_placement_groups import drops_of

_LOST = 9
_GRAPHS = {copies: exclusive_and_mpi(copies) for copies in (1, 2, 3)}


def shares(graph: PhysicalGraph, place: list[int], runs: list[bool]) -> bool:
    """Return whether an exclusive group that is to run is on a node with something else that is, or groups are split.

    The slow oracle: it looks at every pair of drops.
    """
    groups = placement_groups(graph)
    assert groups is not None
    group, exclusive = groups.group.tolist(), groups.exclusive.tolist()
    for one, other in itertools.combinations([drop for drop in range(graph.drops) if runs[drop]], 2):
        is_one = group[one] == group[other]
        if is_one and group[one] >= 0 and place[one] != place[other]:
            return True
        has_exclusive = any(group[drop] >= 0 and exclusive[group[drop]] for drop in (one, other))
        if not is_one and has_exclusive and place[one] == place[other]:
            return True
    return False


def is_possible(
    graph: PhysicalGraph, place: list[int], moving: list[bool], runs: list[bool], members: list[int]
) -> bool:
    """Return whether any placement of what moves keeps all groups: by trying those of all groups, and of the rest.

    If the rest can be anywhere, it can be on one member.
    """
    groups = placement_groups(graph)
    assert groups is not None
    group = groups.group.tolist()
    units = sorted({group[drop] for drop in range(graph.drops) if moving[drop]})
    for chosen in itertools.product(members, repeat=len(units)):
        at = dict(zip(units, chosen, strict=True))
        tried = [at[group[drop]] if moving[drop] else place[drop] for drop in range(graph.drops)]
        if not shares(graph, tried, runs):
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(_GRAPHS)), st.integers(0, 2**32), st.integers(1, 4))
def test_groups_stay_together_and_alone_if_that_is_possible(copies: int, seed: int, count: int) -> None:
    """Whatever is lost: only that moves, groups are not split, and nothing is shared if a slow search finds a way."""
    graph, chance = _GRAPHS[copies], random.Random(seed)  # noqa: S311 - Hypothesis owns the seed
    groups = placement_groups(graph)
    assert groups is not None
    members = list(range(count))
    shared = chance.choice([[_LOST], [members[0]], [members[0], _LOST], [*members, _LOST]])
    home = [chance.choice([*members, _LOST, _LOST]) for _ in groups.names]
    place = np.array(
        [home[one] if one >= 0 else chance.choice(shared) for one in groups.group.tolist()], dtype=np.int32
    )
    moving = place == _LOST
    runs = np.array([chance.random() < 0.8 for _ in range(graph.drops)], dtype=np.bool_)
    work = np.where(runs, app_weights(graph), 0.0)
    load = np.bincount(place[~moving], weights=work[~moving], minlength=count)[:count].tolist()
    capacities = [chance.choice([1.0, 4.0]) for _ in members]
    found = reassign_together(graph, place, moving, members, load, capacities=capacities, work=work, runs=runs)

    assert (found[~moving] == place[~moving]).all()
    assert set(found[moving].tolist()) <= set(members)
    for number in range(len(groups.names)):
        assert len(set(found[runs & (groups.group == number)].tolist())) <= 1
    if is_possible(graph, place.tolist(), moving.tolist(), runs.tolist(), members):
        assert not shares(graph, found.tolist(), runs.tolist())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(_GRAPHS)), st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=2, max_size=5))
def test_the_fastest_free_member_is_left_for_what_is_not_exclusive(copies: int, capacities: list[float]) -> None:
    """If all is lost, exclusive groups get other members than the fastest one, as long as there are enough."""
    graph = _GRAPHS[copies]
    groups = placement_groups(graph)
    assert groups is not None
    members, place = list(range(len(capacities))), np.full(graph.drops, _LOST, dtype=np.int32)
    everything = np.ones(graph.drops, dtype=np.bool_)
    found = reassign_together(
        graph,
        place,
        everything,
        members,
        [0.0] * len(members),
        capacities=capacities,
        work=app_weights(graph),
        runs=everything,
    )
    taken = {found[drop] for drop in range(graph.drops) if groups.is_exclusive[drop]}
    fastest = capacities.index(max(capacities))
    if sum(groups.exclusive) < len(members):
        assert len(taken) == sum(groups.exclusive)
        assert fastest not in taken


def test_what_is_lost_of_a_group_goes_where_the_rest_of_it_runs() -> None:
    """The second rank of a job follows the first one, although another member has nothing to do."""
    graph = _GRAPHS[1]
    first, second = drops_of(graph, "job")
    place = np.zeros(graph.drops, dtype=np.int32)
    place[second] = _LOST
    runs = np.ones(graph.drops, dtype=np.bool_)
    found = reassign_together(
        graph, place, place == _LOST, [0, 1], [50.0, 0.0], capacities=[1.0, 1.0], work=app_weights(graph), runs=runs
    )
    assert found[second] == found[first] == 0


def test_a_graph_without_groups_is_placed_as_before() -> None:
    """The same placement as of `reassign`."""
    graph = scatter(10)
    place = np.full(graph.drops, _LOST, dtype=np.int32)
    moving, work = np.ones(graph.drops, dtype=np.bool_), app_weights(graph)
    found = reassign_together(graph, place, moving, [0, 1], [0, 0], capacities=[1, 1], work=work, runs=moving)
    assert (found == reassign(graph, place, moving, [0, 1], [0, 0], capacities=[1, 1], work=work)).all()


@pytest.mark.parametrize("begun", ["alone", "made"])
def test_a_group_of_which_something_has_begun_does_not_move(begun: str) -> None:
    """When a node drains, an exclusive group moves whole or not at all; other drops move."""
    graph = _GRAPHS[2]
    has_not_begun = np.ones(graph.drops, dtype=np.bool_)
    has_not_begun[drops_of(graph, begun)[0]] = False
    found = may_move(graph, has_not_begun, np.zeros(graph.drops, dtype=np.bool_))
    alone, made = drops_of(graph, "alone"), drops_of(graph, "made")

    assert sorted(np.flatnonzero(~found).tolist()) == sorted([alone[0], made[0]])


def test_groups_stay_when_drops_are_rebalanced() -> None:
    """Of all drops on one of two members, only those without a group are given away."""
    graph = _GRAPHS[3]
    groups = placement_groups(graph)
    assert groups is not None
    owner, movable = np.zeros(graph.drops, dtype=np.int32), np.ones(graph.drops, dtype=np.bool_)
    work = np.where(groups.is_exclusive, 0.0, app_weights(graph))
    chosen = excess_drops(graph, owner, movable, work, members=[0, 1], capacities=[1.0, 1.0])

    assert chosen.any()
    assert not chosen[groups.group >= 0].any()
