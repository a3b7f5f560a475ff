"""The records in the directory of a run: its graph, and the times and the usage of its attempts."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy.typing as npt

from dropflow.errors import NotFoundError
from dropflow.files import GRAPH_FILE, refuse_other_directory
from dropflow.graph import codec
from dropflow.graph.physical import FloatColumn, PhysicalGraph
from dropflow.times.octets import TIMES_FILE, TimesSection, read_receipts, read_times

_MICROSECONDS = 1e6
"""Microseconds in a second: the unit of time in trace files."""

# Traces of the JSON format of Chrome, which Perfetto (https://ui.perfetto.dev) opens.
#
# Nodes are processes, and each lane is a thread of its own: Perfetto cannot draw what overlaps on one thread.


def chrome_trace(
    nodes: Sequence[str], spans: Iterable[dict[str, object]], lanes: Iterable[tuple[int, int, str]] = ()
) -> Iterator[bytes]:
    """Yield a trace in pieces.

    Parameters
    ----------
    nodes : sequence of str
        Names of the processes.
    spans : iterable of dict
        Results of `span` and `note`, perhaps with ``cat`` and ``args``.
    lanes : iterable of (int, int, str)
        Index of a node, number of a lane, and name of the lane.
    """
    encode = msgspec.json.encode
    yield b'{"displayTimeUnit":"ms","traceEvents":['
    separator = b""
    for number, name in enumerate(nodes):
        yield separator + encode({"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}})
        separator = b",\n"
    for node, lane, name in lanes:
        yield separator + encode(
            {"ph": "M", "name": "thread_name", "pid": node, "tid": lane + 2, "args": {"name": name}}
        )
    for event in spans:
        yield separator + encode(event)
    yield b"]}\n"


def span(name: str, start: float, end: float, node: int, lane: int) -> dict[str, object]:
    """Return what happened from `start` to `end`, in seconds, on a lane of a node."""
    duration = max(float(end) - float(start), 0.0) * _MICROSECONDS
    return {"ph": "X", "name": name, "ts": float(start) * _MICROSECONDS, "dur": duration, "pid": node, "tid": lane + 2}


def note(text: str, node: int) -> dict[str, object]:
    """Return a mark at the beginning of a node on which nothing happened."""
    return {"ph": "i", "s": "p", "name": text, "ts": 0.0, "pid": node, "tid": 2}


class MeasuredSeconds(NamedTuple):
    """Seconds that each drop of a graph took in earlier runs; NaN for data, and for what was not measured."""

    least: FloatColumn
    mean: FloatColumn
    most: FloatColumn


class MeasuredRun(NamedTuple):
    """A run that was recorded: its graph, and its attempts (`dropflow.times.octets.RECORD`)."""

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
    return MeasuredRun(codec.load(directory / GRAPH_FILE), records)


def read_records(directory: Path) -> npt.NDArray[Any]:
    """Return the attempts that a session directory has recorded.

    Raises
    ------
    NotFoundError
        There is no run in this directory.
    """
    refuse_other_directory(directory)
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
    recorded = [records, *(read_records(directory) for directory in directories[1:])]
    names = [directory.resolve().name for directory in directories]
    if len(set(names)) < len(names):
        names = [str(directory) for directory in directories]
    for name, part in zip(names, recorded, strict=True):
        if len(part) and part["drop"].max() >= graph.drops:
            raise NotFoundError("these directories are not of one session", where=name)
    return graph, [
        TimesSection(node=name, total=len(part), records=part, received=read_receipts(directory))
        for name, part, directory in zip(names, recorded, directories, strict=True)
    ]
