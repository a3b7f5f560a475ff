"""The log of each drop: what its attempts print, log or raise goes to one bounded file.

`DropLog` is the file. `Router` stands in for ``sys.stdout`` and ``sys.stderr`` and listens to `logging`; it hands what
comes from a thread to the log of the attempt that runs in that thread, and everything else on to where it went before.
Nothing is redirected for a single attempt, so attempts in many threads do not meet in each other's logs.

What a C library writes to the file descriptors 1 and 2 is not seen here.
"""

import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any, TextIO, cast

from dropflow.ids import drop_file_name

__all__ = ["DropLog", "Router", "stamp"]

_LINE = 8192
_WORKER = "dropflow.engine.runners."


class DropLog:
    """A log file that is made when something is written to it, and keeps its beginning and its end.

    Parameters
    ----------
    folder : str
        Directory of the file.
    oid : str
        Text id of the drop, which names the file; what is there already (an earlier attempt) is continued.
    limit : int
        Bytes of the file. What comes after is kept at the cost of the middle, and the file says how much is missing.
        The file is bounded and holds the latest output at any moment, also when this process is killed.

    Notes
    -----
    Writing never raises: a full disk must not fail an attempt that would have succeeded. What does not fit is left out,
    and what comes when there is room again, such as the reason of a failure, is written.
    """

    __slots__ = ("_file", "_folder", "_left_out", "_limit", "_lock", "_oid", "_pending", "_size")

    def __init__(self, folder: str, oid: str, limit: int) -> None:
        self._folder = folder
        self._oid = oid
        self._limit = max(limit, 1024)
        self._file: io.FileIO | None = None
        self._pending: list[str] = []
        self._size = 0
        self._left_out = 0
        self._lock = threading.Lock()  # threads of the application may print at the same time

    def write(self, text: str) -> None:
        """Append text; it reaches the file with the next end of line, or at the end of the attempt."""
        self._pending.append(text)
        if "\n" in text or len(self._pending) > _LINE // 64 or len(text) > _LINE:
            self.flush()

    def write_bytes(self, data: bytes) -> None:
        """Append bytes."""
        self.flush()
        self._append(data)

    def line(self, level: str, text: str, now: float) -> None:
        """Append one line with a time and a level."""
        self.flush()
        self._append(f"{stamp(now)} {level} {text}\n".encode(errors="replace"))

    def flush(self) -> None:
        """Bring what was written to the file."""
        pending, self._pending = self._pending, []
        if pending:
            self._append("".join(pending).encode(errors="replace"))

    def tail(self, size: int) -> str:
        """The last bytes of the log, at most `size`, as text."""
        self.flush()
        if self._file is None:
            return ""
        try:
            start = max(self._size - size, 0)
            return os.pread(self._file.fileno(), size, start).decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """Write what is pending and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, data: bytes) -> None:
        if not data:
            return
        with self._lock:
            try:
                file = self._file or self._open()
                if self._size + len(data) > self._limit:
                    data = self._make_room(file, data)
                self._size += file.write(data)
            except OSError:
                return

    def _open(self) -> io.FileIO:
        descriptor = os.open(
            f"{self._folder}/{drop_file_name(self._oid)}.log",
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
        )
        self._file = io.FileIO(descriptor, "r+")
        self._size = self._file.seek(0, os.SEEK_END)
        return self._file

    def _make_room(self, file: io.FileIO, data: bytes) -> bytes:
        """Cut the middle out; what must follow the beginning, with a line that says what is missing."""
        head, tail = self._limit // 2, self._limit // 4
        if self._size <= head:
            first = head - self._size
            file.write(data[:first])
            data = data[first:]
            self._size = head
        older = os.pread(file.fileno(), self._size - head, head)
        marker, rest = _unmark(older)
        self._left_out = max(self._left_out, marker)
        together = rest + data
        kept = together[-tail:]
        self._left_out += len(together) - len(kept)
        file.truncate(head)
        self._size = file.seek(head)
        return _MARK % self._left_out + kept


_MARK = b"\n[... %d bytes left out ...]\n"


def _unmark(text: bytes) -> tuple[int, bytes]:
    """The number in a mark at the beginning of `text`, 0 when there is none, and what follows the mark."""
    start, middle, end = _MARK.partition(b"%d")
    if not text.startswith(start):
        return 0, text
    number, found, rest = text[len(start) :].partition(end)
    return (int(number), rest) if found and number.isdigit() and middle else (0, text)


def stamp(now: float) -> str:
    """A time as it stands in logs: UTC, milliseconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


