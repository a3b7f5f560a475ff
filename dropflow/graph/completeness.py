"""How much of the data that a content should be made from is missing, after failures that were tolerated.

The share that is missing at a port is the mean over its inputs: all of one that failed, and of the others what was
missing when they were made. Inputs that a branch has skipped do not count. An application, and what it writes, has the
largest share of its ports. Each content carries its own (`dropflow.execution.content_location.Handle`), so the shares
go along the graph, and to other nodes; functions, headers of files, results and explanations show these.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dropflow.graph.drop_counts import IncompleteDrop
from dropflow.graph.order import leaves, reached
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Kind
from dropflow.graph.text_ids import oid
from dropflow.states import DropState

GONE = (DropState.ERROR, DropState.CANCELLED)
_MOST_INCOMPLETE = 1000
"""Incomplete results that are listed, those with the least of their data first."""
_SHOWN_DROPS = 5
"""Failed drops in a line."""

Port = TypeVar("Port", bound=Hashable)


def missing_by_port(inputs: Iterable[tuple[Port, int, float]]) -> dict[Port, float]:
    """Return the share that is missing at each port, from 0 to 1, of the port, state and own share of each input."""
    shares_of: defaultdict[Port, list[float]] = defaultdict(list)
    for port, state, share in inputs:
        if state != DropState.SKIPPED:
            shares_of[port].append(1.0 if state in GONE else share)
    return {port: sum(shares) / len(shares) for port, shares in shares_of.items()}


def missing_share(
    graph: PhysicalGraph, row: int, states: Sequence[int] | npt.NDArray[np.uint8], missing: Mapping[int, float]
) -> float:
    """Return the share that is missing of a drop.

    Parameters
    ----------
    missing : mapping of int to float
        The shares of contents, by drop; of others it is 0.
    """
    if graph.kinds[graph.template[row]] != np.uint8(Kind.APP):
        return missing.get(row, 0.0)
    before = graph.predecessors
    edges = slice(before.ptr[row], before.ptr[row + 1])
    pairs = zip(before.neighbour[edges].tolist(), before.link[edges].tolist(), strict=True)
    ports = [(graph.links[link], source) for source, link in pairs]
    inputs = (
        (link.target_port, int(states[source]), missing.get(source, 0.0))
        for link, source in ports
        if ORDER_PORT not in (link.source_port, link.target_port)
    )
    # A node does not keep what it received from others, but what was written then has the same share.
    written = (missing.get(data, 0.0) for data in graph.successors.of(row))
    return max((*missing_by_port(inputs).values(), *written), default=0.0)


def incomplete_results(graph: PhysicalGraph, missing: Mapping[int, float]) -> tuple[IncompleteDrop, ...]:
    """Return the results that are made from less than all of their data, those with the least first."""
    rows = [row for row in leaves(graph).tolist() if missing.get(row)] if missing else []
    return tuple(
        IncompleteDrop(
            drop=oid(graph, row),
            name=graph.templates[graph.template[row]].name,
            fraction=round(1.0 - missing[row], 6),
        )
        for row in sorted(rows, key=lambda row: -missing[row])[:_MOST_INCOMPLETE]
    )


def completeness_lines(graph: PhysicalGraph, row: int, states: npt.NDArray[np.uint8], missing: float) -> Sequence[str]:
    """Return what a completed drop lacks if a share of its data is missing; otherwise nothing."""
    if states[row] != DropState.COMPLETED or not missing:
        return ()
    upstream = np.sort(reached(graph.predecessors, [row])[0])
    failed = upstream[np.isin(states[upstream], GONE) & (graph.kinds[graph.template[upstream]] == np.uint8(Kind.DATA))]
    names = ", ".join(oid(graph, drop) for drop in failed[:_SHOWN_DROPS].tolist())
    more = f" and {len(failed) - _SHOWN_DROPS} more" if len(failed) > _SHOWN_DROPS else ""
    return (f"it is made from {100 * (1 - missing):.3g} % of its data: {names}{more} failed, and that was tolerated",)
