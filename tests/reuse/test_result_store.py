"""The digests of contents, and what the store gives back."""

import os
from pathlib import Path

import pytest

from dropflow.execution.content_location import Handle
from dropflow.reuse.result_store import ResultStore, digest_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with a file, beside a file and a directory to which links can lead."""
    made = tmp_path / "folder"
    for place in (made, tmp_path / "table"):
        place.mkdir()
        (place / "inner").write_text("1")
    (tmp_path / "outside").write_text("1")
    return made


def _digest(folder: Path) -> str | None:
    return digest_of(Handle(kind="directory", location=str(folder)))


@pytest.mark.parametrize(("link", "changed"), [("../outside", "outside"), ("../table", "table/inner")])
def test_what_is_behind_a_link_out_of_a_directory_counts(folder: Path, link: str, changed: str) -> None:
    """A program that reads the directory follows it."""
    (folder / "link").symlink_to(link)
    before = _digest(folder)
    (folder.parent / changed).write_text("2")
    assert _digest(folder) != before


@pytest.mark.parametrize("link", ["inner", "..", "/", ".", "nothing", "link", "/dev/zero", "../back"])
def test_other_links_count_by_their_names(folder: Path, link: str) -> None:
    """Those to what is in the directory, around it, or no file; and loops end."""
    (folder.parent / "back").mkdir()
    (folder.parent / "back" / "again").symlink_to("../folder")
    (folder / "link").symlink_to(link)
    before = _digest(folder)
    (folder.parent / "outside").write_text("2")
    assert _digest(folder) == before


def test_a_store_is_pruned_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """The time of the last removal is far in the future then, and does not count."""
    store = ResultStore(tmp_path)
    stamp = tmp_path / "pruned"
    stamp.touch()
    os.utime(stamp, (2**32, 2**32))
    store.prune_if_due()
    assert stamp.stat().st_mtime < 2**32


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("size", [0, 10, 10_000])
def test_an_executable_file_comes_back_as_one(folder: Path, size: int, tmp_path: Path) -> None:
    """With the mode that a new program of this user gets, alone and in a directory."""
    store = ResultStore(tmp_path / "store")
    script, text = folder / "run.sh", folder / "text"
    for path, mode in ((script, 0o755), (text, 0o644)):
        path.write_bytes(b"#" * size)
        path.chmod(mode)
    alone = [Handle(kind="file", location=str(path), size=size) for path in (script, text)]
    both = Handle(kind="directory", location=str(folder))
    for name, handle in (("alone.sh", alone[0]), ("alone", alone[1]), ("copy", both)):
        kept = store.keep(handle, linked=False)
        store.place(kept, str(tmp_path / name), linked=False)
        assert digest_of(handle) == kept.input_digest
    (tmp_path / "new").touch()
    new = _mode(tmp_path / "new")
    assert [_mode(tmp_path / name) for name in ("alone", "copy/text")] == [new, new]
    assert [_mode(tmp_path / name) for name in ("alone.sh", "copy/run.sh")] == [new | (new & 0o444) >> 2] * 2
    assert digest_of(alone[0]) != digest_of(alone[1])
