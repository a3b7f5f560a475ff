"""Dask graphs as physical graphs."""

import operator
import weakref
from itertools import permutations
from typing import Any

import dask
import numpy as np
import pytest
from dask.core import convert_legacy_graph
from dask.task_spec import Alias, DataNode, GraphNode, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

from dropflow.dask.translate import (
    KeyGroup,
    TranslatedGraph,
    best_order,
    group_keys,
    layer_volumes,
    translate,
    with_fused_chains,
)
from dropflow.dask_tasks.fused_blocks import run_node
from dropflow.errors import BadGraphError
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid, row_of
from tests.lazy_module import LazyModule

da = LazyModule("dask.array")


def _chain(length: int) -> dict[Any, Any]:
    """Return a graph that adds one to a constant, and so on."""
    nodes: dict[Any, Any] = {("x", 0): DataNode(("x", 0), 1)}
    for number in range(1, length):
        nodes[("x", number)] = Task(("x", number), operator.add, TaskRef(("x", number - 1)), 1)
    return nodes


def _edges(found: TranslatedGraph) -> set[tuple[str, str]]:
    graph = found.graph
    out = graph.successors
    return {
        (oid(graph, drop), oid(graph, target))
        for drop in range(graph.drops)
        for target in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist()
    }


def test_keys_are_names_of_drops() -> None:
    """The data drop of a key has its name and indices; so has the application that computes it, with an ending."""
    nodes = {("add-1", 0, 2): Task(("add-1", 0, 2), operator.add, TaskRef("one"), 1), "one": DataNode("one", 1)}

    found = translate(nodes, [("add-1", 0, 2)], {})

    assert _edges(found) == {("dask_one_0", "dask_add-1.task_0-0-2"), ("dask_add-1.task_0-0-2", "dask_add-1_0-0-2")}
    assert row_of(found.graph, "dask_add-1_0-0-2") == found.results["add-1", 0, 2]


def test_keys_of_one_name_share_a_template() -> None:
    """The number of templates is that of the names, however many keys there are."""
    found = translate(_chain(1000), [("x", 999)], {})

    assert found.graph.drops == 2 * 999 + 1
    assert [(template.key, template.kind, template.shape) for template in found.graph.templates] == [
        ("x.task", Kind.APP, (1000,)),
        ("x", Kind.DATA, (1000,)),
        ("x~2", Kind.DATA, (1,)),
    ]


def test_only_what_results_need_becomes_drops() -> None:
    """Keys that no result needs are left out."""
    assert translate(_chain(10), [("x", 4)], {}).graph.drops == 2 * 4 + 1


def test_an_alias_is_another_name_of_a_drop() -> None:
    """Aliases get no drops: their consumers read the drop that they stand for."""
    nodes = {
        **_chain(2),
        "a": Alias("a", ("x", 1)),
        "b": Alias("b", "a"),
        "c": Task("c", operator.neg, TaskRef("b")),
    }

    found = translate(nodes, ["c", "b"], {})

    assert found.graph.drops == 5
    assert found.aliases == {"b": ("x", 1)}
    assert oid(found.graph, found.results["b"]) == "dask_x_0-1"


def test_a_missing_key_is_named() -> None:
    """An error names a key that is not in the graph, and what needs it."""
    nodes = {"y": Task("y", operator.neg, TaskRef("x"))}

    with pytest.raises(BadGraphError, match=r"the key 'x' is needed by 'y', and is not in the dask graph"):
        translate(nodes, ["y"], {})
    with pytest.raises(BadGraphError, match=r"the key 'z' is wanted, and is not in the dask graph"):
        translate(nodes, ["z"], {})


def test_cycles_are_named() -> None:
    """An error names the drops of a cycle, or an alias of itself."""
    nodes = {"x": Task("x", operator.neg, TaskRef("y")), "y": Task("y", operator.neg, TaskRef("x"))}

    with pytest.raises(BadGraphError, match=r"LG050 4 drops wait for each other: .*dask_x.task_0"):
        translate(nodes, ["x"], {})
    with pytest.raises(BadGraphError, match=r"the key 'a' of the dask graph is an alias of itself"):
        translate({"a": Alias("a", "b"), "b": Alias("b", "a")}, ["a"], {})


def test_volumes_come_from_chunks_and_constants() -> None:
    """A data drop has the bytes of a chunk of its layer, also of one that was fused, or those of its constant."""
    nodes = {
        "big": DataNode("big", np.zeros(100)),
        ("ones-add-7f", 0): Task(("ones-add-7f", 0), operator.neg, TaskRef("big")),
    }

    found = translate(nodes, [("ones-add-7f", 0)], {"add-7f": 64.0})

    assert [template.weight for template in found.graph.templates if template.kind is Kind.DATA] == [64.0, 800.0]


def test_volumes_of_layers() -> None:
    """The mean bytes of a chunk are known where shape and type of an array are known."""
    known = da.ones((4, 6), chunks=(2, 4), dtype="f4")
    unknown = known[known > 0]

    volumes = layer_volumes(unknown.dask)

    assert volumes[known.name] == 4 * 6 * 4 / 4
    assert unknown.name not in volumes


