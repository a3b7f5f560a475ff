"""Physical graphs, what their templates declare, and the text ids of drops."""

import dataclasses
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as templates_replace

from dropflow.errors import AmbiguousError, InternalError, NotFoundError, UsageError
from dropflow.graph import text_ids as names
from dropflow.graph.build import GraphBuilder, from_columns
from dropflow.graph.differences import Difference, graph_differences
from dropflow.graph.physical import Adjacency, PhysicalGraph, faults, follower_column, is_fused, without_fusion
from dropflow.graph.templates import Argument, Axis, Kind, Link, ResourceNeeds, Template, needs_of
from dropflow.graph.text_ids import drops_named, find_drop, oid
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row
from tests.graph.shapes import chain, edges_of, graphs, scatter, slice_by_place
from tests.regular_graphs import fan

DATA = Template(key="d", name="d", kind=Kind.DATA)
APP = Template(key="a", name="a", kind=Kind.APP)


def _columns(**changed: object) -> PhysicalGraph:
    columns = {
        "template": np.array([0, 1]),
        "instance": np.array([0, 0]),
        "source": np.array([0]),
        "target": np.array([1]),
        "link": np.array([0]),
    }
    given_columns: dict[str, object] = {**columns, **changed}
    return from_columns(name="x", prefix="x", templates=[DATA, APP], links=[Link(source=0, target=1)], **given_columns)


@given(graphs(acyclic=False))
def test_edges_in_any_order_end_up_sorted(graph: PhysicalGraph) -> None:
    """Successors are sorted by source, link and target, for any order of edges."""
    assert edges_of(graph) == sorted(edges_of(graph))
    assert faults(graph) == []


@given(graphs(acyclic=False))
def test_predecessors_are_the_same_edges_seen_from_their_targets(graph: PhysicalGraph) -> None:
    """Predecessors hold every edge once, sorted by target, link and source."""
    back = graph.predecessors
    found = [
        (drop, int(back.link[edge]), int(back.neighbour[edge]))
        for drop in range(graph.drops)
        for edge in range(back.ptr[drop], back.ptr[drop + 1])
    ]

    assert found == sorted((target, link, source) for source, link, target in edges_of(graph))


def test_columns_are_read_only() -> None:
    """The arrays of a graph cannot be changed, by any way of access."""
    graph = scatter(4)
    columns = [graph.template, graph.instance, graph.part]
    for edges in (graph.successors, graph.predecessors):
        columns += [edges.ptr, edges.neighbour, edges.link]

    assert not any(column.flags.writeable for column in columns)


def test_the_callers_arrays_stay_writable() -> None:
    """Building a graph does not freeze the arrays that it was given."""
    source = np.array([0], dtype=np.int32)
    _columns(source=source)
    source[0] = 1

    assert source[0] == 1


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"template": np.array([0, 2])}, "template refers to rows outside 0..1"),
        ({"source": np.array([-1])}, "source refers to rows outside"),
        ({"target": np.array([2])}, "target refers to rows outside"),
        ({"link": np.array([1])}, "link refers to rows outside 0..0"),
        ({"instance": np.array([0])}, "instance has 1 rows for 2 drops"),
        ({"oids": ["a"]}, "oids has 1 rows"),
        ({"link": np.array([0, 0])}, "columns of edges differ in length"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changed: dict[str, object], text: str) -> None:
    """A column of the wrong length, or a row that does not exist, is an internal error that names the column."""
    with pytest.raises(InternalError, match=text):
        _columns(**changed)


def test_a_graph_without_drops_can_be_built() -> None:
    """An empty graph can be built and read."""
    graph = GraphBuilder("empty").build()

    assert (graph.drops, graph.edges, graph.parts) == (0, 0, 1)
    assert len(graph.predecessors.neighbour) == 0
    assert faults(graph) == []


def test_a_drawing_becomes_a_graph() -> None:
    """Drops keep the order in which they are drawn, and edges their ports and marks."""
    drawing = GraphBuilder("hello").data("in", weight=2.5).app("Copy", tries=3, part=1)
    graph = drawing.connect("in", "Copy", source_port="o", target_port="i", streaming=True).build()

    assert [template.name for template in graph.templates] == ["in", "Copy"]
    assert (graph.templates[0].weight, graph.templates[1].tries, graph.parts) == (2.5, 3, 2)
    assert graph.links == (Link(source=0, target=1, source_port="o", target_port="i", streaming=True),)
    assert edges_of(graph) == [(0, 0, 1)]


