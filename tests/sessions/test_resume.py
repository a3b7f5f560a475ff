"""Continuing a run from what its process has left in its directory."""

import errno
import fcntl
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadFileError, ConflictError, DropflowError, NotFoundError, StorageError, WorkerStartError
from dropflow.execution.decisions.events import Begin, Cancel, Stopped
from dropflow.execution.drop_explanation import explain_repeat
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Executor, Runner
from dropflow.execution.journal import Journal, JournalHeader, read, replay
from dropflow.execution.statistics import SessionResult
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.failure import Failure
from dropflow.files import SessionLock
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.runners.executor import LocalExecutor
from dropflow.runners.in_process import InlineRunner
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import resume
from dropflow.states import DropState, SessionState
from dropflow.testing.drawing import row
from tests.nightly import nightly
from tests.recovery_graphs import GRAPHS, chain, replacing

CHECKED = RunOptions(runner="inline", check=True)


def results(directory: Path) -> dict[str, bytes]:
    """Return the files of results, by path."""
    found = (path for name in ("files", "results") for path in (directory / name).rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in found if path.is_file()}


def cut(directory: Path, entries: int, *, torn: bytes = b"") -> None:
    """Cut a journal after so many entries, as if the process had been killed then."""
    journal = directory / "journal.dfj"
    data = journal.read_bytes()
    end = len("DFJ2")
    for _ in range(1 + entries):  # the header, too
        end += 12 + int.from_bytes(data[end : end + 4], "little")
    journal.write_bytes(data[:end] + torn)


def length(directory: Path) -> int:
    """Return the number of entries of a journal."""
    return len(list(read(directory / "journal.dfj")[1]))


