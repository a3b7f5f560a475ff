"""The record of an attempt: when it was ready, was given out, began, ended and was committed, and what it used."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["RECORD", "RUNNING", "TIMES_FILE", "read_times"]

TIMES_FILE = "times.dft"

RECORD = np.dtype(
    [
        ("drop", "<u4"),
        ("attempt", "<i2"),
        ("worker", "<u2"),
        ("ready", "<f8"),
        ("waited", "<f4"),
        ("queued", "<f4"),
        ("ran", "<f4"),
        ("committed", "<f4"),
        ("processor", "<f4"),
        ("memory", "<f4"),
        ("read", "<f4"),
        ("written", "<f4"),
    ]
)
"""One attempt.

``drop`` is its row in the whole graph; ``attempt`` its number, negative if it failed; ``worker`` the number of
its worker process, 0 for none; ``ready`` when it could begin, in seconds since the epoch. Then seconds: until it was
given to the runner, until it began, until it ended, and until its outputs were committed; and ``processor``, the
seconds of processor time, of its child processes too. ``memory`` is the largest resident memory of its process
meanwhile, in bytes, 0 if the process is not its own; ``read`` and ``written`` are the bytes of its inputs and outputs.
"""

RUNNING = np.dtype([("drop", "<u4"), ("template", "<u4"), ("worker", "<u2"), ("since", "<f8")])
"""One attempt that runs: row of its drop and of its template in the whole graph, and the number of its worker process.

``since`` is when it was given to the runner, in seconds since the epoch, 0 if that is not known. It began then, or when
the attempt before it on its worker process had ended.
"""


def read_times(path: Path, first: int = 0) -> npt.NDArray[Any]:
    """Return the records of a session from number `first` on, of the type `RECORD`; none if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(first * RECORD.itemsize)
            data = file.read()
    except FileNotFoundError:
        data = b""
    return np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], RECORD)
