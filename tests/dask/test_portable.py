"""Dask graphs for other processes: executed inline, in a session directory, where nothing is shared but files."""

import operator
import pickle
import subprocess
import sys
import threading
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from dask.core import convert_legacy_graph, flatten
from dask.task_spec import DataNode, Task, TaskRef
from dask.utils import SerializableLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dropflow.dask
from dropflow.dask.lost_chunks import described
from dropflow.dask.persist import ChunkPlace, PersistedChunk, PersistedSession
from dropflow.dask.portable import is_store, portable, refuse_lost_stores, stores_here
from dropflow.dask.translate import TranslatedGraph, layer_chunks, translate
from dropflow.dask_tasks.logged_exceptions import exception_in_log, log_exception, without_exceptions
from dropflow.dask_tasks.task_app import TASKS_FIELD
from dropflow.dask_tasks.task_pages import TaskEntry, TaskPages, encode_pages
from dropflow.dask_tasks.value_encoding import encode_value, read_value
from dropflow.errors import AppError, BadFileError, BadParameterError
from dropflow.execution.session import Session
from dropflow.graph.codec import dump, load, parse
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import row_of
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import SessionState
from tests.lazy_module import LazyModule

da = LazyModule("dask.array")
db = LazyModule("dask.bag")


class _ConfigError(Exception):
    """Its constructor takes others than those that `args` has."""

    def __init__(self, name: str = "", value: object = None) -> None:
        super().__init__(f"{name}={value}")
        self.value = value


class _NotThereError(FileNotFoundError):
    """An error of the system with a constructor of its own."""

    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)


def _again(error: BaseException) -> BaseException:
    """Return an exception as the client gets it from the log of a drop."""
    lines: list[str] = []
    log_exception(SimpleNamespace(log=lambda text, _level: lines.append(text)), error)  # type: ignore[arg-type]
    found = exception_in_log("\n".join(lines).encode())
    assert found is not None
    return found


def _translated(graph: Any, keys: list[Hashable]) -> TranslatedGraph:
    return translate(convert_legacy_graph(graph), keys, {}, runs_constants=True)


def _values(tasks: TranslatedGraph, directory: Path) -> Mapping[Hashable, Any]:
    """Execute a graph as it comes from the wire."""
    graph = parse(b"".join(dump(portable(tasks))))
    sessions: list[Session] = []
    result = local_run.run(graph, directory, RunOptions(runner="inline"), hooks=RunHooks(on_session=sessions.append))
    assert result.status is SessionState.FINISHED, result.failures
    values = {}
    for key, drop in tasks.results.items():
        handle = sessions[0].content(drop)
        assert handle is not None
        with Path(handle.location).open("rb") as stream:
            values[key] = read_value(stream)
    return values


@pytest.mark.slow
def test_arrays_and_bags_have_their_values(tmp_path: Path) -> None:
    """Chunks, constants and partitions pass through contents of drops."""
    base = np.arange(64.0).reshape(8, 8)
    x = da.from_array(base, chunks=3)
    bag = db.from_sequence(range(20), npartitions=4).map(lambda value: value**2).sum()
    array = _translated((x + x.T).sum(axis=0).__dask_graph__(), list(flatten((x + x.T).sum(axis=0).__dask_keys__())))
    total = _translated(bag.__dask_graph__(), bag.__dask_keys__())

    found = np.concatenate([*_values(array, tmp_path / "array").values()])

    assert np.array_equal(found, (base + base.T).sum(axis=0))
    assert [*_values(total, tmp_path / "bag").values()] == [sum(value**2 for value in range(20))]


_KEYS: list[Hashable] = ["x", ("x", 0), ("x", 1), ("x", 1, 2), "x-1a", "x-2b", ("y", "z"), ("y", 0), ("y", -1), 7, b"k"]


