"""Persisted collections: references to chunks, what reads them, and when they are released."""

import gc
import operator
import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from dask._task_spec import Dict
from dask.task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

import dropflow.dask
from dropflow.api.drop_records import ResultInfo
from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import ResultList
from dropflow.dask.chunk_sources import DirectoryChunks, located
from dropflow.dask.lost_chunks import read_chunks, wanted_chunks, with_chunks_of
from dropflow.dask.persist import ChunkPlace, PersistedChunk, PersistedSession, close_all, releaser
from dropflow.dask.portable import portable
from dropflow.dask.translate import TranslatedGraph, translate, with_drops_on, with_parts
from dropflow.dask_tasks.value_encoding import read_value
from dropflow.errors import GoneError, NotFoundError
from dropflow.execution.session import Session
from dropflow.graph.codec import dump, parse
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import SessionState
from tests.lazy_module import LazyModule
from translator.plan.machines import Machines, NodeCapacity

da = LazyModule("dask.array")
db = LazyModule("dask.bag")


class _Values:
    """A source of chunks whose values have their rows, that notes what is read and removed."""

    def __init__(self, address: str = "here") -> None:
        self.address = address
        self.was_read: list[int] = []
        self.removed: list[str] = []
        self.released: dict[int, str] = {}

    def read(self, session: str, places: Mapping[int, ChunkPlace]) -> Mapping[int, Any]:
        assert session
        self.was_read += places
        return {row: [row] for row in places}

    def remove_contents(self, session: str, paths: Mapping[int, str]) -> None:
        assert session
        self.released |= paths

    def remove_sessions(self, names: Sequence[str]) -> None:
        self.removed += names

    def session(self, name: str, rows: int = 10, nodes: Sequence[str] = ("",)) -> PersistedSession:
        places = {row: ChunkPlace(f"d_{row}", nodes[row % len(nodes)], f"results/{row}", 8, 0) for row in range(rows)}
        return PersistedSession(self, name, places, self)


def _array(session: PersistedSession) -> Any:
    """Return an array of 4 integers, 0 to 3, in persisted chunks of one."""
    graph = {("x", row): PersistedChunk(("x", row), session, row) for row in range(4)}
    return da.Array(graph, "x", chunks=((1,) * 4,), dtype=int)


def _flush() -> None:
    gc.collect()
    releaser().flush()


def test_chunks_are_values_in_this_process() -> None:
    """In threads, a persisted collection has the values themselves, as dask's own schedulers make it."""
    with dropflow.dask.scheduler():
        x, bag, number = dask.persist(
            da.arange(8, chunks=4) + 1, db.from_sequence(range(4), npartitions=2), dask.delayed(operator.add)(1, 2)
        )

    assert {type(chunk) for chunk in x.__dask_graph__().values()} == {np.ndarray}
    assert x.sum().compute() + bag.sum().compute(scheduler="synchronous") + number.compute() == 36 + 6 + 3
    assert dropflow.dask.persist(x + 1, scheduler="synchronous")[0].sum().compute() == 44


@pytest.mark.slow
def test_other_schedulers_fetch_what_they_need() -> None:
    """A slice reads its own chunks only, in this process and with dask's scheduler."""
    source = _Values()
    x = _array(source.session("s"))

    assert x[2:].sum().compute(scheduler="synchronous") == 5
    assert sorted(source.was_read) == [2, 3]
    assert x[:2].sum().compute(scheduler=dropflow.dask.get) == 1
    assert sorted(source.was_read) == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_chunk_is_pickled_as_a_reference() -> None:
    """The pickle has no value; in this process it belongs to the same session, and in others to none that it owns."""
    source = _Values()
    session = source.session("s")
    chunk = PersistedChunk(("x", 0), session, 3, (2,), np.dtype("f4"))

    copy = pickle.loads(pickle.dumps(chunk))

    assert copy.session is session
    assert (copy.key, copy.row, copy.shape, copy.dtype) == (("x", 0), 3, (2,), np.dtype("f4"))
    assert source.was_read == []
    assert repr(copy) == "<PersistedChunk ('x', 0): float32[2] 8 bytes, d_3 of s>"
    body = pickle.dumps(PersistedChunk("y", _Values("/elsewhere").session("other"), 1))
    gc.collect()
    stranger = pickle.loads(body)
    with pytest.raises(GoneError, match=r"the chunk d_1 of session 'other' is not in /elsewhere any more"):
        stranger()


