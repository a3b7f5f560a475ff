"""The index of the logs in one directory: when each part of each log was written.

Logs of drops are plain files (`dropflow.engine.drop_log`), and what applications print has no time. The file
``lines.index`` beside them gives their text an order in time. It has a line of JSON for each part of a log, appended by
the process that writes the log: ``[time, offset, drop]``. The part goes on to the next one of that drop. A line with
two more numbers, ``[time, offset, drop, shift, kept]``, is written when the log was shortened: text after `offset` is
`shift` bytes further ahead now, and gone if it would be before `kept`.
"""

import os
from array import array
from collections.abc import Sequence

import msgspec

__all__ = ["INDEX_FILE", "LogIndex", "index_record", "shifted"]

INDEX_FILE = "lines.index"

_BLOCK = 1 << 20


def index_record(time: float, offset: int, drop: str, *cut: int) -> bytes:
    """Return a line of the index; `cut` is empty, or `shift` and `kept`."""
    return msgspec.json.encode([round(time, 3), offset, drop, *cut]) + b"\n"


def shifted(position: int, offset: int, shift: int, kept: int) -> int:
    """Return where a position in a log is after it was shortened; `offset` if its text is gone."""
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
        When each part was begun.
    drops, starts, ends : array of int
        Of each part: the place of its drop in `names`, and its bytes in the log of the drop. The end is -1 if it is
        that of the log.
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
            while block := os.pread(descriptor, _BLOCK, self._read):
                whole = block.rfind(b"\n") + 1
                if not whole:
                    break
                for line in block[:whole].splitlines():
                    self._add(line)
                self._read += whole
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
            offset = 0  # others may have written to the log before
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
    found = msgspec.json.decode(line, type=list[float | str])
    time, offset, drop = found[:3]
    shift, kept = found[3:] or (0, 0)
    if isinstance(time, str) or isinstance(offset, str) or not isinstance(drop, str):
        raise ValueError(line)  # noqa: TRY004 - a line that cannot be used, as those that are not JSON
    return time, int(offset), drop, int(shift), int(kept)