def _mixed(*values: int) -> int:
    """Return a number that depends on all values and their order."""
    return sum(place * value for place, value in enumerate(values, start=2)) % 1_000_003


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(st.permutations(_KEYS), st.data())
def test_keys_of_any_form_find_their_inputs(tmp_path: Path, keys: list[Hashable], data: st.DataObject) -> None:
    """Each task gets the values of the keys that it names, whatever they look like; wanted keys with readers, too."""
    graph: dict[Hashable, Any] = {}
    expected: dict[Hashable, Any] = {}
    for number, key in enumerate(keys):
        needed = data.draw(st.lists(st.sampled_from(keys[:number]), max_size=3)) if number else []
        graph[key] = Task(key, _mixed, number, *map(TaskRef, needed))
        expected[key] = _mixed(number, *(expected[one] for one in needed))
    wanted = data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))

    found = _values(_translated(graph, wanted), tmp_path / str(len([*tmp_path.iterdir()])))

    assert found == {key: expected[key] for key in wanted}


@pytest.mark.slow
def test_code_travels_once_for_each_template() -> None:
    """A function, and an array, that all tasks of a template use are pickled once, however many tasks there are."""
    table = np.arange(10_000.0)
    x = da.ones(1000, chunks=1).map_blocks(lambda block: block + table[0], dtype=float)

    graph = portable(_translated(x.__dask_graph__(), list(flatten(x.__dask_keys__()))))

    sizes = [
        sum(map(len, (field["shared"], *field["pages"])))
        for template in graph.templates
        if template.kind is Kind.APP
        for field in [next(argument.value for argument in template.arguments if argument.name == TASKS_FIELD)]
    ]
    assert max(sizes) < table.nbytes + 1000 * 200


def test_pages_are_found_by_instance() -> None:
    """A task is found by its instance, on the first page and on the last, also where instances are missing."""
    entries = [TaskEntry(3 * number, number, {}, {}) for number in range(1000)]
    pages = TaskPages(encode_pages(entries, "x"), "x")

    assert [pages.take(row).node for row in (0, 3, 1500, 2997)] == [0, 1, 500, 999]


def test_a_task_can_be_taken_again() -> None:
    """A task that is repeated after a failure is there, although it was forgotten when it ran first."""
    pages = TaskPages(encode_pages([TaskEntry(number, number, {}, {}) for number in range(3)], "x"), "x")

    assert [pages.take(row).node for row in (1, 2, 1, 1, 0)] == [1, 2, 1, 1, 0]


def test_tasks_that_cannot_travel_are_refused() -> None:
    """The error has the name of the tasks, and what cannot be pickled."""
    with pytest.raises(AppError, match=r"the tasks 'add' cannot be pickled.*generator"):
        encode_pages([TaskEntry(0, (_ for _ in ()), {}, {})], "add")