@pytest.mark.slow
def test_what_nothing_refers_to_is_removed() -> None:
    """A session goes with the last of its chunks, in the order of requests, and without a wait for it."""
    source = _Values()
    x, y = _array(source.session("first")), _array(source.session("second"))
    part = x[:1]
    del y
    _flush()
    assert source.removed == ["second"]
    del x
    _flush()
    assert source.removed == ["second"]
    del part
    _flush()
    assert source.removed == ["second", "first"]


@pytest.mark.slow
def test_each_chunk_is_removed_when_nothing_refers_to_it() -> None:
    """A slice has the graph of the whole; `dask.optimize` leaves what it needs. Pickles in this process keep chunks."""
    source = _Values()
    x = _array(source.session("s"))
    copies = [pickle.loads(pickle.dumps(x.dask["x", 3]))]
    part = x[1:2]
    del x
    _flush()
    assert source.released == {}
    part = dask.optimize(part)[0]
    _flush()
    assert source.released == {0: "results/0", 2: "results/2"}
    copies.clear()
    _flush()
    assert [*source.released] == [0, 2, 3]
    assert part.sum().compute(scheduler="synchronous") == 1
    del part
    _flush()
    assert source.removed == ["s"]


@pytest.mark.slow
def test_requests_that_come_meanwhile_are_one() -> None:
    """What is let go during a request goes into the next one, and contents of a session that goes into none."""
    calls: list[Any] = []
    begun, may_end = threading.Event(), threading.Event()

    class Slow(_Values):
        def remove_contents(self, session: str, paths: Mapping[int, str]) -> None:
            calls.append((session, sorted(paths)))
            begun.set()
            assert may_end.wait(60)

        def remove_sessions(self, names: Sequence[str]) -> None:
            calls.append(sorted(names))

    source = Slow()
    chunks = {one.name: [PersistedChunk("x", one, row) for row in range(9)] for one in map(source.session, "ab")}
    del chunks["a"][0]
    assert begun.wait(60)
    del chunks["a"][1:4], chunks["b"]
    may_end.set()
    _flush()

    assert calls == [("a", [0]), ("a", [2, 3, 4]), ["b"]]


@pytest.mark.slow
def test_a_session_that_stays_keeps_its_chunks() -> None:
    """Without a remover, and after the end of its scheduler, nothing is removed for single chunks."""
    source = _Values()
    ended = source.session("ended")
    kept = PersistedSession(source, "kept", ended.places)
    chunks = [PersistedChunk("x", session, 1) for session in (kept, ended)]
    close_all([ended], "it has ended")
    chunks.clear()
    _flush()

    assert (source.released, source.removed) == ({}, ["ended"])


@pytest.mark.slow
def test_a_failure_to_remove_ends_nothing() -> None:
    """What one source raises does not keep the sessions of others."""
    source = _Values()

    class Away(_Values):
        def remove_sessions(self, names: Sequence[str]) -> None:
            raise OSError(f"{names} are away")

    Away().session("bad")
    source.session("good")
    _flush()

    assert source.removed == ["good"]


@pytest.mark.slow
def test_chunks_of_an_ended_scheduler_say_so() -> None:
    """The error has the chunk, its session, where it was and what to do; contents are removed once."""
    source = _Values()
    session = source.session("s")
    x = _array(session)
    close_all([session], "the scheduler that had it has ended")

    with pytest.raises(GoneError, match=r"the chunk \('x', 0\) of session 's' at here is gone: the scheduler") as found:
        x[:1].compute(scheduler="synchronous")
    assert found.value.hint == "persist the collection again"
    close_all([session], "again")
    del x, session
    _flush()
    assert source.removed == ["s"]


def test_wanted_chunks_and_their_aliases_are_not_computed() -> None:
    """They are known already; a circle of aliases is left to the translation, which refuses it."""
    chunk = PersistedChunk("x", _Values().session("s"), 0)
    nodes = {"x": chunk, "y": Alias("y", "x"), "z": Alias("z", "z"), "n": DataNode("n", 1)}

    assert wanted_chunks(nodes, ["x", "y", "z", "n", "missing"]) == {"x": chunk, "y": chunk}


