"""What the attempts of each logical node took: times, processor time, memory and bytes, from their records."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.times.planned import planned_seconds
from dropflow.times.statistics import AttemptProfile, NodeProfile

__all__ = ["described", "profile", "slowest"]


def profile(graph: PhysicalGraph, records: npt.NDArray[Any]) -> tuple[NodeProfile, ...]:
    """Return what the attempts of each logical node took, those that took most together first.

    Parameters
    ----------
    graph : PhysicalGraph
        The whole graph of the session.
    records : array of `dropflow.times.records.RECORD`
        Its attempts, of all nodes.
    """
    found = _profiles(graph, records)
    return tuple(sorted(found, key=lambda node: (-node.seconds, node.name)))


def slowest(graph: PhysicalGraph, records: npt.NDArray[Any], most: int) -> tuple[AttemptProfile, ...]:
    """Return the attempts that ran longest, the longest first."""
    return described(graph, records[np.argsort(-records["ran"], kind="stable")[:most]])


def described(graph: PhysicalGraph, records: npt.NDArray[Any]) -> tuple[AttemptProfile, ...]:
    """Return the attempts of some records."""
    return tuple(
        AttemptProfile(
            drop=oid(graph, int(one["drop"])),
            attempt=abs(int(one["attempt"])),
            failed=bool(one["attempt"] < 0),
            waited=float(one["waited"] + one["queued"]),
            ran=float(one["ran"]),
            began=float(one["ready"] + one["waited"] + one["queued"]),
            name=graph.templates[int(graph.template[int(one["drop"])])].name,
            row=int(one["drop"]),
            worker=int(one["worker"]),
            processor=float(one["processor"]),
            memory=int(one["memory"]),
            read=int(one["read"]),
            written=int(one["written"]),
        )
        for one in records
    )


def _profiles(graph: PhysicalGraph, records: npt.NDArray[Any]) -> Iterator[NodeProfile]:
    if not len(records):
        return
    template_of = graph.template[records["drop"]]
    order = np.argsort(template_of, kind="stable")
    rows, first = np.unique(template_of[order], return_index=True)
    planned = planned_seconds(graph)
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
            waited=float(np.median(group["waited"])),
            queued=float(np.median(group["queued"])),
            waited_p95=float(np.quantile(group["waited"] + group["queued"], 0.95)),
            planned=planned[row],
            processor=float(group["processor"].sum(dtype=np.float64)),
            memory=int(group["memory"].max()),
            read=int(group["read"].sum(dtype=np.float64)),
            written=int(group["written"].sum(dtype=np.float64)),
        )
