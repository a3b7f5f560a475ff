"""What runs is what has to, on random graphs and edits, against a slow and obvious model of it."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dropflow
from dropflow.api.client import Client
from dropflow.engine.api import Handle
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.reuse.log import taken_results
from dropflow.reuse.store import Record, ResultStore, StoredContent, key_of
from dropflow.sessions import local_run
from tests.drawn_graphs import data, draw, function
from tests.e2e.cluster import PATIENT
from tests.processes import Running, run

CODE = """
def f(*values, shift=0, modulus=7, **more):
    return (sum(map(int, (*values, *more.values()))) + shift) % modulus
"""


class Shape:
    """A random acyclic graph of functions: each adds up what some earlier ones gave, and a shift, modulo a number."""

    def __init__(self, inputs: list[list[int]], shifts: list[int], moduli: list[int]) -> None:
        self.inputs = [sorted({one % row for one in before}) if row else [] for row, before in enumerate(inputs)]
        self.shifts, self.moduli = list(shifts[: len(inputs)]), list(moduli[: len(inputs)])

    @property
    def leaves(self) -> set[int]:
        """The functions whose values nothing reads."""
        return set(range(len(self.inputs))) - {one for before in self.inputs for one in before}

    def graph(self) -> PhysicalGraph:
        """Return it as a graph."""
        drawing = GraphBuilder("random")
        for row, before in enumerate(self.inputs):
            fields = [Argument(name="func_name", value="f"), Argument(name="func_code", value=CODE)]
            values = {"shift": self.shifts[row], "modulus": self.moduli[row]}
            fields += [
                Argument(name=key, value=value, type="Integer", parameter_type="ApplicationArgument")
                for key, value in values.items()
            ]
            fields += [Argument(name=f"x{one}", usage="InputPort", encoding="json") for one in before]
            fields += [Argument(name="out", usage="OutputPort", encoding="json")]
            drawing.app(f"f{row}", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=tuple(fields))
            drawing.data(f"d{row}", component="dlg.data.drops.memory.InMemoryDROP")
            drawing.connect(f"f{row}", f"d{row}", source_port="out")
            for one in before:
                drawing.connect(f"d{one}", f"f{row}", target_port=f"x{one}")
        return drawing.build()


class Model:
    """The store as it should be: a set of what was computed, by code and by values."""

    def __init__(self) -> None:
        self.deep: set[Any] = set()
        self.by_values: set[Any] = set()

    def run(self, shape: Shape) -> set[int]:
        """Return which functions run, and remember them."""
        deep: list[Any] = []
        value: list[int] = []
        for row, before in enumerate(shape.inputs):
            own = (shape.shifts[row], shape.moduli[row], tuple(before))
            deep.append((own, tuple(deep[one] for one in before)))
            value.append((sum(value[one] for one in before) + shape.shifts[row]) % shape.moduli[row])
        needed, asks = shape.leaves, set()
        for row in reversed(range(len(shape.inputs))):
            if row in needed and deep[row] not in self.deep:
                asks.add(row)
                needed |= set(shape.inputs[row])
        ran = set()
        for row in sorted(asks):
            key = (deep[row][0], tuple(value[one] for one in shape.inputs[row]))
            if key not in self.by_values:
                ran.add(row)
            self.by_values.add(key)
            self.deep.add(deep[row])
        return ran


_SMALL = st.integers(0, 3)


@st.composite
def _shapes(draw: st.DrawFn) -> Shape:
    rows = draw(st.integers(1, 6))
    inputs = draw(st.lists(st.lists(st.integers(0, 5), max_size=2), min_size=rows, max_size=rows))
    numbers = st.lists(_SMALL, min_size=rows, max_size=rows)
    return Shape(inputs, draw(numbers), [2 + one for one in draw(numbers)])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=_shapes(), edits=st.lists(st.tuples(st.integers(0, 5), st.booleans(), _SMALL), min_size=1, max_size=3))
def test_what_runs_is_what_has_to(
    tmp_path_factory: Any, monkeypatch: Any, shape: Shape, edits: list[tuple[int, bool, int]]
) -> None:
    """After each edit of a parameter, and the values at the end are those of a run without a store."""
    folder: Path = tmp_path_factory.mktemp("oracle")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    model = Model()
    for number, edit in enumerate([None, *edits, None]):
        if edit is not None:
            row, is_shift, by = edit
            row %= len(shape.inputs)
            (shape.shifts if is_shift else shape.moduli)[row] = by if is_shift else 2 + by
        graph = shape.graph()
        place = folder / str(number)
        result = local_run.run(
            graph, directory=place, runner="inline", reuse=True, store=str(folder / "store"), check=True
        )
        assert result.status.name == "FINISHED", result.failures
        taken = {graph.templates[graph.template[drop]].name for drop in taken_results(place)}
        ran = {row for row in range(len(shape.inputs)) if f"f{row}" not in taken}
        assert ran == model.run(shape)
        assert _values(place) == _values(folder / "plain", graph)


def _values(place: Path, graph: PhysicalGraph | None = None) -> dict[str, bytes]:
    if graph is not None:
        dropflow.run(graph, directory=place, runner="inline", overwrite=True)
    return {path.name: path.read_bytes() for path in (place / "results").iterdir()}


# The store of results: contents by digest, records by key, many writers, and a bound for its size.


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultStore:
    """An empty store, with a key of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return ResultStore(tmp_path / "store")


