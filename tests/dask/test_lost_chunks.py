"""Persisted chunks that are lost: what is computed again, from which tasks, and what is kept for that."""

import gc
import logging
import operator
import pickle
import weakref
import zlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("dask", reason="needs the extra 'dask'")

import dask
from dask.task_spec import Alias, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents_answer import ContentBegin, ContentEnd, ContentError, ContentPiece, Download, write_records
from dropflow.api.drop_records import ResultInfo
from dropflow.api.error_body import to_body
from dropflow.api.node_records import NodeInfo
from dropflow.api.requests import ResultList
from dropflow.dask import lost_chunks, remote
from dropflow.dask.chunk_sources import fetched, located
from dropflow.dask.lost_chunks import LostChunksError, Recipe, compute_again, persisted_chunks, read_chunks
from dropflow.dask.persist import ChunkPlace, Hold, LostContentsError, PersistedChunk, PersistedSession, releaser
from dropflow.dask.translate import TranslatedGraph, translate
from dropflow.errors import AppError, GoneError, LinkError, NotFoundError, StorageError


class Nodes:
    """A source of chunks that also executes graphs: results are on two nodes in turns, which can lose them."""

    def __init__(self, *, recompute: bool = True) -> None:
        self.address = f"http://{id(self)}"
        self.values: dict[tuple[str, int], Any] = {}
        self.runs: list[int] = []
        """Number of results of each graph that was executed."""
        self._recompute = recompute

    def persist(self, nodes: Mapping[Hashable, Any], *keys: Hashable) -> dict[Hashable, PersistedChunk]:
        """Compute keys of a graph."""
        tasks = translate(nodes, keys, {}, runs_constants=True)
        return persisted_chunks(tasks, self.leave(tasks), self.leave if self._recompute else None)

    def leave(self, tasks: TranslatedGraph) -> PersistedSession:
        """Execute a graph."""
        graph = dict(zip(tasks.keys, tasks.nodes, strict=True)) | {
            key: Alias(key, target) for key, target in tasks.aliases.items()
        }
        keys = list(tasks.results)
        found = dict(zip(keys, dask.get(graph, keys), strict=True))
        name = f"s{len(self.runs)}"
        self.runs.append(len(tasks.results))
        self.values |= {(name, drop): found[key] for key, drop in tasks.results.items()}
        places = {
            drop: ChunkPlace(f"d_{drop}", "ab"[number % 2], f"results/{drop}", 8, 0)
            for number, drop in enumerate(tasks.results.values())
        }
        return PersistedSession(self, name, places, self)

    def read(self, session: str, places: Mapping[int, ChunkPlace]) -> Mapping[int, Any]:
        """Return values."""
        lost = [row for row in places if (session, row) not in self.values]
        if lost:
            raise LostContentsError(f"{len(lost)} chunks of {session} are lost", rows=lost, hint="persist again")
        return {row: self.values[session, row] for row in places}

    def lose(self, *chunks: PersistedChunk) -> None:
        """Lose contents."""
        for chunk in chunks:
            self.values.pop((chunk.session.name, chunk.row), None)

    def remove_contents(self, session: str, paths: Mapping[int, str]) -> None:
        """Remove what is released."""
        for row in paths:
            self.values.pop((session, row), None)

    def remove_sessions(self, names: Collection[str]) -> None:
        """Remove sessions."""
        for value in [value for value in self.values if value[0] in names]:
            del self.values[value]


def _flush() -> None:
    gc.collect()
    releaser().flush()


_RUNS: Counter[Hashable] = Counter()


def _counted(key: Hashable, *values: Any) -> Any:
    _RUNS[key] += 1
    return [key, *values]


def _task(key: Hashable, *needed: Hashable) -> Task:
    return Task(key, _counted, key, *map(TaskRef, needed))


@pytest.fixture(autouse=True)
def _no_runs() -> Iterator[None]:
    _RUNS.clear()
    yield
    _RUNS.clear()


