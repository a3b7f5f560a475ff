"""What the directory of a run has recorded: its graph, and the times and the usage of its attempts."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from dropflow import graph_file
from dropflow.engine.attempt_times import TIMES_FILE, read_times
from dropflow.errors import NotFoundError
from dropflow.graph.physical import PhysicalGraph

__all__ = ["MeasuredRun", "read_records", "read_run"]


class MeasuredRun(NamedTuple):
    """A run that was recorded: its graph, and its attempts (`dropflow.engine.attempt_times.RECORD`)."""

    graph: PhysicalGraph
    records: npt.NDArray[Any]


def read_run(directory: Path) -> MeasuredRun:
    """Return what a session directory has recorded.

    Raises
    ------
    NotFoundError
        There is no run in this directory.
    BadFileError
        Its graph is damaged.
    """
    records = read_records(directory)
    return MeasuredRun(graph_file.load(directory / "graph.dfg"), records)


def read_records(directory: Path) -> npt.NDArray[Any]:
    """Return the attempts that a session directory has recorded.

    Raises
    ------
    NotFoundError
        There is no run in this directory.
    """
    if not (directory / "graph.dfg").exists():
        hint = "give the directory that 'dropflow run --keep' has made"
        raise NotFoundError("there is no run in this directory", where=str(directory), hint=hint)
    return read_times(directory / TIMES_FILE)
