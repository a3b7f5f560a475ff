"""Digests of what drops are made from."""

import time
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dropflow.errors import BadGraphError
from dropflow.graph.build import from_columns
from dropflow.graph.digests import digest_text, drop_digests, signature_of
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Link, Template
from tests.regular_graphs import chain, chains, fan


def _changed(graph: PhysicalGraph, row: int, **values: Any) -> PhysicalGraph:
    templates = list(graph.templates)
    templates[row] = msgspec.structs.replace(templates[row], **values)
    return replace(graph, templates=tuple(templates))


def _signatures(graph: PhysicalGraph) -> tuple[str, str]:
    found = drop_digests(graph)
    return signature_of(graph, found.graph), signature_of(graph, found.parameters)


def _pair(first: str = "", second: str = "", *, swapped: bool = False, order: bool = False) -> PhysicalGraph:
    """Return two data drops that one application reads, by these ports; swapped, the second one has the first row."""
    data = [Template(key=key, name=key, kind=Kind.DATA, component=key) for key in "ab"]
    ports = ("(order)", "(order)") if order else (first, second)
    links = [Link(source=0, target=2, target_port=ports[0]), Link(source=1, target=2, target_port=ports[1])]
    if swapped:
        data.reverse()
        links = [Link(source=0, target=2, target_port=ports[1]), Link(source=1, target=2, target_port=ports[0])]
    return from_columns(
        name="pair",
        prefix="pair",
        templates=(*data, Template(key="c", name="c", kind=Kind.APP, component="c")),
        links=tuple(links),
        template=np.arange(3, dtype=np.int32),
        instance=np.zeros(3, np.int32),
        source=np.array([0, 1]),
        target=np.array([2, 2]),
        link=np.array([0, 1], np.int32),
    )


def test_what_cannot_change_a_result_does_not_count() -> None:
    """Parts, places, priorities, ids, names, keys, estimates, notes and streaming leave both signatures as they are."""
    graph = fan(40)
    other = replace(
        graph,
        name="other",
        prefix="other",
        part=graph.part + 1,
        places=("n1", "n2"),
        priority=np.arange(graph.drops, dtype=np.int32),
        meta={"planning": "{}"},
        links=tuple(msgspec.structs.replace(link, streaming=True) for link in graph.links),
    )
    planned = Argument(name="execution_time", value=7, parameter_type="ComponentParameter")
    other = _changed(other, 1, key="z", name="z", weight=9.0, cpus=2, arguments=(planned,))

    assert _signatures(other) == _signatures(graph)


@pytest.mark.parametrize(
    ("values", "is_graph"),
    [
        ({"component": "another.App"}, True),
        ({"category": "PyFuncApp"}, True),
        ({"arguments": (Argument(name="level", value=2),)}, False),
        ({"arguments": (Argument(name="execution_time", value=2, parameter_type="ApplicationArgument"),)}, False),
        ({"error_threshold": 5.0}, False),
        ({"effective_inputs": 1}, False),
        ({"block_skip": True}, False),
    ],
)
def test_what_can_change_a_result_counts(values: dict[str, Any], is_graph: bool) -> None:  # noqa: FBT001 - a parameter
    """Components change both signatures, parameters one; drops that do not depend on the change keep their digests."""
    graph = fan(40)
    other = _changed(graph, 1, **values)
    (one, with_values), (two, with_others) = _signatures(graph), _signatures(other)
    before, after = drop_digests(graph).parameters, drop_digests(other).parameters

    assert (one != two, with_values != with_others) == (is_graph, True)
    assert (before[0] == after[0]).all()
    assert (before[1:] != after[1:]).all()


def test_the_order_of_drops_does_not_count_unless_an_application_sees_it() -> None:
    """Inputs at ports with names may have any order, as may drops that only come before; at one port, order counts."""
    assert _signatures(_pair("x", "y")) == _signatures(_pair("x", "y", swapped=True))
    assert _signatures(_pair(order=True)) == _signatures(_pair(order=True, swapped=True))
    assert _signatures(_pair()) != _signatures(_pair(swapped=True))
    assert _signatures(_pair("x", "y")) != _signatures(_pair("y", "x"))


def test_other_consumers_of_a_content_do_not_count() -> None:
    """An application has the same digest whether others read the same content before it, after it, or not at all."""

    def reader(*consumers: str) -> str:
        templates = (
            Template(key="d", name="d", kind=Kind.DATA),
            *(Template(key=consumer, name=consumer, kind=Kind.APP) for consumer in consumers),
        )
        several = np.arange(1, len(templates), dtype=np.int32)
        graph = from_columns(
            name="g",
            prefix="g",
            templates=tuple(msgspec.structs.replace(template, component=template.key) for template in templates),
            links=tuple(Link(source=0, target=int(row)) for row in several),
            template=np.arange(len(templates), dtype=np.int32),
            instance=np.zeros(len(templates), np.int32),
            source=np.zeros(len(several), np.int32),
            target=several,
            link=several - 1,
        )
        return digest_text(drop_digests(graph).graph[1 + consumers.index("x")])

    assert reader("x") == reader("x", "y") == reader("y", "z", "x")


@pytest.mark.slow
def test_each_index_has_its_own_digest() -> None:
    """Copies of a scatter and iterations of a loop differ, whatever the shape; the copies of a larger scatter stay."""
    for graph in (fan(2_000), chain(2_000), chains(2_000, 20)):
        for column in (drop_digests(graph).graph, drop_digests(graph).parameters):
            assert len(np.unique(column, axis=0)) == graph.drops
    small, large = (drop_digests(fan(drops)).graph for drops in (200, 400))
    assert {digest_text(one) for one in small} < {digest_text(one) for one in large}


def test_a_digest_does_not_depend_on_how_wide_its_level_is() -> None:
    """Levels of few drops are computed one by one, and wide ones together; both give the same digests."""
    few, many = fan(20), fan(2_000)  # 10 and 1,000 drops at a level

    assert (drop_digests(few).parameters[1:11] == drop_digests(many).parameters[1:11]).all()
    assert (drop_digests(few).parameters[11:] == drop_digests(many).parameters[1001:1011]).all()


def test_a_cycle_is_refused() -> None:
    """The error names the drops of the cycle."""
    graph = _pair()
    out = graph.successors
    looped = replace(graph, successors=replace(out, neighbour=np.array([2, 2, 0], np.int32), ptr=np.array([0, 1, 2, 3]),
                                               link=np.array([0, 1, 0], np.int32)))  # fmt: skip
    with pytest.raises(BadGraphError, match="LG050"):
        drop_digests(looped)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [fan, chain])
def test_the_cost_of_a_drop_is_flat(shape: Any) -> None:
    """Digests of 1,000, 5,000 and 25,000 drops cost about as much for each drop, in wide and in deep graphs."""

    def cost(drops: int) -> float:
        graph = shape(drops)
        times = []
        for _ in range(2):
            start = time.process_time()
            drop_digests(graph)
            times.append(time.process_time() - start)
        return min(times) / graph.drops

    small, middle, large = map(cost, (1_000, 5_000, 25_000))
    assert max(middle, large) < 4 * small
