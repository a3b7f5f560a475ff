"""Contents that are read while they are written.

A stream is a directory beside a file that grows, on the node where it is written::

    <name>.stream/content       link to the file
                  end           once it has ended: where it is, or will be, and its size
                  <n>.reader    a FIFO that wakes a reader
                  <n>.at        how far that reader has come: eight bytes
                  writer        a FIFO that wakes the writer

The content itself is kept whole, on the disk: whoever comes late, or has to begin again, finds all of it. Readers wait
for the writer, and the writer for its readers: it gets no further than `AHEAD` bytes in front of the slowest, which so
finds what it reads in the page cache. But it waits only for readers that move: one that has not for `PATIENCE` seconds
may be waiting for something that the writer has yet to write elsewhere, and is not waited for until it moves again. So
no graph can come to a standstill by this (the deadlock of bounded channels: Parks, *Bounded Scheduling of Process
Networks*, PhD thesis, Berkeley 1995, chapter 4).

Nobody polls: who waits is woken through its FIFO.
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
from pathlib import Path
from typing import Any

import msgspec

from dropflow.clock import Clock, SystemClock
from dropflow.data.storage_errors import storage_error, storage_errors
from dropflow.data.store import GrowingWriter
from dropflow.engine.api import Handle
from dropflow.errors import AppError

__all__ = ["AHEAD", "PATIENCE", "StreamReader", "StreamWriter", "StreamedWriter"]

AHEAD = 64 << 20
"""Bytes that a writer may be ahead of its slowest reader."""

PATIENCE = 10.0
"""Seconds that a writer waits for a reader that does not move."""

_STEP = 1 << 20
_POSITION = struct.Struct("<Q")
_DRAINED = 1 << 16
_NOBODY = (errno.ENXIO, errno.ENOENT, errno.ENOTDIR)


class StreamWriter:
    """The writing end: wakes readers, and waits for those that are far behind. Used by one thread, but for `wake`.

    Parameters
    ----------
    folder : str
        Of the stream; must not exist.
    path : str
        The file that grows.
    check : callable
        Raises when the writer is to stop waiting.
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
        self._hurried = False
        with storage_errors("make the stream", folder):
            Path(folder).mkdir(parents=True)
            Path(folder, "content").symlink_to(path)
            self._bell = _Bell(f"{folder}/writer")

    def grown(self, size: int) -> None:
        """The file has `size` bytes now. Waits while that is too far ahead of a reader that moves.

        Raises
        ------
        StorageError
            The readers cannot be told.
        """
        with storage_errors("tell the readers of", self._folder):
            self._ring_readers()
            if not self._hurried and size - self._seen > AHEAD - _STEP:
                self._seen = self._pace(size)

    def end(self, content: Handle) -> None:
        """The file is complete, and about to be committed as `content`.

        Raises
        ------
        StorageError
            The readers cannot be told.
        """
        with storage_errors("end the stream", self._folder):
            with contextlib.suppress(FileNotFoundError):  # nobody wants it any more
                passing = Path(self._folder, "end.new")
                passing.write_bytes(msgspec.msgpack.encode(content))
                passing.replace(Path(self._folder, "end"))
            self._ring_readers()
        self._bell.close()

    def hurry(self) -> None:
        """Wait for no reader any more; from any thread."""
        self._hurried = True
        self._bell.ring()

    def wake(self) -> None:
        """Let it ask again whether to stop; from any thread."""
        self._bell.ring()

    def close(self) -> None:
        """Let go of it without an end; readers go on waiting until they are stopped. Idempotent."""
        self._bell.close()

    def _ring_readers(self) -> None:
        for name in self._names(".reader"):
            _ring(f"{self._folder}/{name}")

    def _pace(self, size: int) -> int:
        """Wait for readers that move; how far the slowest one that counts has come."""
        stands: dict[str, tuple[int, float]] = {}
        while True:
            places = self._places()
            behind = {name: place for name, place in places.items() if size - place > AHEAD}
            if self._hurried or not behind:
                return min(places.values(), default=size)
            now = self._clock.monotonic()
            stands = {name: _since(place, now, stands.get(name)) for name, place in behind.items()}
            lost = {
                name: place
                for name, (place, began) in stands.items()
                if now - began >= PATIENCE or not _ring(f"{self._folder}/{name.removesuffix('.at')}.reader")
            }
            if lost:
                self._unwaited |= lost
                continue
            # Asked before each wait: whoever says stop before it is heard here, and rings after it.
            self._check()
            self._bell.wait(min(began for _, began in stands.values()) + PATIENCE - now)

    def _places(self) -> dict[str, int]:
        """How far each reader has come that is waited for."""
        found = ((name, self._position(name)) for name in self._names(".at"))
        return {name: place for name, place in found if place is not None and self._unwaited.get(name) != place}

    def _names(self, suffix: str) -> list[str]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - on the path of every write
        except FileNotFoundError:
            return []  # nobody wants it any more
        return [name for name in names if name.endswith(suffix)]

    def _position(self, name: str) -> int | None:
        """How far a reader has come; None if it is gone, or has not begun."""
        try:
            with open(f"{self._folder}/{name}", "rb") as stream:  # noqa: PTH123 - as above
                data = stream.read(_POSITION.size)
        except FileNotFoundError:
            return None
        return int(_POSITION.unpack(data)[0]) if len(data) == _POSITION.size else None


