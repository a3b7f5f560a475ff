"""What the directory of a run has recorded: its graph, and the times and the usage of its attempts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from dropflow import graph_file
from dropflow.errors import NotFoundError
from dropflow.graph.physical import PhysicalGraph
from dropflow.times.octets import TimesSection
from dropflow.times.received import read_receipts
from dropflow.times.records import TIMES_FILE, read_times

__all__ = ["MeasuredRun", "read_parts", "read_records", "read_run"]


class MeasuredRun(NamedTuple):
    """A run that was recorded: its graph, and its attempts (`dropflow.times.records.RECORD`)."""

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


def read_parts(directories: Sequence[Path]) -> tuple[PhysicalGraph, list[TimesSection]]:
    """Return the graph of a session, and what it has recorded in each of its directories, named after these.

    Raises
    ------
    NotFoundError
        There is no run in one of them, or they are not of one session.
    BadFileError
        The graph is damaged.
    """
    graph, records = read_run(directories[0])
    found = [records, *(read_records(directory) for directory in directories[1:])]
    names = [directory.resolve().name for directory in directories]
    if len(set(names)) < len(names):
        names = [str(directory) for directory in directories]
    for name, part in zip(names, found, strict=True):
        if len(part) and part["drop"].max() >= graph.drops:
            raise NotFoundError("these directories are not of one session", where=name)
    return graph, [
        TimesSection(node=name, total=len(part), records=part, received=read_receipts(directory))
        for name, part, directory in zip(names, found, directories, strict=True)
    ]