def test_an_invalid_drawing_is_refused() -> None:
    """Unknown drops, names given twice and edges between drops of one kind are refused by name."""
    drawing = GraphBuilder().data("a").data("b")
    with pytest.raises(UsageError, match="no drop 'c'"):
        drawing.connect("a", "c")
    with pytest.raises(UsageError, match="two drops 'a'"):
        drawing.app("a")
    with pytest.raises(UsageError, match="'a' and 'b' are of the same kind"):
        drawing.connect("a", "b")


GRAPH = scatter(2)


def _column(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def _edges(**changed: Any) -> PhysicalGraph:
    out = GRAPH.successors
    columns = {"ptr": out.ptr, "neighbour": out.neighbour, "link": out.link}
    return replace(GRAPH, successors=Adjacency(**{**columns, **changed}))


def _template(row: int, **changed: Any) -> PhysicalGraph:
    templates = list(GRAPH.templates)
    templates[row] = msgspec.structs.replace(templates[row], **changed)
    return replace(GRAPH, templates=tuple(templates))


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (replace(GRAPH, instance=_column(0)), "column instance has 1 rows, not 7"),
        (replace(GRAPH, oids=("a",)), "there are 1 text ids for 7 drops"),
        (replace(GRAPH, template=_column(0, 0, 1, 1, 2, 2, 4)), "a drop has a template that does not exist"),
        (replace(GRAPH, instance=_column(0, 2, 0, 1, 0, 1, 0)), "outside the index space of its template"),
        (_template(3, axes=(Axis("", "", "", 1 << 40),)), "outside the index space of its template"),
        (replace(GRAPH, instance=_column(0, 0, 0, 1, 0, 1, 0)), "two drops are the same instance of a template"),
        (replace(GRAPH, oids=("a",) * 7), "two drops have the same text id"),
        (replace(GRAPH, part=_column(0, 0, 0, 0, 0, 0, -1)), "a drop is in a part that does not exist"),
        (replace(GRAPH, part=_column(0, 0, 0, 0, 0, 0, 2), places=("a", "b")), "a part that does not exist"),
        (_edges(ptr=np.arange(7)), "the columns of the edges differ in length"),
        (_edges(link=_column(0)), "the columns of the edges differ in length"),
        (_edges(ptr=np.array([0, 2, 1, 3, 4, 5, 6, 6])), "the pointers to the edges are not ascending"),
        (_edges(ptr=np.array([0, 1, 2, 3, 4, 5, 6, 7])), "the pointers to the edges are not ascending"),
        (_edges(neighbour=_column(2, 3, 4, 5, 6, 7)), "an edge ends on a drop that does not exist"),
        (_edges(link=_column(0, 0, 1, 1, 2, 3)), "an edge belongs to a link that does not exist"),
        (_edges(neighbour=_column(2, 4, 4, 5, 6, 6)), "an edge joins drops of other templates than its link"),
        (_edges(ptr=np.array([0, 2, 2, 3, 4, 5, 6, 6]), neighbour=_column(3, 2, 4, 5, 6, 6)), "are not sorted"),
        (_template(1, kind=Kind.DATA), "a link joins two templates of the same kind"),
        (_template(1, error_threshold=float("nan")), "an error threshold that is not a number"),
        (replace(GRAPH, links=(Link(source=0, target=9),)), "a link ends on a template that does not exist"),
    ],
)
def test_every_rule_of_a_graph_is_checked(graph: PhysicalGraph, fault: str) -> None:
    """Each rule that a graph can break is checked, with a text."""
    assert any(fault in found for found in faults(graph))


def test_a_sound_graph_has_no_fault() -> None:
    """A valid graph has no faults, also if its drops are not grouped by template."""
    assert faults(GRAPH) == []
    assert faults(replace(GRAPH, oids=tuple("abcdefg"))) == []


def test_several_faults_are_reported_together() -> None:
    """A graph that breaks two rules gives both texts."""
    assert len(faults(replace(GRAPH, oids=("a",) * 7, part=_column(0, 0, 0, 0, 0, 0, -1)))) == 2


