"""Attempts of graphs as some workers would have run them, for tests."""

import heapq
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from dropflow.times.octets import RECORD, TimesSection

BEGIN = 1_000_000.0


def records_of(rows: Sequence[dict[str, float]]) -> npt.NDArray[Any]:
    """Return records with these fields; an attempt is the first one of its drop unless it says otherwise."""
    records = np.zeros(len(rows), RECORD)
    records["attempt"] = 1
    for number, row in enumerate(rows):
        for name, value in row.items():
            records[name][number] = value
    return records


def executed(graph: PhysicalGraph, seed: int, *, nodes: int = 2, workers: int = 2) -> list[list[dict[str, float]]]:
    """Return attempts by node: each application runs where it is free first; some fail once, some wait for messages."""
    random = Random(seed)
    kinds = graph.kinds[graph.template]
    out, into = graph.successors, graph.predecessors
    pending = np.diff(into.ptr).tolist()
    home = [random.randrange(nodes) for _ in range(graph.drops)]
    free = [[(BEGIN, worker + 1) for worker in range(workers)] for _ in range(nodes)]
    rows: list[list[dict[str, float]]] = [[] for _ in range(nodes)]
    queue = [(BEGIN, drop, 1) for drop in range(graph.drops) if not pending[drop]]
    heapq.heapify(queue)
    while queue:
        time, drop, attempt = heapq.heappop(queue)
        if kinds[drop] == Kind.APP:
            node = home[drop]
            at, worker = heapq.heappop(free[node])
            ready = time + random.choice((0, 0, 1)) / 4
            began = max(at, ready) + random.choice((0, 0, 1)) / 8
            ran = random.randint(0, 16) / 4
            lag = random.choice((0, 1)) / 16
            failed = attempt == 1 and random.random() < 0.1
            row = {"drop": drop, "attempt": -attempt if failed else attempt, "worker": worker, "ready": ready}
            rows[node].append(row | {"queued": began - ready, "ran": ran, "committed": lag, "processor": ran})
            heapq.heappush(free[node], (began + ran, worker))
            time = began + ran + lag
            if failed:
                heapq.heappush(queue, (time, drop, attempt + 1))
                continue
        for other in out.neighbour[out.ptr[drop] : out.ptr[drop + 1]].tolist():
            pending[other] -= 1
            if not pending[other]:
                heapq.heappush(queue, (time, other, 1))
    return rows


def sections_of(rows: Sequence[Sequence[dict[str, float]]]) -> list[TimesSection]:
    """Return the sections of nodes ``n0``, ``n1`` and so on."""
    return [
        TimesSection(node=f"n{number}", total=len(found), records=records_of(found))
        for number, found in enumerate(rows)
    ]
