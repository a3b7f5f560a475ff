"""Contents that are read while they are written."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dropflow.clock import Clock, SystemClock
from dropflow.data import streams
from dropflow.data.file import FileWriter
from dropflow.data.streams import StreamedWriter, StreamPublisher, StreamReader
from dropflow.errors import AppError, Interrupted, StorageError
from dropflow.execution.content_location import Handle
from tests.processes import descriptors, few_files
from tests.virtual_clock import VirtualClock

SECONDS = 60

READS = """
import sys
from dropflow.data.streams import StreamReader
reader = StreamReader(sys.argv[1])
print(len(reader.read(int(sys.argv[2]))), flush=True)
sys.stdin.readline()
while block := reader.read(1 << 16):
    sys.stdout.buffer.write(block)
reader.close()
"""
"""A reader in a process of its own, which waits for a line after its first bytes."""


class Written:
    """A growing file with its stream, which the test writes step by step.

    Parameters
    ----------
    directory : Path
        Where.
    check : callable, optional
        Of the writer.
    """

    def __init__(self, directory: Path, check: Callable[[], None] = lambda: None, clock: Clock | None = None) -> None:
        self.file = directory / "part"
        self.final = directory / "final"
        self.folder = str(directory / "part.stream")
        self._stream = self.file.open("ab", buffering=0)
        self.size = 0
        self.writer = StreamPublisher(self.folder, str(self.file), check, clock)

    def write(self, data: bytes) -> None:
        """Append data."""
        self._stream.write(data)
        self.size += len(data)
        self.writer.grown(self.size)

    def end(self) -> None:
        """Mark the end of the stream."""
        self._stream.close()
        self.writer.end(Handle(kind="file", location=str(self.file), final=str(self.final), size=self.size))

    def commit(self) -> None:
        """Commit as a repository does."""
        self.file.replace(self.final)

    def close(self) -> None:
        """Close all readers and the writer."""
        self._stream.close()
        self.writer.close()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """A stream that begins."""
    found = Written(tmp_path)
    yield found
    found.close()


@pytest.fixture
def readers() -> Iterator[ThreadPoolExecutor]:
    """Threads for readers."""
    with ThreadPoolExecutor(8) as pool:
        yield pool


def all_of(folder: str, step: int = 1 << 16) -> bytes:
    """Return all data that a reader gets."""
    with StreamReader(folder) as reader:
        return b"".join(iter(lambda: reader.read(step), b""))


def test_a_reader_gets_the_whole_content_at_any_time(written: Written, readers: ThreadPoolExecutor) -> None:
    """Readers get the whole content before its end, after it, and after its commit."""
    written.write(b"one ")
    early = StreamReader(written.folder)
    assert early.read(100) == b"one "
    waiting = readers.submit(all_of, written.folder)
    written.write(b"two ")
    written.end()
    ended = all_of(written.folder)
    written.commit()

    assert early.readall() == b"two "
    early.close()
    assert waiting.result(SECONDS) == ended == all_of(written.folder) == b"one two "


def test_a_waiting_reader_is_woken_by_data_and_end(written: Written, readers: ThreadPoolExecutor) -> None:
    """A reader at the end of the written data wakes up for the next block, and for the end of the stream."""
    asked = threading.Semaphore(0)
    with StreamReader(written.folder, asked.release) as reader:
        for block in (b"first", b"second"):
            got = readers.submit(reader.read, 100)
            assert asked.acquire(timeout=SECONDS)
            written.write(block)
            assert got.result(SECONDS) == block
        got = readers.submit(reader.read, 100)
        assert asked.acquire(timeout=SECONDS)
        written.end()
        assert got.result(SECONDS) == b""
        assert reader.wait_for_end().size == written.size


@pytest.mark.slow
def test_processes_read_while_another_writes(written: Written) -> None:
    """Several processes read while this one writes."""
    command = [sys.executable, "-c", READS, written.folder, "3"]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    written.write(b"abc")
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "3\n"
    for _ in range(1000):
        written.write(b"x" * 100)
    written.end()
    written.commit()

    assert [process.communicate("go\n", timeout=SECONDS)[0] for process in processes] == ["x" * 100_000] * 3


@pytest.mark.slow
def test_a_commit_between_two_reads_is_not_an_error(tmp_path: Path, readers: ThreadPoolExecutor) -> None:
    """Readers that start during the commit find the content under the old or the new name."""
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        written = Written(tmp_path / str(number))
        written.write(b"content")
        got = [readers.submit(all_of, written.folder) for _ in range(4)]
        written.end()
        written.commit()

        assert [each.result(SECONDS) for each in got] == [b"content"] * 4
        assert all_of(written.folder) == b"content"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    chunks=st.lists(st.binary(max_size=300), max_size=12),
    plans=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 200)), min_size=1, max_size=4),
    ahead=st.integers(1, 1000),
)
def test_any_chunks_arrive_whole_and_in_order(
    chunks: Sequence[bytes],
    plans: Sequence[tuple[int, int]],
    ahead: int,
    tmp_path_factory: pytest.TempPathFactory,
    readers: ThreadPoolExecutor,
) -> None:
    """For any sizes of writes and reads, each reader gets all data in order."""
    written = Written(tmp_path_factory.mktemp("stream"))
    got: list[Future[bytes]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "AHEAD", ahead)
        for number, chunk in enumerate((*chunks, b"")):
            got += [readers.submit(all_of, written.folder, step) for start, step in plans if start == number]
            written.write(chunk)
        written.end()
        got += [readers.submit(all_of, written.folder, step) for start, step in plans if start > len(chunks)]

        assert [each.result(SECONDS) for each in got] == [b"".join(chunks)] * len(plans)


def test_a_stopped_reader_gets_the_data_so_far_and_the_end(written: Written, readers: ThreadPoolExecutor) -> None:
    """A reader that is stopped before or during a wait gets the data so far, and then the end."""
    written.write(b"there")
    asked = threading.Event()
    with StreamReader(written.folder, asked.set) as reader, StreamReader(written.folder) as other:
        got = readers.submit(reader.readall)
        assert asked.wait(SECONDS)
        reader.stop()
        other.stop()

        assert got.result(SECONDS) == other.readall() == b"there"
        with pytest.raises(EOFError, match="stream"):
            other.wait_for_end()


def test_a_reader_stops_waiting_when_its_check_raises(written: Written, readers: ThreadPoolExecutor) -> None:
    """A reader raises what its check raises, before a wait and when it is woken."""
    asked, stop = threading.Event(), threading.Event()

    def check() -> None:
        asked.set()
        if stop.is_set():
            raise Interrupted

    with StreamReader(written.folder, check) as reader:
        for read in (reader.readall, reader.wait_for_end):
            stop.clear()
            asked.clear()
            got = readers.submit(read)
            assert asked.wait(SECONDS)
            stop.set()
            reader.wake()
            with pytest.raises(Interrupted, match=r"^$"):
                got.result(SECONDS)
        with pytest.raises(Interrupted, match=r"^$"):
            reader.readall()


def test_ranges_are_read_without_waiting(written: Written) -> None:
    """`pread` returns the available part of a range, whose end is the position of the reader."""
    written.write(b"0123456789")
    with StreamReader(written.folder) as reader:
        assert reader.pread(0, 4) == b"0123"
        assert reader.pread(8, 100) == b"89"
        assert reader.pread(10, 100) == b""
        reader.clear()
        written.write(b"x")
        assert os.read(reader.wake_fd, 1)
        assert reader.pread(10, 100) == b"x"
        assert not reader.is_ended
        assert list(written.writer._places().values()) == [11]


def test_a_reader_has_no_descriptor_for_programs(written: Written) -> None:
    """A reader has no `fileno`, because a program would treat the current end of the file as the end of the data."""
    written.write(b"not all of it")
    with StreamReader(written.folder) as reader, pytest.raises(OSError, match="fileno"):
        subprocess.run(["/bin/cat"], stdin=reader, check=True, timeout=SECONDS)  # type: ignore[call-overload]


class Waits:
    """A check that records when the writer is about to wait, and what it has written then."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.cancelled = False

    def __call__(self) -> None:
        """Record the call."""
        self.asked.release()
        if self.cancelled:
            raise Interrupted

    def wait(self) -> None:
        """Wait until the writer waits."""
        assert self.asked.acquire(timeout=SECONDS)


