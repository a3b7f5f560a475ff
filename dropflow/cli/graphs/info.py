"""``dropflow info``: what is in a physical graph, and what a logical graph will become."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.common_options import graph_argument, output_options, setting_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.failure import Severity
from dropflow.formatting import format_size, plural

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.graph.templates import Template
    from translator.graph_sizes import GraphSizes, ParallelPhase
    from translator.logical import LogicalGraph
    from translator.unroll import GraphOutline
_TIME_BARS = 20
"""Bars of the histogram of running applications."""
_BAR_CHARACTERS = 40
"""Characters of the longest bar."""


class NodeCount(msgspec.Struct, frozen=True, kw_only=True):
    """A logical node and the number of its drops."""

    name: str
    category: str
    component: str
    shape: tuple[int, ...]
    drops: int

    @classmethod
    def of(cls, template: "Template", drops: int) -> "NodeCount":
        """Return the record of a logical node."""
        return cls(
            name=template.name,
            category=template.category,
            component=template.component,
            shape=template.shape,
            drops=drops,
        )


class PhysicalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that only a physical graph has: `edges` counts pairs of drops, and `connections` pairs of their ports."""

    prefix: str
    edges: int
    parts: int
    places: tuple[str, ...]
    levels: int
    critical_path: float
    bytes: int
    digest: str


class InfoReply(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a graph: `physical` of a physical one, `preview` of a logical one.

    The critical path of a logical graph is the least time of a session, and its phases are the degree of parallelism
    over time, both with as many processors as can be used. They are empty if loops make the graph too large.
    """

    ok: bool = True
    format: str
    name: str
    drops: int
    data_drops: int
    app_drops: int
    connections: int
    nodes: tuple[NodeCount, ...]
    physical: PhysicalInfo | None = None
    preview: "GraphSizes | None" = None

    def lines(self) -> Iterator[str]:
        """Totals, one line per logical node, and of a logical graph a bar for each part of the time."""
        yield f"{self.name} ({self.format})"
        counts = f"{plural(self.drops, 'drop')} ({self.data_drops:,} data, {plural(self.app_drops, 'application')})"
        if self.physical is not None:
            shape = self.physical
            yield f"  {counts}, {plural(shape.edges, 'edge')}, {plural(shape.levels, 'level')}"
            where = f" on {', '.join(shape.places)}" if shape.places else ""
            yield f"  {plural(shape.parts, 'part')}{where}, critical path {shape.critical_path:,.6g}"
            yield f"  {format_size(shape.bytes)} in memory, digest {shape.digest[:16]}"
        else:
            yield f"  {counts}, {plural(self.connections, 'edge')}"
        made = self.preview
        if made is not None:
            yield f"  data volume {made.volume:,.6g}, work {made.work:,.6g} core seconds"
        if made is not None and made.critical_path is not None:
            cores = f"at most {plural(made.most_cores, 'core')}, {made.mean_cores:,.4g} on average"
            yield f"  critical path {made.critical_path:,.6g} s, {cores}"
        rows = [
            (node.name, node.category, " x ".join(map(str, node.shape)) or "1", node.drops, node.component)
            for node in self.nodes
        ]
        yield from columns(rows, header=("node", "category", "shape", "drops", "component"))
        if made is not None and made.critical_path and made.phases:
            yield "applications that run, by time in seconds"
            yield from _bars(made.phases, made.critical_path)


def _bars(phases: "Sequence[ParallelPhase]", end: float) -> Iterator[str]:
    """Yield a bar for each part of the time: the mean number of applications that run in it."""
    step = end / _TIME_BARS
    means = [
        sum(max(min(phase.end, at + step) - max(phase.start, at), 0.0) * phase.running for phase in phases) / step
        for at in (number * step for number in range(_TIME_BARS))
    ]
    most = max(means) or 1.0
    for number, mean in enumerate(means):
        yield f"  {number * step:>12,.6g}  {'#' * round(mean / most * _BAR_CHARACTERS):<{_BAR_CHARACTERS}}  {mean:,.4g}"


@click.command("info")
@output_options
@graph_argument
@setting_options
def info_command(output: CommandOutput, *, graph: str, configuration: str | None, settings: tuple[str, ...]) -> Exit:
    """Show what is in GRAPH: totals, and one line per logical node with the shape of its index space.

    For a logical graph, these are the drops, edges and volumes that it will have, its critical path, and how many
    applications run over time.
    Graphs that are too large to be unrolled can be shown, too. Times come from the execution times in the graph, with
    as many processors as can be used.
    """
    from dropflow.cli.graphs.graph_files import examine_graph, note_warnings
    from translator.pipeline import finish
    from translator.problem_codes import TOO_LARGE

    examined = examine_graph(graph, configuration=configuration, settings=settings)
    errors = [problem for problem in examined.problems if problem.severity is Severity.ERROR]
    if examined.logical is None or examined.outline is None or any(error.code != TOO_LARGE for error in errors):
        finish(examined)  # raises if there are errors
    note_warnings(output, examined.problems)
    if examined.logical is None or examined.outline is None:
        output.answer(_physical_info(examined.family, finish(examined).graph))
    else:
        output.answer(_logical_info(examined.family, examined.logical, examined.outline))
    return Exit.FINISHED


def _logical_info(family: str, graph: "LogicalGraph", outline: "GraphOutline") -> InfoReply:
    from translator.graph_sizes import graph_sizes

    made = graph_sizes(graph, outline)
    return InfoReply(
        format=family,
        name=graph.name,
        drops=made.drops,
        data_drops=made.data_drops,
        app_drops=made.app_drops,
        connections=made.edges,
        nodes=tuple(
            NodeCount.of(template, size) for template, size in zip(outline.templates, outline.sizes, strict=True)
        ),
        preview=made,
    )


def _physical_info(family: str, graph: "PhysicalGraph") -> InfoReply:
    import numpy as np

    from dropflow.cli.graphs.graph_files import count_drops
    from dropflow.graph.codec import digest
    from dropflow.graph.order import critical_path, levels

    sizes = np.bincount(graph.template, minlength=len(graph.templates))
    out = graph.successors
    arrays = (graph.template, graph.instance, graph.part, out.ptr, out.neighbour, out.link)
    counts = count_drops(graph)
    return InfoReply(
        format=family,
        name=graph.name,
        nodes=tuple(NodeCount.of(template, int(size)) for template, size in zip(graph.templates, sizes, strict=True)),
        physical=PhysicalInfo(
            prefix=graph.prefix,
            edges=counts["edges"],
            parts=graph.parts,
            places=graph.places,
            levels=int(levels(graph).max(initial=-1)) + 1,
            critical_path=critical_path(graph).length,
            bytes=sum(array.nbytes for array in arrays),
            digest=digest(graph),
        ),
        drops=counts["drops"],
        data_drops=counts["data_drops"],
        app_drops=counts["app_drops"],
        connections=counts["connections"],
    )