@pytest.mark.slow
def test_what_was_on_the_lost_node_is_computed_again(caplog: pytest.LogCaptureFixture) -> None:
    """All chunks of the same persist there at once, with the tasks that they need, and nothing else.

    Copies, and pickles from before and after, have the new place. The log tells how many, and why.
    """
    nodes = Nodes()
    graph = {"in": _task("in"), **{("x", row): _task(("x", row), "in") for row in range(4)}}
    chunks = nodes.persist(graph, *(("x", row) for row in range(4)))
    copy, body = chunks["x", 2].renamed("other"), pickle.dumps(chunks["x", 0])
    expected = read_chunks(chunks)
    nodes.lose(chunks["x", 0], chunks["x", 2])

    with caplog.at_level(logging.WARNING):
        assert read_chunks({"other": copy, 3: chunks["x", 3]}) == {"other": expected["x", 2], 3: expected["x", 3]}

    assert caplog.messages == ["computing 2 persisted chunks again: 1 chunks of s0 are lost"]
    assert read_chunks(chunks) == expected
    assert nodes.runs == [4, 2]
    assert [_RUNS["x", row] for row in range(4)] == [2, 1, 2, 1]
    for bytes_ in (body, pickle.dumps(copy)):
        assert pickle.loads(bytes_).session.name == "s1"
    assert chunks["x", 1].session.name == "s0"
    chunks.clear()
    del copy
    _flush()
    assert nodes.values == {}


def test_chunks_that_exist_are_read() -> None:
    """Those of the same persist, and those that it began with."""
    nodes = Nodes()
    x = nodes.persist({"x": _task("x")}, "x")
    y = nodes.persist({**x, "y": _task("y", "x"), "z": _task("z", "y")}, "y", "z")
    expected = read_chunks(y)
    nodes.lose(y["z"])

    assert read_chunks(y) == expected
    assert _RUNS == {"x": 1, "y": 1, "z": 2}
    nodes.lose(y["y"], y["z"])
    assert y["z"]() == expected["z"]
    assert read_chunks(y) == expected
    assert _RUNS == {"x": 1, "y": 2, "z": 3}
    nodes.lose(x["x"], y["y"], y["z"])
    assert y["z"]() == expected["z"]
    assert nodes.runs == [1, 2, 1, 2, 3]  # what is lost, too, is found on the way, and in the same session


def test_released_chunks_are_computed_again_if_others_need_them() -> None:
    """Their contents were removed with their collection; their tasks stay as long as a later collection does."""
    nodes = Nodes()
    chunk = nodes.persist({"x": _task("x")}, "x")["x"]
    for _ in range(3):
        chunk = nodes.persist({"y": chunk, "x": _task("x", "y")}, "x")["x"]
        releaser().flush()
        assert len(nodes.values) == 1
    expected = chunk()
    nodes.lose(chunk)

    assert chunk() == expected == ["x", ["x", ["x", ["x"]]]]
    assert nodes.runs == [1] * 5  # one session for all
    assert len(nodes.values) == 1


@pytest.mark.slow
def test_tasks_are_kept_as_long_as_a_chunk_needs_them() -> None:
    """With the last chunk of the last collection they go, and so do constants."""

    class Constant:
        pass

    constant = Constant()
    gone = weakref.ref(constant)
    nodes = Nodes()
    x = nodes.persist({"x": Task("x", _kind, constant), "w": _task("w")}, "x", "w")
    del constant
    y = nodes.persist({**x, "y": _task("y", "x")}, "y")
    x.clear()
    _flush()
    assert gone() is not None
    y.clear()
    _flush()
    assert gone() is None


def _kind(value: object) -> str:
    return type(value).__name__


