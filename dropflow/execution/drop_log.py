"""The log of one drop: a bounded file with the beginning and the end of the output of its attempts."""

import contextlib
import io
import os
import threading
from array import array
from collections.abc import Sequence

import msgspec

from dropflow.clock import SystemClock
from dropflow.formatting import format_stamp
from dropflow.ids import drop_file_name

LOG_LIMIT = 1_000_000
"""Bytes that the log of a drop keeps, if the session has no other limit."""
INDEX_FILE = "lines.index"

_BLOCK_BYTES = 1 << 20
"""Bytes of the index that are read at once."""
_PENDING_CHARACTERS = 8192
"""Characters of one text without an end of line, above which it is written; 64 for each of several."""
_APART = 0.05
"""Seconds: text that is printed sooner after the beginning of a part of the index belongs to that part."""
_APART_FULL = 0.25
"""The same in a log that is full, so that the index of an endless log grows slowly."""
_CLOCK = SystemClock()
_MARK = b"\n[... %d bytes left out ...]\n"

# The index of the logs in one directory: when each part of each log was written.
#
# Logs of drops are plain files, and the output of applications has no times. The file ``lines.index`` beside them gives
# their text an order in time. It has a line of JSON for each part of a log, appended by the process that writes the
# log: ``[time, offset, drop]``. The part goes on to the next one of that drop. A line with two more numbers, ``[time,
# offset, drop, shift, kept]``, is written when the log was shortened: text after `offset` is `shift` bytes further
# ahead now, and gone if it would be before `kept`.


def index_record(time: float, offset: int, drop: str, *cut: int) -> bytes:
    """Return a line of the index; `cut` is empty, or `shift` and `kept`."""
    return msgspec.json.encode([round(time, 3), offset, drop, *cut]) + b"\n"


def shifted(position: int, offset: int, shift: int, kept: int) -> int:
    """Return the place of a position in a log after it was shortened; `offset` if its text is gone."""
    if position <= offset:
        return position
    return position - shift if position - shift >= kept else offset


class LogIndex:
    """The parts of all logs in a directory, in the order in which they were begun.

    Attributes
    ----------
    names : list of str
        Text ids of the drops that have a log.
    times : array of float
        Time at which each part was begun, in seconds since the epoch.
    drops, starts, ends : array of int
        For each part, the place of its drop in `names`, and the range of its bytes in the log of the drop. The end is
        -1 if the part goes on to the end of the log.
    """

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{INDEX_FILE}"
        self.clear()

    def __len__(self) -> int:
        return len(self.times)

    def clear(self) -> None:
        """Forget all parts."""
        self.names: list[str] = []
        self.times = array("d")
        self.drops, self.starts, self.ends = array("i"), array("q"), array("q")
        self._numbers: dict[str, int] = {}
        self._parts: list[array[int]] = []
        self._read = 0

    def update(self) -> None:
        """Read what was appended to the index. Without one, there are no parts."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.clear()
            return
        try:
            if os.fstat(descriptor).st_size < self._read:  # it is another file
                self.clear()
            while block := os.pread(descriptor, _BLOCK_BYTES, self._read):
                end_of_lines = block.rfind(b"\n") + 1
                if not end_of_lines:
                    break
                for line in block[:end_of_lines].splitlines():
                    self._add(line)
                self._read += end_of_lines
        finally:
            os.close(descriptor)

    def _add(self, line: bytes) -> None:
        try:
            time, offset, drop, shift, kept = _record(line)
        except (msgspec.DecodeError, ValueError):
            return  # a line that was torn by a full disk
        number = self._numbers.setdefault(drop, len(self.names))
        if number == len(self.names):
            self.names.append(drop)
            self._parts.append(array("i"))
        parts = self._parts[number]
        if shift:
            self._shift(parts, offset, shift, kept)
            return
        if parts:
            self.ends[parts[-1]] = max(offset, self.starts[parts[-1]])
        else:
            offset = 0  # another process may have written to the log before
        parts.append(len(self.times))
        self.times.append(time)
        self.drops.append(number)
        self.starts.append(offset)
        self.ends.append(-1)

    def _shift(self, parts: Sequence[int], offset: int, shift: int, kept: int) -> None:
        """Move parts after `offset` ahead; those that are left out are empty then."""
        for part in reversed(parts):
            if 0 <= self.ends[part] <= offset:
                return
            self.starts[part] = shifted(self.starts[part], offset, shift, kept)
            self.ends[part] = shifted(self.ends[part], offset, shift, kept)


def _record(line: bytes) -> tuple[float, int, str, int, int]:
    fields = msgspec.json.decode(line, type=list[float | str])
    time, offset, drop = fields[:3]
    shift, kept = fields[3:] or (0, 0)
    if isinstance(time, str) or isinstance(offset, str) or not isinstance(drop, str):
        raise ValueError(line)  # noqa: TRY004 - a line that cannot be used, as those that are not JSON
    return time, int(offset), drop, int(shift), int(kept)


class DropLog:
    """A log file that is created by the first write, and keeps its beginning and its end.

    Parameters
    ----------
    folder : str
        Directory of the file.
    oid : str
        Text id of the drop, which names the file. The log of an earlier attempt is continued.
    limit : int
        Bytes of the file. When it is full, its middle is replaced by a line with the number of missing bytes. So the
        file is bounded and has the latest output at any moment, also when this process is killed.

    Notes
    -----
    Writing never raises: a full disk must not fail an attempt that would have succeeded. Text that does not fit is left
    out. Text that is written after there is room again, such as the reason of a failure, is in the file.

    The times of the text are in ``lines.index``.
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
        """Time at which the current part of the index was begun; None without one."""
        self._is_dated = False
        """Whether the current part begins with a line that has a time."""
        self._line_start = 0
        """Position where the last line begins, if it has no end yet; else the end of the log."""
        self._lock = threading.Lock()  # threads of the application may print at the same time

    def write(self, text: str) -> None:
        """Append text; it reaches the file with the next end of line, or at the end of the attempt."""
        self._pending.append(text)
        if "\n" in text or len(self._pending) > _PENDING_CHARACTERS // 64 or len(text) > _PENDING_CHARACTERS:
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
        """Write the pending text and close the file."""
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
                end = file.seek(0, os.SEEK_END)
                if end != self._size:  # a service, which outlives its attempt, has appended its output
                    self._size, self._line_start = end, _line_start(file, end)
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
        self._line_start = _line_start(self._file, self._size)
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

        The text after the beginning is a line with the bytes left out, and the end.
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


def _line_start(file: io.FileIO, size: int) -> int:
    """Return the size of a log if its last line has its end, else a position in that line."""
    last = os.pread(file.fileno(), 1, size - 1) if size else b"\n"
    return size if last == b"\n" else size - 1


def _unmark(text: bytes) -> tuple[int, bytes]:
    """Return the number in a mark at the beginning of `text`, 0 if there is none, and the text after the mark."""
    start, middle, end = _MARK.partition(b"%d")
    if not text.startswith(start):
        return 0, text
    number, separator, rest = text[len(start) :].partition(end)
    return (int(number), rest) if separator and number.isdigit() and middle else (0, text)
