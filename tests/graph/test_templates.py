"""What applications declare that they need."""

import dataclasses
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dropflow.graph.differences import Difference, graph_differences
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Link, ResourceNeeds, Template, needs_of
from dropflow.testing.drawing import fan


@pytest.mark.parametrize(
    ("name", "value", "memory"),
    [
        ("memory", "2 GiB", 2 * 1024**3),
        ("mem_usage", 1000, 1000.0),
        ("memory", "", 0.0),
        ("memory", "plenty", 0.0),
        ("memory", -5, 0.0),
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
    port = replace(field, usage="InputPort")
    assert needs_of(Template(key="a", name="a", kind=Kind.APP, arguments=(port,))).memory == 0


@pytest.mark.parametrize(("cpus", "needed"), [(1, 1), (4, 4), (0, 1), (-2, 1)])
def test_an_application_needs_at_least_one_processor(cpus: int, needed: int) -> None:
    """Fewer than one processor counts as one."""
    assert needs_of(Template(key="a", name="a", kind=Kind.APP, cpus=cpus)).cpus == needed


def test_data_needs_one_processor() -> None:
    """Initial contents are written by one processor, whatever fields the data has."""
    template = Template(key="a", name="a", kind=Kind.DATA, cpus=3, arguments=(Argument(name="memory", value="1 GB"),))

    assert needs_of(template) == ResourceNeeds()


# The differences of two physical graphs.


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
        graph, templates=tuple(msgspec.structs.replace(one, key=f"n{one.key}") for one in graph.templates)
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

    assert [one for one in graph_differences(graph, swapped) if one.what == "drops"] == []
