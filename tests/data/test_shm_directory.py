"""The session's directory in shared memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dropflow.data import shm_directory as segments


def _of_a_dead_process(root: Path) -> Path:
    script = (
        "import pathlib, sys\nfrom dropflow.data import shm_directory as segments\n"
        "print(segments.claim('dead', pathlib.Path(sys.argv[1])))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def test_directories_of_ended_processes_are_removed(tmp_path: Path) -> None:
    """The directory of a session is removed if its process has ended."""
    dead, alive = _of_a_dead_process(tmp_path), segments.claim("alive", tmp_path)
    assert dead.is_dir()

    assert segments.sweep(tmp_path) == [dead]
    assert alive is not None
    assert [path.name for path in tmp_path.iterdir()] == [alive.name]


def test_a_reused_process_id_is_not_taken_for_the_owner(tmp_path: Path) -> None:
    """Processes with the same number are distinguished by start time."""
    mine = segments.claim("mine", tmp_path)
    assert mine is not None
    pieces = mine.name.split("-", 4)
    impostor = tmp_path / "-".join([*pieces[:3], str(int(pieces[3]) - 1), pieces[4]])
    impostor.mkdir()

    assert segments.sweep(tmp_path) == [impostor]


def test_each_process_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes as long for a process with many sessions as for one with a single session."""
    seen = []
    for number in range(20):
        segments.claim(f"s{number}", tmp_path)
    started = segments._started
    monkeypatch.setattr(segments, "_started", lambda pid: seen.append(pid) or started(pid))

    assert segments.sweep(tmp_path) == []
    assert seen == [os.getpid()]


def test_directories_of_other_pid_namespaces_stay(tmp_path: Path) -> None:
    """Directories of other pid namespaces and with other names are not removed."""
    for name in ("dropflow-1-1-1-other", "dropflow-nonsense", "something-else"):
        (tmp_path / name).mkdir()

    assert segments.sweep(tmp_path) == []


def test_only_the_owner_can_read_the_directory(tmp_path: Path) -> None:
    """Other users can read neither names nor contents."""
    path = segments.claim("mine", tmp_path)

    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o700


def test_each_repository_has_its_own_directory(tmp_path: Path) -> None:
    """Each session gets its own directory; without shared memory the result is None."""
    assert segments.claim("same", tmp_path) != segments.claim("same", tmp_path)
    assert segments.claim("same", tmp_path / "nowhere") is None


def test_a_mapped_content_is_readable_after_its_release(tmp_path: Path) -> None:
    """A mapped content stays readable when its file is removed."""
    from dropflow.data.read import view  # noqa: PLC0415 - only here
    from dropflow.engine.api import Handle  # noqa: PLC0415 - only here

    path = segments.claim("mine", tmp_path)
    assert path is not None
    (path / "x").write_bytes(b"hello" * 1000)
    content = view(Handle(kind="shm", location=str(path / "x")))
    segments.release(path)

    assert not os.path.exists(path)  # noqa: PTH110 - text
    assert bytes(content[:5]) == b"hello"