@pytest.mark.slow
@pytest.mark.parametrize("side", [20, 400])  # dask makes a constant of its own of an array above 1 MB
@pytest.mark.parametrize("fused", [False, True])
def test_stores_in_an_array_of_the_client_run_there(side: int, fused: bool) -> None:  # noqa: FBT001
    """Other processes would write into copies of it. What is stored is computed by the others, also if it was fused."""
    x = da.random.default_rng(1).random((side, side), chunks=side // 2)
    found: list[tuple[Mapping[Hashable, Any], set[Hashable]]] = []

    def get(graph: Any, keys: Any, **_: Any) -> Any:
        found.append(stores_here(convert_legacy_graph(graph.__dask_graph__())))
        return dask.get(found[-1][0], keys)

    target = np.empty((side, side))
    with dask.config.set({"optimization.fuse.active": fused}):
        da.store(x + 1, target, scheduler=get)

    nodes, here = found[0]
    assert np.array_equal(target, (x + 1).compute(scheduler="synchronous"))
    stored = [key for key in here if is_store(nodes[key])]
    assert len(stored) == 4
    computed = {other for key in stored for other in nodes[key].dependencies if not isinstance(nodes[other], DataNode)}
    assert len(computed) == 4
    assert not computed & here


class _Lock:
    """A lock that another package keeps for all processes."""


@pytest.mark.parametrize(
    ("package", "lock", "is_here"),
    [
        ("h5py._hl.dataset", False, True),
        ("mine", SerializableLock(), True),
        ("mine", False, False),
        ("mine", _Lock(), False),
        ("threading", False, True),
    ],
)
def test_stores_that_one_process_may_write_run_in_it(package: str, lock: Any, is_here: bool) -> None:  # noqa: FBT001
    """Open files of HDF5 and netCDF, what has a lock that holds in one process, and what cannot be pickled."""
    target = threading.Event() if package == "threading" else type("Dataset", (), {"__module__": package})()
    node = Task("s", da.core.load_store_chunk, TaskRef("x"), target, (slice(2),), None, lock=lock)
    again = Task("again", _identity, node)

    for one in (node, again):
        nodes = {"x": Task("x", np.ones, 2), "s": one, "end": Task("end", list, TaskRef("s"))}
        assert stores_here(nodes) == (nodes, {"s", "end"} if is_here else set())


def _identity(value: Any) -> Any:
    return value


class _File:
    """A file of h5py."""

    __module__ = "h5py"

    def __init__(self, filename: str, mode: str, name: str = "/") -> None:
        self.filename, self.mode, self.name = filename, mode, name

    @property
    def file(self) -> "_File":
        return self

    def __getitem__(self, name: str) -> "_File":
        return _File(self.filename, self.mode, name)


def test_open_files_are_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array in an HDF5 file travels as its path; one in a file that is open for writing is refused."""
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=_File))
    monkeypatch.chdir(tmp_path)

    pieces = encode_value(_File("a.h5", "r")["d"])
    found = pickle.loads(b"".join(pieces))

    assert vars(found) == {"filename": str(tmp_path / "a.h5"), "mode": "r", "name": "d"}
    assert vars(pickle.loads(b"".join(encode_value(_File("a.h5", "r")))))["name"] == "/"
    with pytest.raises(AppError, match=r"the tasks 'add' cannot be pickled.*a.h5 is open for writing"):
        encode_pages([TaskEntry(0, DataNode(None, _File("a.h5", "r+")), {}, {})], "add")


@pytest.mark.parametrize(
    ("chunks", "shards", "found"),
    [
        ((10, 10), None, ""),
        ((20, 40), None, "chunk"),
        ((10, 10), (20, 20), "shard"),
        ((5, 5), (10, 10), ""),
        ((40, 40), None, "chunk"),
    ],
)
def test_stores_of_several_tasks_in_one_chunk_of_zarr_are_refused(
    chunks: tuple[int, int], shards: tuple[int, int] | None, found: str
) -> None:
    """Dask's locks hold in one process only, so values would be lost; whole chunks need no lock."""
    target = SimpleNamespace(store="path", chunks=chunks, shards=shards, shape=(40, 40), dtype="float64")
    tasks: list[Any] = [
        Task(
            ("store-map", row, column),
            da.core.load_store_chunk,
            TaskRef(("x", row, column)),
            DataNode(None, target),
            DataNode(None, (slice(10 * row, 10 * row + 10), slice(10 * column, 10 * column + 10))),
            region=None,
            lock=SerializableLock(),
            return_stored=False,
            load_stored=False,
        )
        for row in range(4)
        for column in range(4)
    ]
    if not found:
        refuse_lost_stores(tasks, {})
        return
    with pytest.raises(AppError, match=rf"write into one {found} of the zarr array float64\[40, 40\]") as caught:
        refuse_lost_stores(tasks, {})
    assert str(shards or chunks) in caught.value.hint
    refuse_lost_stores(tasks[:1], {})


class DirectoryStore:
    """A store of zarr 2."""

    def __init__(self, path: str) -> None:
        self.path = path


@pytest.mark.parametrize(
    "store",
    [
        SimpleNamespace(root=Path("out.zarr")),
        SimpleNamespace(path=Path("out.zarr")),
        DirectoryStore("out.zarr"),
        SimpleNamespace(root=Path("/data/out.zarr")),
        DirectoryStore("/data/out.zarr"),
        SimpleNamespace(path="bucket/out.zarr"),
    ],
)
def test_stores_with_a_relative_path_are_refused(store: Any) -> None:
    """Tasks would write into the directory of the session, which is removed, and the array would stay as it was."""
    target = SimpleNamespace(store=store, chunks=(10,), shards=None, shape=(10,), dtype="float64")
    index = DataNode(None, (slice(0, 10),))
    task: Any = Task(
        "store-map", da.core.load_store_chunk, TaskRef("x"), DataNode(None, target), index, region=None, lock=True
    )
    if "out.zarr" not in (str(getattr(store, "root", "")), str(getattr(store, "path", ""))):
        refuse_lost_stores([task], {})
        return
    with pytest.raises(AppError, match=r"array float64\[10\] at out\.zarr, a relative path") as caught:
        refuse_lost_stores([task], {})
    assert f"such as {Path('out.zarr').absolute()}, which" in caught.value.hint


def test_tasks_that_cannot_be_loaded_are_explained() -> None:
    """The error has the missing module, and what to do."""
    value = encode_pages([TaskEntry(0, operator.add, {}, {})], "add")
    value["pages"][0] = value["pages"][0].replace(b"_operator", b"_operatox")

    with pytest.raises(AppError, match=r"the tasks 'add' cannot be unpickled: ModuleNotFoundError.*_operatox"):
        TaskPages(value, "add").take(0)


def test_an_exception_is_in_the_log(tmp_path: Path) -> None:
    """The log of a failed task has its exception, and without it is as the task wrote it."""

    def fail(_: int) -> None:
        sys.stdout.write("before\n")
        raise KeyError("missing")

    tasks = _translated({"x": (fail, 1)}, ["x"])

    result = local_run.run(portable(tasks), tmp_path / "run", RunOptions(runner="inline"))

    log = Path(result.failures[0].log).read_bytes()
    found = exception_in_log(log)
    assert isinstance(found, KeyError)
    assert found.args == ("missing",)
    assert without_exceptions(log).startswith(b"before\n")
    assert exception_in_log(without_exceptions(log)) is None
    assert exception_in_log(b"exception as a pickle: AAAA\n") is None


@pytest.mark.slow
def test_exceptions_come_back_as_themselves() -> None:
    """Class, text and attributes: with another constructor, 100 kB of text, or attributes that cannot be pickled."""
    config, path, lock = _ConfigError("k", 1), _NotThereError("/x"), _ConfigError("k", threading.Lock())
    large, huge = ValueError("x" * 100_000), ValueError(np.random.default_rng(1).bytes(1_000_000).hex())
    large.add_note("a note")

    for error in (config, path, large, KeyError("missing"), lock):
        assert (type(_again(error)), str(_again(error))) == (type(error), str(error))
    assert vars(_again(config)) == {"value": 1}
    assert _again(path).filename == "/x"  # type: ignore[attr-defined]
    assert _again(large).__notes__ == ["a note"]
    assert str(_again(lock).value) == repr(lock.value)  # type: ignore[attr-defined]
    assert type(_again(huge)) is ValueError
    assert "characters left out" in str(_again(huge))


@pytest.mark.slow
def test_a_task_in_the_directory_of_a_session_leaves_no_files(tmp_path: Path) -> None:
    """On nodes, what a task writes with relative paths would be lost: it fails, and names the call and the files.

    The error of a file that is not there names the call and the path, and tells what to do; it stays a
    FileNotFoundError. What a task removes itself does not count.
    """

    def write(name: str) -> None:
        Path("parts").mkdir()
        Path("parts", name).write_text("x", encoding="utf-8")

    def tidy() -> None:
        Path("part").touch()
        Path("part").unlink()

    def read() -> bytes:
        return Path("cfg").read_bytes()

    tasks = _translated({"w": (write, "a"), "r": (read,), "t": (tidy,)}, ["w", "r", "t"])

    result = local_run.run(portable(tasks), tmp_path / "run", RunOptions(runner="processes", workers=1))

    texts = {report.drop: f"{report.text} {report.detail}" for report in result.failures}
    assert set(texts) == {"dask_w.task_0", "dask_r.task_0"}
    assert (
        "write() has written parts/a with a relative path: it is in a temporary directory on" in texts["dask_w.task_0"]
    )
    assert "FileNotFoundError: [Errno 2] No such file or directory (read() ran on" in texts["dask_r.task_0"]
    assert "give the absolute path of a file that all nodes have" in texts["dask_r.task_0"]
    assert "'cfg'" in texts["dask_r.task_0"]
    assert [*(tmp_path / "run" / "files").iterdir()] == []


# Computations of dask as graph files, and values as files.


def test_a_computation_runs_from_its_file(tmp_path: Path) -> None:
    """The file has a part for each node, and the ids of the values in the places of the collections."""
    x = da.arange(2000, chunks=500) + 1

    total, (same,) = dropflow.dask.save_graph(tmp_path / "x.dfg", x.sum(), [x], nodes=2)

    graph = load(tmp_path / "x.dfg")
    assert graph.parts == 2
    sessions: list[Session] = []
    result = local_run.run(
        graph, tmp_path / "run", RunOptions(runner="inline"), hooks=RunHooks(on_session=sessions.append)
    )
    assert result.status is SessionState.FINISHED
    values = []
    for oid in (total, same):
        row = row_of(graph, oid)
        assert row is not None
        handle = sessions[0].content(row)
        assert handle is not None
        values.append(dropflow.dask.load_value(handle.location))
    assert values[0] == 2_001_000
    assert np.array_equal(values[1], np.arange(1, 2001))


def test_a_file_without_a_value_is_refused(tmp_path: Path) -> None:
    """The error names the file; a graph for no node is refused, too."""
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadFileError, match=r"the file has no value that can be loaded") as caught:
        dropflow.dask.load_value(tmp_path / "text")
    assert caught.value.where == str(tmp_path / "text")
    with pytest.raises(BadParameterError, match=r"the number of nodes is 0"):
        dropflow.dask.save_graph(tmp_path / "x.dfg", da.ones(3), nodes=0)