class _EndedEngine:
    """An executor whose engine ends after two attempts."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor
        self._left = 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def execute(self, task: Task) -> AttemptResult:
        """Run two attempts; there is no worker for the others."""
        self._left -= 1
        if self._left >= 0:
            return self._executor.execute(task)
        failure = Failure.of(WorkerStartError("dask cannot be used any more: its scheduler has ended"))
        return AttemptResult(task.drop, task.attempt, failure=failure)


def ended_engine(spec: ExecutorSpec, _workers: int | None) -> Runner:
    """Return a runner that has no workers after two attempts."""
    return InlineRunner(cast(Executor, _EndedEngine(LocalExecutor(spec))))


@pytest.fixture
def ended(tmp_path: Path) -> tuple[PhysicalGraph, Path, Path]:
    """A chain of four commands that has run: its graph, its directory, and the file of marks."""
    marks = tmp_path / "marks"
    graph = chain(marks, 4)
    local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))
    return graph, tmp_path / "run", marks


def again(directory: Path, marks: Path, **options: bool) -> tuple[SessionResult, Sequence[str]]:
    """Continue; return the result and the applications that have run."""
    before = len(marks.read_text().split())
    result = resume(directory, CHECKED, **options)
    return result, marks.read_text().split()[before:]


@pytest.mark.slow
def test_a_run_that_can_be_continued_is_not_replaced(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """A new run in its directory is refused with a hint, unless it is to overwrite; one that has ended is, too."""
    _, directory, _ = ended
    cut(directory, 3)
    with pytest.raises(ConflictError, match=r"a run that is not finished: [1-9] of \d drops are settled") as refused:
        local_run.prepare_directory(directory)
    assert (directory / "journal.dfj").exists()
    assert "'dropflow resume " in refused.value.hint
    assert "--overwrite" in refused.value.hint
    resume(directory, CHECKED)

    local_run.prepare_directory(directory, overwrite=True)
    assert not (directory / "journal.dfj").exists()


@pytest.mark.slow
def test_a_run_that_was_killed_before_anything_ran_is_replaced(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """Its journal has a header, and nothing that could be lost: the command that began it can be given again."""
    _, directory, _ = ended
    cut(directory, 0)
    (directory / "summary.json").unlink(missing_ok=True)
    local_run.prepare_directory(directory)
    assert not (directory / "journal.dfj").exists()


def test_a_run_that_cannot_be_read_is_only_replaced_on_request(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """It may have results."""
    _, directory, _ = ended
    data = bytearray((directory / "journal.dfj").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (directory / "journal.dfj").write_bytes(data)
    (directory / "summary.json").unlink()
    with pytest.raises(ConflictError, match="a run that cannot be read"):
        local_run.prepare_directory(directory)
    local_run.prepare_directory(directory, overwrite=True)

    assert not (directory / "journal.dfj").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(GRAPHS))
def test_a_run_continues_from_every_entry_of_its_journal(kind: str, tmp_path: Path) -> None:
    """Cut after any entry, or in the middle of the next one, the journal leads to the same results."""
    marks = tmp_path / "marks"
    graph = GRAPHS[kind](marks, 0.0)
    first = local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="threads", workers=2))
    expected = results(tmp_path / "run")
    for entries in range(0, length(tmp_path / "run"), 3):
        copy = tmp_path / f"{entries}" / "run"
        shutil.copytree(tmp_path / "run", copy)
        cut(copy, entries, torn=b"\1\0\0" if entries % 2 else b"")
        result = resume(copy, RunOptions(runner="threads", workers=2))

        assert (result.status, result.states) == (first.status, first.states)
        assert {(failure.drop, failure.count) for failure in result.failures} == {
            (failure.drop, failure.count) for failure in first.failures
        }
        assert results(copy) == expected


@pytest.mark.slow
def test_committed_drops_do_not_run_again(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """Only what had not ended runs; the notes say how many drops were kept."""
    _, directory, marks = ended
    cut(directory, 3)
    result, ran = again(directory, marks)

    assert result.status is SessionState.FINISHED
    assert ran == ["STEP3", "STEP4"]
    assert result.notes == (
        "continued: 4 drops kept, 1 attempt that had not ended, or waited for a worker, begun again",
    )
    assert (directory / "results" / "chain_data4_0.txt").read_text() == "0\n1\n2\n3\n4\n"


@pytest.mark.slow
def test_a_continued_run_can_be_continued(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """The journal of a continued run is as good as that of the first process."""
    _, directory, marks = ended
    cut(directory, 2)
    again(directory, marks)
    cut(directory, 2)
    result, ran = again(directory, marks)

    assert ran == ["STEP3", "STEP4"]
    assert result.status is SessionState.FINISHED
    assert "4 drops kept" in result.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["removed", "shorter", "other bytes"])
def test_contents_that_were_changed_are_made_again(ended: tuple[PhysicalGraph, Path, Path], change: str) -> None:
    """A content that is gone, or has another size or checksum, is lost; the notes and `explain` name it."""
    graph, directory, marks = ended
    cut(directory, 4)
    content = directory / "files" / "data3.txt"
    if change == "removed":
        content.unlink()
    else:
        content.write_text("0\n" if change == "shorter" else "0\n1\n2\n4\n")
    result, ran = again(directory, marks)
    known = replay(graph, directory / "journal.dfj").known

    assert ran == ["STEP3", "STEP4"]
    assert result.status is SessionState.FINISHED
    assert result.notes[1] == "contents that were lost and are needed: data3"
    assert known is not None
    lost = "it was completed when the process of the run ended, and ran again: its content was lost, and "
    assert [*explain_repeat(graph, known, row(graph, "data3"))] == [f"{lost}chain_STEP4_0 needs it"]
    assert [*explain_repeat(graph, known, row(graph, "STEP3"))] == [
        "it was completed when the process of the run ended, and ran again: the content of chain_data3_0 was lost"
    ]
    assert [*explain_repeat(graph, known, row(graph, "STEP4"))] == [
        "attempt 1 does not count as a try: the process of the run ended"
    ]
    assert [*explain_repeat(graph, known, row(graph, "STEP1"))] == [
        "it was COMPLETED already when the process of the run ended, and is kept"
    ]


@pytest.mark.slow
def test_a_content_that_was_lost_before_is_not_taken_for_an_empty_one(
    ended: tuple[PhysicalGraph, Path, Path],
) -> None:
    """A content that was lost and not needed at one continuation may be needed at the next one."""
    _, directory, marks = ended
    cut(directory, 4)
    (directory / "files" / "data1.txt").unlink()
    assert again(directory, marks)[1] == ["STEP4"]
    cut(directory, 1)
    for number in (2, 3):
        (directory / "files" / f"data{number}.txt").unlink()
    result, ran = again(directory, marks)

    assert ran == ["STEP1", "STEP2", "STEP3", "STEP4"]
    assert result.status is SessionState.FINISHED


@pytest.mark.slow
@pytest.mark.parametrize("is_continued", [False, True])
def test_a_run_that_has_ended_is_not_changed(ended: tuple[PhysicalGraph, Path, Path], *, is_continued: bool) -> None:
    """The answer is how it ended. If its process was killed after that, the summary is written, and ``tmp`` removed.

    The summary of an earlier process, from before a retry, is replaced.
    """
    _, directory, marks = ended
    (directory / "summary.json").unlink()
    if is_continued:
        (directory / "summary.json").write_text('{"status": "FAILED"}')
        os.utime(directory / "summary.json", (0, 0))
    (directory / "tmp").mkdir(mode=0o700)
    (directory / "tmp" / "4-1-0").touch()
    journal = (directory / "journal.dfj").read_bytes()
    result, ran = again(directory, marks)

    assert ran == []
    assert result.status is SessionState.FINISHED
    assert result.notes == ("the run had ended already: nothing was done",)
    assert (directory / "journal.dfj").read_bytes() == journal
    assert msgspec.json.decode((directory / "summary.json").read_bytes())["status"] == "FINISHED"
    assert not (directory / "tmp").exists()


@pytest.mark.slow
@pytest.mark.parametrize("was_killed", [False, True])
def test_a_cancelled_run_goes_on(ended: tuple[PhysicalGraph, Path, Path], tmp_path: Path, *, was_killed: bool) -> None:
    """Drops that were cancelled run, also if the process was killed while it waited for attempts to stop."""
    graph, directory, marks = ended
    cut(directory, 2)
    journal = directory / "journal.dfj"
    other = Journal(tmp_path / "cancel", read(journal)[0])
    other.append([Cancel("SIGTERM")])
    if not was_killed:
        other.append([Stopped((row(graph, "STEP2"),))])
    other.close()
    cancel = (tmp_path / "cancel").read_bytes()
    header = 4 + 12 + int.from_bytes(cancel[4:8], "little")
    with journal.open("ab") as file:
        file.write(cancel[header:])
    assert replay(graph, journal).core.status is (SessionState.CANCELLING if was_killed else SessionState.CANCELLED)
    result, ran = again(directory, marks)

    assert ran == ["STEP2", "STEP3", "STEP4"]
    assert result.status is SessionState.FINISHED
    known = replay(graph, journal).known
    assert known is not None
    assert known.attempts == {row(graph, "STEP2"): 2}
    assert known.reason == "the run was cancelled"


@pytest.mark.slow
def test_a_run_that_has_not_begun_starts_from_its_beginning(tmp_path: Path) -> None:
    """A process may be killed before it has written the header of the journal."""
    graph = chain(tmp_path / "marks", 2)
    (tmp_path / "marks").touch()
    for number, begun in enumerate((None, b"", b"DFJ", b"DFJ2\1\0")):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        save(graph, directory / "graph.dfg")
        if begun is not None:
            (directory / "journal.dfj").write_bytes(begun)
        result, ran = again(directory, tmp_path / "marks")

        assert ran == ["STEP1", "STEP2"]
        assert result.status is SessionState.FINISHED


def test_a_directory_without_a_session_is_refused(tmp_path: Path) -> None:
    """The error says which directory to give."""
    with pytest.raises(NotFoundError, match="no run in this directory") as caught:
        resume(tmp_path)
    with pytest.raises(NotFoundError, match="no such directory"):
        resume(tmp_path / "nowhere")

    assert "--keep" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_processes_do_not_work_in_one_directory(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """The second one is refused, with the process that is at work; after its end the directory is free."""
    graph, directory, marks = ended
    cut(directory, 3)
    calls = (
        lambda: resume(directory, CHECKED),
        lambda: local_run.run(graph, directory, RunOptions(runner="inline")),
        lambda: local_run.prepare_directory(directory),
    )
    with SessionLock(directory):
        for call in calls:
            with pytest.raises(ConflictError, match=r"another process is at work in it: process \d+ on "):
                call()
    (directory / "lock").write_text("process 1 on a host that lost its power")

    assert again(directory, marks)[0].status is SessionState.FINISHED


def test_a_look_at_a_directory_refuses_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check whether a process works there takes the lock for a moment; a process that begins then is not refused."""
    flock = fcntl.flock
    with (tmp_path / "lock").open("wb") as looking:
        flock(looking, fcntl.LOCK_SH)

        def locked(descriptor: int, operation: int) -> None:
            try:
                flock(descriptor, operation)
            finally:
                flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr(fcntl, "flock", locked)
        with SessionLock(tmp_path):
            assert SessionLock.is_held(tmp_path)


