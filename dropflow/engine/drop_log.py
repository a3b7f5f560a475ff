"""The log of one drop: a bounded file with the beginning and the end of what its attempts printed."""

import io
import os
import threading
from datetime import UTC, datetime

from dropflow.ids import drop_file_name

__all__ = ["DropLog", "stamp"]

_LINE = 8192


class DropLog:
    """A log file that is created by the first write, and keeps its beginning and its end.

    Parameters
    ----------
    folder : str
        Directory of the file.
    oid : str
        Text id of the drop, which names the file. The log of an earlier attempt is continued.
    limit : int
        Bytes of the file. When it is full, its middle is cut out, and a line says how much is missing. So the file is
        bounded and has the latest output at any moment, also when this process is killed.

    Notes
    -----
    Writing never raises: a full disk must not fail an attempt that would have succeeded. What does not fit is left out;
    what is written after there is room again, such as the reason of a failure, is there.
    """

    __slots__ = ("_file", "_folder", "_heading", "_left_out", "_limit", "_lock", "_oid", "_pending", "_size")

    def __init__(self, folder: str, oid: str, limit: int) -> None:
        self._folder = folder
        self._oid = oid
        self._heading = b""
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

    def begin_attempt(self, number: int, now: float) -> None:
        """Begin the part of a later attempt, if there is a log, or as soon as this attempt writes something."""
        self._heading = f"{stamp(now)} INFO attempt {number}\n".encode()
        if os.path.exists(self._path):  # noqa: PTH110 - text, once an attempt
            self._append(b"")

    def flush(self) -> None:
        """Write pending text to the file."""
        pending, self._pending = self._pending, []
        if pending:
            self._append("".join(pending).encode(errors="replace"))

    def tail(self, size: int) -> str:
        """Return the last bytes of the log, at most `size`, as text."""
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

    @property
    def _path(self) -> str:
        # Not computed before it is needed: few drops have a log.
        return f"{self._folder}/{drop_file_name(self._oid)}.log"

    def _append(self, data: bytes) -> None:
        with self._lock:
            data, self._heading = self._heading + data, b""
            if not data:
                return
            try:
                file = self._file or self._open()
                if self._size + len(data) > self._limit:
                    data = self._make_room(file, data)
                self._size += file.write(data)
            except OSError:
                return

    def _open(self) -> io.FileIO:
        descriptor = os.open(
            self._path,
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
        )
        self._file = io.FileIO(descriptor, "r+")
        self._size = self._file.seek(0, os.SEEK_END)
        return self._file

    def _make_room(self, file: io.FileIO, data: bytes) -> bytes:
        """Truncate the file to its beginning; return what follows it: a line with the bytes left out, and the end."""
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
    """Return the number in a mark at the beginning of `text`, 0 if there is none, and the text after the mark."""
    start, middle, end = _MARK.partition(b"%d")
    if not text.startswith(start):
        return 0, text
    number, found, rest = text[len(start) :].partition(end)
    return (int(number), rest) if found and number.isdigit() and middle else (0, text)


def stamp(now: float) -> str:
    """Return a time as logs have it: UTC, with milliseconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