def test_a_long_history_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the tasks of many earlier collections, the chunks that the next one begins with are kept."""
    monkeypatch.setattr(lost_chunks, "MOST_EARLIER_TASKS", 3)
    nodes = Nodes()
    chunk = nodes.persist({"x": _task("x")}, "x")["x"]
    kept = []
    for _ in range(12):
        chunk = nodes.persist({"y": chunk, "x": _task("x", "y")}, "x")["x"]
        releaser().flush()
        kept.append(len(nodes.values))
    expected = chunk()
    nodes.lose(chunk)

    assert max(kept) == 2
    assert (
        len(
            [
                get_object
                for get_object in gc.get_objects()
                if isinstance(get_object, Recipe) and get_object.leave == nodes.leave
            ]
        )
        <= 4
    )
    assert chunk() == expected


@pytest.mark.parametrize("recompute", [True, False])
def test_a_chunk_without_tasks_is_lost(recompute: bool) -> None:  # noqa: FBT001
    """One that was pickled in another program, or whose scheduler keeps no tasks: the error is that of the source."""
    nodes = Nodes(recompute=recompute)
    chunk = nodes.persist({"x": _task("x")}, "x")["x"]
    nodes.lose(chunk)
    if recompute:
        chunk = PersistedChunk("x", PersistedSession(nodes, "s0", chunk.session.places), chunk.row)

    with pytest.raises(GoneError, match=r"1 chunks of s0 are lost \(persist again\)"):
        chunk()


def test_what_is_lost_again_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computation that needs chunks computes them again once, and not forever."""
    nodes = Nodes()
    chunk = nodes.persist({"x": _task("x")}, "x")["x"]
    nodes.lose(chunk)
    monkeypatch.setattr(lost_chunks.PersistedSession, "adopt", _adopt_and_lose)

    with pytest.raises(GoneError, match="1 chunks of s1 are lost"):
        chunk()
    assert nodes.runs == [1, 1]


_ADOPT = PersistedSession.adopt


def _adopt_and_lose(session: PersistedSession, row: int, hold: Hold) -> None:
    _ADOPT(session, row, hold)
    source: Any = session.source
    source.values.pop((session.name, row))


def test_another_thread_has_computed_it_meanwhile() -> None:
    """A thread that comes second finds the new place, and computes nothing."""
    nodes = Nodes()
    chunk = nodes.persist({"x": _task("x")}, "x")["x"]
    nodes.lose(chunk)
    found = [LostChunksError("lost", chunks=[chunk]) for _ in range(2)]
    for one in found:
        compute_again(one)

    assert nodes.runs == [1, 1]
    assert chunk() == ["x"]


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[dict[Hashable, list[Hashable]], list[int]]]:
    """Draw what collections compute one after the other, with few keys, and which of their values later ones need."""
    keys = ["a", "b", ("c", 0)]
    history = []
    for number in range(draw(st.integers(1, 4))):
        tasks: dict[Hashable, list[Hashable]] = {}
        for key in draw(st.permutations(keys)):
            tasks[key] = draw(st.lists(st.sampled_from(list(tasks)), max_size=2)) if tasks else []
        history.append((tasks, draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else []))
    return history


@pytest.mark.slow
@given(_histories(), st.data())
def test_values_stay_the_same(
    history: list[tuple[dict[Hashable, list[Hashable]], list[int]]], data: st.DataObject
) -> None:
    """Whatever is released and lost, and also if keys of different collections are the same."""
    nodes = Nodes()
    made: list[dict[Hashable, PersistedChunk]] = []
    expected: list[dict[Hashable, Any]] = []
    for number, (tasks, earlier) in enumerate(history):
        graph: dict[Hashable, Any] = {}
        for row in earlier:
            for key, chunk in made[row].items():
                graph["given", row, key] = chunk.renamed(("given", row, key))
        given_ = list(graph)
        for key, needed in tasks.items():
            graph[key] = Task(key, operator.add, (number,), Task(None, _tuple, *map(TaskRef, [*needed, *given_])))
        wanted = data.draw(st.lists(st.sampled_from([*tasks]), min_size=1, unique=True))
        made.append(nodes.persist(graph, *wanted))
        expected.append(read_chunks(made[-1]))
    alive = [(row, key) for row, one in enumerate(made) for key in one]
    for row, key in data.draw(st.sets(st.sampled_from(alive))):
        del made[row][key]
    releaser().flush()
    alive = [(row, key) for row, one in enumerate(made) for key in one]
    for row, key in alive:
        if data.draw(st.booleans()):
            nodes.lose(made[row][key])

    for row, key in alive:
        assert made[row][key]() == expected[row][key]


