"""The answers of commands that plan."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from dropflow.cli.tables import columns
from dropflow.formatting import plural

if TYPE_CHECKING:
    from translator.planning.judge import Verdict

__all__ = ["PartitionReply", "PlansReply", "reply_of"]

_SHOWN_PARTS = 20


class PartitionReply(msgspec.Struct, frozen=True, kw_only=True):
    """How good a plan is.

    Attributes
    ----------
    algorithm : str
        The algorithm that made it.
    parts, nodes_used : int
        Number of parts, and of those that have drops.
    cut_bytes, bytes_moved : float
        Volume of all edges between parts, and bytes that move: each data drop once to each other part.
    imbalance : float
        How much the load of the heaviest part exceeds its share, in percent.
    makespan_s, lower_bound_s : float
        Seconds until the last drop is complete, and seconds that no plan can beat.
    seconds : float
        Seconds that planning took.
    violations : tuple of str
        Constraints that the plan does not keep, such as the imbalance that was asked for; absent if it keeps all.
    note : str
        Why this plan. This and the following are only present if details are asked for.
    bound_with_moves_s : float
        Seconds that no plan can beat, counting what any plan moves.
    bytes_given : float
        Those of the bytes moved that no application makes.
    bytes_between_islands : float
        Those of the bytes moved that go from one island to another.
    island_imbalance : float
        Excess of the heaviest island over the lightest one, in percent.
    loads, memory : tuple of float
        Core seconds of each part, and the largest sum of memory that its applications declare at a time.
    part_drops : tuple of int
        Drops of each part.
    fused, divided : int
        Applications that run as one unit with the one before them, and those that would if the plan did not divide
        their chain.
    dop : int
        Largest number of applications at a time.
    dop_over_time : tuple of pairs
        Times, and the number of applications that run from then on.
    places : tuple of str
        Names of the nodes, if they are known.
    graph : list or str
        The physical graph, if it is in no file.
    """

    ok: bool = True
    algorithm: str
    parts: int
    nodes_used: int
    cut_bytes: float
    bytes_moved: float
    imbalance: float
    makespan_s: float
    lower_bound_s: float
    seconds: float
    violations: tuple[str, ...] | UnsetType = UNSET
    note: str | UnsetType = UNSET
    bound_with_moves_s: float | UnsetType = UNSET
    bytes_given: float | UnsetType = UNSET
    bytes_between_islands: float | UnsetType = UNSET
    island_imbalance: float | UnsetType = UNSET
    edges: int | UnsetType = UNSET
    cut_edges: int | UnsetType = UNSET
    acyclic: bool | UnsetType = UNSET
    fused: int | UnsetType = UNSET
    divided: int | UnsetType = UNSET
    loads: tuple[float, ...] | UnsetType = UNSET
    memory: tuple[float, ...] | UnsetType = UNSET
    part_drops: tuple[int, ...] | UnsetType = UNSET
    dop: int | UnsetType = UNSET
    dop_mean: float | UnsetType = UNSET
    dop_over_time: tuple[tuple[float, int], ...] | UnsetType = UNSET
    places: tuple[str, ...] | UnsetType = UNSET
    graph: msgspec.Raw | str | UnsetType = UNSET

    def lines(self) -> Iterator[str]:
        """The measures, then the load of each of the first parts, if there are details."""
        ratio = self.makespan_s / self.lower_bound_s if self.lower_bound_s > 0 else 1.0
        yield f"{plural(self.parts, 'part')} on {plural(self.nodes_used, 'node')} by {self.algorithm}"
        yield f"  completion   {self.makespan_s:,.6g} s, {ratio:.3f} of the lower bound {self.lower_bound_s:,.6g} s"
        yield f"  data moved   {self.bytes_moved:,.6g} bytes ({self.cut_bytes:,.6g} on cut edges)"
        yield f"  imbalance    {self.imbalance:.1f} %"
        if isinstance(self.fused, int) and (self.fused or self.divided):
            chains = f"{plural(self.fused, 'application')} run in one unit with the one before"
            yield f"  chains       {chains}, {self.divided} more would if their chain were in one part"
        if isinstance(self.violations, tuple):
            yield from (f"  not kept     {text}" for text in self.violations)
        if isinstance(self.note, str) and self.note:
            yield f"  {self.note}"
        loads, drops = self.loads, self.part_drops
        if isinstance(loads, tuple) and isinstance(drops, tuple):
            names = self.places if isinstance(self.places, tuple) else tuple(f"#{part}" for part in range(len(loads)))
            rows = list(zip(names, drops, loads, strict=False))[:_SHOWN_PARTS]
            yield from columns(rows, header=("part", "drops", "load"))
            if len(loads) > _SHOWN_PARTS:
                yield f"  ... and {len(loads) - _SHOWN_PARTS} more"


class PlansReply(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of several algorithms side by side, and the errors of those that made none."""

    ok: bool = True
    plans: tuple[PartitionReply, ...]
    failed: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """One line for each algorithm."""
        rows = [
            (
                one.algorithm,
                one.nodes_used,
                one.makespan_s,
                one.makespan_s / one.lower_bound_s if one.lower_bound_s > 0 else 1.0,
                one.bytes_moved,
                one.imbalance,
                one.seconds,
            )
            for one in self.plans
        ]
        header = ("algorithm", "nodes", "completion s", "of bound", "bytes moved", "imbalance %", "planning s")
        yield from columns(rows, header=header)
        for one in self.plans:
            if isinstance(one.violations, tuple):
                yield from (f"  {one.algorithm}: {text}" for text in one.violations)
        for name, text in self.failed.items():
            yield f"  {name}: {text}"


def reply_of(algorithm: str, verdict: "Verdict", seconds: float) -> PartitionReply:
    """Return the answer without details."""
    return PartitionReply(
        algorithm=algorithm,
        parts=verdict.parts,
        nodes_used=verdict.nodes_used,
        cut_bytes=verdict.cut_bytes,
        bytes_moved=verdict.bytes_moved,
        imbalance=verdict.imbalance,
        makespan_s=verdict.makespan_s,
        lower_bound_s=verdict.lower_bound_s,
        seconds=round(seconds, 6),
        violations=verdict.violations or UNSET,
    )
