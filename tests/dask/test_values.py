"""Values as contents of drops."""

import gc
import io
import mmap
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.task_spec import Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

import dropflow.dask
from dropflow.dask import values
from dropflow.dask.translate import TranslatedGraph, translate
from dropflow.dask.values import MemoryBudget, ValueMemory, value_of
from dropflow.dask_tasks.value_encoding import decode_value, encode_value, read_value
from dropflow.errors import BadParameterError, StorageError
from dropflow.host.memory import host_memory
from tests.lazy_module import LazyModule

da = LazyModule("dask.array")

_ARRAYS = st.builds(
    lambda dtype, shape, order, step: np.asarray(
        np.arange(int(np.prod(shape)) * step, dtype="i8").astype(dtype)[::step].reshape(shape), order=order
    ),
    st.sampled_from(["f8", "i2", ">i4", "c16", "?", "M8[s]", "S3", "U2", "O"]),
    st.lists(st.integers(0, 40), max_size=3).map(tuple),
    st.sampled_from(["C", "F"]),
    st.integers(1, 2),
)


def _through(value: Any) -> Any:
    return decode_value(bytearray(b"".join(encode_value(value))))


@given(_ARRAYS)
def test_arrays_are_the_same(array: np.ndarray[Any, Any]) -> None:
    """An array of any type, size and order comes back with type, shape and values, and can be written to."""
    found = _through(array)

    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert np.array_equal(found, array)
    assert found.flags.writeable


def test_large_arrays_are_npy_and_the_rest_is_pickled() -> None:
    """Other programs read a large array; a small value is a plain pickle."""
    large, small = np.arange(1000.0).reshape(20, 50).T, [np.arange(3), "text"]

    assert np.array_equal(np.load(io.BytesIO(b"".join(encode_value(large)))), large)
    assert pickle.loads(b"".join(encode_value(small)))[1] == "text"


@given(st.lists(st.integers(0, 3000), max_size=5))
def test_buffers_are_beside_the_pickle(lengths: list[int]) -> None:
    """Several arrays in one value are views of the content, at multiples of 64 bytes."""
    value = {number: np.arange(length, dtype="f8") for number, length in enumerate(lengths)}
    content = bytearray(b"".join(encode_value(value)))

    found = decode_value(content)

    assert all(np.array_equal(found[number], array) for number, array in value.items())
    base = np.frombuffer(content, dtype="u1").ctypes.data
    for array in found.values():
        if array.nbytes >= 4096:
            assert (array.ctypes.data - base) % 64 == 0


def test_what_is_in_no_module_travels() -> None:
    """Functions that another process cannot import are in the content."""
    factor = 3

    assert pickle.loads(b"".join(encode_value(lambda value: value * factor)))(2) == 6


def test_what_cannot_be_pickled_raises() -> None:
    """The error of pickle is passed on."""
    with pytest.raises(TypeError, match=r"cannot pickle"):
        encode_value(mmap.mmap(-1, 1))


def test_a_mapped_content_is_not_changed(tmp_path: Path) -> None:
    """Writing to an array of a file changes neither the file nor what another reader sees."""
    path = tmp_path / "content"
    path.write_bytes(b"".join(encode_value(np.zeros(10_000))))

    for _ in range(2):
        with path.open("rb") as stream:
            array = read_value(stream)
        assert array.sum() == 0
        array += 1


@pytest.mark.parametrize("shape", [(100, 100), (1, 10_000), (3, 100, 100)])
def test_repeated_elements_are_written_once(shape: tuple[int, ...]) -> None:
    """An array that repeats its elements stays small, and has its type and values afterwards. It stays read-only."""
    one = np.broadcast_to(np.float32(2.5), shape)
    rows = np.broadcast_to(np.arange(shape[-1], dtype=">i4"), shape)
    for array, most in ((one, 500), (rows, 500 + rows[..., :1, :].size * 4)):
        content = bytearray(b"".join(encode_value(array)))
        found = decode_value(content)

        assert len(content) < most
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)
        assert not found.flags.writeable


# Values of computations in this process within a memory limit.


_CHUNK = 8 * 100 * 100


def _array() -> Any:
    return da.random.default_rng(1).random((800, 800), chunks=100)


@contextmanager
def _full_disk(*_: object) -> Iterator[None]:
    try:
        yield
    except TypeError as error:
        raise StorageError("the disk is full") from error


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


@pytest.mark.slow
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