def test_file_systems_without_locks_are_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no locks of files, a run works without one."""

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    result = local_run.run(chain(tmp_path / "marks", 1), tmp_path / "run", RunOptions(runner="inline"))

    assert result.status is SessionState.FINISHED


@pytest.mark.slow
def test_the_graph_of_another_run_is_refused(ended: tuple[PhysicalGraph, Path, Path], tmp_path: Path) -> None:
    """A journal only continues with the graph that it is about."""
    _, directory, _ = ended
    cut(directory, 3)
    save(chain(tmp_path / "others", 4), directory / "graph.dfg")
    with pytest.raises(BadFileError, match="not that of the journal"):
        resume(directory)


@pytest.mark.slow
def test_a_damaged_journal_is_refused_unless_the_rest_is_given_up(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """The error names the option that continues from what is before the damage."""
    _, directory, marks = ended
    whole = bytearray((directory / "journal.dfj").read_bytes())
    cut(directory, 2)
    whole[(directory / "journal.dfj").stat().st_size + 2] ^= 255
    (directory / "journal.dfj").write_bytes(whole)
    with pytest.raises(BadFileError, match="damaged before its end") as caught:
        resume(directory)
    result, ran = again(directory, marks, ignore_damage=True)

    assert "--ignore-damage" in caught.value.hint
    assert ran == ["STEP2", "STEP3", "STEP4"]
    assert result.status is SessionState.FINISHED


@pytest.mark.slow
@pytest.mark.parametrize("ignore_damage", [False, True])
def test_a_journal_of_a_newer_format_is_refused_and_kept(
    ended: tuple[PhysicalGraph, Path, Path],
    ignore_damage: bool,  # noqa: FBT001
) -> None:
    """The error has both versions, and the version that wrote the run continues it as if it had not been asked."""
    _, directory, marks = ended
    cut(directory, 2)
    journal = directory / "journal.dfj"
    written = journal.read_bytes()
    journal.write_bytes(written.replace(b"DFJ2", b"DFJ9", 1))
    with pytest.raises(BadFileError, match="version 9 of the format; this dropflow reads version 2"):
        resume(directory, ignore_damage=ignore_damage)
    journal.write_bytes(written)
    result, ran = again(directory, marks)

    assert ran == ["STEP2", "STEP3", "STEP4"]
    assert result.status is SessionState.FINISHED


@pytest.mark.slow
def test_a_file_that_every_iteration_replaces_is_made_again_from_the_first(tmp_path: Path) -> None:
    """If the file of a loop was changed, no iteration has its content: all of them run again."""
    marks = tmp_path / "marks"
    graph = GRAPHS["loop"](marks, 0.0)
    directory = tmp_path / "run"
    local_run.run(graph, local_run.prepare_directory(directory), RunOptions(runner="inline"))
    expected = results(directory)
    cut(directory, length(directory) - 1)
    (directory / "files" / "log.txt").write_text("changed by another program")
    result, ran = again(directory, marks)

    assert result.status is SessionState.FINISHED
    assert ran == ["START", *(f"STEP{at}" for at in range(1, 11))]
    assert results(directory) == expected


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["threads", *nightly("inline")])
@settings(max_examples=settings.default.max_examples // 6, deadline=None, derandomize=True)
@given(at=st.integers(0, 100), persisted=st.booleans(), lost=st.sets(st.integers(1, 6), max_size=3))
def test_contents_that_later_iterations_replaced_are_made_again(
    tmp_path_factory: pytest.TempPathFactory, runner: str, at: int, lost: set[int], *, persisted: bool
) -> None:
    """An early iteration that has to run again reads what it read, and the file stays that of the last iteration.

    Without a loss of what the iterations wrote beside the file, none of them runs again.
    """
    tmp_path = tmp_path_factory.mktemp("loop")
    marks = tmp_path / "marks"
    graph = replacing(marks, 0.0)
    templates = (
        msgspec.structs.replace(template, persist=True)
        if template.name.startswith("sum") or (persisted and template.name.startswith("log"))
        else template
        for template in graph.templates
    )
    graph = replace(graph, templates=tuple(templates))
    directory = tmp_path / "run"
    local_run.run(graph, local_run.prepare_directory(directory), RunOptions(runner="inline"))
    expected = results(directory)
    cut(directory, at * (length(directory) - 1) // 100)
    for number in lost:
        for path in (directory / "results").glob(f"replacing_sum{number}_*"):
            path.unlink()
    before = len(marks.read_text().split())
    result = resume(directory, RunOptions(runner=runner, workers=2, check=True))
    ran = marks.read_text().split()[before:]

    assert result.status is SessionState.FINISHED
    found = results(directory)
    assert {path: found[path] for path in expected} == expected
    assert max(Counter(ran).values(), default=1) == 1
    if at == 100 and not lost:
        assert not set(ran) - {"END"}


@pytest.mark.slow
def test_errors_are_kept_with_their_texts(tmp_path: Path) -> None:
    """Causes from before are reported at the end, with the text of the failure."""
    marks = tmp_path / "marks"
    graph = GRAPHS["thresholds"](marks, 0.0)
    directory = tmp_path / "run"
    first = local_run.run(graph, local_run.prepare_directory(directory), RunOptions(runner="inline"))
    cut(directory, length(directory) - 2)
    result, _ = again(directory, marks)

    assert result.status is SessionState.FAILED
    assert {(failure.drop, failure.text, failure.count, failure.attempts) for failure in result.failures} == {
        (failure.drop, failure.text, failure.count, failure.attempts) for failure in first.failures
    }
    core = replay(graph, directory / "journal.dfj").core
    assert core.drops.state(row(graph, "STRICT")) is DropState.ERROR


def test_a_component_that_is_gone_is_reported_before_anything_runs(ended: tuple[PhysicalGraph, Path, Path]) -> None:
    """The session is unchanged if it cannot continue on this machine."""
    _, directory, _ = ended
    cut(directory, 3)
    journal = (directory / "journal.dfj").read_bytes()
    with pytest.raises(DropflowError, match="no runner"):
        resume(directory, RunOptions(runner="none"))

    assert (directory / "journal.dfj").read_bytes() == journal


def test_an_output_that_is_settled_is_not_written_again(tmp_path: Path) -> None:
    """An application that runs again for one output leaves the content of the other one as it is."""
    drawing = GraphBuilder("two")
    command = Argument(name="command", value="echo 1 > %o0; echo 2 > %o1")
    drawing.app("BOTH", component="dlg.apps.bash_shell_app.BashShellApp", arguments=(command,))
    for name in ("first", "second"):
        path = Argument(name="filepath", value=f"{name}.txt")
        drawing.data(name, component="dlg.data.drops.file.FileDROP", arguments=(path,)).connect("BOTH", name)
    drawing.app("USE", component="dlg.apps.simple.CopyApp").data("copy")
    graph = drawing.connect("first", "USE").connect("USE", "copy").build()
    directory = tmp_path / "run"
    local_run.run(graph, local_run.prepare_directory(directory), RunOptions(runner="inline"))
    cut(directory, 2)
    second = directory / "files" / "second.txt"
    before = second.stat()
    (directory / "files" / "first.txt").unlink()
    result = resume(directory, CHECKED)

    assert result.status is SessionState.FINISHED
    assert replay(graph, directory / "journal.dfj").core.drops.attempt(row(graph, "BOTH")) == 2
    assert (second.stat().st_ino, second.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert second.read_text() == "2\n"


@pytest.mark.slow
def test_a_run_whose_engine_ended_goes_on(tmp_path: Path) -> None:
    """When the scheduler of Dask has died, the run fails and its hint names 'resume': that runs what had no workers."""
    marks = tmp_path / "marks"
    directory = local_run.prepare_directory(tmp_path / "run")
    failed = local_run.run(chain(marks, 4), directory, RunOptions(runner="tests.sessions.test_resume:ended_engine"))
    assert failed.status is SessionState.FAILED
    assert "dask cannot be used any more" in failed.failures[0].text

    result, ran = again(directory, marks)

    assert result.status is SessionState.FINISHED
    assert len(ran) == 2
    assert len(marks.read_text().split()) == 4
    assert again(directory, marks)[1] == []


# What is forced to the disk, and when one journal replaces another.


HEADER = JournalHeader("s", "", 0.0)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are forced to the disk, in order."""
    paths: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def force(file: int, real: object = real) -> None:
            paths.append(str(Path(f"/proc/self/fd/{file}").readlink()))
            real(file)  # type: ignore[operator]

        monkeypatch.setattr(os, name, force)
    return paths


