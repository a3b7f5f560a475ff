"""Dask graphs as physical graphs."""

import operator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.task_spec import Alias, DataNode, Task, TaskRef

from dropflow.dask.translate import KeyGroup, TranslatedGraph, group_keys, layer_volumes, translate
from dropflow.errors import BadGraphError
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid, row_of


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
    assert [(one.key, one.kind, one.shape) for one in found.graph.templates] == [
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

    assert [one.weight for one in found.graph.templates if one.kind is Kind.DATA] == [64.0, 800.0]


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

    assert [one.name for one in found.groups][:3] == ["a", "b", "a"]
    assert found.group.tolist() == [0, 1, 0, 2, 3]
    assert found.instance.tolist() == [0, 1, 1, 0, 0]
