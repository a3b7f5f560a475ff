"""Starts of a node are counted in its directory, whatever the clock of its host says."""

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dropflow.errors import StorageError
from dropflow.testing.clock import VirtualClock
from managers.node.incarnation import next_incarnation


@settings(max_examples=30)
@given(st.lists(st.floats(0.0, 4e9), min_size=2, max_size=6))
def test_each_start_has_a_greater_number(tmp_path_factory: pytest.TempPathFactory, times: list[float]) -> None:
    """However the clock jumps between the starts."""
    root = tmp_path_factory.mktemp("node")
    found = [next_incarnation(root, VirtualClock(time)) for time in times]

    assert found == sorted(set(found))
    assert 0 < found[-1] < 2**53


def test_a_new_directory_exceeds_one_that_was_lost(tmp_path: Path) -> None:
    """It counts from the time on, which is more than starts can be counted to."""
    clock = VirtualClock()
    old, new = tmp_path / "old", tmp_path / "new"
    for root in (old, new):
        root.mkdir()
    before = [next_incarnation(old, clock) for _ in range(9)]
    clock.advance(10.0)

    assert next_incarnation(new, clock) > before[-1]


def test_copies_of_a_directory_are_told_apart(tmp_path: Path) -> None:
    """Two hosts that were made from one image do not pass for one process."""
    found = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "incarnation").write_text("1800000000\n")
        found.add(next_incarnation(tmp_path / name, VirtualClock()))

    assert len(found) == 2


@pytest.mark.parametrize("damage", ["", "x", "-1", "9" * 40, "\0" * 8])
def test_a_damaged_number_is_replaced(damage: str, tmp_path: Path) -> None:
    """The count goes on from the time; the node starts."""
    (tmp_path / "incarnation").write_text(damage)

    first = next_incarnation(tmp_path, VirtualClock())
    assert first >> 20 == 1_800_000_000
    assert next_incarnation(tmp_path, VirtualClock(1.0)) > first


def test_a_number_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    """A node that could not count its next start does not begin; the file and what to do are named."""
    (tmp_path / "incarnation.part").mkdir()

    with pytest.raises(StorageError, match="cannot be kept") as refused:
        next_incarnation(tmp_path, VirtualClock())
    assert refused.value.where.endswith("incarnation")
    assert "--root" in refused.value.hint