class StreamReader(io.RawIOBase):
    """The reading end: a file that has no end before its writer says so; reading waits for more.

    Used by one thread, but for `wake` and `stop`. It has no `fileno`: whoever reads the file behind it, past this
    object, takes the end of what is there already for the end of the content.

    Parameters
    ----------
    folder : str
        Of the stream.
    check : callable
        Raises when the reader is to stop waiting.

    Raises
    ------
    StorageError
        The stream is gone, or cannot be read.
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
            # The bell first: from here on nothing is missed that is not there yet.
            self._bell = _Bell(f"{folder}/{name}.reader")
            held.callback(self._bell.close)
            self._content = held.enter_context(self._open())
            self._position = held.enter_context(open(self._mark, "wb", buffering=0))  # noqa: PTH123 - on a hot path
            held.callback(_remove, self._mark)
            self._position.write(_POSITION.pack(0))
            self._held = held.pop_all()

    def readable(self) -> bool:
        """Always."""
        return True

    @property
    def descriptor(self) -> int:
        """Of the file that grows."""
        return self._content.fileno()

    def readinto(self, buffer: Any) -> int:
        """Read what there is; waits while there is nothing. 0 at the end, and after `stop`.

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
            self._bell.wait(None)

    def pread(self, offset: int, length: int) -> bytes:
        """What there is of a range; never waits. Whoever reads like this has come as far as `offset`."""
        data = os.pread(self._content.fileno(), length, offset)
        if offset > self._offset:
            self._offset = offset
            self._note()
        return data

    @property
    def is_ended(self) -> bool:
        """Whether nothing more comes."""
        if self._end is None:
            try:
                self._end = _read_end(self._folder)
            except FileNotFoundError:
                return False
            except OSError as error:
                raise storage_error("read the end of the stream", self._folder, error) from error
        return True

    @property
    def bell(self) -> int:
        """File descriptor that becomes readable when there may be more; see `hear`."""
        return self._bell.fileno

    def hear(self) -> None:
        """Forget what `bell` said so far; to be called before looking whether there is more."""
        self._bell.clear()

    def wait_for_end(self) -> Handle:
        """Wait until the content is complete; what and where it is."""
        while not self.is_ended and not self._stopped:
            self._check()
            self._bell.wait(None)
        if self._end is None:
            raise EOFError("nobody waits for the end of this stream any more")
        return self._end

    def wake(self) -> None:
        """Let it ask again whether to stop; from any thread."""
        self._bell.ring()

    def stop(self) -> None:
        """Wait for nothing more: what follows what is there already is the end. From any thread."""
        self._stopped = True
        self._bell.ring()

    def close(self) -> None:
        """Let the writer know that this reader needs nothing more."""
        if not self.closed:
            self._held.close()
            with contextlib.suppress(OSError):
                _ring(f"{self._folder}/writer")
        super().close()

    def _open(self) -> io.FileIO:
        try:
            return open(f"{self._folder}/content", "rb", buffering=0)  # noqa: PTH123 - text, as everywhere here
        except FileNotFoundError:
            end = _read_end(self._folder)  # it was committed in the meantime
        return open(end.final or end.location, "rb", buffering=0)  # noqa: PTH123 - as above

    def _note(self) -> None:
        # Where it fails the writer takes this reader for one that does not move, and goes on after a while.
        with contextlib.suppress(OSError):
            os.pwrite(self._position.fileno(), _POSITION.pack(self._offset), 0)
            _ring(f"{self._folder}/writer")


