"""The index of the logs of a session."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.execution import drop_log
from dropflow.execution.drop_log import INDEX_FILE, DropLog, LogIndex, index_record
from dropflow.ids import drop_file_name
from tests.virtual_clock import VirtualClock


def _parts(folder: Path) -> list[tuple[str, str]]:
    """Return the drop and the text of each part, in the order of the index."""
    index = LogIndex(str(folder))
    index.update()
    found = []
    for part in range(len(index)):
        name = index.names[index.drops[part]]
        data = (folder / f"{drop_file_name(name)}.log").read_bytes()
        end = index.ends[part] if index.ends[part] >= 0 else len(data)
        found.append((name, data[index.starts[part] : end].decode()))
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """The clock of printed text."""
    found = VirtualClock()
    monkeypatch.setattr(drop_log, "_CLOCK", found)
    return found


def test_what_a_service_appends_is_kept(tmp_path: Path) -> None:
    """A service writes to the log of its drop while its attempt does, and after that."""
    log = DropLog(str(tmp_path), "a", 10_000)
    log.write("begins\n")
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b"serves\n")
    log.write("ready\n")
    log.close()

    assert (tmp_path / "a.log").read_text() == "begins\nserves\nready\n"
    assert "".join(text for _, text in _parts(tmp_path)) == "begins\nserves\nready\n"


def test_a_dated_line_begins_a_line_after_a_service(tmp_path: Path) -> None:
    """Also if the service has not ended its line: without it, the level of the dated line would be lost."""
    log = DropLog(str(tmp_path), "a", 10_000)
    log.line("INFO", "begins", 1.0)
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b"listening on 8080")
    log.line("WARNING", "ready", 2.0)
    log.close()

    lines = (tmp_path / "a.log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["INFO begins", "on 8080", "WARNING ready"]


def test_parts_have_the_order_in_which_they_were_written(tmp_path: Path, clock: VirtualClock) -> None:
    """Text of two logs that is written by turns is in the index by turns, with its time."""
    one, other = (DropLog(str(tmp_path), name, 10_000) for name in ("a", "b/c"))
    one.write("first\n")
    clock.advance(1.0)
    other.write("second\n")
    clock.advance(1.0)
    one.write("third\n")
    one.close()
    other.close()
    index = LogIndex(str(tmp_path))
    index.update()

    assert _parts(tmp_path) == [("a", "first\n"), ("b/c", "second\n"), ("a", "third\n")]
    assert [time - index.times[0] for time in index.times] == [0.0, 1.0, 2.0]


def test_text_that_follows_soon_belongs_to_the_same_part(tmp_path: Path, clock: VirtualClock) -> None:
    """An application that prints in a loop does not make the index longer than its log."""
    log = DropLog(str(tmp_path), "a", 1_000_000)
    for number in range(1_000):
        log.write(f"{number}\n")
    clock.advance(1.0)
    log.write("later\n")
    log.close()

    assert [text.count("\n") for _, text in _parts(tmp_path)] == [1_000, 1]


def test_lines_with_a_level_are_parts_of_their_own(tmp_path: Path, clock: VirtualClock) -> None:
    """So that what is printed after a warning is not taken for a part of it; a traceback is one of its error."""
    log = DropLog(str(tmp_path), "a", 10_000)
    log.write("before")
    log.line("WARNING", "careful", clock.now())
    log.write("after\n")
    log.line("ERROR", "failed", clock.now(), detail="Traceback\n  there")
    log.close()

    assert [text.split(" ", 1)[-1] for _, text in _parts(tmp_path)] == [
        "before\n",
        "WARNING careful\n",
        "after\n",
        "ERROR failed\nTraceback\n  there\n",
    ]


def test_the_last_line_of_an_attempt_needs_no_end(tmp_path: Path, clock: VirtualClock) -> None:
    """When the log is closed, a line without an end is whole: its part has an end."""
    log = DropLog(str(tmp_path), "a", 10_000)
    log.write("100 %")
    log.close()
    index = LogIndex(str(tmp_path))
    index.update()

    assert clock.now() == pytest.approx(index.times[0])
    assert (index.starts[1], index.ends[1]) == (0, 5)


def test_a_line_that_is_finished_later_is_in_the_part_of_its_end(tmp_path: Path, clock: VirtualClock) -> None:
    """Who follows the index sees it when it is whole, although other drops have written since it was begun."""
    log = DropLog(str(tmp_path), "a", 10_000)
    log.write_bytes(b"one\ntw")
    clock.advance(1.0)
    log.write_bytes(b"o\nthree\n")
    log.close()

    assert _parts(tmp_path) == [("a", "one\n"), ("a", "two\nthree\n")]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 600)), min_size=1, max_size=40))
def test_a_log_that_is_shortened_keeps_the_index_right(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, int]]
) -> None:
    """Each part has lines that its drop wrote at that place; what was left out is empty or the mark of it."""
    folder, clock = tmp_path_factory.mktemp("logs"), VirtualClock()
    original, drop_log._CLOCK = drop_log._CLOCK, clock  # type: ignore[assignment]
    try:
        logs = {name: DropLog(str(folder), name, 1_024) for name in "ab"}
        for number, (name, size) in enumerate(written):
            clock.advance(2.0)
            logs[name].write(f"{name}{number}:" + "x" * size + "\n")
        for log in logs.values():
            log.close()
    finally:
        drop_log._CLOCK = original
    parts = _parts(folder)

    assert [name for name, _ in parts] == [name for name, _ in written]
    for number, ((name, size), (_, text)) in enumerate(zip(written, parts, strict=True)):
        line = f"{name}{number}:" + "x" * size + "\n"
        assert text == line or "left out" in text or line.endswith(text) or line.startswith(text)
    for name in {name for name, _ in written}:
        assert "".join(text for one, text in parts if one == name) == (folder / f"{name}.log").read_text()


def test_the_index_is_read_from_where_it_was_read_to(tmp_path: Path) -> None:
    """Also when its last line is torn, or when it is replaced by a shorter one; strange lines are skipped."""
    path = tmp_path / INDEX_FILE
    index = LogIndex(str(tmp_path))
    index.update()
    assert len(index) == 0
    record = index_record(1.0, 0, "a")
    path.write_bytes(record + b"strange\n[1]\n" + record[:5])
    index.update()
    assert len(index) == 1
    with path.open("ab") as stream:
        stream.write(record[5:])
    index.update()
    assert len(index) == 2
    path.write_bytes(record)
    index.update()
    assert len(index) == 1
    path.unlink()
    index.update()
    assert len(index) == 0


def test_a_log_is_written_although_the_index_cannot_be(tmp_path: Path) -> None:
    """The index is an aid, and its loss costs no log."""
    (tmp_path / INDEX_FILE).mkdir()
    log = DropLog(str(tmp_path), "a", 10_000)
    log.write("text\n")
    log.close()

    assert (tmp_path / "a.log").read_bytes() == b"text\n"
    assert os.path.isdir(tmp_path / INDEX_FILE)  # noqa: PTH112
