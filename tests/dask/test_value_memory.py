"""Values of computations in this process within a memory limit."""

import gc
import threading
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback

import dropflow.dask
from dropflow.dask.translate import translate
from dropflow.dask.values import ValueMemory, value_of
from dropflow.engine.host_memory import host_memory
from dropflow.errors import BadParameterError, StorageError

_CHUNK = 8 * 100 * 100


def _array() -> Any:
    return da.random.default_rng(1).random((800, 800), chunks=100)


def _memory(limit: int) -> ValueMemory:
    """Return a memory for a graph with two results: drops 2 and 3."""
    chunks = da.ones(2, chunks=1)
    nodes = dict(chunks.__dask_graph__())
    return ValueMemory(limit, translate(nodes, [(chunks.name, 0), (chunks.name, 1)], {}))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path) -> Any:
    """Have files in a directory of the test."""
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        yield tmp_path


@pytest.mark.parametrize("runner", ["threads", "inline"])
def test_results_do_not_depend_on_the_limit(runner: str, temporary: Path) -> None:
    """With a limit of a few chunks, values go through files, results are the same, and no file is left."""
    x = _array()
    y = (x - x.mean(axis=0)).T + x
    expected = y.compute(scheduler="sync")
    most = 0

    class _Files(Callback):  # type: ignore[misc]  # it has no annotations
        def _posttask(self, *_: object) -> None:
            nonlocal most
            most = max(most, sum(1 for path in temporary.rglob("*") if path.is_file()))

    with dropflow.dask.scheduler(runner=runner, memory_limit=8 * _CHUNK, workers=2), _Files():
        assert np.array_equal(y.compute(), expected)

    assert most > 60  # 128 chunks are results or needed to the end
    gc.collect()
    assert list(temporary.iterdir()) == []


def test_without_need_nothing_is_written(temporary: Path) -> None:
    """No directory is made as long as values are within the limit."""
    with dropflow.dask.scheduler(memory_limit="1 GB"):
        assert _array().sum().compute() > 0

    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("runner", ["threads", "inline"])
def test_without_a_limit_the_free_memory_is_one(runner: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are more than 60 % of the memory that is free, here of 8 chunks, go through files."""
    monkeypatch.setattr(host_memory(), "free", lambda: 8.0 * _CHUNK)
    x = _array()
    with dropflow.dask.scheduler(runner=runner, workers=2):
        (y,) = dask.persist(x)
        files = sum(1 for path in temporary.rglob("*") if path.is_file())
        assert np.array_equal(y.compute(), x.compute(scheduler="sync"))

    assert files == 0  # those of persisted values are mapped, and have no name any more
    assert host_memory().for_values() == int(0.6 * 8 * _CHUNK)


def test_the_configuration_has_a_limit() -> None:
    """``dropflow.memory_limit`` of dask's configuration counts where no argument is given."""
    with (
        dask.config.set({"dropflow.memory_limit": "many", "scheduler": dropflow.dask.get}),
        pytest.raises(BadParameterError, match="memory_limit is 'many'"),
    ):
        _array().sum().compute()


@pytest.mark.parametrize("limit", ["4 XB", -1, 0, "0 B"])
def test_bad_limits_are_refused(limit: Any) -> None:
    """A limit is a positive number of bytes."""
    with pytest.raises(BadParameterError, match="memory_limit"):
        dropflow.dask.Scheduler(memory_limit=limit)


def test_arrays_from_files_can_be_written_to() -> None:
    """A task that changes its input in place changes no other reader's."""
    memory = _memory(limit=1)
    held = memory.keep(2, np.zeros(10_000))
    first = value_of(held)
    first += 1

    assert not held.is_in_memory
    assert value_of(held).sum() == 0
    memory.close()
    assert first.sum() == 10_000


def test_what_cannot_be_pickled_stays_in_memory() -> None:
    """Such a value is passed on as it is."""
    memory = _memory(limit=1)
    value = np.empty(10_000, dtype=object)
    value[0] = lock = threading.Lock()
    held = memory.keep(2, value)

    assert held.is_in_memory
    assert value_of(held)[0] is lock
    assert memory.written == 0


def test_a_released_value_has_no_file(temporary: Path) -> None:
    """The file of a value goes after its last use."""
    memory = _memory(limit=1)
    memory.keep(2, np.zeros(10_000))
    memory.keep(3, np.zeros(10_000))
    files = [path for path in temporary.rglob("*") if path.is_file()]
    memory.release(2)

    assert len(files) == 2
    assert [path for path in temporary.rglob("*") if path.is_file()] == [path for path in files if path.name == "3"]


def test_a_directory_that_cannot_be_written(temporary: Path) -> None:
    """The computation ends with an error that names the directory."""
    with (
        dask.config.set({"temporary-directory": str(temporary / "missing")}),
        dropflow.dask.scheduler(memory_limit=_CHUNK),
        pytest.raises(StorageError, match=r"cannot make a directory in .*missing"),
    ):
        (_array() + 1).compute()