def pairs(graph: PhysicalGraph, **options: object) -> set[str]:
    """Return the pairs of applications, such as ``"A B"``, where one follows the other; all may be in one chain."""
    column = follower_column(graph, [1] * len(graph.templates), **options)  # type: ignore[arg-type]
    if column is None:
        return set()
    names = [graph.templates[one].name for one in graph.template]
    return {f"{names[drop]} {names[then]}" for drop, then in enumerate(column.tolist()) if then >= 0}


@pytest.mark.parametrize(
    ("drawing", "fields", "expected"),
    [
        ("A -> x -> B", {}, {"A B"}),
        ("r -> A -> x -> B -> y -> C -> z", {}, {"A B", "B C"}),
        ("r -> A, s -> A, A -> x -> B, B -> y, B -> z", {}, {"A B"}),  # what is before and after a chain may branch
        ("A -> x -> B, A -> y", {}, set()),  # A has two outputs
        ("A -> x -> B, x -> C", {}, set()),  # x has two consumers
        ("A -> x -> B, C -> x", {}, set()),  # x has two producers
        ("A -> x -> B, y -> B", {}, set()),  # B has two inputs
        ("A -> x -> B", {"x": {"persist": True}}, set()),  # x is a result
        ("A -> x -> B", {"B": {"error_threshold": 100.0}}, set()),  # B runs if A fails
        ("A -> x -> B", {"B": {"error_threshold": 99.0}}, {"A B"}),
        ("A -> x -> B", {"A": {"tries": 3}, "B": {"tries": 2}}, {"A B"}),  # each is tried again by itself
    ],
)
def test_the_rule(drawing: str, fields: dict[str, dict[str, object]], expected: set[str]) -> None:
    """An application follows another one if one output, read by it alone, is its only input."""
    assert pairs(draw(drawing, **fields)) == expected


def test_a_chain_is_in_one_place() -> None:
    """Applications on two nodes, or with their data on another one, are in no chain."""
    graph = draw("A -> x -> B -> y -> C")
    for drop, expected in (("x", {"B C"}), ("B", set()), ("C", {"A B"})):
        place = np.zeros(graph.drops, dtype=np.int32)
        place[row(graph, drop)] = 1
        assert pairs(graph, place=place) == expected


def test_templates_of_different_groups_are_in_no_chain() -> None:
    """Applications that run in threads do not follow those that run in processes; 0 is in no chain."""
    graph = draw("A -> x -> B -> y -> C -> z -> D")
    groups = [{"A": 1, "B": 1, "C": 2, "D": 0}.get(template.name, 1) for template in graph.templates]
    column = follower_column(graph, groups)
    assert column is not None
    assert np.flatnonzero(column >= 0).tolist() == [row(graph, "A")]
    assert follower_column(graph, [int(template.kind is Kind.APP) for template in graph.templates]) is None


def test_a_graph_can_ask_for_no_chains() -> None:
    """The note of `without_fusion` keeps every application apart."""
    graph = draw("A -> x -> B")
    assert is_fused(graph)
    assert not is_fused(without_fusion(graph))
    assert pairs(without_fusion(graph)) == set()


# What applications declare that they need.


@pytest.mark.parametrize(
    ("name", "value", "memory"),
    [
        ("memory", "2 GiB", 2 * 1024**3),
        ("mem_usage", 1000, 1000.0),
        ("memory", "", 0.0),
        ("memory", "plenty", 0.0),
        ("memory", -5, 0.0),
        ("memory", "inf", 0.0),
        ("memory", "1e400 GB", 0.0),
        ("other", 1000, 0.0),
    ],
)
def test_memory_is_a_size_or_none(name: str, value: object, memory: float) -> None:
    """Memory is a number of bytes or a size with a unit; anything else counts as none."""
    template = Template(key="a", name="a", kind=Kind.APP, arguments=(Argument(name=name, value=value),))

    assert needs_of(template).memory == memory


def test_memory_counts_as_an_argument_of_the_application_too() -> None:
    """Editors make new fields of an application its arguments; a port of that name declares nothing."""
    field = Argument(name="memory", value="2 GiB", parameter_type="ApplicationArgument")

    assert needs_of(Template(key="a", name="a", kind=Kind.APP, arguments=(field,))).memory == 2 * 1024**3
    port = templates_replace(field, usage="InputPort")
    assert needs_of(Template(key="a", name="a", kind=Kind.APP, arguments=(port,))).memory == 0