def _tuple(*values: Any) -> tuple[Any, ...]:
    return values


class Manager:
    """A client of a manager with sessions, and the nodes that have their results."""

    url = "http://m:1"

    def __init__(self, **states: str) -> None:
        self.states = states
        self.listed: dict[str, dict[int, str]] = {}
        self.missing: tuple[str, ...] = ()
        self.error: Exception | None = None

    def nodes(self) -> list[NodeInfo]:
        """List them."""
        return [NodeInfo(name=name, state=state) for name, state in self.states.items()]  # type: ignore[arg-type]

    def results(self, session: str) -> ResultList:
        """List those of nodes that answer."""
        if self.error is not None:
            raise self.error
        found = tuple(
            ResultInfo(drop=row, oid=f"d_{row}", name="d", node=node, path="results/y", size=8)
            for row, node in self.listed[session].items()
        )
        return ResultList(results=found, missing=self.missing)


def _places(*nodes: str) -> dict[int, ChunkPlace]:
    return {row: ChunkPlace(f"d_{row}", node, "results/x", 8, 0) for row, node in enumerate(nodes)}


def test_a_node_that_is_late_is_asked_again() -> None:
    """What it has is not lost before the node is: until then the request is repeated, as all are."""
    manager: Any = Manager(a="alive", b="suspect")
    manager.listed["s"], manager.missing = {0: "a"}, ("b",)

    with pytest.raises(LinkError, match="persisted chunks of session 's' are on nodes that do not answer: b"):
        located(manager, "s", _places("a", "b"))
    manager.states["b"] = "lost"
    with pytest.raises(LostContentsError, match=r"1 persisted chunk of session 's' .* node b") as found:
        located(manager, "s", _places("a", "b"))
    assert found.value.rows == {1}


def test_a_session_whose_nodes_are_all_lost() -> None:
    """No manager can answer for it. Its contents are lost, and not late."""
    manager: Any = Manager(a="lost", b="alive")
    manager.error = LinkError("no node has the session, and a does not answer")

    with pytest.raises(LostContentsError, match=r"1 persisted chunk .* node a; nodes that do not answer: a"):
        located(manager, "s", _places("a"))
    with pytest.raises(LinkError, match="no node has the session"):
        located(manager, "s", _places("a", "b"))


def test_lost_chunks_of_several_sessions_are_found_together() -> None:
    """Those on nodes that are not alive are looked for; in sessions where one was not in its place, all of them."""
    manager: Any = Manager(a="alive", b="lost")
    source: Any = SimpleNamespace(address="http://m:1")
    sessions = [PersistedSession(source, name, _places("a", "a", "b")) for name in "st"]
    chunks = [PersistedChunk((session.name, row), session, row) for session in sessions for row in range(3)]
    manager.listed = {name: {0: "a", 1: "a"} for name in "st"}

    with pytest.raises(LostChunksError, match=r"session 's' .*; 1 other session lost chunks, too") as found:
        remote.locate_chunks(manager, chunks, {})
    assert [chunk.key for chunk, _ in found.value.chunks] == [("s", 2), ("t", 2)]
    with pytest.raises(LostChunksError, match="it is not on this node") as found:
        remote.locate_chunks(manager, chunks[:2] + chunks[3:5], {(sessions[0], "a"): "it is not on this node"})
    assert [chunk.key for chunk, _ in found.value.chunks] == [("s", 0), ("s", 1)]
    assert remote.locate_chunks(manager, chunks[3:5], {}) is None


