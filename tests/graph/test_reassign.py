"""Where drops go whose node is lost: only those, to members, near their data, and balanced."""

import itertools
import random
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.reassign import FAIR_SHARE, app_weights, excess_drops, may_move, reassign, reassign_together
from dropflow.graph.slices import placement_groups
from dropflow.graph.templates import Kind
from dropflow.testing.drawing import draw, row
from tests.graph.shapes import drops_of, edges_of, exclusive_and_mpi, graphs, scatter
from tests.regular_graphs import chain, fan, triples

LOST = 9


def moving_of(placement: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Return the drops of the lost node."""
    moving: npt.NDArray[np.bool_] = placement == LOST
    return moving


def column(*numbers: int) -> npt.NDArray[np.int32]:
    """Return an int32 column."""
    return np.array(numbers, dtype=np.int32)


def everything_lost(graph: PhysicalGraph) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return a placement of all drops on the lost node, and which of them move: all."""
    return np.full(graph.drops, LOST, dtype=np.int32), np.ones(graph.drops, dtype=np.bool_)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**32), st.integers(1, 5))
def test_only_moving_drops_change_and_all_get_a_member(graph: PhysicalGraph, seed: int, count: int) -> None:
    """Whatever the graph, the placement, loads and capacities are; and the same arguments give the same result."""
    chance = random.Random(seed)
    members = chance.sample(range(8), count)
    placement = np.array([chance.choice([*range(8), LOST]) for _ in range(graph.drops)], dtype=np.int32)
    moving = moving_of(placement)
    load = [chance.choice([0.0, 1.0, 7.5]) for _ in members]
    capacities = [chance.choice([1.0, 4.0]) for _ in members]
    found = reassign(graph, placement, moving, members, load, capacities=capacities)

    assert found.dtype == np.int32
    assert (found[~moving] == placement[~moving]).all()
    assert set(found[moving].tolist()) <= set(members)
    assert (reassign(graph, placement, moving, members, load, capacities=capacities) == found).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 4)), min_size=1, max_size=6),
    st.integers(0, 2**32),
)
def test_initial_work_is_balanced(copies: int, members: list[tuple[int, int]], seed: int) -> None:
    """No member has more to do than fits below the common level, by more than the work of one copy."""
    graph = triples(3 * copies, 1)
    chance = random.Random(seed)
    work = np.where(graph.template == 1, np.array([chance.randrange(1, 9) for _ in range(graph.drops)]), 0.0)
    load, cores = [float(had) for had, _ in members], [float(number) for _, number in members]
    placement, moving = everything_lost(graph)
    found = reassign(graph, placement, moving, range(len(members)), load, capacities=cores, work=work)

    gets = np.bincount(found, weights=work, minlength=len(members))
    assert gets.sum() == work.sum()
    # The level at which the members that get something end, if all of it could be divided.
    low, high = 0.0, (sum(load) + float(work.sum())) / min(cores)
    for _ in range(100):
        level = (low + high) / 2
        room = sum(max(level * core - had, 0.0) for core, had in zip(cores, load, strict=True))
        low, high = (level, high) if room < work.sum() else (low, level)
    for more, had, core in zip(gets.tolist(), load, cores, strict=True):
        assert more <= max(high * core - had, 0.0) + work.max() + 1e-6


def test_initial_drops_are_in_contiguous_blocks() -> None:
    """Neighbouring copies are on one member, and each member has one run of them."""
    graph = triples(3 * 90, 1)
    placement, moving = everything_lost(graph)
    found = reassign(graph, placement, moving, [0, 1, 2], [30.0, 0.0, 0.0]).tolist()

    apps = found[90:180]
    assert found[:90] == apps == found[180:]
    assert sum(one != other for one, other in pairwise(apps)) == 2
    assert [apps.count(member) for member in range(3)] == [10, 40, 40]


def test_initial_drops_with_common_outputs_are_together() -> None:
    """Blocks follow the edges, not the order of rows."""
    graph = draw("A0 -> even, A1 -> odd, A2 -> even, A3 -> odd")
    placement, moving = everything_lost(graph)
    found = reassign(graph, placement, moving, [0, 1], [0.0, 0.0]).tolist()

    assert [found[row(graph, name)] for name in ("A0", "A2", "even")] == [0, 0, 0]
    assert [found[row(graph, name)] for name in ("A1", "A3", "odd")] == [1, 1, 1]


@pytest.mark.parametrize("drops", [2, 10, 2000])
def test_a_chain_stays_on_one_node(drops: int) -> None:
    """It is not divided, however much less others have to do: it goes to the one with least to do."""
    graph = chain(drops)
    placement, moving = everything_lost(graph)

    assert set(reassign(graph, placement, moving, [0, 1, 2], [3.0, 0.0, 1.0]).tolist()) == {1}


