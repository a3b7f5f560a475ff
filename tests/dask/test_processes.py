"""Collections of dask, computed in worker processes and on nodes."""

import gc
import operator
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import numpy as np
import pytest
from dask.callbacks import Callback

import dropflow.dask
import tests.dask.test_processes as here
from dropflow.api.client import Client
from dropflow.dask import Scheduler, chunk_sources, remote
from dropflow.dask.persist import PersistedChunk
from dropflow.errors import AppError, BadParameterError, GoneError, HttpError
from tests.e2e.cluster import Cluster, Running, until
from tests.lazy_module import LazyModule

da = LazyModule("dask.array")


cloudpickle.register_pickle_by_value(here)


class _Unusual(Exception):  # noqa: N818 - the type is the point
    """An exception with a constructor of its own."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.second = second

    def __reduce__(self) -> Any:
        return _Unusual, (1, self.second)


def _raise(_: Any) -> Any:
    sys.stdout.write("about to fail\n")
    raise _Unusual(1, 2)


def _end_process_once(marker: str, value: int) -> int:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value + 1


def _wait_for_ever(marker: str) -> None:
    Path(marker).touch()
    threading.Event().wait(3600)


def _interrupt_when(path: Path) -> None:
    """Send SIGINT to this process as soon as a file exists."""

    def wait() -> None:
        assert until(path.exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def _check_values(scheduler: Scheduler) -> None:
    """Compute what shows that constants, chunks, wanted keys with readers, and results travel."""
    base = np.arange(1600.0).reshape(40, 40)
    x = da.from_array(base, chunks=(15, 40))
    expected = (base + base.T).sum(axis=0)
    total = dask.delayed(sum)([dask.delayed(operator.add)(number, 1) for number in range(5)])

    values, number = dask.compute((x + x.T).sum(axis=0), total)

    assert np.array_equal(values, expected)
    assert number == 15
    kept = (x + 1).persist()
    assert float(kept.sum().compute()) == (base + 1).sum()
    assert scheduler.get({"x": (operator.add, 1, 1), "y": (operator.neg, "x")}, ["x", ["y"]]) == (2, (-2,))
    assert scheduler.get({}, []) == ()


def _chunks(collection: Any) -> list[PersistedChunk]:
    """Return the chunks of a persisted collection; all are references."""
    chunks = list(collection.__dask_graph__().values())
    assert all(type(chunk) is PersistedChunk for chunk in chunks)
    return chunks


def _check_persisted() -> Any:
    """Persist collections, compute with their chunks, and return a persisted array of (2 * ones)."""
    base = np.arange(1600.0).reshape(40, 40)
    x = (da.from_array(base, chunks=(15, 40)) + 1).persist()
    expected = base + 1
    assert {(chunk.shape, str(chunk.dtype)) for chunk in _chunks(x)} == {((15, 40), "float64"), ((10, 40), "float64")}
    assert np.array_equal((x + x.T).sum(axis=0).compute(), (expected + expected.T).sum(axis=0))
    assert np.array_equal(x[3:15, :2].compute(), expected[3:15, :2])
    assert np.array_equal(x.compute(scheduler="synchronous"), expected)  # in another scheduler, chunks are fetched
    number, other = dask.persist(dask.delayed(operator.add)(1, 2), x.sum())
    assert dask.compute(dask.delayed(sum)([number, number]), other) == (6, expected.sum())
    again = pickle.loads(pickle.dumps(x))
    twice = x.persist()
    assert [chunk.session for chunk in _chunks(twice)] == [chunk.session for chunk in _chunks(x)]
    assert dropflow.dask.persist({"x": x})[0]["x"].sum().compute() == expected.sum()
    del x, twice
    gc.collect()
    assert float(again.sum().compute()) == expected.sum()
    return (da.ones((20, 20), chunks=10) * 2).persist()


def _check_commands(directory: Path, url: str, token: str) -> None:
    """Run the commands of the how-to, which submit, wait, fetch, cancel and delete with curl."""
    text = (Path(__file__).parents[2] / "docs/howto/rest-jobs.md").read_text(encoding="utf-8")
    for name, code in re.findall(r"^```python\n# (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        (directory / name).write_text(code)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", block],
            cwd=directory,
            env={**os.environ, "PATH": path, "URL": url, "TOKEN": token},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        said.append(done.stdout)
    submitted, ended, fetched, cancelled = said
    assert '"session":"total"' in submitted.replace(" ", "")
    assert '"status":"FINISHED"' in ended.replace(" ", "")
    x = da.random.default_rng(1).random((1_000, 1_000), chunks=250)
    assert float(fetched.rpartition("}")[2]) == pytest.approx(float(x.sum().compute(scheduler="synchronous")))
    assert '"status":"CANCELLED"' in cancelled.replace(" ", "") or '"status":"FINISHED"' in cancelled.replace(" ", "")


def _check_exception() -> None:
    """A task's exception is raised as it is, and its notes have the drop, the traceback and the log."""
    x = da.ones(4, chunks=2).map_blocks(_raise, dtype=float, name="fails", meta=np.ones(0))

    with pytest.raises(_Unusual, match=r"1 and 2") as caught:
        x.compute()

    notes = "\n".join(caught.value.__notes__)
    assert caught.value.second == 2
    assert "raised by dask_fails" in notes
    assert "in _raise" in notes
    assert "about to fail" in notes