class Router:
    """Hands the output of a thread to the log of the attempt that runs in it.

    One object serves a whole process. `install` and `remove` are counted, so that several executors can share it.
    """

    def __init__(self) -> None:
        self._here = threading.local()
        self._running: dict[int, DropLog] = {}
        self._lock = threading.Lock()
        self._users = 0
        self._saved: tuple[TextIO, TextIO] | None = None
        self._standing: tuple[TextIO, TextIO] | None = None
        self._handler = _Handler(self)
        self._level: int | None = None
        self._alone = False

    def install(self) -> None:
        """Stand in for the standard streams and listen to `logging`."""
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._alone = _is_worker()
            self._saved = (sys.stdout, sys.stderr)
            self._standing = (cast(TextIO, _Stream(self, sys.stdout)), cast(TextIO, _Stream(self, sys.stderr)))
            sys.stdout, sys.stderr = self._standing
            top = logging.getLogger()
            if not top.handlers and top.level == logging.WARNING:
                # Nobody has set up logging in this process: applications mean their INFO to be seen.
                self._level = top.level
                top.setLevel(logging.INFO)
            top.addHandler(self._handler)

    def remove(self) -> None:
        """Put back what was there, unless somebody else has replaced it meanwhile."""
        with self._lock:
            self._users -= 1
            if self._users or self._saved is None or self._standing is None:
                return
            if sys.stdout is self._standing[0]:
                sys.stdout = self._saved[0]
            if sys.stderr is self._standing[1]:
                sys.stderr = self._saved[1]
            self._saved = self._standing = None
            top = logging.getLogger()
            top.removeHandler(self._handler)
            if self._level is not None:
                top.setLevel(self._level)
                self._level = None

    @contextlib.contextmanager
    def to(self, log: DropLog) -> Iterator[None]:
        """Send the output of this thread to `log` while the block runs."""
        previous = self.enter(log)
        try:
            yield
        finally:
            self.leave(previous)

    def enter(self, log: DropLog) -> DropLog | None:
        """Send the output of this thread to `log` until `leave`; answers what `leave` must be given."""
        previous: DropLog | None = getattr(self._here, "log", None)
        self._here.log = log
        self._running[threading.get_ident()] = log
        return previous

    def leave(self, previous: DropLog | None) -> None:
        """End what `enter` began."""
        self._here.log = previous
        if previous is None:
            self._running.pop(threading.get_ident(), None)
        else:
            self._running[threading.get_ident()] = previous

    def current(self) -> DropLog | None:
        """The log for output of this thread; None when it belongs to no attempt.

        Threads that an application started are known to be its own only in a worker process, which runs one attempt
        at a time and has no output of its own.
        """
        log: DropLog | None = getattr(self._here, "log", None)
        if log is None and self._alone:
            running = list(self._running.values())
            return running[0] if len(running) == 1 else None
        return log


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_WORKER)


class _Handler(logging.Handler):
    """Records of `logging` on their way to the log of the attempt that made them."""

    def __init__(self, router: Router) -> None:
        super().__init__()
        self._router = router
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        log = self._router.current()
        if log is not None:
            log.line(record.levelname, self.format(record), record.created)
            return
        # As if we were not here: without handlers, `logging` prints warnings to standard error.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and logging.getLogger().handlers == [self]:
            last.handle(record)


class _Stream(io.TextIOBase):
    """Stands in for one of the standard streams."""

    def __init__(self, router: Router, original: TextIO) -> None:
        self._router = router
        self._original = original
        self._bytes = cast(IO[bytes], _ByteStream(router, original))

    def write(self, text: str) -> int:
        log = self._router.current()
        if log is None:
            return self._original.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        log.write(text)
        return len(text)

    def flush(self) -> None:
        log = self._router.current()
        if log is None:
            self._original.flush()
        else:
            log.flush()

    def isatty(self) -> bool:
        return self._router.current() is None and self._original.isatty()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> IO[bytes]:
        return self._bytes

    def __getattribute__(self, name: str) -> Any:
        # TextIOBase defines these itself, so that __getattr__ would not be asked.
        if name in ("encoding", "errors", "newlines", "fileno"):
            return getattr(object.__getattribute__(self, "_original"), name)
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _ByteStream(io.RawIOBase):
    """The `buffer` of a standing-in stream."""

    def __init__(self, router: Router, original: TextIO) -> None:
        self._router = router
        self._original = original

    def write(self, data: Any) -> int:
        log = self._router.current()
        if log is None:
            return self._original.buffer.write(data)
        block = bytes(data)
        log.write_bytes(block)
        return len(block)

    def flush(self) -> None:
        if self._router.current() is None:
            self._original.flush()

    def writable(self) -> bool:
        return True
