"""Large contents go by a store that workers and session reach, such as a bucket."""

import importlib.util
import os
import re
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dropflow.data.remote import check_url
from dropflow.errors import BadParameterError, MissingDependencyError, StorageError, WorkerStartError
from dropflow.execution.session import Session
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.runners import external_store as blobs_module
from dropflow.runners.carried_contents import PIECE_BYTES
from dropflow.runners.engine import Blob
from dropflow.runners.external_store import ContentStore, read_blob, remove_blobs, write_blob
from dropflow.runners.runner_choice import parse_runner
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import SessionState
from dropflow.testing.conformance import outcome_of
from tests.runners.external.elsewhere import Elsewhere, run_elsewhere

fsspec = pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("empty_store")


@pytest.fixture(name="empty_store")
def _empty_store() -> None:
    """Forget the blobs of other tests: this file system is in memory."""
    fsspec.filesystem("memory").store.clear()


def blobs() -> list[str]:
    """The blobs in the store."""
    return sorted(fsspec.filesystem("memory").store)


def copies(source: Path, many: int) -> PhysicalGraph:
    """A graph that doubles a file several times, and sums each result up."""
    builder = GraphBuilder("g")

    def command(name: str, text: str) -> None:
        argument = Argument(name="command", value=text, parameter_type="ComponentParameter")
        component = "dlg.apps.bash_shell_app.BashShellApp"
        builder.app(name, component=component, category="BashShellApp", arguments=(argument,))

    def file(name: str, path: str) -> None:
        argument = Argument(name="filepath", value=path, parameter_type="ComponentParameter")
        builder.data(name, component="dlg.data.drops.file.FileDROP", category="File", arguments=(argument,))

    file("in", str(source))
    for number in range(many):
        command(f"Copy{number}", "cat %i[0] %i[0] > %o[0]")
        file(f"copy{number}", f"copy{number}.dat")
        command(f"Sum{number}", "cksum < %i[0] > %o[0]")
        file(f"sum{number}", f"sum{number}.txt")
        for one, other in pairwise(("in", f"Copy{number}", f"copy{number}", f"Sum{number}", f"sum{number}")):
            builder.connect(one, other)
    return builder.build()


