"""Commands whose standard input and output are streams."""

import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest

from dropflow.apps.command import Command, StdinFeeder
from dropflow.data.streams import StreamPublisher, StreamReader
from dropflow.engine.api import Handle
from dropflow.errors import Interrupted, StorageError


class Growing:
    """A stream that a test writes, and a source that reads it."""

    def __init__(self, directory: Path, check: Callable[[], None] = lambda: None) -> None:
        self.path = directory / "growing"
        self._file = self.path.open("ab", buffering=0)
        self._writer = StreamPublisher(str(directory / "growing.stream"), str(self.path), check)
        self.reader = StreamReader(str(directory / "growing.stream"), check)
        self.source: BinaryIO = io.BufferedReader(self.reader)  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        """Append."""
        self._file.write(data)
        self._writer.grown(self.path.stat().st_size)

    def end(self) -> None:
        """No more comes."""
        self._writer.end(Handle(location=str(self.path), size=self.path.stat().st_size))

    def close(self) -> None:
        """Give all back."""
        self._writer.close()
        self._file.close()
        self.source.close()


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    """One that has begun."""
    found = Growing(tmp_path)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No descriptor and no thread outlives a command."""
    before = psutil.Process().num_fds(), threading.active_count()
    yield
    assert psutil.Process().num_fds() <= before[0]
    assert threading.active_count() <= before[1]


def run(text: str, directory: Path, **more: Any) -> tuple[int, bytes]:
    """Exit status of a command, and its log."""
    log: list[bytes] = []
    status = Command(text, directory, {"PATH": os.environ["PATH"]}, log.append, **more).run()
    return status, b"".join(log)


def test_output_and_errors_go_their_ways(tmp_path: Path) -> None:
    """Standard output is written to its sink, whole and in order, and standard error to the log."""
    output: list[bytes] = []
    status, log = run("seq 100000; echo wrong >&2; exit 4", tmp_path, output=output.append)

    assert (status, log) == (4, b"wrong\n")
    assert b"".join(output) == b"".join(b"%d\n" % number for number in range(1, 100001))


def test_a_source_is_passed_on_whole(tmp_path: Path) -> None:
    """A filter reads all of its source on standard input."""
    content = os.urandom(3_000_000)
    output: list[bytes] = []
    source = io.BytesIO(content)
    status, _ = run("cat", tmp_path, source=source, output=output.append)

    assert status == 0
    assert b"".join(output) == content
    assert source.closed


def test_what_comes_is_passed_on_as_it_comes(tmp_path: Path, growing: Growing) -> None:
    """A command can write output while its input is still growing."""
    heard: list[bytes] = []

    def hear(block: bytes) -> None:
        heard.append(block)
        if len(heard) < 4:
            growing.write(b"more\n")
        else:
            growing.end()

    growing.write(b"first\n")
    status, _ = run("while read line; do echo got $line; done", tmp_path, source=growing.source, output=hear)

    assert status == 0
    assert heard == [b"got first\n", *[b"got more\n"] * 3]


def test_a_command_may_have_enough(tmp_path: Path, growing: Growing) -> None:
    """Its end does not wait for that of its source, whether it has read of it or not."""
    growing.write(b"line\n" * 100_000)

    assert run("head -1", tmp_path, source=growing.source) == (0, b"line\n")
    assert growing.source.closed


def test_a_command_that_never_reads_ends(tmp_path: Path, growing: Growing) -> None:
    """A source that waits for more is stopped when the command is over."""
    assert run("echo done", tmp_path, source=growing.source) == (0, b"done\n")


def test_what_is_left_behind_does_not_hold_the_end(tmp_path: Path) -> None:
    """A process that left its group and holds a full standard input open does not block the end of the command."""
    status, log = run("setsid sleep 1000 <&0 & echo $!", tmp_path, source=io.BytesIO(bytes(1_000_000)))
    left = psutil.Process(int(log))
    left.kill()

    assert status == 0


def test_a_source_that_fails_is_the_failure(tmp_path: Path) -> None:
    """A command that got only a part of its input fails, also with status 0."""

    class Broken(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            block = super().read1(min(size or 3, 3))
            if not block:
                raise StorageError("the disk is on fire")
            return block

    with pytest.raises(StorageError, match="on fire"):
        run("cat", tmp_path, source=Broken(b"123456"))


def test_a_stop_wakes_a_waiting_reader(tmp_path: Path) -> None:
    """A command is stopped while its source waits, and if the source is stopped first."""
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise Interrupted

    growing = Growing(tmp_path, check)
    growing.write(b"x\n")
    command = Command(
        "cat; sleep 1000", tmp_path, {"PATH": os.environ["PATH"]}, lambda _: stop(), source=growing.source
    )

    def stop() -> None:
        stopped.set()
        growing.reader.wake()
        command.stop()

    with pytest.raises(Interrupted, match=r"^$"):
        command.run()
    growing.close()


def test_a_sink_that_fails_ends_the_command(tmp_path: Path, growing: Growing) -> None:
    """A command whose output cannot be stored is killed, even if it would never end by itself."""

    def refuse(_: bytes) -> None:
        raise StorageError("no space left")

    with pytest.raises(StorageError, match="no space"):
        run("yes; sleep 1000", tmp_path, source=growing.source, output=refuse)


def test_a_command_that_cannot_start_closes_its_source(tmp_path: Path, growing: Growing) -> None:
    """Nobody else would."""
    with contextlib.suppress(Exception):
        run("cat", tmp_path / "nowhere", source=growing.source)

    assert growing.source.closed


def test_a_feeder_ends_while_its_pipe_is_full(growing: Growing) -> None:
    """Nobody reads, and it stops all the same."""
    growing.write(bytes(1 << 20))
    read, write = os.pipe()
    feeder = StdinFeeder(growing.source, os.fdopen(write, "wb"))
    while len(os.read(read, 1)) == 0:
        pass
    feeder.end()
    os.close(read)

    assert feeder.error is None
    assert growing.source.closed