@pytest.fixture
def clock() -> VirtualClock:
    """A clock that the test advances."""
    return VirtualClock()


@pytest.fixture
def waits() -> Waits:
    """The check of `paced`."""
    return Waits()


@pytest.fixture
def paced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: Waits, clock: VirtualClock) -> Iterator[Written]:
    """A stream whose writer is at most 1,000 bytes ahead, with a clock that does not advance."""
    monkeypatch.setattr(streams, "AHEAD", 1000)
    found = Written(tmp_path, waits, clock)
    yield found
    found.close()


def test_a_writer_waits_for_an_active_reader(paced: Written, waits: Waits, readers: ThreadPoolExecutor) -> None:
    """A writer is ahead by the limit at most, and continues when the reader advances."""
    with StreamReader(paced.folder) as reader:
        got = 0
        for _ in range(10):
            while waits.asked.acquire(blocking=False):
                pass
            writing = readers.submit(paced.write, bytes(1500))
            waits.wait()
            assert not writing.done()
            got += len(reader.read(paced.size - got - 1000))
            writing.result(SECONDS)
            assert paced.size - got == 1000


def test_closed_readers_are_not_waited_for(paced: Written, waits: Waits, readers: ThreadPoolExecutor) -> None:
    """The writer continues when a reader closes, and never waits without readers."""
    reader = StreamReader(paced.folder)
    writing = readers.submit(paced.write, bytes(5000))
    waits.wait()
    reader.close()
    writing.result(SECONDS)
    paced.write(bytes(5000))

    assert not waits.asked.acquire(blocking=False)


