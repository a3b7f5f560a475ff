"""Tasks that dask has fused, run as one."""

import operator
import weakref
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.core import convert_legacy_graph
from dask.task_spec import DataNode, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

from dropflow.dask_tasks.fused_blocks import run_node


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
