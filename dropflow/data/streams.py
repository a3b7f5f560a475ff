"""Contents that are read while they are written: the files of a stream, and its writing end.

A stream is a directory beside a file that grows, on the node where it is written::

    <name>.stream/content       link to the file
                  end           once it has ended: where it is, or will be, and its size
                  <n>.reader    a FIFO that wakes a reader
                  <n>.at        position of that reader: eight bytes
                  writer        a FIFO that wakes the writer

The content itself is kept whole, on disk: a reader that starts late, or starts again, finds all of it. Readers wait for
the writer, and the writer waits for its readers: it is never more than `AHEAD` bytes ahead of the slowest, which
therefore finds its data in the page cache. The writer waits only for readers that make progress. A reader that has not
moved for `PATIENCE` seconds may be waiting for data that this writer has yet to write elsewhere; it is ignored until it
moves again. So streams cannot deadlock a graph (the deadlock of bounded channels: Parks, *Bounded Scheduling of Process
Networks*, PhD thesis, Berkeley 1995, chapter 4).

Waiting threads are woken through their FIFOs; nothing polls.
"""

import contextlib
import errno
import io
import math
import os
import select
import struct
import threading
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.data.storage_errors import storage_error, storage_errors
from dropflow.data.store import GrowingWriter, Shield
from dropflow.errors import AppError
from dropflow.execution.content_location import Handle

_DRAINED_BYTES = 1 << 16
"""Bytes of wake-ups that are read at once from a FIFO."""
_NO_READER = (errno.ENXIO, errno.ENOENT, errno.ENOTDIR)
POSITION = struct.Struct("<Q")
"""Format of the file with the position of a reader."""
AHEAD = 64 << 20
"""Bytes that a writer may be ahead of its slowest reader."""
PATIENCE = 10.0
"""Seconds that a writer waits for a reader that does not move."""
_STEP_BYTES = 1 << 20
"""Bytes below the limit `AHEAD`, at which a writer looks again where its slowest reader is."""

# FIFOs that wake a waiting thread, also from other processes; streams use them.


class WakeFifo:
    """A FIFO that wakes the thread that waits for it. It gets its name when it is open for reading."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        passing = f"{path}.new"
        os.mkfifo(passing, 0o600)
        self.fileno = os.open(passing, os.O_RDWR | os.O_NONBLOCK)
        try:
            os.rename(passing, path)  # noqa: PTH104 - text, as everywhere here
        except OSError:
            os.close(self.fileno)
            raise
        self._poll = select.poll()
        self._poll.register(self.fileno, select.POLLIN)
        self._is_open = True

    def wake(self) -> None:
        """Wake the waiting thread. May be called from any thread."""
        with self._lock:
            if self._is_open:
                _signal(self.fileno)

    def wait(self, seconds: float | None) -> None:
        """Wait for a wake-up since the last `clear`, at most `seconds`; then clear."""
        self._poll.poll(None if seconds is None else max(0, math.ceil(seconds * 1000)))
        self.clear()

    def clear(self) -> None:
        """Discard all pending wake-ups."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.fileno, _DRAINED_BYTES)) == _DRAINED_BYTES:
                pass

    def close(self) -> None:
        """Close and remove the FIFO. Idempotent."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                remove(self._path)
                os.close(self.fileno)


def wake(path: str) -> bool:
    """Wake the thread that waits for the FIFO at `path`. Returns False if nothing has it open."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NO_READER:
            return False
        raise  # the reader would wait forever
    try:
        _signal(descriptor)
    finally:
        os.close(descriptor)
    return True


def _signal(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError, BrokenPipeError):  # full: the reader is woken anyway
        os.write(descriptor, b"!")


def remove(path: str) -> None:
    """Remove a file; never raises."""
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - text, as everywhere here


# The reading end of a stream.


