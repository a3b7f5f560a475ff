from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import AmbiguousError, NotFoundError, UsageError
from dropflow.graph import text_ids as names
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_by_place
from dropflow.graph.templates import Axis
from dropflow.graph.text_ids import drops_named, find_drop, oid
from dropflow.testing.drawing import fan
from tests.graph.shapes import chain, graphs, scatter


@given(graphs())
def test_every_drop_is_found_by_its_name(graph: PhysicalGraph) -> None:
    """Names are unique, and each is found as the row of its drop."""
    spelled = [names.oid(graph, drop) for drop in range(graph.drops)]

    assert len(set(spelled)) == graph.drops
    assert [names.drop_of(graph, oid) for oid in spelled] == list(range(graph.drops))


@given(graphs(), st.data())
def test_oids_and_oid_give_the_same_names(graph: PhysicalGraph, data: st.DataObject) -> None:
    """`oids` gives the same names as `oid`, in the same order, for any mix of drops."""
    drops = data.draw(st.lists(st.integers(0, graph.drops - 1), max_size=80))

    assert names.oids(graph, drops) == [names.oid(graph, drop) for drop in drops]


def test_names_of_alternating_templates_are_right() -> None:
    """Drops of alternating templates get the right names too."""
    graph = chain(400)
    drops = [(drop * 7) % 400 for drop in range(400)]

    assert names.oids(graph, drops) == [names.oid(graph, drop) for drop in drops]


def test_an_iid_is_a_zero_followed_by_the_index_tuple() -> None:
    """Instances count through the innermost axis first, and every iid starts with the root level."""
    template = msgspec.structs.replace(scatter(1).templates[0], axes=(Axis("a", "", "x", 2), Axis("b", "", "x", 5)))

    assert names.instance_iid(template, 8) == "0-1-3"
    assert names.iid(scatter(3), 5) == "0-2"
    assert names.iid(scatter(3), 9) == "0"
    assert names.index_of(scatter(3), 5) == (2,)
    assert names.oid(scatter(3), 5) == "s_work_0-2"


def test_a_slice_names_its_drops_as_the_whole_graph_does() -> None:
    """The instance column is global, so a node with one slice gives drops the same names."""
    graph = chain(10)
    second_half = (np.arange(10) >= 5).astype(np.int32)
    halves = slice_by_place(replace(graph, part=second_half, places=("x", "y")))

    assert [names.oid(half.graph, 0) for half in halves.values()] == ["c_d_0-0", "c_d_0-2"]


@pytest.mark.parametrize(
    ("oid", "hint"),
    [
        ("s_wrok_0-1", "did you mean s_work_0-0"),
        ("s_work_0-3", "its last instance is s_work_0-2"),
        ("s_work_0-01", "its last instance"),
        ("s_work_0--1", "its last instance"),
        ("s_work_1-1", "its last instance"),
        ("", "graph scatter has 10 drops"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(oid: str, hint: str) -> None:
    """A name that no drop has is refused, also if it differs from one only in the spelling of the index."""
    with pytest.raises(UsageError, match=f"no drop '{oid}'") as caught:
        names.drop_of(scatter(3), oid)

    assert hint in caught.value.hint


def test_ids_that_drops_came_with_are_searched_too() -> None:
    """Graphs with their own ids are searched by these, and typing errors get a suggestion."""
    graph = replace(scatter(1), oids=("first", "second", "third", "fourth"))

    assert names.drop_of(graph, "third") == 2
    assert names.oids(graph, [3, 0]) == ["fourth", "first"]
    with pytest.raises(UsageError, match="no drop 'secnd'") as caught:
        names.drop_of(graph, "secnd")
    assert caught.value.hint == "did you mean second?"


@pytest.mark.parametrize(
    ("oid", "short"),
    [
        ("A", "A"),
        ("2022-02-11T08:05:47_-1_0", "-1_0"),
        ("2024-10-30T12:01:57_0140555b-77_0", "0140_0"),
        ("1_508ddedf-2b01_0/1", "508d_0/1"),
    ],
)
def test_a_human_key_is_short(oid: str, short: str) -> None:
    """The prefix is removed, and the id of the node is cut to four characters."""
    assert names.human_key(oid) == short


# Drops that are found by the names that people see.


def test_a_name_with_indices_names_one_drop() -> None:
    """As pages write it, as ids end, and with or without the root level, in any case."""
    graph = fan(12)
    drop = next(row for row in range(graph.drops) if oid(graph, row) == "fan_a_0-3")
    name = graph.templates[graph.template[drop]].name

    for text in (f"{name} 3", f"{name.upper()} 3", f"{name}_3", f"{name}_0-3", f"{name} 0-3"):
        assert drops_named(graph, text).tolist() == [drop], text
        assert find_drop(graph, text) == drop


def test_the_name_of_a_logical_node_names_all_its_drops() -> None:
    """With a single drop that is the one; of several, the error names some of them."""
    graph = fan(12)
    name = graph.templates[graph.template[1]].name

    assert drops_named(graph, name).tolist() == np.flatnonzero(graph.template == graph.template[1]).tolist()
    with pytest.raises(AmbiguousError, match=f"{len(drops_named(graph, name))} drops are named '{name}'"):
        find_drop(graph, name)


def test_other_texts_name_no_drop() -> None:
    """Nor do indices that the node does not have."""
    graph = fan(12)
    name = graph.templates[graph.template[1]].name

    assert drops_named(graph, "").tolist() == drops_named(graph, "_").tolist() == []
    with pytest.raises(NotFoundError, match="there is no drop"):
        find_drop(graph, f"{name} 77")
