"""The work of `recovery.py`, for dropflow, Dask and Ray alike. Needs only the standard library.

Stages of branches: the step of a branch reads what its own step and that of the next branch wrote in the stage before,
sleeps, and returns a number. Each step adds a record to a log when it starts and when it ends. Appending so few bytes
is atomic, so processes share the log, and it is complete when one of them is killed.
"""

import os
import struct
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Log", "Record", "Shape", "repeats", "step", "value", "values"]

_RECORD = struct.Struct("<iiq")
_MODULUS = 2**31 - 1


class Shape(NamedTuple):
    """How many steps there are, and how long each sleeps."""

    stages: int
    branches: int
    seconds: float

    @property
    def steps(self) -> int:
        """Steps altogether."""
        return self.stages * self.branches


class Record(NamedTuple):
    """One entry of the log. `process` is negative if the step ended."""

    number: int
    process: int
    nanoseconds: int


def value(stage: int, branch: int, inputs: Iterable[int]) -> int:
    """Return the result of a step."""
    return (31 * sum(inputs) + 7 * stage + branch + 1) % _MODULUS


def values(shape: Shape) -> list[int]:
    """Return the results of the last stage, computed here."""
    found = [value(0, branch, ()) for branch in range(shape.branches)]
    for stage in range(1, shape.stages):
        found = [value(stage, at, (found[at], found[(at + 1) % shape.branches])) for at in range(shape.branches)]
    return found


def step(log: str, seconds: float, number: int, branches: int, inputs: Sequence[int]) -> int:
    """Do one step, and return its result. Without a log nothing is noted."""
    if log:
        _note(log, number, os.getpid())
    if seconds:
        time.sleep(seconds)  # noqa: TID251 - the work
    if log:
        _note(log, number, -os.getpid())
    return value(number // branches, number % branches, inputs)


def _note(log: str, number: int, process: int) -> None:
    os.write(_opened(log), _RECORD.pack(number, process, time.monotonic_ns()))


@cache
def _opened(log: str) -> int:
    return os.open(log, os.O_WRONLY | os.O_APPEND)


class Log:
    """What steps have noted.

    Parameters
    ----------
    path : str
        The file; made if there is none.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = Path(path)
        self._file.touch()

    def records(self) -> list[Record]:
        """Return all records, in order of time."""
        found = [Record(*fields) for fields in _RECORD.iter_unpack(self._file.read_bytes())]
        return sorted(found, key=lambda record: record.nanoseconds)

    def wait(self, records: int, seconds: float) -> None:
        """Wait until there are so many records; raise `SystemExit` after so many seconds."""
        until = time.monotonic() + seconds
        while self._file.stat().st_size < records * _RECORD.size:
            if time.monotonic() > until:
                raise SystemExit(f"the steps have not made {records} records in {seconds} s")
            time.sleep(0.002)  # noqa: TID251 - the log is a file


def repeats(records: Iterable[Record]) -> list[Record]:
    """Return the starts of steps that had started before."""
    seen: set[int] = set()
    again = []
    for record in records:
        if record.process > 0:
            if record.number in seen:
                again.append(record)
            seen.add(record.number)
    return again