@pytest.mark.slow
def test_contents_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are those of a run in one process, nothing goes by the engine, and the store is empty after."""
    source = tmp_path / "big.dat"
    source.write_bytes(os.urandom(PIECE_BYTES + 4321))
    graph = copies(source, 3)
    engine = Elsewhere(tmp_path / "workers")
    written: list[int] = []
    original = blobs_module.write_blob

    def write(url: str, data: bytes) -> None:
        written.append(len(data))
        original(url, data)

    monkeypatch.setattr(blobs_module, "write_blob", write)
    session = run_elsewhere(graph, tmp_path / "run", engine, ContentStore("memory://bucket/x/"))
    here: list[Session] = []
    local_run.run(
        graph,
        local_run.prepare_directory(tmp_path / "here"),
        RunOptions(runner="inline"),
        hooks=RunHooks(on_session=here.append),
    )

    assert session.result().status is SessionState.FINISHED, session.result().failures
    assert outcome_of(session) == outcome_of(here[0])
    assert (tmp_path / "run" / "files" / "copy0.dat").read_bytes() == 2 * source.read_bytes()
    assert engine.put_pieces == []
    assert all(isinstance(one, Blob) for one in engine.received)
    size = source.stat().st_size
    # The input, each copy as an output and as an input, and small sums.
    assert size + 3 * 2 * 2 * size <= sum(written) <= size + 3 * 2 * 2 * size + 20 * 20_000
    assert max(written) == PIECE_BYTES
    assert blobs() == []


def test_a_worker_without_the_store_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the URL and the reason, and nothing runs."""
    source = tmp_path / "in.dat"
    source.write_bytes(b"x")

    def refuse(url: str) -> bytes:
        raise StorageError("it cannot be read: no credentials", where=url)

    monkeypatch.setattr(blobs_module, "read_blob", refuse)
    engine = Elsewhere(tmp_path / "workers", workers=1)
    with pytest.raises(WorkerStartError, match=r"worker w0 cannot begin: memory://bucket.*no credentials"):
        run_elsewhere(copies(source, 1), tmp_path / "run", engine, ContentStore("memory://bucket"))

    assert engine.batches == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fails", "text"),
    [
        ("session writes", "its inputs could not be sent: memory://.*: it is full"),
        ("worker reads", "its inputs could not be written on a worker: memory://.*: it is full"),
        ("worker writes", "its outputs could not be fetched: memory://.*: it is full"),
        ("session reads", "its outputs could not be fetched: memory://.*: it is full"),
    ],
)
def test_a_store_that_fails_in_the_middle_is_why_attempts_are_given_up(
    fails: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are repeated as often as after a lost worker. Then the error names the store, and not the application."""
    source = tmp_path / "big.dat"
    source.write_bytes(os.urandom(2 << 20))
    engine = Elsewhere(tmp_path / "workers", workers=1)
    originals = {"writes": blobs_module.write_blob, "reads": blobs_module.read_blob}

    def instead(action: str) -> Callable[..., Any]:
        def call(url: str, *data: bytes) -> Any:
            # Workers are threads without a name; those of the session have one.
            where = "session" if threading.current_thread().name.startswith("content-") else "worker"
            if engine.batches or where == "session":
                is_probe = not engine.batches and where != "session"
                if not is_probe and f"{where} {action}" == fails:
                    raise StorageError("it is full", where=url, hint="make room")
            return originals[action](url, *data)

        return call

    monkeypatch.setattr(blobs_module, "write_blob", instead("writes"))
    monkeypatch.setattr("dropflow.runners.carried_contents.read_blob", instead("reads"))
    session = run_elsewhere(copies(source, 1), tmp_path / "run", engine, ContentStore("memory://bucket"), retries=1)
    result = session.result()

    assert (result.status, result.infrastructure_faults) == (SessionState.FAILED, 2)
    (failure,) = result.failures
    assert failure.code == "DF206"
    assert re.search(text, failure.text)
    assert "make room" in failure.hint
    assert blobs() == []


@pytest.mark.slow
def test_pieces_of_a_content_that_was_not_sent_whole_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has the pieces of the next try only when an attempt runs."""
    monkeypatch.setattr("dropflow.runners.carried_contents.PIECE_BYTES", 1 << 20)
    source = tmp_path / "big.dat"
    source.write_bytes(os.urandom(2 << 20))
    engine = Elsewhere(tmp_path / "workers", workers=1)
    write, written, left = blobs_module.write_blob, [], []

    def write_and_fail_once(url: str, *data: bytes) -> Any:
        if threading.current_thread().name.startswith("content-out"):
            written.append(url)
            if len(written) == 2:
                raise StorageError("it is full", where=url)
        return write(url, *data)

    def probed(self: ContentStore) -> None:
        """Leave the first blob to the content."""

    monkeypatch.setattr(ContentStore, "probe", probed)
    monkeypatch.setattr(blobs_module, "write_blob", write_and_fail_once)
    engine.on_run = lambda _worker: left.append(written[0] in [f"memory:/{name}" for name in blobs()])
    session = run_elsewhere(copies(source, 1), tmp_path / "run", engine, ContentStore("memory://bucket"))

    assert session.result().infrastructure_faults == 1
    assert left
    assert not any(left)


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever time limit its own client has. The error has the URL."""
    over = threading.Event()
    monkeypatch.setattr(blobs_module, "_SECONDS", 0.1)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", lambda *_: over.wait())
    with pytest.raises(StorageError, match=r"cannot be read: the store did not answer in 0\.1 s") as caught:
        read_blob("memory://bucket/x")
    over.set()

    assert caught.value.where == "memory://bucket/x"


@pytest.mark.slow
def test_a_blob_that_is_gone_is_written_again(tmp_path: Path) -> None:
    """The attempt is repeated as after a loss of its worker, and the content is stored again."""
    source = tmp_path / "big.dat"
    source.write_bytes(os.urandom(2 << 20))
    engine = Elsewhere(tmp_path / "workers", workers=1)
    removed: list[str] = []

    def remove(_worker: str) -> None:
        if not removed:
            removed.extend(blobs())
            for name in removed:
                remove_blobs(f"memory:/{name}")

    engine.on_run = remove
    session = run_elsewhere(copies(source, 1), tmp_path / "run", engine, ContentStore("memory://bucket"))

    assert removed
    assert session.result().status is SessionState.FINISHED, session.result().failures
    assert session.result().infrastructure_faults == 1


@pytest.mark.slow
def test_pieces_of_a_content_that_is_given_up_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one piece is gone, the content is stored again, and the store does not keep its other pieces."""
    monkeypatch.setattr("dropflow.runners.carried_contents.PIECE_BYTES", 1 << 20)
    source = tmp_path / "big.dat"
    source.write_bytes(os.urandom(2 << 20))
    engine = Elsewhere(tmp_path / "workers", workers=1)
    stored: list[list[str]] = []

    def remove_one(_worker: str) -> None:
        stored.append(blobs())
        if len(stored) == 1:
            remove_blobs(f"memory:/{blobs()[0]}")

    engine.on_run = remove_one
    session = run_elsewhere(copies(source, 1), tmp_path / "run", engine, ContentStore("memory://bucket"))

    assert session.result().status is SessionState.FINISHED, session.result().failures
    assert not {*stored[0]} & {*stored[1]}
    assert len(stored[0]) == len(stored[1])


@pytest.mark.slow
def test_what_is_not_used_is_removed_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store does not grow with all that a session ever had."""
    monkeypatch.setattr("dropflow.runners.carried_contents._KEPT_BYTES", 100)
    source = tmp_path / "in.dat"
    source.write_bytes(b"x")
    engine = Elsewhere(tmp_path / "workers", workers=1)
    most: list[int] = []
    engine.on_run = lambda _worker: most.append(len(blobs()))
    session = run_elsewhere(copies(source, 20), tmp_path / "run", engine, ContentStore("memory://bucket"))

    assert session.result().status is SessionState.FINISHED
    assert max(most) <= 6
    assert blobs() == []


def test_what_no_store_can_be_is_refused() -> None:
    """Before anything runs, with what to install or to write."""
    with pytest.raises(BadParameterError, match="no protocol 'nowhere'"):
        check_url("nowhere://bucket")
    with pytest.raises(BadParameterError, match="is not the URL of a store"):
        check_url("/directory")
    if importlib.util.find_spec("gcsfs") is None:
        with pytest.raises(MissingDependencyError, match=r"cannot use gs://.*gcsfs"):
            check_url(parse_runner("dask,contents=gs://bucket").contents)


def test_a_store_that_fails_is_named(tmp_path: Path) -> None:
    """The error has the URL."""
    (tmp_path / "file").write_text("x")
    for action in (lambda url: write_blob(url, b"x"), read_blob):
        with pytest.raises(StorageError, match=r"^file://.*: cannot be") as caught:
            action(f"file://{tmp_path}/file/below")
        assert caught.value.where.endswith("file/below")
    remove_blobs(f"file://{tmp_path}/nothing")
