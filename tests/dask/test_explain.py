"""The steps of a collection until it is executed."""

from typing import Any

import dask
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.core import convert_legacy_graph
from dask.task_spec import DataNode
from hypothesis import given
from hypothesis import strategies as st

import dropflow.dask
from dropflow.dask import explain
from dropflow.errors import BadGraphError, BadParameterError
from tests.lazy_module import LazyModule

da = LazyModule("dask.array")
db = LazyModule("dask.bag")


def _sum_of_two(chunks: int = 10) -> Any:
    """Return (a + b).sum() of two random arrays with 100 chunks each."""
    random = da.random.default_rng(1)
    a, b = (random.random((1000, 1000), chunks=1000 // chunks) for _ in range(2))
    return (a + b).sum()


def test_the_statistics_of_mars() -> None:
    """Of (a + b).sum() over 100 chunks, ADD and SUM become one unit, and the RANDs stay outside of it."""
    found = explain(_sum_of_two(), optimize_tileable_graph=False, optimize_chunk_graph=False)

    assert found["given"].kinds["random"] == 200
    assert found["given"].kinds["add"] == found["given"].kinds["sum"] == 100
    assert found["fused"].kinds["random"] == 200
    assert found["fused"].kinds["add+sum"] == 100
    assert not {"add", "sum"} & {*found["fused"].kinds}


@pytest.mark.slow
@given(st.integers(1, 9), st.integers(1, 12))
def test_initial_tasks_are_balanced_to_one(nodes: int, chunks: int) -> None:
    """The numbers of initial tasks on equal nodes differ by one at most."""
    found = explain(_sum_of_two(chunks), nodes=nodes, optimize_tileable_graph=False, optimize_chunk_graph=False)

    initial = found["placed"].facts["initial tasks by node"]
    assert len(initial) == nodes
    assert max(initial) - min(initial) <= 1


@pytest.mark.slow
def test_each_step_can_be_switched() -> None:
    """Steps are on by default, and switched by arguments and by dask's configuration."""
    x = _sum_of_two()

    both = explain(x)
    no_layers = explain(x, optimize_tileable_graph=False)
    no_tasks = explain(x, optimize_chunk_graph=False)
    with dask.config.set({"dropflow.fuse_enabled": False, "dropflow.optimize_tileable_graph": False}):
        configured = explain(x, optimize_chunk_graph=False)

    assert both["optimized"].kinds["sum"] == 100
    assert "add-sum" in no_layers["optimized"].kinds
    assert no_tasks["optimized"].tasks >= both["optimized"].tasks
    assert configured["optimized"].tasks == configured["fused"].tasks == configured["given"].tasks
    assert configured["fused"].text.startswith("switched off")


def test_counts_and_bytes() -> None:
    """Each step has tasks, edges and bytes; the last ones what moves between nodes and what is held at a time."""
    x = da.ones((40, 40), chunks=10)
    found = explain((x + x.T)[:20], optimize_tileable_graph=False, optimize_chunk_graph=False, nodes=1)

    assert found["optimized"].tasks < found["given"].tasks
    assert found["optimized"].size == found["optimized"].tasks * 800
    assert found["placed"].facts["values that move"] == 0
    assert found["placed"].facts["tasks by node"] == [found["optimized"].tasks]
    assert found["ordered"].facts["values held at most"] <= found["ordered"].facts["values held by level"]
    assert found["ordered"].facts["bytes held at most"] == found["ordered"].facts["values held at most"] * 800


def test_text_and_table() -> None:
    """The explanation is printed as text, and shown as a table by notebooks; names are escaped."""
    found = explain(da.ones(4, chunks=2).map_blocks(lambda block: block, name="<b>", dtype=float))

    assert str(found).startswith("given: as the collection has it")
    assert "initial tasks by node 1, 1" in repr(found)
    assert "<b>-" not in found._repr_html_()
    assert "<td>" in found._repr_html_()
    with pytest.raises(KeyError, match=r"there is no step 'tiled', only given, optimized"):
        found["tiled"]


def test_other_collections_and_algorithms() -> None:
    """Bags and delayed functions are explained, and any algorithm places them."""
    bag = explain(db.from_sequence(range(8), npartitions=4).map(abs).sum(), algorithm="metis")
    single = explain(dask.delayed(abs)(-1))

    assert bag["placed"].text.endswith("on 2 nodes by metis")
    assert single["fused"].tasks == 1
    assert single["ordered"].facts["values held at most"] == 1


def test_bad_arguments() -> None:
    """What is no collection, and values that cannot be used, are refused."""
    with pytest.raises(BadParameterError, match=r"a list is not a collection of dask"):
        explain([1])
    with pytest.raises(BadParameterError, match=r"the number of nodes is 0"):
        explain(da.ones(2), nodes=0)
    with pytest.raises(BadGraphError, match=r"PT002 partitioner 'magic' is unknown"):
        explain(da.ones(2), algorithm="magic")
    with dask.config.set({"dropflow.fuse_enabled": "yes"}), pytest.raises(BadParameterError, match=r"fuse_enabled is"):
        explain(da.ones(2))


def test_fusion_is_switched_for_a_computation() -> None:
    """Without fusion, the values are the same; the switch is an argument of the scheduler and of compute."""
    x = da.arange(10, chunks=2).map_blocks(np.negative).sum()

    with dropflow.dask.scheduler(fuse_enabled=False):
        assert x.compute(optimize_graph=False) == -45
    assert x.compute(scheduler=dropflow.dask.get, fuse_enabled=False) == -45


@pytest.mark.slow
@pytest.mark.parametrize("tileable", [True, False])
@pytest.mark.parametrize("chunk", [True, False])
def test_computations_have_the_steps_that_are_explained(tileable: bool, chunk: bool) -> None:  # noqa: FBT001
    """With the switches of `scheduler`, as many tasks are executed as `explain` shows, and the value is the same."""
    x = da.arange(36, chunks=6).reshape(6, 6)
    y = ((x + x.T) * 2)[:4].map_blocks(np.negative).sum()
    switches = {"optimize_tileable_graph": tileable, "optimize_chunk_graph": chunk}
    seen: list[Any] = []

    with dropflow.dask.scheduler(runner="inline", **switches), Callback(pretask=lambda key, *_: seen.append(key)):
        value = y.compute()

    assert value == y.compute(scheduler="sync")
    constants = sum(isinstance(node, DataNode) for node in convert_legacy_graph(y.__dask_graph__()).values())
    # Dask adds a task that gives the value; constants are tasks in explanations only.
    assert len(seen) - 1 <= dropflow.dask.explain(y, **switches)["optimized"].tasks <= len(seen) + constants