class StreamedWriter:
    """A part that others may read as soon as something is in it.

    Parameters
    ----------
    part : GrowingWriter
        Where the content goes.
    folder : str
        Of the stream, to be made.
    on_open : callable
        Takes the stream, before the first bytes are a second old.
    check : callable
        Raises when the attempt is to stop.
    clock : Clock
        For the writer.
    """

    def __init__(
        self,
        part: GrowingWriter,
        folder: str,
        on_open: Callable[[Handle], None],
        check: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._part = part
        self._folder = folder
        self._on_open = on_open
        self._check = check
        self._clock = clock
        self._writer: StreamWriter | None = None
        self._hurried = False
        self._size = 0
        self._text = True
        self._file = (0, 0)

    def write(self, data: bytes | bytearray | memoryview, *, text: bool = False) -> int:
        """Append, and tell the readers. Waits for readers that are far behind.

        Raises
        ------
        StorageError
            The disk refuses.
        """
        count = self._part.write(data, text=text)
        self._size += count
        self._text = self._text and text
        if self._writer is None and self._size:
            found = Path(self._part.location).stat()
            self._file = found.st_dev, found.st_ino
            self._writer = StreamWriter(self._folder, self._part.location, self._check, self._clock)
            if self._hurried:
                self._writer.hurry()
            self._on_open(Handle(kind="stream", location=self._folder, final=self._part.final, text=self._text))
        if self._writer is not None:
            self._writer.grown(self._size)
        return count

    def path(self) -> str:
        """The growing file, for a program that appends to it; readers see that at the end."""
        return self._part.path()

    def finish(self) -> Handle:
        """End writing.

        Raises
        ------
        StorageError
            The disk refuses.
        AppError
            A program has put something else in the place of what was streamed already.
        """
        handle = self._part.finish()
        if self._writer is not None:
            self._refuse_another(handle)
            self._writer.end(handle)
        return handle

    def hurry(self) -> None:
        """Wait for no reader any more; from any thread."""
        self._hurried = True  # before the writer is looked for: it is made and then asks
        writer = self._writer
        if writer is not None:
            writer.hurry()

    def wake(self) -> None:
        """Let it ask again whether to stop; from any thread."""
        writer = self._writer
        if writer is not None:
            writer.wake()

    def abandon(self) -> None:
        """Throw away what was written; readers are stopped by others."""
        if self._writer is not None:
            self._writer.close()
        self._part.abandon()

    def _refuse_another(self, handle: Handle) -> None:
        """Readers hold on to the file that they have begun: it must be the one that is committed, and no shorter."""
        with storage_errors("finish writing", handle.location):
            found = Path(handle.location).stat()
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self._size:
            raise AppError(
                f"a program replaced {handle.location}, of which others have read {self._size} bytes already",
                hint="write it all through the output, or all through its path; or make its links not streaming",
            )


class _Bell:
    """A FIFO that wakes the thread that waits for it. It has its name only once somebody listens."""

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

    def ring(self) -> None:
        """Wake it; from any thread."""
        with self._lock:
            if self._is_open:
                _strike(self.fileno)

    def wait(self, seconds: float | None) -> None:
        """Sleep until it rings, or has rung since it was cleared; then it is cleared."""
        self._poll.poll(None if seconds is None else max(0, math.ceil(seconds * 1000)))
        self.clear()

    def clear(self) -> None:
        """Forget what rang so far."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.fileno, _DRAINED)) == _DRAINED:
                pass

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                _remove(self._path)
                os.close(self.fileno)


def _since(place: int, now: float, before: tuple[int, float] | None) -> tuple[int, float]:
    """Where a reader stands, and since when."""
    return before if before is not None and before[0] == place else (place, now)


def _ring(path: str) -> bool:
    """Wake whoever listens to the FIFO at `path`; False if nobody does: it was killed, or is gone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NOBODY:
            return False
        raise  # somebody listens, and would wait for ever
    try:
        _strike(descriptor)
    finally:
        os.close(descriptor)
    return True


def _strike(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError, BrokenPipeError):  # it is full: who listens has enough to hear
        os.write(descriptor, b"!")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - text, as everywhere here


def _read_end(folder: str) -> Handle:
    path = f"{folder}/end"
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - as above
            return msgspec.msgpack.decode(stream.read(), type=Handle)
    except ValueError as error:  # msgspec raises UnicodeDecodeError, too
        raise storage_error("read", path, OSError(0, str(error))) from error
