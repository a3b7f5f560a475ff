"""Contents go by the engine where its workers cannot use the session directory."""

import contextlib
import dataclasses
import fcntl
import io
import os
import tarfile
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.data.storage_errors import checksum_of
from dropflow.errors import StorageError
from dropflow.execution.session import Session
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners import carried_contents
from dropflow.runners.carried_contents import PIECE_BYTES, OwnDirectory, identity_of, pack, unpack
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import SessionState
from dropflow.testing.conformance import RunOutcome, outcome_of
from tests.runners.external.command_graphs import Drawing
from tests.runners.external.elsewhere import EXAMPLES, Elsewhere, run_elsewhere, session_elsewhere
from translator.pipeline import translate


def here(graph: PhysicalGraph, directory: Path) -> RunOutcome:
    """What a graph gives in this process."""
    sessions: list[Session] = []
    local_run.run(
        graph,
        local_run.prepare_directory(directory, overwrite=True),
        RunOptions(runner="inline"),
        hooks=RunHooks(on_session=sessions.append),
    )
    return outcome_of(sessions[0])


def nothing_is_left(base: Path) -> bool:
    """Whether workers have removed their directories."""
    return not [path for path in base.rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hello", "nested-scatter-gather", "error-threshold"])
def test_examples_give_the_same(name: str, tmp_path: Path) -> None:
    """States, root causes and contents are those of a run in one process, and workers leave nothing behind."""
    graph = translate(EXAMPLES / f"{name}.graph").graph
    engine = Elsewhere(tmp_path / "workers")
    found = outcome_of(run_elsewhere(graph, tmp_path / "run", engine))

    assert found == here(graph, tmp_path / "here")
    assert engine.batches
    assert nothing_is_left(tmp_path / "workers")


@pytest.mark.slow
def test_large_contents_go_in_pieces_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file becomes objects of the engine once, for all that read it."""
    monkeypatch.setattr("dropflow.runners.carried_contents.PIECE_BYTES", 100_000)
    big = tmp_path / "big.dat"
    size = 204_321
    big.write_bytes(os.urandom(size))
    big.chmod(0o644)
    drawing = Drawing()
    drawing.file("in", str(big))
    for number in range(4):
        drawing.bash(f"Copy{number}", "cat %i[0] %i[0] > %o[0]")
        drawing.file(f"copy{number}", f"sub/copy{number}.dat")
        drawing.bash(f"Sum{number}", "cksum < %i[0] > %o[0]; echo summed")
        drawing.memory(f"sum{number}")
        drawing.connect("in", f"Copy{number}", f"copy{number}", f"Sum{number}", f"sum{number}")
    graph = drawing.build()
    engine = Elsewhere(tmp_path / "workers")
    session = run_elsewhere(graph, tmp_path / "run", engine)

    assert session.result().status is SessionState.FINISHED, session.result().failures
    assert outcome_of(session) == here(graph, tmp_path / "here")
    assert (tmp_path / "run" / "files" / "sub" / "copy0.dat").read_bytes() == 2 * big.read_bytes()
    sent = sum(map(len, engine.put_pieces))
    assert size + 4 * 2 * size <= sent <= (size + 4 * 2 * size) + 5 * 20_000
    assert max(len(one) for one in (*engine.put_pieces, *engine.received) if isinstance(one, bytes)) == 100_000
    logs = [path.read_text() for path in (tmp_path / "run" / "logs").glob("*Sum*.log")]
    assert len(logs) == 4
    assert all("summed" in text for text in logs)


@pytest.mark.slow
def test_directories_go_with_their_files_links_and_permissions(tmp_path: Path) -> None:
    """A directory arrives as it was, there and back."""
    drawing = Drawing()
    drawing.bash("Make", "mkdir -p %o[0]/a/b; cd %o[0]; echo 1 > a/b/x; : > empty; ln -s a/b/x link; chmod 750 a/b/x")
    drawing.directory("made", "made")
    drawing.bash("List", "cd %i[0] && find . -printf '%P %y %m %l\\n' | sort && cat link")
    drawing.memory("listed")
    drawing.connect("Make", "made", "List", "listed")
    graph = drawing.build()
    engine = Elsewhere(tmp_path / "workers", workers=1)
    found = outcome_of(run_elsewhere(graph, tmp_path / "run", engine))

    assert found == here(graph, tmp_path / "here")
    assert found.status is SessionState.FINISHED
    made = tmp_path / "run" / "files" / "made"
    assert (made / "link").readlink() == Path("a/b/x")
    assert (made / "a" / "b" / "x").stat().st_mode & 0o777 == 0o750


def test_outputs_that_are_too_large_for_the_engine_have_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error tells the limit, and what to give instead; the attempt is not repeated."""
    monkeypatch.setattr("dropflow.runners.carried_contents._MOST_BYTES", 1 << 20)
    drawing = Drawing()
    drawing.bash("Make", "head -c 3000000 /dev/zero > %o[0]")
    drawing.file("made", "made.dat")
    drawing.connect("Make", "made")
    engine = Elsewhere(tmp_path / "workers", workers=1)
    session = run_elsewhere(drawing.build(), tmp_path / "run", engine)

    (failure,) = session.result().failures
    assert "more than 1 MiB, which do not go by the engine" in failure.text
    assert "contents=URL" in failure.hint
    assert len(engine.batches) == 1


@pytest.mark.slow
def test_what_was_not_used_for_long_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are kept up to a number of bytes, beside those that a batch uses."""
    monkeypatch.setattr("dropflow.runners.carried_contents._KEPT_BYTES", 15_000)
    drawing = Drawing()
    for number in range(6):
        path = tmp_path / f"in{number}"
        path.write_bytes(os.urandom(10_000))
        drawing.file(f"in{number}", str(path))
        drawing.bash(f"Sum{number}", "cksum < %i[0]")
        drawing.memory(f"sum{number}")
        drawing.connect(f"in{number}", f"Sum{number}", f"sum{number}")
    engine = Elsewhere(tmp_path / "workers", workers=1)
    session = run_elsewhere(drawing.build(), tmp_path / "run", engine)

    assert session.result().status is SessionState.FINISHED


@pytest.mark.slow
def test_attempts_run_where_the_plan_places_them(tmp_path: Path) -> None:
    """A plan with a place for each worker is kept as long as the worker of a place is free, which it is in a chain."""
    drawing = Drawing()
    for lane in range(2):
        for step in range(4):
            drawing.bash(f"Step{lane}-{step}", "cat %i[0] > %o[0]" if step else "echo x > %o[0]")
            drawing.file(f"file{lane}-{step}", f"file{lane}-{step}")
        drawing.connect(*[name for step in range(4) for name in (f"Step{lane}-{step}", f"file{lane}-{step}")])
    graph = drawing.build()
    lanes = [int(template.name.removeprefix("Step").removeprefix("file")[0]) for template in graph.templates]
    part = np.array([lanes[row] for row in graph.template], dtype=np.int32)
    graph = dataclasses.replace(graph, part=part, places=("w0", "w1"))
    engine = Elsewhere(tmp_path / "workers")
    session = run_elsewhere(graph, tmp_path / "run", engine)

    assert session.result().status is SessionState.FINISHED
    ran = [(worker, lanes[task.template]) for worker, batch in engine.batches for task in batch.tasks]
    assert sorted(ran) == [("w0", 0)] * 4 + [("w1", 1)] * 4


def test_an_input_that_is_gone_fails_its_attempt_and_no_other(tmp_path: Path) -> None:
    """The failure names the file; what does not need it completes."""
    for name in ("good", "bad"):
        (tmp_path / name).write_text("x")
    drawing = Drawing()
    for name in ("good", "bad"):
        drawing.file(name, str(tmp_path / name))
        drawing.bash(f"Read-{name}", "cat %i[0]")
        drawing.memory(f"out-{name}")
        drawing.connect(name, f"Read-{name}", f"out-{name}")
    engine = Elsewhere(tmp_path / "workers", workers=1)
    session, repository = session_elsewhere(drawing.build(), tmp_path / "run", engine)
    start = engine.start

    def remove_and_start(*arguments, **store):  # noqa: ANN002, ANN003, ANN202 - as start
        (tmp_path / "bad").unlink()
        return start(*arguments, **store)

    engine.start = remove_and_start  # type: ignore[method-assign]
    (tmp_path / "bad").chmod(0o000)
    try:
        session.run()
    finally:
        repository.close()

    texts = [failure.text for failure in session.result().failures]
    assert len(texts) == 1
    assert f"{tmp_path / 'bad'}" in texts[0]
    assert session.result().states["COMPLETED"] >= 3


@pytest.mark.slow
def test_a_worker_that_is_lost_while_contents_travel_costs_one_fault(tmp_path: Path) -> None:
    """Its attempts are repeated on another worker, with contents that are sent again, and the results are the same."""
    (tmp_path / "in").write_bytes(os.urandom(100_000))
    drawing = Drawing()
    drawing.file("in", str(tmp_path / "in"))
    drawing.bash("Copy", "cat %i[0] > %o[0]")
    drawing.file("copy", "copy.dat")
    drawing.connect("in", "Copy", "copy")
    engine = Elsewhere(tmp_path / "workers")
    killed: list[str] = []

    def kill(worker: str) -> None:
        if not killed:
            killed.append(worker)
            engine.lose(worker)

    engine.on_run = kill
    session = run_elsewhere(drawing.build(), tmp_path / "run", engine)

    assert killed
    assert len(engine.put_pieces) == 2
    assert session.result().status is SessionState.FINISHED
    assert session.result().infrastructure_faults == 1
    assert (tmp_path / "run" / "files" / "copy.dat").read_bytes() == (tmp_path / "in").read_bytes()


@pytest.mark.slow
def test_a_cancel_does_not_wait_for_contents(tmp_path: Path) -> None:
    """An attempt whose input is on its way is answered immediately."""
    (tmp_path / "in").write_bytes(bytes(PIECE_BYTES))
    drawing = Drawing()
    drawing.file("in", str(tmp_path / "in"))
    drawing.bash("Copy", "cat %i[0] > %o[0]")
    drawing.file("copy", "copy.dat")
    drawing.connect("in", "Copy", "copy")
    engine = Elsewhere(tmp_path / "workers")
    is_sending, may_go_on = threading.Event(), threading.Event()

    def stop() -> None:
        is_sending.set()
        may_go_on.wait()

    engine.on_put = stop
    session, repository = session_elsewhere(drawing.build(), tmp_path / "run", engine)
    thread = threading.Thread(target=session.run, daemon=True)
    thread.start()
    try:
        assert is_sending.wait(60)
        session.cancel("enough", 0.0)
        thread.join(60)
        assert not thread.is_alive()
    finally:
        may_go_on.set()
        thread.join(60)
        repository.close()

    assert session.result().status is SessionState.CANCELLED
    assert not (tmp_path / "run" / "files" / "copy.dat").exists()


# Contents as pieces of an archive, and the directory of a worker.


def tree(path: Path) -> dict[str, tuple[int, bytes | str]]:
    """Permissions and contents of all below a directory."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for one in sorted(path.rglob("*")):
        name = str(one.relative_to(path))
        if one.is_symlink():
            found[name] = 0, str(one.readlink())
        else:
            found[name] = one.stat().st_mode, b"" if one.is_dir() else one.read_bytes()
    return found


@pytest.mark.slow
@given(st.lists(st.binary(max_size=2000), max_size=6), st.integers(1, 5000))
def test_a_directory_travels_in_pieces_of_any_size(bodies: list[bytes], size: int) -> None:
    """Files, also empty ones, and links have the same bytes at the other end, whatever the pieces are."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(carried_contents, "PIECE_BYTES", size)
        source = Path(folder, "source")
        (source / "sub").mkdir(parents=True)
        for number, body in enumerate(bodies):
            (source / ("sub" if number % 2 else ".") / f"f{number}").write_bytes(body)
        (source / "link").symlink_to("sub/f1")
        pieces: list[bytes] = []
        pack(str(source), pieces.append)
        unpack(pieces, f"{folder}/target")

        assert {len(piece) for piece in pieces[:-1]} <= {size}
        assert tree(Path(folder, "target")) == tree(source)


def test_a_file_is_compared_with_its_checksum(tmp_path: Path) -> None:
    """A content that was changed on its way is refused; a link to a file is the file."""
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(path)
    pieces: list[bytes] = []
    pack(str(tmp_path / "link"), pieces.append)
    unpack(pieces, str(tmp_path / "y"), checksum_of(str(path)))

    assert (tmp_path / "y").read_bytes() == b"abc"
    assert not (tmp_path / "y").is_symlink()
    with pytest.raises(StorageError, match="has CRC-32"):
        unpack([pieces[0].replace(b"abc", b"xyz")], str(tmp_path / "z"), checksum_of(str(path)))
    with pytest.raises(StorageError, match="cannot be unpacked"):
        unpack([b"abc"], str(tmp_path / "w"))


@pytest.mark.parametrize("name", ["content/../../x", "/etc/dropflow-x", "content/link/x"])
def test_a_content_writes_nothing_outside_of_its_directory(name: str, tmp_path: Path) -> None:
    """Names that leave it, or go through a link, are refused or stay inside."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for kind, one in ((tarfile.DIRTYPE, "content"), (tarfile.SYMTYPE, "content/link"), (tarfile.REGTYPE, name)):
            member = tarfile.TarInfo(one)
            member.type, member.linkname, member.mode = kind, str(tmp_path / "outside"), 0o755
            archive.addfile(member)
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    with contextlib.suppress(StorageError):
        unpack([stream.getvalue()], str(tmp_path / "inside" / "content"))

    assert not list((tmp_path / "outside").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"outside", "inside"}
    assert not Path("/etc/dropflow-x").exists()


def test_the_identity_of_a_content_changes_with_it(tmp_path: Path) -> None:
    """Another size, time or file is another content; a new name is not."""
    path = tmp_path / "x"
    path.write_text("one")
    first = identity_of(str(path))
    path.rename(tmp_path / "y")
    assert identity_of(str(tmp_path / "y")) == first
    os.utime(tmp_path / "y", ns=(1, 1))
    assert identity_of(str(tmp_path / "y")) != first
    whole = identity_of(str(tmp_path))
    (tmp_path / "z").write_text("")
    assert identity_of(str(tmp_path)) != whole


def test_directories_of_processes_that_were_killed_are_removed(tmp_path: Path) -> None:
    """The lock of such a directory is free; those of others are kept."""
    living = OwnDirectory(str(tmp_path))
    dead = OwnDirectory(str(tmp_path))
    os.close(dead._lock)  # as the system does with those of a process that was killed
    other = OwnDirectory(str(tmp_path))

    assert not Path(dead.path).exists()
    assert Path(living.path).exists()
    living.close()
    other.close()


def test_workers_that_begin_at_the_same_moment_keep_their_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory whose process has not locked it yet is not one of a process that was killed."""
    flock, others = fcntl.flock, list[OwnDirectory]()

    def begin_another(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        others.append(OwnDirectory(str(tmp_path)))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", begin_another)
    with contextlib.closing(OwnDirectory(str(tmp_path))) as own, contextlib.closing(others[0]) as other:
        assert Path(own.path).is_dir()
        assert Path(other.path).is_dir()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made"):
        OwnDirectory(str(tmp_path / "file"))