class _Drawn:
    """Draws nodes of a graph with chunks, also within tasks of all kinds."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.nodes: dict[str, Any] = {}
        self._sessions = [_Values("here").session("s"), _Values("there").session("t")]

    def chunk(self, key: str) -> PersistedChunk:
        return PersistedChunk(key, self.draw(st.sampled_from(self._sessions)), self.draw(st.integers(0, 9)))

    def task(self, key: str | None, name: str, depth: int = 1) -> Task:
        return Task(key, _pair, *self.inner(name, depth), more=self.argument(f"{name}.more", depth))

    def inner(self, name: str, depth: int) -> list[Any]:
        return [self.argument(f"{name}.{row}", depth) for row in range(self.draw(st.integers(1, 2)))]

    def fused(self, name: str, depth: int) -> GraphNode:
        first, given = self.task(f"{name}.first", name, depth), self.chunk(f"{name}.chunk")
        last = Task(f"{name}.last", _pair, TaskRef(first.key), TaskRef(given.key))
        return GraphNode.fuse(first, given, last)

    def argument(self, name: str, depth: int) -> Any:
        makers: list[Any] = [lambda: self.chunk(name), lambda: self.draw(st.integers(0, 9))]
        if self.nodes:
            makers.append(lambda: TaskRef(self.draw(st.sampled_from(sorted(self.nodes)))))
        if depth < 3:
            makers += [
                lambda: self.task(None, name, depth + 1),
                lambda: List(*self.inner(name, depth + 1)),
                lambda: Dict({"only": self.argument(name, depth + 1)}),
                lambda: self.fused(name, depth + 1),
            ]
        return self.draw(st.sampled_from(makers))()

    def node(self, key: str) -> GraphNode:
        kind = self.draw(st.sampled_from(["task", "chunk", "fused", "alias"] if self.nodes else ["task", "chunk"]))
        if kind == "alias":
            return Alias(key, self.draw(st.sampled_from(sorted(self.nodes))))
        if kind == "fused":
            return self.fused(key, 1).substitute({}, key=key)
        return self.chunk(key) if kind == "chunk" else self.task(key, key)


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """Draw a graph with chunks, and the wanted key."""
    drawn = _Drawn(draw)
    keys = [f"k{row}" for row in range(draw(st.integers(1, 4)))]
    for key in keys:
        drawn.nodes[key] = drawn.node(key)
    return drawn.nodes, keys[-1]


def _pair(*args: Any, **kwargs: Any) -> Any:
    return [*args, *kwargs.items()]


def _inside(item: Any) -> Iterator[PersistedChunk]:
    if isinstance(item, PersistedChunk):
        yield item
    elif isinstance(item, Task):
        for one in (*item.args, *item.kwargs.values()):
            yield from _inside(one)
    elif isinstance(item, dict):
        for one in item.values():
            yield from _inside(one)


@given(_graphs())
def test_chunks_within_tasks_become_inputs(drawn: tuple[dict[str, Any], str]) -> None:
    """The value stays the same. Chunks of this place are nodes of their own, those of others constants."""
    nodes, key = drawn
    expected = dask.get(dict(nodes), key)

    found = with_chunks_of("here", nodes, [key])

    assert dask.get(dict(found), key) == expected
    assert not [one for node in found.values() if isinstance(node, Task) for one in _inside(node)]
    assert all(one.session.source.address == "here" for one in found.values() if isinstance(one, PersistedChunk))
    assert set(found) >= {name for node in found.values() for name in node.dependencies}


def _executed(tasks: TranslatedGraph, directory: Path) -> tuple[Session, dict[int, ChunkPlace]]:
    """Execute a graph as it comes from the wire; return the session, and where its results are."""
    graph = parse(b"".join(dump(portable(tasks))))
    sessions: list[Session] = []
    result = local_run.run(graph, directory, RunOptions(runner="inline"), hooks=RunHooks(on_session=sessions.append))
    assert result.status is SessionState.FINISHED, result.failures
    places = {}
    for drop in tasks.results.values():
        handle = sessions[0].content(drop)
        assert handle is not None
        path = str(Path(handle.location).relative_to(directory))
        places[drop] = ChunkPlace(f"d_{drop}", "", path, handle.size, handle.checksum)
    return sessions[0], places


def test_a_session_reads_the_contents_of_another_one(tmp_path: Path) -> None:
    """Chunks are data without producers: read in place, by tasks of their own and other names, and left as they are."""
    keys = [("a", 0), ("a", 1), "b"]
    first = translate(
        {key: Task(key, np.full, 1000, number) for number, key in enumerate(keys)}, keys, {}, runs_constants=True
    )
    places = _executed(first, tmp_path / "first")[1]
    session = PersistedSession(DirectoryChunks(str(tmp_path)), "first", places)
    chunks = {key: PersistedChunk(key, session, drop) for key, drop in first.results.items()}
    nodes = {
        **chunks,
        "c": Alias("c", ("a", 1)),
        ("s", 0): Task(("s", 0), operator.add, TaskRef(("a", 0)), TaskRef("c")),
        "t": Task("t", operator.add, TaskRef(("s", 0)), TaskRef("b")),
    }
    second = translate(nodes, ["t", ("s", 0)], {}, runs_constants=True)

    done, found = _executed(second, tmp_path / "second")

    values = {}
    for key, drop in second.results.items():
        with (tmp_path / "second" / found[drop].path).open("rb") as stream:
            values[key] = read_value(stream)
    assert {key: set(value.tolist()) for key, value in values.items()} == {"t": {3.0}, ("s", 0): {1.0}}
    assert read_chunks(chunks).keys() == chunks.keys()  # they are still there
    assert done.graph.drops == 7  # two tasks, their values, and three chunks
    assert second.graph.templates[int(second.graph.template[4])].weight > 8000


def test_tasks_go_to_the_nodes_of_their_chunks() -> None:
    """Chunks stay on their nodes, and what reads one of them runs there; other algorithms keep chunks there, too."""
    session = _Values().session("s", rows=8, nodes=("n2", "n0"))
    nodes: dict[Any, Any] = {("x", row): PersistedChunk(("x", row), session, row) for row in range(8)}
    nodes |= {("y", row): Task(("y", row), operator.neg, TaskRef(("x", row))) for row in range(8)}
    tasks = translate(nodes, [("y", row) for row in range(8)], {}, runs_constants=True)
    graph = portable(tasks)
    fixed = {2 * tasks.tasks + row: session.places[row].node for row in range(8)}
    machines = Machines(nodes=tuple(NodeCapacity(name=f"n{row}", cores=2) for row in range(3)))

    placed = with_parts(graph, machines, fixed)

    at = [placed.places[part] for part in placed.part.tolist()]
    assert at[2 * tasks.tasks :] == ["n2", "n0"] * 4
    assert [at[tasks.keys.index(("y", row))] for row in range(8)] == ["n2", "n0"] * 4
    elsewhere = with_drops_on(with_parts(graph, machines, dict.fromkeys(fixed, "n1")), fixed)
    assert [elsewhere.places[part] for part in elsewhere.part.tolist()][2 * tasks.tasks :] == ["n2", "n0"] * 4
    assert with_drops_on(graph, {}) is graph


def test_lost_chunks_are_named() -> None:
    """A session that was deleted, and chunks of nodes that do not answer: what, where, and what to do."""
    places = {row: ChunkPlace(f"d_{row}", "n1", "results/x", 8, 0) for row in range(3)}

    lost = [NodeInfo(name="n1", state="lost")]

    def answer(*rows: int) -> Any:
        results = tuple(
            ResultInfo(drop=row, oid=f"d_{row}", name="d", node="n2", path="results/y", size=8) for row in rows
        )
        return SimpleNamespace(
            url="http://m:1", results=lambda _: ResultList(results=results, missing=("n1",)), nodes=lambda: lost
        )

    def deleted(_: str) -> None:
        raise NotFoundError("no such session")

    assert {row: place.node for row, place in located(answer(0, 1, 2, 5), "s", places).items()} == dict.fromkeys(
        range(3), "n2"
    )
    with pytest.raises(GoneError, match=r"2 persisted chunks of session 's' .* such as d_1, .* on node n1; .*: n1"):
        located(answer(0), "s", places)
    client: Any = SimpleNamespace(url="http://m:1", results=deleted)
    with pytest.raises(GoneError, match=r"the session 's'.* does not exist any more at http://m:1"):
        located(client, "s", places)