@pytest.mark.parametrize(
    ("keep", "ends", "expected"),
    [
        (False, ["FAILED", "FINISHED"], [0]),
        (False, ["FAILED", "FAILED"], [0, 1]),
        (True, ["FAILED", "FINISHED"], []),
    ],
)
def test_a_session_that_met_a_lost_chunk_is_deleted(
    monkeypatch: pytest.MonkeyPatch, *, keep: bool, ends: list[str], expected: list[int]
) -> None:
    """The session of the second try has the persisted chunks; the first one only stays if all sessions do."""
    sessions, deleted = [], []
    client = SimpleNamespace(cancel=lambda _: None, delete=deleted.append, close=lambda: None)
    computation = remote.RemoteSessions(
        "http://unused", token="x", key=None, algorithm="", keep=keep, progress=False, recompute=False
    )
    earlier = Nodes().persist({"x": _task("x")}, "x")
    tasks = translate({**earlier, "y": _task("y", "x")}, ["y"], {}, runs_constants=True)
    (row,) = lost_chunks.chunk_inputs(tasks)
    lost = SimpleNamespace(row=row, code=GoneError.code, text="it is not there", app="", oid="x")

    def submitted(*_: Any, session: str, **__: Any) -> str:
        sessions.append(session)
        return session

    def ended(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(status=ends[len(sessions) - 1], failures=[lost])

    monkeypatch.setattr(computation.chunks, "connect", lambda: client)
    monkeypatch.setattr(remote, "_find", lambda *_: None)
    monkeypatch.setattr(remote, "submit", submitted)
    monkeypatch.setattr(remote, "await_end", ended)
    monkeypatch.setattr(remote, "_places", lambda *_: _places("a"))
    monkeypatch.setattr(remote, "_error", lambda *_: AppError("it failed"))

    if ends[-1] == "FINISHED":
        persisted = computation.persist(tasks)  # without references its session would be deleted, too
        assert set(persisted) == {"y"}
    else:
        with pytest.raises(AppError, match="it failed"):
            computation.persist(tasks)

    assert deleted == [sessions[number] for number in expected]


def test_contents_that_a_node_does_not_have() -> None:
    """All of them are named in one error, also those after the first; an error of another kind is raised as it is."""

    def answer(*errors: Exception) -> Any:
        records = [ContentError(row, to_body(error)) for row, error in enumerate(errors)]  # type: ignore[arg-type]
        download = Download(name="x", content_type="x", size=None, chunks=write_records(records))
        return SimpleNamespace(contents=lambda *_: download)

    with pytest.raises(LostContentsError, match=r"a: the first one is gone \(look\)") as found:
        fetched(
            answer(GoneError("the first one is gone", where="a", hint="look"), NotFoundError("no drop")),
            "s",
            {5: "a", 9: "a"},
        )
    assert found.value.rows == {5, 9}
    with pytest.raises(StorageError, match="the disk is broken"):
        fetched(answer(GoneError("gone"), StorageError("the disk is broken")), "s", {0: "a", 1: "a"})


def test_a_content_that_is_damaged_counts_as_lost() -> None:
    """It is no value: its bytes are not those of the checksum with which it was committed. Other contents are."""
    pieces = [pickle.dumps(number) for number in (1, 2)]
    damaged = pieces[0][:-2] + bytes([pieces[0][-2] ^ 1]) + pieces[0][-1:]
    records = [
        record
        for index, (sent, piece) in enumerate(zip((damaged, pieces[1]), pieces, strict=True))
        for record in (ContentBegin(index), ContentPiece(sent), ContentEnd(zlib.crc32(piece)))
    ]

    def client() -> Any:
        download = Download(name="x", content_type="x", size=None, chunks=write_records(records))
        return SimpleNamespace(contents=lambda *_: download)

    with pytest.raises(LostContentsError, match="the content was damaged on its node or during the transfer") as found:
        fetched(client(), "s", {5: "a", 9: "a"})
    assert found.value.rows == {5}
    assert pickle.loads(damaged) != 1