def one_file_and_a_result() -> PhysicalGraph:
    """A file, and a result in memory."""
    drawing = GraphBuilder("two")
    path = Argument(name="filepath", value="out.txt")
    drawing.app("A", component="dlg.apps.simple.HelloWorldApp")
    drawing.data("file", component="dlg.data.drops.file.FileDROP", arguments=(path,)).data("result")
    return drawing.connect("A", "file").connect("A", "result").build()


def test_a_durable_run_forces_contents_before_their_record(forced: list[str], tmp_path: Path) -> None:
    """The file and its name are on the disk before the entry of the journal that has it; so is a result in memory."""
    result = local_run.run(one_file_and_a_result(), tmp_path / "run", RunOptions(runner="inline", durable=True))
    after_start = forced[forced.index(f"{tmp_path}/run/journal.dfj") + 1 :]
    last = len(after_start) - 1 - after_start[::-1].index(f"{tmp_path}/run/journal.dfj")

    assert result.status is SessionState.FINISHED
    assert {f"{tmp_path}/run/files", f"{tmp_path}/run/results"} <= set(after_start[:last])
    assert sum(path.startswith(f"{tmp_path}/run/tmp/") for path in after_start[:last]) == 2


def test_a_durable_journal_is_forced_after_each_entry_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written last is on the disk when `append` returns: it is forced there after the write, not before."""
    path = tmp_path / "journal.dfj"
    forced: list[int] = []
    force = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (forced.append(os.fstat(file).st_size), force(file)))
    journal = Journal(path, HEADER, durable=True)
    for _ in range(3):
        journal.append([Begin()])
        assert forced[-1:] == [path.stat().st_size]
    journal.close()


def test_the_name_of_a_durable_journal_is_forced_to_the_disk(forced: list[str], tmp_path: Path) -> None:
    """Without it, the whole journal would be lost with the power."""
    journal = Journal(tmp_path / "journal.dfj", HEADER, durable=True)
    journal.close()

    assert str(tmp_path) in forced


def test_other_runs_wait_for_no_disk(forced: list[str], tmp_path: Path) -> None:
    """By default only the graph is forced to the disk, once."""
    local_run.run(one_file_and_a_result(), tmp_path / "run", RunOptions(runner="inline"))

    assert len(forced) == 1
    assert "graph.dfg" in forced[0]


def test_a_journal_replaces_another_one_with_its_first_entry(tmp_path: Path) -> None:
    """Until then the old one is there as it was; after that the new one is written on."""
    path = tmp_path / "journal.dfj"
    path.write_bytes(b"old")
    journal = Journal(path, HEADER, replaces=True)
    assert path.read_bytes() == b"old"
    journal.append([Begin()])
    assert len(list(read(path)[1])) == 1
    journal.append([Begin()])
    journal.close()

    assert len(list(read(path)[1])) == 2
    assert [found.name for found in tmp_path.iterdir()] == ["journal.dfj"]


def test_the_old_journal_stays_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one replaces it as soon as there is room for its first entry."""
    path = tmp_path / "journal.dfj"
    path.write_bytes(b"old")
    journal = Journal(path, HEADER, replaces=True)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match="No space left"):
            journal.append([Begin()])
    assert path.read_bytes() == b"old"
    journal.close()

    assert len(list(read(path)[1])) == 1
