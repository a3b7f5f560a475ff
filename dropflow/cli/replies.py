"""What the commands about graphs answer. Each reply is its JSON; `lines` is its text for people."""

from collections.abc import Iterator
from typing import TypedDict

import msgspec

from dropflow.cli.refusal import problem_lines
from dropflow.cli.tables import columns, plural, readable_bytes
from dropflow.errors import DropflowError
from dropflow.graph.physical import PhysicalGraph
from dropflow.problems import Problem, Severity

__all__ = [
    "CheckReply",
    "Counts",
    "ExplainReply",
    "InfoReply",
    "NodeCount",
    "PaletteReply",
    "PartitionReply",
    "UnrollReply",
    "VersionReply",
    "as_problems",
    "counts",
]


class VersionReply(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of dropflow, of Python, and of the libraries below."""

    ok: bool = True
    dropflow: str
    python: str
    platform: str
    libraries: dict[str, str]

    def lines(self) -> Iterator[str]:
        """One line each."""
        yield f"dropflow {self.dropflow}, Python {self.python}, {self.platform}"
        yield from columns(list(self.libraries.items()))


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be said against a graph without unrolling it."""

    ok: bool
    format: str
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """All findings, then the verdict."""
        yield from problem_lines(self.problems)
        counts = {severity: sum(found.severity is severity for found in self.problems) for severity in Severity}
        errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        found = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
        family = f" ({self.format})" if self.format else ""
        yield f"{'usable' if self.ok else 'not usable'}{family}: {found}"


class UnrollReply(msgspec.Struct, frozen=True, kw_only=True):
    """How large a graph is once it is unrolled, or why it cannot be.

    `edges` counts pairs of drops that are joined, `connections` counts their ports too: two drops that are joined at
    two ports are one edge and two connections.
    """

    ok: bool
    format: str
    drops: int = 0
    data_drops: int = 0
    app_drops: int = 0
    edges: int = 0
    connections: int = 0
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """The counts, after warnings; or the problems."""
        if not self.ok:
            yield from problem_lines(self.problems)
            yield "cannot be translated"
            return
        yield from problem_lines(self.problems, least=Severity.WARNING)
        counts = [
            ("drops", self.drops),
            ("data drops", self.data_drops),
            ("app drops", self.app_drops),
            ("edges", self.edges),
        ]
        yield f"{self.format} graph"
        yield from columns(counts)


class PartitionReply(msgspec.Struct, frozen=True, kw_only=True):
    """How good a partition is.

    Attributes
    ----------
    cut_edges : int
        Edges whose ends are in different parts.
    volume_moved : float
        Data volume that crosses between parts, in the unit of the graph.
    imbalance : float
        How much the load of the heaviest part exceeds the mean, in percent.
    loads : tuple of float
        Core seconds of each part.
    part_drops : tuple of int
        Drops of each part.
    acyclic : bool
        Whether the parts could run one after the other.
    """

    ok: bool = True
    algorithm: str
    parts: int
    drops: int
    edges: int
    cut_edges: int
    volume_moved: float
    imbalance: float
    acyclic: bool
    loads: tuple[float, ...] = ()
    part_drops: tuple[int, ...] = ()
    places: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The measures, then the load of each part (the first twenty)."""
        share = 100 * self.cut_edges / max(self.edges, 1)
        yield f"{plural(self.drops, 'drop')} in {plural(self.parts, 'part')} by {self.algorithm}"
        yield f"  cut edges   {self.cut_edges:,} of {self.edges:,} ({share:.1f} %)"
        yield f"  data moved  {self.volume_moved:,.6g}"
        yield f"  imbalance   {self.imbalance:.1f} %"
        names = self.places or tuple(f"part {part}" for part in range(self.parts))
        shown = 20
        rows = list(zip(names, self.part_drops, self.loads, strict=True))[:shown]
        yield from columns(rows, header=("part", "drops", "load"))
        if self.parts > shown:
            yield f"  ... and {self.parts - shown} more"


class NodeCount(msgspec.Struct, frozen=True, kw_only=True):
    """One logical node of a physical graph and how many drops it became."""

    name: str
    category: str
    component: str
    shape: tuple[int, ...]
    drops: int


class InfoReply(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a physical graph."""

    ok: bool = True
    name: str
    prefix: str
    drops: int
    data_drops: int
    app_drops: int
    edges: int
    connections: int
    parts: int
    places: tuple[str, ...]
    levels: int
    critical_path: float
    bytes: int
    digest: str
    nodes: tuple[NodeCount, ...]

    def lines(self) -> Iterator[str]:
        """Totals, then one line per logical node."""
        yield self.name
        yield (
            f"  {plural(self.drops, 'drop')} ({self.data_drops:,} data, {self.app_drops:,} applications), "
            f"{plural(self.edges, 'edge')}, {plural(self.levels, 'level')}"
        )
        where = f" on {', '.join(self.places)}" if self.places else ""
        yield f"  {plural(self.parts, 'part')}{where}, critical path {self.critical_path:,.6g}"
        yield f"  {readable_bytes(self.bytes)} in memory, digest {self.digest[:16]}"
        rows = [
            (node.name, node.category, " x ".join(map(str, node.shape)) or "1", node.drops, node.component)
            for node in self.nodes
        ]
        yield from columns(rows, header=("node", "category", "shape", "drops", "component"))


class ExplainReply(msgspec.Struct, frozen=True, kw_only=True):
    """Why a drop is where it is; `session` is the state of the run, as far as its journal goes."""

    ok: bool = True
    session: str
    drop: str
    state: str
    reasons: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """The drop, then the reasons."""
        yield self.drop
        yield from (f"  {reason}" for reason in self.reasons)


class PaletteReply(msgspec.Struct, frozen=True, kw_only=True):
    """Which generated files were written, or are out of date."""

    ok: bool
    written: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    components: int = 0

    def lines(self) -> Iterator[str]:
        """One line per file."""
        for path in self.written:
            yield f"wrote {path}"
        for path in self.stale:
            yield f"out of date: {path} (run dropflow palette build)"
        if not self.written and not self.stale:
            yield f"up to date: {plural(self.components, 'component')}"


def as_problems(error: DropflowError) -> tuple[Problem, ...]:
    """The findings that an error carries, or the error itself as the only one."""
    found = tuple(item for item in getattr(error, "problems", ()) if isinstance(item, Problem))
    only = Problem(code=error.code, severity=Severity.ERROR, where=error.where, text=error.text, hint=error.hint)
    return found or (only,)


class Counts(TypedDict):
    """Sizes of a physical graph; `edges` counts pairs of drops, `connections` pairs of their ports."""

    drops: int
    data_drops: int
    app_drops: int
    edges: int
    connections: int


def counts(graph: PhysicalGraph) -> Counts:
    """The sizes of `graph`."""
    apps = int(graph.kinds[graph.template].sum(dtype="int64")) if graph.drops else 0
    return Counts(
        drops=graph.drops,
        data_drops=graph.drops - apps,
        app_drops=apps,
        edges=graph.joined_pairs,
        connections=graph.edges,
    )