def _bytes_in_shared_memory(block: Any) -> Any:
    """Return how many bytes the sessions of this node have in shared memory."""
    files = Path("/dev/shm").glob(f"dropflow-*-{os.getppid()}-*/*")  # noqa: S108 - only read
    size = 0
    for path in files:
        with suppress(FileNotFoundError):  # released meanwhile
            size += path.stat().st_size
    return np.full_like(block, size)


def _check_memory_limit(url: str, token: str) -> None:
    """Each of two nodes holds 1 MB of 3.2 MB in memory, and what two workers write beyond that."""
    x = da.random.default_rng(1).random((40, 20_000), chunks=(1, 20_000))
    y = x - x.mean(axis=0)
    beyond = 8 * x.nbytes / x.npartitions  # the inputs and outputs of four workers
    found = []
    for _ in range(3):  # on a busy machine the node may hear late of what its workers have written
        with dropflow.dask.scheduler(to=url, token=token, memory_limit="1 MB"):
            most, total = dask.compute(y.map_blocks(_bytes_in_shared_memory, dtype=float).max(), y.sum())
        assert abs(total) < 1e-6
        found.append(most)
        if most < 2e6 + beyond:
            break
    assert min(found) < 2e6 + beyond


@pytest.fixture(scope="module")
def processes() -> Iterator[Scheduler]:
    """A scheduler with two worker processes. Most values are above its limit, and so on the disk."""
    with dropflow.dask.scheduler(runner="processes", workers=2, memory_limit="64 kB") as found:
        yield found


@pytest.mark.slow
def test_worker_processes(processes: Scheduler, tmp_path: Path) -> None:
    """Values, exceptions, the loss of a worker, callbacks and the end of the session, in one pool of processes."""
    _check_values(processes)
    _check_exception()
    # A worker that is killed is replaced, and its task repeated.
    assert processes.get({"x": (_end_process_once, str(tmp_path / "killed"), 1)}, "x") == 2
    assert (tmp_path / "killed").exists()
    # Callbacks see the tasks, and what one raises ends the computation.
    seen: list[Any] = []
    with Callback(pretask=lambda key, *_: seen.append(key)):
        processes.get({"x": (operator.neg, 1), "y": (operator.neg, "x")}, "y")
    assert seen == ["x", "y"]
    with Callback(posttask=_raise), pytest.raises(TypeError, match=r"positional argument"):
        processes.get({"x": (operator.neg, 1)}, "x")
    # What cannot be pickled is refused.
    with pytest.raises(AppError, match=r"the value of dask_x_0, a generator, cannot be pickled"):
        processes.get({"x": (lambda: (_ for _ in ()),)}, "x")
    processes.close()
    assert processes.get({"x": (operator.neg, 1)}, "x") == -1