@pytest.mark.parametrize(("cpus", "needed"), [(1, 1), (4, 4), (0, 1), (-2, 1), (10**12, 2**31 - 1)])
def test_an_application_needs_at_least_one_processor(cpus: int, needed: int) -> None:
    """Fewer than one processor counts as one, and more than 32 bits hold as the largest number."""
    assert needs_of(Template(key="a", name="a", kind=Kind.APP, cpus=cpus)).cpus == needed


@pytest.mark.parametrize(
    ("value", "needed"), [(2, 2), (2.0, 2), ("2.0", 2), (2.5, 0), (-1, 0), (10**12, 0), (10**400, 0), (math.inf, 0)]
)
def test_what_is_no_number_of_gpus_counts_as_none(value: object, needed: int) -> None:
    """A whole number counts however it is spelled; a fraction, and a number that no host has, count as 0."""
    field = Argument(name="num_gpus", value=value)

    assert needs_of(Template(key="a", name="a", kind=Kind.APP, arguments=(field,))).gpus == needed


def test_data_needs_one_processor() -> None:
    """Initial contents are written by one processor, whatever fields the data has."""
    template = Template(key="a", name="a", kind=Kind.DATA, cpus=3, arguments=(Argument(name="memory", value="1 GB"),))

    assert needs_of(template) == ResourceNeeds()


def _changed(graph: PhysicalGraph, row: int, **values: Any) -> PhysicalGraph:
    templates = list(graph.templates)
    templates[row] = msgspec.structs.replace(templates[row], **values)
    return dataclasses.replace(graph, templates=tuple(templates))


def _with_value(graph: PhysicalGraph, value: object) -> PhysicalGraph:
    return _changed(graph, 1, arguments=(Argument(name="level", value=value),))


def test_a_graph_does_not_differ_from_itself_elsewhere() -> None:
    """Partition, places, ids, notes and estimates of planning are no differences."""
    graph = fan(40)
    other = dataclasses.replace(
        graph, prefix="y", name="other", part=graph.part + 1, places=("n1", "n2"), meta={"planning": "{}"}
    )

    assert graph_differences(graph, other) == ()


def test_more_copies_are_a_difference() -> None:
    """Nodes differ in their number of drops, which has a ratio, and in their index space."""
    found = graph_differences(fan(40), fan(60))

    space = ("index space", "scatter fan of 20", "scatter fan of 30")
    assert [(one.subject, one.what, one.left, one.right) for one in found] == [
        ("app", "drops", 20, 30),
        ("app", *space),
        ("data", "drops", 20, 30),
        ("data", *space),
    ]
    assert [one.ratio for one in found] == [1.5, None, 1.5, None]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((1, 2), ("1", "2")),
        ((1, "x"), ("1", "x")),
        ((None, ""), ("null", "")),
        (({"b": 1, "a": 2}, {"a": 2, "b": 3}), ('{"a":2,"b":1}', '{"a":2,"b":3}')),
    ],
)
def test_values_that_differ_are_shown(values: tuple[object, object], shown: tuple[str, str]) -> None:
    """Both are text; JSON has its keys in order."""
    found = graph_differences(*(_with_value(fan(4), value) for value in values))

    assert found == (Difference(subject="app", what="level", left=shown[0], right=shown[1]),)


def test_the_order_of_keys_is_no_difference() -> None:
    """Two JSON objects with the same members are one value."""
    assert graph_differences(*(_with_value(fan(4), value) for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))) == ()


def test_long_values_are_shown_where_they_differ() -> None:
    """The first letter that differs is in what is shown, which is short."""
    code = "x = 1\n" * 5_000
    (found,) = graph_differences(_with_value(fan(4), f"{code}y = 1"), _with_value(fan(4), f"{code}y = 2 # new"))

    assert isinstance(found.left, str)
    assert found.left.endswith("y = 1")
    assert str(found.right).endswith("y = 2 # new")
    assert len(found.left) < 500


def test_parameters_are_added_and_removed() -> None:
    """A parameter of one graph only has no value in the other."""
    found = graph_differences(_with_value(fan(4), 1), _changed(fan(4), 1, arguments=(Argument(name="depth", value=2),)))

    assert [(one.what, one.left, one.right) for one in found] == [("level", "1", None), ("depth", None, "2")]