class _Nowhere:
    """A source of chunks that are not read."""

    address = "nowhere"

    def read(self, session: str, places: object) -> dict[int, object]:
        raise AssertionError(session, places)


def test_chunks_of_arrays_have_shape_and_type() -> None:
    """They are those of the layer; other keys, and chunks of unknown size, have none."""
    x = da.ones((7, 4), chunks=(5, 4))
    places = {0: ChunkPlace("d_0", "", "results/d_0", 8, 0)}
    session = PersistedSession(_Nowhere(), "s", places)
    keys = [(x.name, 0, 0), (x.name, 1, 0), (x.name, 1), "y", ("z", 0)]
    unknown = ((float("nan"), float("nan")),)

    found = described(
        {key: PersistedChunk(key, session, 0) for key in keys},
        {**layer_chunks(x.dask), "z": (unknown, np.dtype("f8"))},  # type: ignore[dict-item]
    )

    assert [found[key].shape for key in keys] == [(5, 4), (2, 4), None, None, None]
    assert found[keys[0]].dtype == np.dtype("f8")


# The application of dask's tasks, as managers see it.


_PROGRAM = """
import sys
from dropflow.apps.registry import app_for
from dropflow.dask_tasks.task_app import DASK_TASK
from dropflow.graph.templates import Kind, Template

app = app_for(Template(key="t", name="t", kind=Kind.APP, component=DASK_TASK))
app.check()
print(type(app).__name__, {name.partition(".")[0] for name in sys.modules} & {"dask", "cloudpickle", "translator"})
"""


@pytest.mark.slow
def test_the_application_is_checked_without_dask() -> None:
    """A manager that checks a graph of dask imports neither dask nor the translator, which take 13 MB."""
    found = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    assert found.stdout == "DaskTask set()\n"