@pytest.mark.slow
def test_relative_paths_lead_to_the_directory_of_the_program(
    processes: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks in worker processes of this machine read and write where the program is, also after it has moved."""
    for name in ("first", "then"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("cfg").write_text(name, encoding="utf-8")
        da.to_npy_stack("stack", da.ones((4, 4), chunks=2))

        assert processes.get({"x": (lambda: Path("cfg").read_text(encoding="utf-8"),)}, "x") == name
        assert da.from_npy_stack("stack").sum().compute() == 16
        assert len([*Path("stack").glob("*.npy")]) == 2


@pytest.mark.slow
def test_chunks_stay_in_the_directories_of_worker_processes(processes: Scheduler) -> None:
    """They are files there until nothing refers to them, or the processes end."""
    x = _check_persisted()
    gc.collect()
    root = Path(_chunks(x)[0].session.source.address)
    assert until(lambda: [path.name for path in root.glob("dask-*")] == [_chunks(x)[0].session.name])
    assert len([*root.glob("dask-*/results/*")]) == 4
    (x,) = dask.optimize(x[:10])
    assert until(lambda: len([*root.glob("dask-*/results/*")]) == 2)
    assert x.sum().compute() == 400
    shutil.rmtree(root, ignore_errors=True)  # the removal of other sessions may go on
    assert x.sum().compute() == 400
    assert x[:5].compute(scheduler="synchronous").sum() == 200
    processes.close()
    assert not root.exists()
    with pytest.raises(GoneError, match=r"the chunk \('mul-.* is gone: the worker processes that had it have ended"):
        x.sum().compute()


@contextmanager
def _two_nodes(directory: Path) -> Iterator[tuple[Client, str, Running]]:
    """Start an island of two nodes; yield a client of the island, its token and the second node."""
    with Cluster(directory) as cluster:
        one, two = cluster.nodes("one", "two")
        island = cluster.island(one, two)
        yield cluster.client(island), island.ready["token"], two


@pytest.mark.exhaustive
def test_nodes_keep_a_limit_of_memory_and_take_graphs_by_commands(tmp_path: Path) -> None:
    """Contents beyond the limit are on the disk; the commands of the how-to give what they describe."""
    with _two_nodes(tmp_path) as (client, token, _):
        _check_memory_limit(client.url, token)
        _check_commands(tmp_path, client.url, token)
        assert client.sessions() == ()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_nodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each computation is a session of the manager; its values and exceptions come back, and it is deleted."""
    with _two_nodes(tmp_path) as (client, token, two):
        url = client.url
        with dropflow.dask.scheduler(to=url, token=token) as scheduler:
            _check_values(scheduler)
            _check_exception()
            # Both nodes take part.
            x = da.ones(8, chunks=1).map_blocks(lambda block: block * os.getppid(), dtype=float)
            assert len(set(x.compute())) == 2
        assert client.sessions() == ()
        with dropflow.dask.scheduler(to=url, token=token, keep=True):
            da.ones(4, chunks=2).sum().compute()
        assert [(session.status, len(session.request_id)) for session in client.sessions()] == [("FINISHED", 32)]
        assert client.session(client.sessions()[0].session).request_id == client.sessions()[0].request_id
        client.delete(client.sessions()[0].session)
        # An interrupt cancels and deletes the session.
        started = tmp_path / "started"
        with dropflow.dask.scheduler(to=url, token=token) as scheduler:
            _interrupt_when(started)
            with pytest.raises(KeyboardInterrupt, match=r"^$"):
                scheduler.get({"x": (_wait_for_ever, str(started))}, "x")
        assert client.sessions() == ()
        with pytest.raises(HttpError, match=r"the token is wrong"):
            da.ones(2).compute(scheduler=Scheduler(to=url, token=token[::-1]).get)

        assert until(lambda: all(node.state == "alive" for node in client.nodes()))
        with dropflow.dask.scheduler(to=url, token=token, replicas=2) as scheduler:
            kept = _check_persisted()
            gc.collect()
            # A thread deletes the others.
            assert until(lambda: [session.session for session in client.sessions()] == [_chunks(kept)[0].session.name])
            # Tasks run on the nodes that have their chunks.
            x = da.ones(8, chunks=1).map_blocks(lambda block: block * os.getppid(), dtype=float).persist()
            assert {chunk.place.node for chunk in _chunks(x)} == {"one", "two"}
            assert not x.map_blocks(lambda block: block - os.getppid(), dtype=float).compute().any()
            name = _chunks(x)[0].session.name
            (x,) = dask.optimize(x[:2])
            assert until(lambda: len(client.results(name).results) == 2)
            client.delete(name)
            with caplog.at_level("WARNING", "dropflow.dask"):
                assert x.shape == x.compute().shape
                _check_lost_chunks(tmp_path, client, token, kept, two)
            assert [text.split(":")[0] for text in caplog.messages] == [
                "computing 2 persisted chunks again",  # of the session that was deleted
                "computing 4 persisted chunks again",  # on the node that had lost a file
                "computing 2 persisted chunks again",  # half of these were on the node that was lost
            ]
            assert re.search(r"again: 2 persisted chunks .* on node two; nodes that do not answer: two", caplog.text)
            del x
        assert until(lambda: client.sessions() == ())
        with pytest.raises(GoneError, match=r"is gone: the scheduler that had it has ended"):
            kept.sum().compute(scheduler=scheduler.get)


def _check_lost_chunks(directory: Path, client: Client, token: str, kept: Any, two: Running) -> None:
    """A file is removed, and then a node is killed: chunks are read from copies, or computed again."""
    with dropflow.dask.scheduler(to=client.url, token=token, progress=False):
        x = da.random.default_rng(1).random(8, chunks=1).persist()
        expected = x.compute()
        place = next(chunk.place for chunk in _chunks(x) if chunk.place.node == "two")
        (path,) = directory.rglob(f"{_chunks(x)[0].session.name}/{place.path}")
        path.unlink()
        assert [*(x + 1).compute()] == [*(expected + 1)]
        two.stop(signal.SIGKILL)
        assert until(lambda: any(node.state != "alive" for node in client.nodes()))
        assert float(kept.sum().compute()) == 800
        assert x.sum().compute() == expected.sum()
        assert [*x.compute()] == [*expected]


def test_options_of_managers_are_checked() -> None:
    """The runner and the workers of nodes are not chosen by the client."""
    with pytest.raises(BadParameterError, match=r"runner and workers are those of the nodes at http://x:1"):
        Scheduler(to="http://x:1", workers=2)


@pytest.mark.slow
def test_an_interrupt_in_the_middle_of_a_submission_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager may have accepted it: it is cancelled and deleted by the name that it was submitted with."""
    calls: list[tuple[str, str]] = []

    class Manager:
        """A client that notes what it is asked for."""

        def cancel(self, session: str) -> None:
            calls.append(("cancel", session))

        def delete(self, session: str) -> None:
            calls.append(("delete", session))

        def close(self) -> None:
            calls.append(("close", ""))

    def interrupted(*_: Any, session: str, **__: Any) -> None:
        calls.append(("submit", session))
        raise KeyboardInterrupt

    monkeypatch.setattr(chunk_sources, "connected", lambda **_: Manager())
    monkeypatch.setattr(remote, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        da.ones(2).sum().compute(scheduler=Scheduler(to="http://x:1").get)

    assert [what for what, _ in calls] == ["submit", "cancel", "delete", "close"]
    assert len({session for what, session in calls if what != "close"}) == 1