def test_nodes_and_links_are_added_and_removed() -> None:
    """A node with another key and name is another node, and its links are others."""
    graph = fan(4)
    other = _changed(graph, 2, key="z", name="image")
    found = graph_differences(graph, other)

    assert [(one.subject, one.what, one.left, one.right) for one in found] == [
        ("data", "drops", 2, None),
        ("image", "drops", None, 2),
        ("app -> data", "link", "yes", None),
        ("app -> image", "link", None, "yes"),
    ]


def test_nodes_with_other_keys_match_by_name() -> None:
    """A graph that was drawn again has other ids; nodes with the same kind, category and name are the same."""
    graph = fan(4)
    other = dataclasses.replace(
        graph,
        templates=tuple(msgspec.structs.replace(template, key=f"n{template.key}") for template in graph.templates),
    )

    assert graph_differences(graph, other) == ()


def test_a_key_of_another_kind_is_another_node() -> None:
    """An application never matches data, even with the same key."""
    graph = fan(4)
    templates: tuple[Template, ...] = (graph.templates[0], graph.templates[2], graph.templates[1])
    renamed = tuple(
        msgspec.structs.replace(one, key=old.key) for one, old in zip(templates, graph.templates, strict=True)
    )
    links = (Link(source=0, target=2), Link(source=2, target=1))
    swapped = dataclasses.replace(graph, templates=renamed, links=links, template=graph.template.copy())

    assert [difference for difference in graph_differences(graph, swapped) if difference.what == "drops"] == []


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
        (f"s_work_0-{'9' * 5000}", "its last instance"),
        ("s_work_1-1", "its last instance"),
        ("", "graph scatter has 10 drops"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(oid: str, hint: str) -> None:
    """A name that no drop has is refused, also if it differs from one only in the spelling of the index."""
    with pytest.raises(UsageError, match=f"no drop '{oid}'") as caught:
        names.drop_of(scatter(3), oid)

    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Wor", "did you mean 'work 0' to 'work 2'?"), ("works", "'work 0'"), ("work 7", "'work 0' to")],
)
def test_the_names_of_near_nodes_are_shown(name: str, hint: str) -> None:
    """Those that begin so, or are near; a node with several drops has the first and the last name."""
    with pytest.raises(NotFoundError, match="there is no drop") as caught:
        names.find_drop(scatter(3), name)

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


def test_an_ambiguous_name_lists_failed_drops_first() -> None:
    """The hint has names that are enough to find a drop, with its id and state."""
    graph = fan(12)
    name = graph.templates[graph.template[1]].name
    states = np.full(graph.drops, DropState.COMPLETED, dtype=np.uint8)
    failed = int(drops_named(graph, name)[4])
    states[failed] = DropState.ERROR

    with pytest.raises(AmbiguousError, match="are named") as found:
        find_drop(graph, name, states)
    hint = found.value.hint
    assert hint.startswith("give the name with its index")
    assert f": '{name} 4' ({oid(graph, failed)}, ERROR) or '{name} 0' (" in hint
    assert hint.endswith(", COMPLETED) or another")
    assert find_drop(graph, f"{name} 4") == failed


def test_names_that_differ_in_case_are_told_apart() -> None:
    """``Copy`` is the application and ``copy`` its data; ``COPY`` may be either."""
    graph = fan(12)
    templates = list(graph.templates)
    templates[0], templates[1] = (templates_replace(templates[row], name=name) for row, name in enumerate(("Do", "do")))
    graph = replace(graph, templates=tuple(templates))

    found = [drops_named(graph, name).tolist() for name in ("Do", "do", "DO")]
    assert found[:2] == [np.flatnonzero(graph.template == row).tolist() for row in (0, 1)]
    assert found[2] == sorted(found[0] + found[1])


def test_other_texts_name_no_drop() -> None:
    """Nor do indices that the node does not have."""
    graph = fan(12)
    name = graph.templates[graph.template[1]].name

    assert drops_named(graph, "").tolist() == drops_named(graph, "_").tolist() == []
    with pytest.raises(NotFoundError, match="there is no drop"):
        find_drop(graph, f"{name} 77")
