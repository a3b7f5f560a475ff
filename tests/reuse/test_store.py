"""The digests of contents, and what the store gives back."""

from pathlib import Path

import pytest

from dropflow.execution.content_location import Handle
from dropflow.reuse.store import digest_of


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