def test_a_writer_does_not_wait_for_inactive_readers(
    paced: Written, waits: Waits, clock: VirtualClock, readers: ThreadPoolExecutor
) -> None:
    """After the time limit, the writer does not wait for inactive readers until they advance again."""
    with StreamReader(paced.folder) as one, StreamReader(paced.folder) as two:
        writing = readers.submit(paced.write, bytes(5000))
        waits.wait()
        clock.advance(streams.PATIENCE)
        paced.writer.wake()
        writing.result(SECONDS)
        paced.write(bytes(5000))
        assert not waits.asked.acquire(blocking=False)
        one.read(10)
        writing = readers.submit(paced.write, b"x")
        waits.wait()
        assert not writing.done()
        one.read(9500)
        writing.result(SECONDS)
        assert two.read(1) == b"\0"


@pytest.mark.slow
def test_a_reader_that_was_killed_is_not_waited_for(paced: Written) -> None:
    """A FIFO without reader is detected without waiting."""
    command = [sys.executable, "-c", READS, paced.folder, "10"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        paced.write(bytes(100))
        assert process.stdout is not None
        assert process.stdout.readline() == b"10\n"
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
        paced.write(bytes(5000))

        assert paced.size == 5100


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_writer_that_waits_can_be_stopped(
    paced: Written, waits: Waits, readers: ThreadPoolExecutor, when: str
) -> None:
    """A writer raises what its check raises, before a wait and when it is woken."""
    with StreamReader(paced.folder):
        waits.cancelled = when == "before"
        writing = readers.submit(paced.write, bytes(5000))
        waits.wait()
        waits.cancelled = True
        paced.writer.wake()
        with pytest.raises(Interrupted, match=r"^$"):
            writing.result(SECONDS)


def test_closed_readers_and_writers_leave_no_descriptors(tmp_path: Path) -> None:
    """Readers and writers that are closed, once or twice, leave no descriptor and no reader's files behind."""
    before = descriptors()
    written = Written(tmp_path)
    readers = [StreamReader(written.folder) for _ in range(5)]
    for reader in (*readers, *readers):
        reader.close()
    written.end()
    written.close()
    written.close()

    assert descriptors() == before
    assert sorted(os.listdir(written.folder)) == ["content", "end"]  # noqa: PTH208 - names


def test_a_removed_stream_cannot_be_read(written: Written) -> None:
    """Opening a stream that was removed, or whose content was, is an error and leaves no file of the reader."""
    before = descriptors()
    written.file.unlink()
    with pytest.raises(StorageError, match="cannot read the stream"):
        StreamReader(written.folder)
    with pytest.raises(StorageError, match="cannot read the stream"):
        StreamReader(written.folder + "s")

    assert descriptors() == before
    assert sorted(os.listdir(written.folder)) == ["content", "writer"]  # noqa: PTH208 - names


@pytest.mark.parametrize("more", [0, 1, 2])
def test_too_many_open_files_are_reported(written: Written, more: int) -> None:
    """A reader raises an error with a hint at any step that finds no free descriptor, and leaves none open."""
    before = descriptors()
    with few_files(more), pytest.raises(StorageError, match="Too many open files") as caught:
        StreamReader(written.folder)

    assert "ulimit" in caught.value.hint
    assert descriptors() == before


def test_every_reader_is_woken_without_free_descriptors(written: Written) -> None:
    """A writer that cannot wake its readers fails, because they would wait forever."""
    with StreamReader(written.folder) as reader:
        with few_files(0), pytest.raises(StorageError, match="Too many open files"):
            written.writer.end(Handle())
        assert not reader.is_ended


def test_a_file_system_without_fifos_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no FIFO can be made, the error says so."""

    def refuse(path: str, mode: int) -> None:
        del mode
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "mkfifo", refuse)
    with pytest.raises(StorageError, match="cannot make the stream"):
        StreamPublisher(str(tmp_path / "stream"), str(tmp_path / "file"), lambda: None)


def test_a_removed_stream_can_be_written_to_its_end(written: Written) -> None:
    """The removal of a stream is not an error for its writer."""
    for path in Path(written.folder).iterdir():
        path.unlink()
    Path(written.folder).rmdir()
    written.write(b"more")
    written.end()

    assert written.file.read_bytes() == b"more"


# A part that is a stream.


@pytest.fixture
def opened() -> list[Handle]:
    """The streams that parts have opened."""
    return []


@pytest.fixture
def part(tmp_path: Path, opened: list[Handle]) -> Iterator[StreamedWriter]:
    """A part that others may read."""
    growing = FileWriter(str(tmp_path / "part"), final=str(tmp_path / "final"))
    found = StreamedWriter(growing, str(tmp_path / "part.stream"), opened.append, lambda: None, SystemClock())
    yield found
    found.abandon()


def test_a_stream_is_announced_with_its_first_byte(part: StreamedWriter, opened: list[Handle]) -> None:
    """An empty output is not announced as a stream; it is announced once, with its first bytes."""
    part.write(b"")
    assert opened == []
    part.write(b"some text")
    part.write(b" and more")
    (stream,) = opened
    handle = part.finish()

    assert (stream.kind, Path(stream.final).name) == ("stream", "final")
    assert all_of(stream.location) == b"some text and more"
    assert handle.size == 18


@pytest.mark.parametrize("first", [True, False])
def test_text_is_known_from_the_beginning(part: StreamedWriter, opened: list[Handle], *, first: bool) -> None:
    """A stream is marked as text if its beginning is; the final content only if all of it is."""
    part.write(b"a", text=first)
    part.write(b"b", text=False)

    assert opened[0].text is first
    assert not part.finish().text


def test_a_program_may_append_to_a_stream(part: StreamedWriter, opened: list[Handle]) -> None:
    """Readers get the data that a program appended at the end."""
    part.write(b"head ")
    with open(part.path(), "ab") as file:  # noqa: PTH123 - as a program does
        file.write(b"tail")
    part.finish()

    assert all_of(opened[0].location) == b"head tail"


@pytest.mark.parametrize("how", ["replaced", "shortened"])
def test_a_program_must_not_replace_streamed_data(part: StreamedWriter, opened: list[Handle], how: str) -> None:
    """Other content is refused with a hint, because readers have data of the first one; the stream gets no end."""
    part.write(b"what others have read")
    path = Path(part.path())
    if how == "replaced":
        path.with_name("other").write_bytes(b"something else, and longer than it")
        path.with_name("other").replace(path)
    else:
        path.write_bytes(b"short")
    with pytest.raises(AppError, match="21 bytes") as caught:
        part.finish()

    assert "not streaming" in caught.value.hint
    with StreamReader(opened[0].location) as reader:
        assert not reader.is_ended


def test_a_full_disk_is_reported(tmp_path: Path, opened: list[Handle], monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails is an error of the writer, and no stream is announced."""
    growing = FileWriter(str(tmp_path / "part"))
    part = StreamedWriter(growing, str(tmp_path / "part.stream"), opened.append, lambda: None, SystemClock())
    with io.FileIO("/dev/full", "ab") as full:
        monkeypatch.setattr(FileWriter, "_open", lambda _: full)
        with pytest.raises(StorageError, match="No space left"):
            part.write(b"x")
    part.abandon()

    assert opened == []
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_stream_has_no_end(part: StreamedWriter, opened: list[Handle], tmp_path: Path) -> None:
    """An open reader of an abandoned stream gets the data so far and waits; a new reader raises an error."""
    before = descriptors()
    part.write(b"begun")
    with StreamReader(opened[0].location) as reader:
        part.abandon()
        assert reader.read(100) == b"begun"
        assert not reader.is_ended
    with pytest.raises(StorageError, match="No such file"):
        StreamReader(opened[0].location)

    assert not (tmp_path / "part").exists()
    assert descriptors() == before