def test_values_leave_memory_once_a_full_disk_has_room(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that could not be written still count, each once, and the disk keeps no part of them."""
    memory, value = _memory(limit=15_000), np.ones(10_000, np.uint8)
    monkeypatch.setattr(values, "encode_value", lambda _: ["a text, which is refused as a full disk refuses bytes"])
    monkeypatch.setattr(values, "storage_errors", _full_disk)
    memory.keep(2, value)
    for _ in range(2):
        with pytest.raises(StorageError, match="the disk is full"):
            memory.keep(3, value)
    assert (memory._budget.held, [path for path in temporary.rglob("*") if path.is_file()]) == (20_000, [])

    monkeypatch.undo()
    memory.keep(3, value)
    assert (memory._budget.held, memory.written > 10_000) == (10_000, True)
    memory.close()


def test_without_need_nothing_is_written(temporary: Path) -> None:
    """No directory is made as long as values are within the limit."""
    with dropflow.dask.scheduler(memory_limit="1 GB"):
        assert _array().sum().compute() > 0

    assert list(temporary.iterdir()) == []


@pytest.mark.slow
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


@pytest.mark.parametrize("limit", ["4 XB", -1, 0, "0 B", "1e400"])
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


@pytest.mark.slow
def test_a_released_value_has_no_file(temporary: Path) -> None:
    """The file of a value goes after its last use."""
    memory = _memory(limit=1)
    memory.keep(2, np.zeros(10_000))
    memory.keep(3, np.zeros(10_000))
    files = [path for path in temporary.rglob("*") if path.is_file()]
    memory.release(2)

    assert len(files) == 2
    assert [path for path in temporary.rglob("*") if path.is_file()] == [path for path in files if path.name == "3"]


@pytest.mark.slow
def test_a_directory_that_cannot_be_written(temporary: Path) -> None:
    """The computation ends with an error that names the directory."""
    with (
        dask.config.set({"temporary-directory": str(temporary / "missing")}),
        dropflow.dask.scheduler(memory_limit=_CHUNK),
        pytest.raises(StorageError, match=r"cannot make a directory in .*missing"),
    ):
        (_array() + 1).compute()


# Values that leave memory when they are more than a budget.


def _task(key: str, needs: list[str]) -> Task:
    return Task(key, max, *(TaskRef(name) for name in needs))


def _translated(needs: list[list[int]]) -> TranslatedGraph:
    """Return a graph in which each task needs others before it. What no task reads is a result."""
    nodes = {f"t{task}": _task(f"t{task}", [f"t{other}" for other in others]) for task, others in enumerate(needs)}
    ends = [f"t{task}" for task in range(len(needs)) if not any(task in others for others in needs)]
    return translate(nodes, ends, {})


@st.composite
def _graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 25))
    return [sorted(draw(st.sets(st.integers(0, task - 1), max_size=3))) if task else [] for task in range(size)]


def _order(tasks: TranslatedGraph) -> list[int]:
    assert tasks.graph.priority is not None
    return np.argsort(-tasks.graph.priority[: tasks.tasks]).tolist()


def _inputs(tasks: TranslatedGraph, task: int) -> list[int]:
    before = tasks.graph.predecessors
    found: list[int] = before.neighbour[before.ptr[task] : before.ptr[task + 1]].tolist()
    return found


@pytest.mark.slow
@given(_graphs(), st.integers(0, 60), st.data())
def test_what_is_needed_last_leaves(needs: list[list[int]], limit: int, data: Any) -> None:
    """Whenever values leave, each is needed later than all that stay, and no more leave than is necessary."""
    tasks = _translated(needs)
    budget = MemoryBudget(limit, tasks)
    order = _order(tasks)
    place = {task: at for at, task in enumerate(order)}
    readers = {
        row + tasks.tasks: [task for task in order if row + tasks.tasks in _inputs(tasks, task)] for row in order
    }
    held: dict[int, int] = {}
    begun: set[int] = set()

    def needed(drop: int) -> int:
        left = [place[task] for task in readers[drop] if task not in begun]
        return min(left) if left else len(order) if drop in tasks.results.values() else -1

    # Threads begin tasks in the order, but for some that overtake others.
    pending, done = list(order), set[int]()
    while pending:
        ready = [task for task in pending if all(drop - tasks.tasks in done for drop in _inputs(tasks, task))]
        task = data.draw(st.sampled_from(ready[:2]))
        pending.remove(task)
        begun.add(task)
        budget.begin(task, _inputs(tasks, task))
        for drop in _inputs(tasks, task):
            if all(reader in begun for reader in readers[drop]):
                budget.remove(drop)
                held.pop(drop, None)
        drop = task + tasks.tasks
        held[drop] = data.draw(st.integers(0, 20))
        budget.add(drop, held[drop])
        leaving = budget.leaving()
        done.add(task)

        places = [needed(one) for one in leaving]
        assert places == sorted(places, reverse=True)
        assert all(at >= 0 for at in places)
        if leaving:
            assert sum(size for one, size in held.items() if one not in leaving[:-1]) > limit
        for one in leaving:
            del held[one]
        stay = [needed(one) for one in held]
        assert not leaving or max(stay, default=-1) <= places[-1]
        assert sum(held.values()) <= limit or max(stay, default=-1) == -1
        assert budget.held == sum(held.values())
