"""What drops print, log and raise is written to their own logs, up to a limit."""

# ruff: noqa: T201 - what is printed is what is tested

import io
import logging
import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.execution.drop_log import DropLog
from dropflow.formatting import format_stamp
from dropflow.runners.log_router import LogRouter


@pytest.fixture
def router() -> LogRouter:
    """A router that is not installed."""
    return LogRouter()


def _log(folder: Path, name: str = "a", limit: int = 100_000) -> DropLog:
    return DropLog(str(folder), name, limit)


def _read(folder: Path, name: str = "a") -> str:
    return (folder / f"{name}.log").read_text()


def test_a_drop_without_output_has_no_log(tmp_path: Path) -> None:
    """The log file is created with the first output."""
    _log(tmp_path).close()

    assert list(tmp_path.iterdir()) == []


def test_prints_and_log_records_are_in_the_log(tmp_path: Path, router: LogRouter) -> None:
    """print, sys.stderr, bytes written to the buffer and logging records are in the log, in order."""
    log = _log(tmp_path)
    router.install()
    try:
        with router.to(log):
            print("out", 1)
            print("err", file=sys.stderr)
            logging.getLogger("some.library").warning("read %d files", 3)
            sys.stdout.buffer.write(b"bytes\n")
            sys.stdout.write("no end of line")
    finally:
        router.remove()
        log.close()
    lines = _read(tmp_path).splitlines()

    assert [lines[0], lines[1], lines[3], lines[4]] == ["out 1", "err", "bytes", "no end of line"]
    assert lines[2].endswith("WARNING some.library: read 3 files")


def test_a_log_record_that_cannot_be_formatted_does_not_fail_the_attempt(
    tmp_path: Path, router: LogRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As outside of dropflow, the error is told where the output goes, and the code that logs goes on."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest raise
    monkeypatch.setattr(logging, "raiseExceptions", True)  # as outside of servers
    log = _log(tmp_path)
    router.install()
    try:
        with router.to(log):
            logging.getLogger("some.library").warning("read %d files", "three")
            print("goes on")
    finally:
        router.remove()
        log.close()

    assert "--- Logging error ---" in _read(tmp_path)
    assert _read(tmp_path).endswith("goes on\n")


def test_threads_write_to_the_logs_of_their_own_attempts(tmp_path: Path, router: LogRouter) -> None:
    """Each thread prints into the log of its own attempt, however they interleave."""
    barrier = threading.Barrier(4)

    def work(name: str) -> None:
        log = _log(tmp_path, name)
        with router.to(log):
            for number in range(50):
                barrier.wait()
                print(name, number)
        log.close()

    router.install()
    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    router.remove()

    for name in "abcd":
        assert _read(tmp_path, name).splitlines() == [f"{name} {number}" for number in range(50)]


def test_output_outside_of_attempts_is_unchanged(router: LogRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output outside of attempts goes to the original streams, which are restored at the end."""
    before = io.StringIO()
    monkeypatch.setattr(sys, "stdout", before)
    router.install()
    print("outside")
    assert not sys.stdout.isatty()
    router.remove()

    assert before.getvalue() == "outside\n"
    assert sys.stdout is before


def test_the_last_executor_restores_the_standard_streams(router: LogRouter) -> None:
    """Two executors in one process share the replaced streams; the last one to close restores the originals."""
    before = sys.stdout
    router.install()
    router.install()
    router.remove()
    assert sys.stdout is not before
    router.remove()

    assert sys.stdout is before


def test_a_later_executor_replaces_streams_that_were_replaced_meanwhile(
    tmp_path: Path, router: LogRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output is in the log, although a notebook has replaced the streams since another executor was made."""
    router.install()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    router.install()
    log = DropLog(str(tmp_path), "drop", 1000)
    with router.to(log):
        print("told")
    log.close()
    router.remove()
    router.remove()

    assert "told" in (tmp_path / "drop.log").read_text()


def test_a_later_executor_gets_records_although_handlers_were_removed(tmp_path: Path, router: LogRouter) -> None:
    """An application that configures logging with ``force=True`` does not take the records of later sessions."""
    log, top = _log(tmp_path), logging.getLogger()
    before = [*top.handlers]
    router.install()
    try:
        for handler in {*top.handlers} - {*before}:
            top.removeHandler(handler)
        router.install()
        with router.to(log):
            logging.getLogger("some.library").warning("still here")
        router.remove()
    finally:
        router.remove()
        log.close()

    assert "still here" in _read(tmp_path)
    assert top.handlers == before


def test_configured_logging_is_not_changed(tmp_path: Path, router: LogRouter) -> None:
    """The level of logging is changed only if logging is not configured, and is restored."""
    top = logging.getLogger()
    level, handlers = top.level, list(top.handlers)
    router.install()
    router.remove()

    assert (top.level, top.handlers) == (level, handlers)
    assert not list(tmp_path.iterdir())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 900), max_size=60), st.integers(1024, 4096))
def test_logs_are_bounded(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int) -> None:
    """The file never exceeds its limit by more than a line about what is missing; beginning and end are kept whole."""
    folder = tmp_path_factory.mktemp("logs")
    log = _log(folder, limit=limit)
    whole = b""
    for number, size in enumerate(sizes):
        block = (str(number % 10) * size).encode()
        whole += block
        log.write_bytes(block)
        assert not whole or os.path.getsize(folder / "a.log") <= limit + 64  # noqa: PTH202 - brevity
    log.close()
    if not whole:
        return
    found = (folder / "a.log").read_bytes()
    if len(whole) <= limit:
        assert found == whole
    else:
        head, _, rest = found.partition(b"\n[... ")
        number, _, tail = rest.partition(b" bytes left out ...]\n")
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head) + int(number) + len(tail) == len(whole)


def test_a_log_that_cannot_be_written_does_not_fail_the_attempt(tmp_path: Path) -> None:
    """A missing directory or a full disk is ignored."""
    log = _log(tmp_path / "missing")
    log.write("x\n")
    log.line("INFO", "x", 0.0)

    assert log.tail(10) == ""
    log.close()


def test_the_tail_includes_unflushed_output(tmp_path: Path) -> None:
    """The tail has the latest output, even if it is not in the file yet."""
    log = _log(tmp_path)
    log.write("first\nsecond")

    assert log.tail(6) == "second"
    log.close()


def test_times_are_utc_with_milliseconds() -> None:
    """Times in the log are UTC with milliseconds."""
    assert format_stamp(0.25) == "1970-01-01T00:00:00.250"


def test_a_later_attempt_that_writes_nothing_makes_no_log(tmp_path: Path) -> None:
    """The number of the attempt is in the log if there is one, before what the attempt writes."""
    silent, speaking = _log(tmp_path, "silent"), _log(tmp_path, "speaking")
    for log in (silent, speaking):
        log.begin_attempt(2, 0.0)
    speaking.write("text\n")
    for log in (silent, speaking):
        log.close()
    again = _log(tmp_path, "speaking")
    again.begin_attempt(3, 0.0)
    again.close()

    assert [path.name for path in tmp_path.glob("*.log")] == ["speaking.log"]
    lines = (tmp_path / "speaking.log").read_text().splitlines()
    assert [line.removeprefix("1970-01-01T00:00:00.000 ") for line in lines] == [
        "INFO attempt 2",
        "text",
        "INFO attempt 3",
    ]
