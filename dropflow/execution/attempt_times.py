"""Times at which each attempt was ready, given to a worker, begun, ended and committed, and its usage.

One record of 48 bytes for each attempt that has ended, appended to a file beside the journal. A crash loses the records
of the last second at most; an incomplete last record is ignored. A missing record changes no result, so a full disk
stops the recording, and not the session.
"""

import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.clock import Clock
from dropflow.execution.decisions.events import Run
from dropflow.execution.tasks import AttemptResult, Usage
from dropflow.graph.physical import IntColumn
from dropflow.times.octets import RECORD

_FLUSH_SECONDS = 1.0
"""Seconds between two writes of the records."""
_MOST_ATTEMPTS = 2**15 - 1
"""Number of an attempt that its record can hold, in 16 bits with a sign."""
_NO_USAGE = Usage(0.0)
_COLUMNS_PER_ATTEMPT = 12
"""Numbers that are collected for each attempt."""


class AttemptTimes:
    """Records the attempts of one session. Used by the session's thread.

    Parameters
    ----------
    path : Path
        The file; records are appended.
    drops : int
        Number of drops of the session.
    clock : Clock
        Tells the time.
    rows : int array, shape (drops,), optional
        Row in the whole graph of each drop, for a session that has only some drops of the graph.
    """

    __slots__ = ("_clock", "_file", "_flushed", "_given", "_ready", "_rows", "_values", "problem")

    def __init__(self, path: Path, drops: int, clock: Clock, rows: IntColumn | None = None) -> None:
        self.problem = ""
        """Why attempts are not recorded any more; empty if they are recorded."""
        self._clock = clock
        self._rows = rows
        self._ready = array("d", bytes(8 * drops))
        self._given = array("d", bytes(8 * drops))
        self._values = array("d")
        self._flushed = clock.monotonic()
        self._file = -1
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            if excess := os.fstat(self._file).st_size % RECORD.itemsize:  # an earlier process was killed
                os.ftruncate(self._file, os.fstat(self._file).st_size - excess)
        except OSError as error:
            self._stop(error)

    def ready(self, runs: Sequence[Run]) -> None:
        """Note that attempts can begin now."""
        now = self._clock.now()
        for run in runs:
            self._ready[run.drop] = now

    def given(self, runs: Sequence[Run]) -> None:
        """Note that attempts are given to the runner now."""
        now = self._clock.now()
        for run in runs:
            self._given[run.drop] = now

    @property
    def now(self) -> float:
        """The time, by the clock of all records."""
        return self._clock.now()

    def given_at(self, drop: int) -> float:
        """Return when the last attempt of a drop was given to the runner, in seconds since the epoch; 0 if unknown."""
        return self._given[drop]

    def given_ahead(self, runs: Sequence[Run]) -> None:
        """Note that attempts are given to the runner before they can begin: they will begin without waiting."""
        for run in runs:
            self._ready[run.drop] = self._given[run.drop] = 0.0

    def ended(self, result: AttemptResult, *, failed: bool) -> None:
        """Record an attempt whose outputs are committed now, or that has failed."""
        usage = result.usage or _NO_USAGE  # without usage, the process of the attempt has died
        drop, seconds = result.drop, result.seconds
        # Numbers are collected and packed together, which takes a third of the time.
        self._values.extend(
            (
                drop,
                -result.attempt if failed else result.attempt,
                usage.worker,
                self._ready[drop],
                self._given[drop],
                usage.ended,
                seconds,
                self._clock.now(),
                usage.processor,
                usage.memory,
                usage.read,
                usage.written,
            )
        )

    def flush(self) -> None:
        """Write the records, once a second."""
        if self._values and self._clock.monotonic() >= self._flushed + _FLUSH_SECONDS:
            self._flush()

    def write(self) -> None:
        """Write the records now."""
        if self._values:
            self._flush()

    def close(self) -> tuple[str, ...]:
        """Write all records; return a note if they are not complete."""
        if self._file >= 0:
            self._flush()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return (self.problem,) if self.problem else ()

    def _flush(self) -> None:
        self._flushed = self._clock.monotonic()
        data = memoryview(_packed(self._values, self._rows).tobytes())
        self._values = array("d")
        if self._file < 0:
            return
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        self.problem = f"the times of attempts are not recorded from here on: {error.strerror}"
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _packed(values: "array[float]", rows: IntColumn | None) -> npt.NDArray[Any]:
    """Return collected numbers, twelve for each attempt, as records."""
    drop, attempt, worker, ready, given, ended, ran, now, *used = np.array(values).reshape(-1, _COLUMNS_PER_ATTEMPT).T
    has_run = ended > 0
    # If an attempt was made ready before its session changed the view, its beginning is used.
    begun = np.where(has_run, ended - ran, now)
    ready, given = np.where(ready > 0, ready, begun), np.where(given > 0, given, begun)
    records = np.zeros(len(drop), RECORD)
    if rows is not None:
        drop = rows[drop.astype(np.intp)]
    records["drop"], records["worker"], records["ready"], records["ran"] = drop, worker, ready, ran
    records["attempt"] = np.clip(attempt, -_MOST_ATTEMPTS, _MOST_ATTEMPTS)
    records["waited"] = given - ready
    records["queued"] = np.where(has_run, ended - ran - given, 0.0)
    records["committed"] = np.where(has_run, now - ended, 0.0)
    for name, column in zip(("processor", "memory", "read", "written"), used, strict=True):
        records[name] = column
    return records