def test_expressions_are_asked_for_no_unknown_attributes() -> None:
    """Expressions of data frames made from delayed values raise for attributes that they do not have."""
    known = da.ones((4, 6), chunks=(2, 4), dtype="f4")

    class Expression:
        def __init__(self, *operands: object) -> None:
            self.operands = list(operands)

        def __getattr__(self, name: str) -> None:
            raise NotImplementedError(name)

        def __dask_graph__(self) -> None:
            raise NotImplementedError("a graph")

    class WithLayers(Expression):
        hlg = known.dask

    volumes = layer_volumes(Expression("text", Expression(WithLayers()), {}))

    assert volumes == layer_volumes(known.dask)


@pytest.mark.parametrize(
    ("keys", "group"),
    [
        ([("a", 1, 2), ("a", 0, 0)], KeyGroup("a", (2, 3), is_indexed=True)),
        ([("a", 1.5), ("a", 0)], KeyGroup("a", (2,), is_indexed=False)),
        ([("a", -1), ("a", 0)], KeyGroup("a", (2,), is_indexed=False)),
        ([("a", "x"), ("a", 0)], KeyGroup("a", (2,), is_indexed=False)),
        ([("a", ("b", 1)), ("a", 0)], KeyGroup("a", (2,), is_indexed=False)),
        ([("a", 2**70), ("a", 0)], KeyGroup("a", (2,), is_indexed=False)),
        ([("a", 2**20, 2**20), ("a", 0, 0)], KeyGroup("a", (2,), is_indexed=False)),
        (["inc-" + "0" * 32, "inc-" + "1" * 32], KeyGroup("inc", (2,), is_indexed=False)),
        (["x"], KeyGroup("x", (), is_indexed=False)),
    ],
)
def test_keys_without_small_integers_are_numbered(keys: list[Any], group: KeyGroup) -> None:
    """Indices are those of the keys if they are integers from 0 on; other keys of a name are numbered."""
    found = group_keys(keys)

    assert found.groups == (group,)
    assert len(set(found.instance.tolist())) == len(keys)
    assert all(0 <= one < max(1, int(np.prod(group.shape))) for one in found.instance.tolist())


def test_groups_of_many_names() -> None:
    """Keys of several names, and of different numbers of indices, are in groups of their own."""
    found = group_keys([("a", 0), ("b", 1), ("a", 1), ("a", 0, 0), 7])

    assert [group.name for group in found.groups][:3] == ["a", "b", "a"]
    assert found.group.tolist() == [0, 1, 0, 2, 3]
    assert found.instance.tolist() == [0, 1, 1, 0, 0]


# Tasks that dask has fused, run as one.


@st.composite
def _blocks(draw: st.DrawFn) -> tuple[Any, dict[Any, Any]]:
    """Return a fused task in which each task but the last is read by others, and the values from outside."""
    outside = {f"x{number}": draw(st.integers(0, 9)) for number in range(draw(st.integers(0, 3)))}
    names, made, unread = list(outside), [], set[str]()
    for number in range(draw(st.integers(2, 8))):
        others = draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
        unread.difference_update(others)
        made.append(Task(f"t{number}", _digest, number, *(TaskRef(other) for other in others)))
        names.append(f"t{number}")
        unread.add(f"t{number}")
    if draw(st.booleans()):
        made[0] = DataNode("t0", 7)
    made.append(Task("end", _digest, 99, *(TaskRef(other) for other in sorted(unread))))
    fused = Task.fuse(*draw(st.permutations(made)))
    if draw(st.booleans()):  # a block in a block
        fused = Task.fuse(fused, Task("last", _digest, TaskRef("end"), TaskRef("end")))
    return fused, outside


def _digest(*values: Any) -> int:
    return hash(values)


@given(_blocks())
def test_blocks_have_the_values_of_dask(block: tuple[Any, dict[Any, Any]]) -> None:
    """A block has the value that dask computes, also with constants and other blocks in it."""
    node, outside = block
    given = {key: outside[key] for key in node.dependencies}

    assert run_node(node, given) == node(given)


def test_values_within_a_block_are_released() -> None:
    """A value goes as soon as its last reader in the block has ended."""
    seen: list[weakref.ref[Any]] = []

    def make() -> Any:
        value = np.zeros(10)
        seen.append(weakref.ref(value))
        return value

    def check(_: Any) -> bool:
        return seen[0]() is None

    first, second = Task("first", make), Task("second", operator.add, TaskRef("first"), 1)
    assert run_node(Task.fuse(first, second, Task("third", check, TaskRef("second"))), {}) is True


