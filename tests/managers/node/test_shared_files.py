"""Files of other nodes are believed to be there only if they are as they were committed."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dropflow.engine.api import Handle
from managers.node.contents import SharedFile, stamp_of, still_there


def _file(path: Path) -> SharedFile:
    path.write_bytes(b"content")
    return SharedFile(Handle(kind="file", location=str(path), size=7), stamp_of(str(path)))


def _directory(path: Path) -> SharedFile:
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "x").write_bytes(b"content")
    return SharedFile(Handle(kind="directory", location=str(path), size=7), stamp_of(str(path)))


@pytest.mark.parametrize("make", [_file, _directory])
def test_what_is_as_it_was_is_there(make: Callable[[Path], SharedFile], tmp_path: Path) -> None:
    """A file, and a directory with the size of its files."""
    assert still_there({5: make(tmp_path / "a"), 3: make(tmp_path / "b")}) == [5, 3]


def _shrink(path: Path) -> None:
    (path / "sub" / "x").write_bytes(b"")


def _replace(path: Path) -> None:
    before = path.stat()
    path.rename(path.with_name("before"))
    path.write_bytes(b"content")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (_file, Path.unlink),
        (_file, lambda path: path.write_bytes(b"c0ntent")),
        (_file, _replace),
        (_directory, _shrink),
        (_directory, lambda path: path.rename(path.with_name("moved"))),
    ],
    ids=["removed", "written again", "another file", "smaller directory", "moved directory"],
)
def test_what_is_another_one_is_not_there(
    make: Callable[[Path], SharedFile], change: Callable[[Path], object], tmp_path: Path
) -> None:
    """Also if path, size and time are the same, but not the inode."""
    kept = _file(tmp_path / "kept")
    file = make(tmp_path / "file")
    os.utime(tmp_path / "file", ns=(0, 1_000_000_000))
    file = SharedFile(file.handle, stamp_of(str(tmp_path / "file")))
    change(tmp_path / "file")

    assert still_there({1: file, 2: kept}) == [2]


def test_a_content_that_was_never_seen_is_not_there(tmp_path: Path) -> None:
    """A file without a stamp could not be read by its owner."""
    assert still_there({1: SharedFile(_file(tmp_path / "x").handle, ())}) == []
    assert still_there({}) == []


def test_a_file_system_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that cannot be looked at in time count as lost."""
    gate = threading.Event()
    found = {1: _file(tmp_path / "quick"), 2: _file(tmp_path / "hangs")}
    stat = os.stat

    def slow(path: str) -> os.stat_result:
        if str(path).endswith("hangs"):
            gate.wait(60)
        return stat(path)

    monkeypatch.setattr("managers.node.contents.os.stat", slow)
    seen = still_there(found, seconds=0.2)
    gate.set()

    assert seen == [1]
