"""The records of copies on the disk: which of them a later process finds, and in which view they count."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.records import ResultInfo
from dropflow.engine.api import Handle
from managers.composite.content_queries import without_needless_copies
from managers.node.contents import stamp_of
from managers.node.copies import HeldCopy
from managers.node.copy_effects import CopyRecords, Version


def _copy(directory: Path, row: int, view: int = 0, body: bytes = b"x") -> HeldCopy:
    """Make the copy of a content that is the file of a session."""
    path = directory / "copies" / f"{row}-tag-{view}.part" / "x.fits"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    handle = Handle(kind="file", location=str(path), final=f"{directory}/files/x.fits", size=len(body), checksum=1)
    return HeldCopy(handle, "a", 0)


def test_copies_are_found_by_a_later_process_although_the_directory_was_moved(tmp_path: Path) -> None:
    """Their paths are relative to the session directory; those of small contents are in the record."""
    before, after = tmp_path / "before", tmp_path / "after"
    records, large, small = CopyRecords(before), _copy(before, 3), HeldCopy(Handle(body=b"ab", size=2), "b", 0)
    records.write((7, 0), 3, large)
    records.write((7, 0), 4, small)
    before.rename(after)
    found = CopyRecords(after).read((7, 0))

    assert found == {3: _copy(after, 3), 4: small}
    assert CopyRecords(tmp_path / "none").read((7, 0)) == {}


def test_what_is_damaged_or_gone_is_no_copy(tmp_path: Path) -> None:
    """A record that is damaged, a copy with another size or that was removed, and a changed file of the owner."""
    records, shared = CopyRecords(tmp_path), tmp_path / "shared"
    shared.write_bytes(b"x")
    for row in range(4):
        records.write((1, 0), row, _copy(tmp_path, row))
    handle = Handle(kind="file", location=str(shared), size=1)
    records.write((1, 0), 4, HeldCopy(handle, "a", 0, stamp_of(str(shared))))
    records.write((1, 0), 5, HeldCopy(handle, "a", 0, (0, 0, 0)))
    (tmp_path / "copies" / "0.msgpack").write_bytes(b"?")
    Path(_copy(tmp_path, 1).handle.location).write_bytes(b"xy")
    path = Path(_copy(tmp_path, 2).handle.location)
    path.unlink()
    records.forget(str(path))
    records.forget("/elsewhere")

    assert set(records.read((1, 0))) == {3, 4}
    assert not (tmp_path / "copies" / "2.msgpack").exists()


def test_a_copy_that_became_a_content_is_found_there(tmp_path: Path) -> None:
    """So it is not lost if the continuation of its session is undone."""
    records, copy = CopyRecords(tmp_path), _copy(tmp_path, 3)
    records.write((1, 0), 3, copy)
    (tmp_path / "files").mkdir()
    final = Path(copy.handle.location).rename(copy.handle.final)
    records.moved(3, msgspec.structs.replace(copy.handle, location=str(final), final=""))
    found = records.read((1, 0))[3].handle

    assert (found.location, found.final) == (str(final), str(final))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["copy", "view", "lose", "die"])), max_size=12))
def test_only_copies_that_were_there_in_every_view_count(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    """Whatever is copied and lost between views, and although processes end between a view and its record."""
    directory = tmp_path_factory.mktemp("session")
    records, version, held = CopyRecords(directory), (1, 0), dict[int, Version]()
    for row, step in steps:
        match step:
            case "copy":
                records.write(version, row, _copy(directory, row, version[1]))
                held[row] = version
            case "lose":  # its drop runs again in the next view; the process ends before the copy is removed
                held.pop(row, None)
                version = version[0], version[1] + 1
                records.begin_view(version, held)
            case "view":
                version = version[0], version[1] + 1
                records.begin_view(version, held)
            case _:  # a view that has no record here
                version, held = (version[0] + 1, 0), {}

        assert set(CopyRecords(directory).read(version)) == set(held)


def test_of_each_drop_one_result_is_listed() -> None:
    """Its own content if its node answers, or else a copy of it."""

    def result(drop: int, node: str, owner: str = "") -> ResultInfo:
        return ResultInfo(drop=drop, oid=f"d{drop}", name="d", node=node, path="x", size=1, owner=owner)

    own = [result(2, "a"), result(1, "b")]
    copies = [result(1, "a", "b"), result(3, "b", "c"), result(3, "a", "c")]

    assert without_needless_copies([*copies, *own]) == (own[1], own[0], copies[2])
    assert without_needless_copies([]) == ()
