"""What the attempts of each logical node took: times, processor time, memory and bytes, from their records."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid

__all__ = ["NodeProfile", "SlowAttempt", "profile", "slowest"]


class NodeProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of one logical node.

    Attributes
    ----------
    name, key, category : str
        The node.
    attempts, failed : int
        How many attempts ended, and how many of them failed.
    seconds : float
        How long all ran together.
    median, p95, longest : float
        Seconds that one ran.
    waited : float
        Median of the seconds from when an attempt could begin until it began.
    processor : float
        Processor seconds of all.
    memory : int
        Largest resident memory of a process meanwhile, in bytes; 0 if it is not known.
    read, written : int
        Bytes of all inputs and outputs.
    """

    name: str
    key: str
    category: str
    attempts: int
    failed: int
    seconds: float
    median: float
    p95: float
    longest: float
    waited: float
    processor: float
    memory: int
    read: int
    written: int


class SlowAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: its drop, how long it waited and ran, and when it began, in seconds since the epoch."""

    drop: str
    attempt: int
    failed: bool
    waited: float
    ran: float
    began: float


def profile(graph: PhysicalGraph, records: npt.NDArray[Any]) -> tuple[NodeProfile, ...]:
    """Return what the attempts of each logical node took, those that took most together first.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph of the session.
    records : array of `dropflow.engine.attempt_times.RECORD`
        Its attempts, of all nodes.
    """
    found = _profiles(graph, records)
    return tuple(sorted(found, key=lambda node: (-node.seconds, node.name)))


def slowest(graph: PhysicalGraph, records: npt.NDArray[Any], most: int) -> tuple[SlowAttempt, ...]:
    """Return the attempts that ran longest, the longest first."""
    order = np.argsort(-records["ran"], kind="stable")[:most]
    return tuple(
        SlowAttempt(
            drop=oid(graph, int(one["drop"])),
            attempt=abs(int(one["attempt"])),
            failed=bool(one["attempt"] < 0),
            waited=float(one["waited"] + one["queued"]),
            ran=float(one["ran"]),
            began=float(one["ready"] + one["waited"] + one["queued"]),
        )
        for one in records[order]
    )


def _profiles(graph: PhysicalGraph, records: npt.NDArray[Any]) -> Iterator[NodeProfile]:
    template_of = graph.template[records["drop"]]
    order = np.argsort(template_of, kind="stable")
    rows, first = np.unique(template_of[order], return_index=True)
    for row, group in zip(rows.tolist(), np.split(records[order], first[1:]), strict=True):
        template = graph.templates[row]
        ran = group["ran"].astype(np.float64)
        median, p95 = np.quantile(ran, (0.5, 0.95)).tolist()
        yield NodeProfile(
            name=template.name,
            key=template.key,
            category=template.category,
            attempts=len(group),
            failed=int(np.count_nonzero(group["attempt"] < 0)),
            seconds=float(ran.sum()),
            median=median,
            p95=p95,
            longest=float(ran.max()),
            waited=float(np.median(group["waited"] + group["queued"])),
            processor=float(group["processor"].sum(dtype=np.float64)),
            memory=int(group["memory"].max()),
            read=int(group["read"].sum(dtype=np.float64)),
            written=int(group["written"].sum(dtype=np.float64)),
        )
