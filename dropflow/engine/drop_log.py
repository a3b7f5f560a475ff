"""The log of one drop: a bounded file with the beginning and the end of what its attempts printed."""

import contextlib
import io
import os
import threading

from dropflow.clock import SystemClock
from dropflow.engine.log_index import INDEX_FILE, index_record, shifted
from dropflow.formatting import format_stamp
from dropflow.ids import drop_file_name

__all__ = ["DropLog"]

_LINE = 8192
_APART = 0.05
"""Seconds: text that is printed sooner after the beginning of a part of the index belongs to that part."""
_APART_FULL = 0.25
"""The same in a log that is full, so that the index of one that never ends grows slowly."""
_CLOCK = SystemClock()


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

    The times of what is printed are in `dropflow.engine.log_index`.
    """

    __slots__ = (
        "_file",
        "_folder",
        "_heading",
        "_index",
        "_is_dated",
        "_left_out",
        "_limit",
        "_line_start",
        "_lock",
        "_oid",
        "_part",
        "_pending",
        "_size",
    )

    def __init__(self, folder: str, oid: str, limit: int) -> None:
        self._folder = folder
        self._oid = oid
        self._heading = b""
        self._limit = max(limit, 1024)
        self._file: io.FileIO | None = None
        self._pending: list[str] = []
        self._size = 0
        self._left_out = 0
        self._index: io.FileIO | None = None
        self._part: float | None = None
        """When the current part of the index was begun."""
        self._is_dated = False
        """Whether the current part begins with a line that has a time."""
        self._line_start = 0
        """Where the last line begins, if it has no end yet; else the end of the log."""
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

    def line(self, level: str, text: str, now: float, *, detail: str = "") -> None:
        """Append one line with a time and a level, and the lines of `detail`, which are of the same level."""
        self.flush()
        end = "" if detail.endswith("\n") or not detail else "\n"
        self._append(f"{format_stamp(now)} {level} {text}\n{detail}{end}".encode(errors="replace"), now)

    def begin_attempt(self, number: int, now: float) -> None:
        """Begin the part of a later attempt, if there is a log, or as soon as this attempt writes something."""
        self._heading = f"{format_stamp(now)} INFO attempt {number}\n".encode()
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
        with self._lock:
            if self._file is None:
                return
            if self._line_start < self._size:  # it is whole as it is
                self._record(_CLOCK.now(), self._line_start)
                self._record(_CLOCK.now(), self._size)
            self._file.close()
            if self._index is not None:
                self._index.close()
            self._file = self._index = self._part = None

    @property
    def _path(self) -> str:
        # Not computed before it is needed: few drops have a log.
        return f"{self._folder}/{drop_file_name(self._oid)}.log"

    def _append(self, data: bytes, now: float | None = None) -> None:
        """Append to the file; `now` is the time at the beginning of `data`, if it has one."""
        with self._lock:
            is_dated = now is not None or bool(self._heading)
            data, self._heading = self._heading + data, b""
            if not data:
                return
            try:
                file = self._file or self._open()
                gap = b"\n" if is_dated and self._line_start < self._size else b""
                data = gap + data
                start, moment = self._size, _CLOCK.now() if now is None else now
                if start + len(data) > self._limit:
                    data, start = self._make_room(file, data, moment)
                if gap or not is_dated:
                    self._begin_part(moment, self._line_start, is_dated=False)
                if is_dated:
                    self._begin_part(moment, start + len(gap), is_dated=True)
                end = data.rfind(b"\n")
                self._line_start = self._line_start if end < 0 else self._size + end + 1
                self._size += file.write(data)
            except OSError:
                return

    def _open(self) -> io.FileIO:
        flags = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = io.FileIO(os.open(self._path, flags | os.O_RDWR, 0o644), "r+")
        self._size = self._file.seek(0, os.SEEK_END)
        last = os.pread(self._file.fileno(), 1, self._size - 1) if self._size else b"\n"
        self._line_start = self._size if last == b"\n" else self._size - 1
        with contextlib.suppress(OSError):
            index = os.open(f"{self._folder}/{INDEX_FILE}", flags | os.O_WRONLY | os.O_APPEND, 0o644)
            self._index = io.FileIO(index, "a")
        return self._file

    def _begin_part(self, now: float, start: int, *, is_dated: bool) -> None:
        """Begin a part of the index, unless the text belongs to the current one."""
        apart = _APART_FULL if self._left_out else _APART
        is_new = self._part is None or now - self._part >= apart or now < self._part
        if is_new or ((is_dated or self._is_dated) and not self._left_out):
            self._record(now, start)
            self._part, self._is_dated = now, is_dated

    def _record(self, now: float, start: int, *cut: int) -> None:
        if self._index is not None:
            with contextlib.suppress(OSError):
                self._index.write(index_record(now, start, self._oid, *cut))

    def _make_room(self, file: io.FileIO, data: bytes, now: float) -> tuple[bytes, int]:
        """Truncate the file to its beginning; return what follows it, and where the beginning of `data` is then.

        What follows is a line with the bytes left out, and the end.
        """
        head, tail = self._limit // 2, self._limit // 4
        start, before = self._size, self._size + len(data)
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
        after = _MARK % self._left_out + kept
        cut = head, before - head - len(after), head + len(after) - len(kept)
        self._record(now, head, *cut[1:])
        self._line_start = shifted(self._line_start, *cut)
        return after, shifted(start, *cut)


_MARK = b"\n[... %d bytes left out ...]\n"


def _unmark(text: bytes) -> tuple[int, bytes]:
    """Return the number in a mark at the beginning of `text`, 0 if there is none, and the text after the mark."""
    start, middle, end = _MARK.partition(b"%d")
    if not text.startswith(start):
        return 0, text
    number, found, rest = text[len(start) :].partition(end)
    return (int(number), rest) if found and number.isdigit() and middle else (0, text)
