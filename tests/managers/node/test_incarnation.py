"""The count of the starts of a node in its directory."""

import contextlib
import shutil
from pathlib import Path
from typing import BinaryIO

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dropflow.errors import StorageError
from dropflow.testing.fake_manager import VirtualClock
from managers.node import resources
from managers.node.resources import next_incarnation
from tests.filling import fill


@settings(max_examples=30)
@given(st.lists(st.floats(0.0, 4e9), min_size=2, max_size=6))
def test_each_start_has_a_greater_number(tmp_path_factory: pytest.TempPathFactory, times: list[float]) -> None:
    """Also when the clock jumps between the starts."""
    root = tmp_path_factory.mktemp("node")
    found = [next_incarnation(root, VirtualClock(time)) for time in times]

    assert found == sorted(set(found))
    assert 0 < found[-1] < 2**53


def test_a_new_directory_exceeds_one_that_was_lost(tmp_path: Path) -> None:
    """Its first number is the time in seconds, which exceeds any number of starts."""
    clock = VirtualClock()
    old, new = tmp_path / "old", tmp_path / "new"
    for root in (old, new):
        root.mkdir()
    before = [next_incarnation(old, clock) for _ in range(9)]
    clock.advance(10.0)

    assert next_incarnation(new, clock) > before[-1]


def test_copies_of_a_directory_have_different_numbers(tmp_path: Path) -> None:
    """Two hosts that were made from one image are two processes for their peers."""
    next_incarnation(_directory(tmp_path / "a"), VirtualClock())
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    a, b = (next_incarnation(tmp_path / name, VirtualClock()) for name in ("a", "b"))

    assert a != b
    assert a >> 20 == b >> 20


@pytest.mark.parametrize("damage", ["", "x", "-1", "9" * 40, "\0" * 8, "\0" * 1024, f"{'1700000000':1023}\n"])
def test_a_damaged_number_is_replaced(damage: str, tmp_path: Path) -> None:
    """The node starts with the time in seconds as its number."""
    (tmp_path / "incarnation").write_text(damage)

    first = next_incarnation(tmp_path, VirtualClock())
    assert first >> 20 == 1_800_000_000
    assert next_incarnation(tmp_path, VirtualClock(1.0)) > first


@pytest.mark.parametrize("position", [0, 9, 11, 300, 511, 512, 521, 523, 1023])
def test_one_damaged_byte_does_not_lower_the_number(position: int, tmp_path: Path) -> None:
    """The file has the number twice, with checksums: damage to one copy does not change the count."""
    before = [next_incarnation(tmp_path, VirtualClock()) for _ in range(3)]
    path = tmp_path / "incarnation"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)

    after = next_incarnation(tmp_path, VirtualClock(1.0))
    assert after >> 20 == (before[-1] >> 20) + 1
    assert next_incarnation(tmp_path, VirtualClock(1.0)) >> 20 == (after >> 20) + 1


@pytest.mark.parametrize("written", [0, 1, 2])
@pytest.mark.parametrize("is_torn", [True, False])
def test_a_crash_while_the_number_is_written_keeps_the_last_start(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_torn: bool
) -> None:
    """After a crash at any write, the next start has a greater number than all before."""
    before = [next_incarnation(tmp_path, VirtualClock()) for _ in range(3)]
    path = tmp_path / "incarnation"
    # A damaged slot before: the crash must not damage the other one while this one is not whole again.
    content = path.read_bytes()
    path.write_bytes(b"x" * 512 + content[512:])
    left = [written]
    write = resources._write

    def crash(stream: BinaryIO, index: int, counter: int) -> None:
        if left[0] == 0:
            if is_torn:
                stream.seek(index * 512)
                stream.write(b"torn")
                stream.flush()
            raise KeyboardInterrupt
        left[0] -= 1
        write(stream, index, counter)

    monkeypatch.setattr(resources, "_write", crash)
    with contextlib.suppress(KeyboardInterrupt):
        next_incarnation(tmp_path, VirtualClock())
    monkeypatch.undo()

    assert next_incarnation(tmp_path, VirtualClock(1.0)) > before[-1]


def test_a_number_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A node that could not count its next start does not start; the error names the file and what to do."""
    (tmp_path / "incarnation").mkdir()

    with pytest.raises(StorageError, match=r"cannot keep the number .*/incarnation: Is a directory") as refused:
        next_incarnation(tmp_path, VirtualClock())
    assert "choose another name" in refused.value.hint


def test_a_node_starts_again_on_a_full_disk(small_disk: Path) -> None:
    """The number needs no further room on the disk; a first start is refused with a hint."""
    known, new = _directory(small_disk / "known"), _directory(small_disk / "new")
    first = next_incarnation(known, VirtualClock())
    fill(small_disk / "filler")

    assert next_incarnation(known, VirtualClock()) > first
    with pytest.raises(StorageError, match="No space left on device") as refused:
        next_incarnation(new, VirtualClock())
    assert "make room" in refused.value.hint


def _directory(path: Path) -> Path:
    path.mkdir()
    return path