class StreamReader(io.RawIOBase):
    """A raw stream over a growing file: reading waits for more data until the writer has ended.

    Used by one thread, except for `wake` and `stop`. It has no `fileno`: reading the file directly would take the
    present end of the file for the end of the content.

    Parameters
    ----------
    folder : str
        Directory of the stream.
    check : callable
        Raises an exception to end a wait.

    Raises
    ------
    StorageError
        The stream was removed, or cannot be read.
    """

    def __init__(self, folder: str, check: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._folder = folder
        self._check = check
        self._stopped = False
        self._end: Handle | None = None
        self._offset = 0
        name = uuid.uuid4().hex
        self._mark = f"{folder}/{name}.at"
        self._held = contextlib.ExitStack()
        with storage_errors("read the stream", folder), contextlib.ExitStack() as held:
            # The FIFO first: from here on every growth of the file is noticed.
            self._fifo = WakeFifo(f"{folder}/{name}.reader")
            held.callback(self._fifo.close)
            self._content = held.enter_context(self._open())
            self._position = held.enter_context(open(self._mark, "wb", buffering=0))  # noqa: PTH123 - on a hot path
            held.callback(remove, self._mark)
            self._position.write(POSITION.pack(0))
            self._held = held.pop_all()

    def readable(self) -> bool:
        """Return True."""
        return True

    @property
    def descriptor(self) -> int:
        """File descriptor of the growing file."""
        return self._content.fileno()

    def readinto(self, buffer: Any) -> int:
        """Read what is there; waits if there is nothing. Returns 0 at the end, and after `stop`.

        Raises
        ------
        StorageError
            It cannot be read.
        """
        while True:
            is_last = self.is_ended
            try:
                count = self._content.readinto(buffer) or 0
            except OSError as error:
                raise storage_error("read the stream", self._folder, error) from error
            if count or is_last or self._stopped:
                self._offset += count
                self._note()
                return count
            self._check()
            self._fifo.wait(None)

    def pread(self, offset: int, length: int) -> bytes:
        """Return what is there of a range, without waiting. The reader's position becomes the end of what it gets."""
        data = os.pread(self._content.fileno(), length, offset)
        if offset + len(data) > self._offset:
            self._offset = offset + len(data)
            self._note()
        return data

    @property
    def is_ended(self) -> bool:
        """Whether the writer has ended."""
        if self._end is None:
            try:
                self._end = _read_end(self._folder)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise storage_error("read the end of the stream", self._folder, error) from error
        return True

    @property
    def wake_fd(self) -> int:
        """File descriptor that becomes readable when there may be more data; see `clear`."""
        return self._fifo.fileno

    def clear(self) -> None:
        """Clear `wake_fd`. To be called before looking for more data."""
        self._fifo.clear()

    def wait_for_end(self) -> Handle:
        """Wait until the content is complete, and return it."""
        while not self.is_ended and not self._stopped:
            self._check()
            self._fifo.wait(None)
        if self._end is None:
            raise EOFError("the reader of this stream was stopped before its end")
        return self._end

    def wake(self) -> None:
        """Call `check` again in a waiting thread. May be called from any thread."""
        self._fifo.wake()

    def stop(self) -> None:
        """Stop waiting: the present end of the file is the end of the stream. May be called from any thread."""
        self._stopped = True
        self._fifo.wake()

    def close(self) -> None:
        """Close the stream; its writer does not wait for this reader any more."""
        if not self.closed:
            self._held.close()
            with contextlib.suppress(OSError):
                wake(f"{self._folder}/writer")
        super().close()

    def _open(self) -> io.FileIO:
        try:
            return open(f"{self._folder}/content", "rb", buffering=0)  # noqa: PTH123 - text, as everywhere here
        except FileNotFoundError:
            end = _read_end(self._folder)  # it was committed in the meantime
        return open(end.final or end.location, "rb", buffering=0)  # noqa: PTH123 - text, as everywhere here

    def _note(self) -> None:
        # If this fails, the writer sees a reader that does not move, and goes on after `PATIENCE`.
        with contextlib.suppress(OSError):
            os.pwrite(self._position.fileno(), POSITION.pack(self._offset), 0)
            wake(f"{self._folder}/writer")


def _read_end(folder: str) -> Handle:
    path = f"{folder}/end"
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - text, as everywhere here
            return msgspec.msgpack.decode(stream.read(), type=Handle)
    except ValueError as error:  # msgspec raises UnicodeDecodeError, too
        raise storage_error("read", path, OSError(0, str(error))) from error


class StreamPublisher:
    """The writing end of a stream: wakes its readers, and waits for those that are far behind.

    Used by one thread, except for `wake` and `stop_waiting`.

    Parameters
    ----------
    folder : str
        Directory of the stream; must not exist.
    path : str
        The file that grows.
    check : callable
        Raises an exception to end a wait.
    clock : Clock
        Measures `PATIENCE`.

    Raises
    ------
    StorageError
        The directory cannot be made, or its file system has no FIFOs.
    """

    def __init__(self, folder: str, path: str, check: Callable[[], None], clock: Clock | None = None) -> None:
        self._folder = folder
        self._check = check
        self._clock = clock or SystemClock()
        self._seen = 0
        self._unwaited: dict[str, int] = {}
        self._ignores_readers = False
        with storage_errors("make the stream", folder):
            Path(folder).mkdir(parents=True)
            Path(folder, "content").symlink_to(path)
            self._fifo = WakeFifo(f"{folder}/writer")

    def grown(self, size: int) -> None:
        """Announce that the file has `size` bytes. Waits while that is too far ahead of a reader that makes progress.

        Raises
        ------
        StorageError
            The readers cannot be woken.
        """
        with storage_errors("wake the readers of", self._folder):
            self._wake_readers()
            if not self._ignores_readers and size - self._seen > AHEAD - _STEP_BYTES:
                self._seen = self._pace(size)

    def end(self, content: Handle) -> None:
        """Announce that the file is complete, and will be committed as `content`.

        Raises
        ------
        StorageError
            The readers cannot be woken.
        """
        with storage_errors("end the stream", self._folder):
            with contextlib.suppress(FileNotFoundError):  # the stream was removed
                temporary = Path(self._folder, "end.new")
                temporary.write_bytes(msgspec.msgpack.encode(content))
                temporary.replace(Path(self._folder, "end"))
            self._wake_readers()
        self._fifo.close()

    def stop_waiting(self) -> None:
        """Do not wait for readers any more. May be called from any thread."""
        self._ignores_readers = True
        self._fifo.wake()

    def wake(self) -> None:
        """Call `check` again in a waiting thread. May be called from any thread."""
        self._fifo.wake()

    def close(self) -> None:
        """Close the stream without an end. Readers wait until they are stopped. Idempotent."""
        self._fifo.close()

    def _wake_readers(self) -> None:
        for name in self._names(".reader"):
            wake(f"{self._folder}/{name}")

    def _pace(self, size: int) -> int:
        """Wait for readers that make progress. Returns the position of the slowest of them."""
        since: dict[str, tuple[int, float]] = {}
        while True:
            places = self._places()
            behind = {name: place for name, place in places.items() if size - place > AHEAD}
            if self._ignores_readers or not behind:
                return min(places.values(), default=size)
            now = self._clock.monotonic()
            since = {name: _since(place, now, since.get(name)) for name, place in behind.items()}
            lost = {
                name: place
                for name, (place, began) in since.items()
                if now - began >= PATIENCE or not wake(f"{self._folder}/{name.removesuffix('.at')}.reader")
            }
            if lost:
                self._unwaited |= lost
                continue
            # Called before each wait: a stop before it is seen here, and a later one wakes the wait.
            self._check()
            self._fifo.wait(min(began for _, began in since.values()) + PATIENCE - now)

    def _places(self) -> dict[str, int]:
        """Return the positions of the readers that the writer waits for."""
        positions = ((name, self._position(name)) for name in self._names(".at"))
        return {name: place for name, place in positions if place is not None and self._unwaited.get(name) != place}

    def _names(self, suffix: str) -> list[str]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - on the path of every write
        except FileNotFoundError:
            return []  # the stream was removed
        return [name for name in names if name.endswith(suffix)]

    def _position(self, name: str) -> int | None:
        """Return the position of a reader; None if it is closed, or has not begun."""
        try:
            with open(f"{self._folder}/{name}", "rb") as stream:  # noqa: PTH123 - text, as everywhere here
                data = stream.read(POSITION.size)
        except FileNotFoundError:
            return None
        return int(POSITION.unpack(data)[0]) if len(data) == POSITION.size else None


def _since(place: int, now: float, before: tuple[int, float] | None) -> tuple[int, float]:
    """Return the position of a reader, and the time since when it is there."""
    return before if before is not None and before[0] == place else (place, now)


# Writers whose contents are read while they grow.


class StreamedWriter:
    """A writer whose content can be read as soon as there is some.

    Parameters
    ----------
    part : GrowingWriter
        Where the content goes.
    folder : str
        Directory of the stream, which is made with the first bytes.
    on_open : callable
        Called with the stream after the first bytes.
    check : callable
        Raises an exception if the attempt is to stop.
    clock : Clock
        Measures how long a reader has not moved.
    shielded : Shield
        Shield of the attempt that writes: an interruption while the stream is made would leave its files open.
    """

    def __init__(
        self,
        part: GrowingWriter,
        folder: str,
        on_open: Callable[[Handle], None],
        check: Callable[[], None],
        clock: Clock,
        *,
        shielded: Shield = nullcontext,
    ) -> None:
        self._part = part
        self._folder = folder
        self._on_open = on_open
        self._check = check
        self._clock = clock
        self._shielded = shielded
        self._writer: StreamPublisher | None = None
        self._ignores_readers = False
        self._size = 0
        self._text = True
        self._file = (0, 0)

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append, and wake the readers. Waits for readers that are far behind.

        Raises
        ------
        StorageError
            Nothing can be written.
        """
        count = self._part.write(data, text=text)
        self._size += count
        self._text = self._text and text
        if self._writer is None and self._size:
            status = Path(self._part.location).stat()
            self._file = status.st_dev, status.st_ino
            with self._shielded():
                self._writer = StreamPublisher(self._folder, self._part.location, self._check, self._clock)
            if self._ignores_readers:
                self._writer.stop_waiting()
            self._on_open(Handle(kind="stream", location=self._folder, final=self._part.final, text=self._text))
        if self._writer is not None:
            self._writer.grown(self._size)
        return count

    def path(self) -> str:
        """Return the path of the growing file, for a program that appends to it. Readers see that only at the end."""
        return self._part.path()

    def finish(self) -> Handle:
        """End writing and return the content.

        Raises
        ------
        StorageError
            The file cannot be written.
        AppError
            A program has replaced the file after data of it were streamed.
        """
        handle = self._part.finish()
        if self._writer is not None:
            self._refuse_another(handle)
            self._writer.end(handle)
        return handle

    def stop_waiting(self) -> None:
        """Do not wait for readers any more. May be called from any thread."""
        self._ignores_readers = True  # set before `_writer` is read: `write` makes the writer and then reads the flag
        writer = self._writer
        if writer is not None:
            writer.stop_waiting()

    def wake(self) -> None:
        """Call `check` again in a waiting thread. May be called from any thread."""
        writer = self._writer
        if writer is not None:
            writer.wake()

    def abandon(self) -> None:
        """Discard what was written. Readers are stopped by their session."""
        if self._writer is not None:
            self._writer.close()
        self._part.abandon()

    def _refuse_another(self, handle: Handle) -> None:
        """Raise if the file that readers have opened is not the one that is committed, or is longer."""
        with storage_errors("finish writing", handle.location):
            status = Path(handle.location).stat()
        if (status.st_dev, status.st_ino) != self._file or status.st_size < self._size:
            raise AppError(
                f"a program replaced {handle.location} after others have read {self._size} bytes of it",
                hint="write it all through the output, or all through its path; or make its links not streaming",
            )