def _file(path: Path, content: bytes) -> Handle:
    path.write_bytes(content)
    return Handle(kind="file", location=str(path), size=len(content))


def _add(store: ResultStore, name: str, *outputs: StoredContent) -> str:
    key = key_of(name)
    store.add(Record((key, ""), outputs, (), (), key_of("drop", name), "session", "host", 1.0, 2.0))
    return key


def test_a_directory_comes_back_as_it_was(store: ResultStore, tmp_path: Path) -> None:
    """With its links, empty directories and programs; only this user can enter the store."""
    folder = tmp_path / "made"
    (folder / "empty").mkdir(parents=True)
    (folder / "large").write_bytes(b"x" * 10_000)
    (folder / "link").symlink_to("large")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    content = store.keep(Handle(kind="directory", location=str(folder), size=10_010))
    store.place(content, str(tmp_path / "again"))

    assert store.is_there(content)
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == ["empty", "large", "link", "run.sh"]
    assert (tmp_path / "again" / "link").read_bytes() == b"x" * 10_000
    assert os.access(tmp_path / "again" / "run.sh", os.X_OK)
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0


def test_a_content_that_may_change_later_is_copied(store: ResultStore, tmp_path: Path) -> None:
    """Others may be the same file; if that is changed in place, the content does not count any more."""
    copied = store.keep(_file(tmp_path / "one", b"a" * 5000), linked=False)
    linked = store.keep(_file(tmp_path / "two", b"b" * 5000))
    for name in ("one", "two"):
        with (tmp_path / name).open("r+b") as stream:
            stream.write(b"changed")

    assert store.is_there(copied)
    is_same_file = (tmp_path / "two").stat().st_nlink > 1
    assert store.is_there(linked) is not is_same_file


def test_a_record_of_another_key_or_user_is_not_found(store: ResultStore, tmp_path: Path) -> None:
    """A file that was renamed, changed, or signed with another key is ignored."""
    key, other = _add(store, "a"), key_of("b")
    path = tmp_path / "store" / "records" / key[:2] / key
    renamed = tmp_path / "store" / "records" / other[:2] / other
    renamed.parent.mkdir(exist_ok=True)
    renamed.write_bytes(path.read_bytes())

    assert store.find(key) is not None
    assert store.find(other) is None
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert store.find(key) is None


