"""What is forced to the disk, and when one journal replaces another."""

import errno
import os
from pathlib import Path

import pytest

from dropflow.engine.events import Begin
from dropflow.engine.journal import Journal, JournalHeader, read
from dropflow.errors import StorageError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.states import SessionState

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
    result = local_run.run(one_file_and_a_result(), directory=tmp_path / "run", runner="inline", durable=True)
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


def test_other_runs_wait_for_no_disk(forced: list[str], tmp_path: Path) -> None:
    """By default only the graph is forced to the disk, once."""
    local_run.run(one_file_and_a_result(), directory=tmp_path / "run", runner="inline")

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