def test_blocks_of_arrays() -> None:
    """Chains of operations on arrays, which dask fuses block by block, have its values."""
    x = da.arange(24, chunks=6).reshape(4, 6).rechunk(3)
    z = da.sqrt((x + 1) * 2 + x.T[:1, :1]).map_blocks(np.clip, 1, 5)
    (fused,) = dask.optimize(z)
    nodes = convert_legacy_graph(dict(fused.__dask_graph__()))
    values: dict[Any, Any] = {}

    def value(key: Any) -> Any:
        if key not in values:
            values[key] = run_node(nodes[key], {other: value(other) for other in nodes[key].dependencies})
        return values[key]

    found = np.block([[value((z.name, row, column)) for column in range(z.numblocks[1])] for row in range(2)])
    assert np.array_equal(found, z.compute(scheduler="sync"))


def test_an_exception_in_a_block_is_its_own() -> None:
    """What a task of a block raises is raised."""
    block = Task.fuse(Task("one", int, "x"), Task("two", operator.neg, TaskRef("one")))

    with pytest.raises(ValueError, match="invalid literal"):
        run_node(block, {})


# Chains of tasks of dask become one task.


def _value(nodes: Any, key: str) -> Any:
    node = nodes[key]
    return node({needed: _value(nodes, needed) for needed in node.dependencies})


@pytest.mark.parametrize(
    "middle",
    [Alias("first"), Alias("another", "first"), Task("another", operator.neg, TaskRef("first"))],
    ids=["alias-of-itself", "alias", "task"],
)
def test_chains_whose_nodes_have_keys_of_others(middle: GraphNode) -> None:
    """A node may have another key than the graph has for it, as in data frames made from delayed values."""
    nodes = {
        "first": DataNode("constant", 3),
        "middle": middle,
        "last": Task("last", operator.add, TaskRef("middle"), 1),
    }

    fused = with_fused_chains(nodes, ["last"])

    assert len(fused) <= 2  # dask gives the chain a name of its own, and an alias
    assert _value(fused, "last") == _value(nodes, "last")


# The order in which tasks are executed.


def _order(needs: list[list[int]], ends: list[int]) -> list[int]:
    """Return the tasks in their order. Each one needs tasks before it only."""
    ptr = np.cumsum([0, *map(len, needs)]).astype(np.int64)
    inputs = np.array([other for each in needs for other in sorted(each)], dtype=np.int32)
    tasks = np.arange(len(needs), dtype=np.int32)
    return np.argsort(best_order(ptr, inputs, np.array(ends, dtype=np.int32), tasks)).tolist()


def _is_valid(needs: list[list[int]], order: list[int]) -> bool:
    place = {task: number for number, task in enumerate(order)}
    return all(place[other] < place[task] for task, others in enumerate(needs) for other in others)


def _most_held(needs: list[list[int]], order: list[int]) -> int:
    """Return how many results are held at a time: each until its last consumer has run."""
    uses = [sum(task in others for others in needs) for task in range(len(needs))]
    held = most = 0
    for task in order:
        held += 1
        most = max(most, held)
        for other in needs[task]:
            uses[other] -= 1
            held -= not uses[other]
    return most


@st.composite
def _graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 30))
    return [sorted(draw(st.sets(st.integers(0, task - 1), max_size=3))) if task else [] for task in range(size)]


@given(_graphs())
def test_every_task_runs_once_after_its_inputs(needs: list[list[int]]) -> None:
    """The order has each task once, and no task before one that it needs."""
    ends = [task for task in range(len(needs)) if not any(task in others for others in needs)]

    order = _order(needs, ends)

    assert sorted(order) == list(range(len(needs)))
    assert _is_valid(needs, order)


@pytest.mark.slow
@given(st.lists(st.integers(0, 100), min_size=1, max_size=6))
def test_a_tree_holds_as_few_results_as_possible(parents: list[int]) -> None:
    """If no result has several consumers, no other order holds fewer results at a time."""
    size = len(parents) + 1
    # Task n - 1 - i is the input of one of those after it.
    needs: list[list[int]] = [[] for _ in range(size)]
    for number, draw in enumerate(parents):
        task = size - 2 - number
        needs[task + 1 + draw % (size - 1 - task)].append(task)
    valid = (order for order in permutations(range(size)) if _is_valid(needs, list(order)))

    fewest = min(_most_held(needs, list(order)) for order in valid)

    assert _most_held(needs, _order(needs, [size - 1])) == fewest


def test_pairs_that_need_each_other_are_released_together() -> None:
    """In x + x.T, the second of a pair follows the first at once, because then both inputs are released."""
    size = 8
    number = {(row, column): row * size + column for row in range(size) for column in range(size)}
    chunks, count = len(number), len(number)
    # Chunks, their transposes, the sums of both, and the sum of all.
    needs: list[list[int]] = [[] for _ in range(chunks)]
    needs += [[number[column, row]] for row, column in number]
    needs += [[number[place], count + number[place]] for place in number]
    needs += [[2 * count + number[place]] for place in number]
    needs.append(list(range(3 * count, 4 * count)))

    order = _order(needs, [4 * count])
    without_partial_sums = [task for task in order if task < 3 * count]

    assert _most_held(needs[: 3 * count], without_partial_sums) >= count  # the sums themselves have no consumer there
    assert _most_held(needs, order) <= count + 6