def test_what_was_used_last_stays(store: ResultStore, tmp_path: Path) -> None:
    """A smaller limit removes the results that were not used for longest, and their contents."""
    keys = []
    for number, name in enumerate("abc"):
        keys.append(_add(store, name, store.keep(_file(tmp_path / name, name.encode() * 6000), linked=False)))
        path = tmp_path / "store" / "records" / keys[-1][:2] / keys[-1]
        os.utime(path, (1000 + number, 1000 + number))
    assert store.find(keys[0]) is not None
    use = store.prune(15_000)

    assert [store.find(key) is not None for key in keys] == [True, False, True]
    assert (use.removed_records, use.removed_contents, use.contents) == (1, 1, 2)
    assert use.size <= 15_000
    assert store.prune(0).size == 0


def test_many_writers_of_the_same_result_leave_one(store: ResultStore, tmp_path: Path) -> None:
    """Each has a store of its own in the same directory, as processes on several hosts have."""

    def write(number: int) -> bool:
        own = ResultStore(store.directory)
        content = own.keep(_file(tmp_path / f"part{number}", b"same" * 3000))
        record = own.find(_add(own, "same", content))
        return record is not None and own.is_there(record.outputs[0])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, range(40)))
    use = store.use()
    assert (use.records, use.contents) == (1, 1)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


# Sessions on nodes take results of earlier sessions.


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Running]:
    """An island over two nodes, which share a store."""

    def start(name: str) -> Running:
        more = ("--name", name, "--port", 0, "--links-port", 0, "--workers", 1, *PATIENT)
        variables = (f"DROPFLOW_STORE={tmp_path / 'store'}", f"XDG_CONFIG_HOME={tmp_path / 'config'}")
        return Running(tmp_path, "node", *more, before=("env", f"PATH={os.environ['PATH']}", *variables))

    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        urls = [stack.enter_context(one).ready["url"] for one in pool.map(start, ("n1", "n2"))]
        yield stack.enter_context(Running(tmp_path, "island", "--port", 0, "--nodes", ",".join(urls), *PATIENT))


def _graph(path: Path, factor: int) -> Path:
    nodes = [function("Make", "def Make(input=0):\n    return 7")]
    nodes += [function("Twice", f"def Twice(input):\n    return {factor} * input")]
    nodes += [function("Show", "def Show(input):\n    return 'x' * 9000 + str(input)"), *map(data, ("a", "b", "text"))]
    return draw(path, nodes, "Make > a > Twice > b > Show > text")


@pytest.mark.slow
def test_a_session_on_two_nodes_takes_what_an_earlier_one_computed(island: Running, tmp_path: Path) -> None:
    """Numbers of applications that ran and that were reused are in the answer, and the origin in the reasons."""
    url, token = island.ready["url"], island.ready["token"]

    store = {"DROPFLOW_STORE": str(tmp_path / "store"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def submit(name: str, factor: int, *more: str) -> dict[str, Any]:
        graph = _graph(tmp_path / "g.graph", factor)
        more = more or ("--name", name, "--wait", "--reuse", "--random", "1", "-n", "2")
        given = ("submit", graph, *more, "--output", "json")
        done = run(tmp_path, *given, DROPFLOW_URL=url, DROPFLOW_TOKEN=token, **store)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    answers = [submit(name, factor) for name, factor in (("s1", 2), ("s2", 2))]
    same, changed = (submit("", factor, "--dry-run") for factor in (2, 3))
    answers.append(submit("s3", 3))

    assert (same["runs"], same["waits"], same["reused"]) == (0, 0, 3)
    assert (changed["runs"], changed["waits"], changed["reused"]) == (1, 1, 1)
    assert changed["nodes"][1]["reasons"] == ["function `Twice`: line 2 changed: return 3 * input"]
    assert [(one["computed"], one["reused"]) for one in answers] == [(3, 0), (0, 3), (2, 1)]
    with Client(url, token=token) as client:
        shows = next(drop.oid for drop in client.drops("s2").drops if drop.name == "Show")
        assert any("reused: from session s1" in line for line in client.drop("s2", shows).reasons)