def test_chains_are_spread_as_whole_ones() -> None:
    """Each start of a chain stands for all of its work: half of the chains go to each member."""
    graph = draw(", ".join(f"A{number} -> b{number} -> C{number} -> d{number}" for number in range(8)))
    placement, moving = everything_lost(graph)
    found = reassign(graph, placement, moving, [0, 1], [0.0, 8.0]).tolist()

    for number in range(8):
        assert len({found[row(graph, f"{letter}{number}")] for letter in "AbCd"}) == 1
    assert [found[row(graph, f"A{number}")] for number in range(8)] == [0] * 6 + [1] * 2


def test_work_goes_where_most_of_its_input_bytes_are() -> None:
    """The larger input decides; outputs are where their producer is, and root data where their first consumer is."""
    graph = draw(
        "a -> C, b -> C, r -> C, C -> d, e -> F, X -> e", a={"weight": 1.0}, b={"weight": 5.0}, d={"weight": 2.0}
    )
    names = {"a": 0, "b": 1, "C": LOST, "r": LOST, "d": LOST, "e": 0, "F": 1, "X": 2}
    placement = np.zeros(graph.drops, dtype=np.int32)
    for name, node in names.items():
        placement[row(graph, name)] = node
    found = reassign(graph, placement, moving_of(placement), [0, 1], [9.0, 9.0])

    assert [found[row(graph, name)] for name in "Crd"] == [1, 1, 1]


@pytest.mark.parametrize(("load", "expected"), [([0.0, 9.0, 0.0], 0), ([9.0, 30.0, 0.0], 0), ([30.0, 30.0, 0.0], 2)])
def test_work_leaves_its_data_where_there_is_too_much(load: list[float], expected: int) -> None:
    """It goes to another member with some of its inputs, if that has room, or else to the one with least to do."""
    graph = draw("a -> C, b -> C", a={"weight": 1.0}, b={"weight": 5.0})
    placement = column(0, LOST, 1)
    assert graph.drops == 3
    moving = moving_of(placement)

    assert reassign(graph, placement, moving, [0, 1, 2], load)[1] == expected


def test_many_readers_of_one_drop_are_spread() -> None:
    """They stay with what they read up to 1.5 times the average, and no more."""
    graph = fan(2 * 400)
    placement = np.full(graph.drops, LOST, dtype=np.int32)
    placement[0] = 0
    moving = moving_of(placement)
    found = reassign(graph, placement, moving, [0, 1, 2, 3], [0.0] * 4)
    counts = np.bincount(found[graph.kinds[graph.template] == Kind.APP])

    assert counts[0] == round(FAIR_SHARE * 100) + 2
    assert counts[1:].max() - counts[1:].min() <= 1
    assert (found[1:401] == found[401:]).all()


def test_work_of_settled_drops_does_not_count() -> None:
    """Only what is still to be done is balanced, and drops without work get a member too."""
    graph = triples(3 * 100, 1)
    work = np.where(np.arange(300) % 100 < 50, app_weights(graph), 0.0)
    placement, moving = everything_lost(graph)
    found = reassign(graph, placement, moving, [4, 5], [0.0, 0.0], work=work)

    assert np.bincount(found, weights=work).tolist()[4:] == [25.0, 25.0]
    settled = reassign(graph, placement, moving, [4, 5], [0.0, 0.0], work=np.zeros(300))
    assert np.bincount(settled).tolist()[4:] == [150, 150]


def test_outputs_are_where_their_first_producer_is() -> None:
    """Also where that stays; edges between what moves are cut only where applications change nodes."""
    graph = scatter(20)
    placement = np.where(graph.template == 1, np.arange(graph.drops) % 2, LOST).astype(np.int32)
    found = reassign(graph, placement, moving_of(placement), [0, 1], [10.0, 10.0])

    for source, link, target in edges_of(graph):
        if graph.links[link].target == 2 or graph.links[link].source == 0:
            assert found[source] == found[target]


def test_without_members_there_is_an_error() -> None:
    """Nothing can be moved to no node."""
    graph = chain(2)

    with pytest.raises(ValueError, match="there is no member to move drops to"):
        reassign(graph, *everything_lost(graph), [], [])


# Where drops go whose node is lost in graphs with placement groups: groups together, and exclusive ones alone.


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
    graph, chance = _GRAPHS[copies], random.Random(seed)
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


# Which drops leave members that have more than their share.


@settings(max_examples=80, deadline=None)
@given(graphs(), st.integers(0, 2**32), st.integers(1, 5))
def test_no_member_gives_more_than_it_has_too_much(graph: PhysicalGraph, seed: int, count: int) -> None:
    """Only what may move is chosen, and each member keeps at least its share, or what it had."""
    chance = random.Random(seed)
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
