"""``dropflow info``: the contents of a physical graph."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import graph_argument, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns
from dropflow.formatting import format_size, plural

__all__ = ["command"]


class NodeCount(msgspec.Struct, frozen=True, kw_only=True):
    """A logical node of a physical graph and the number of its drops."""

    name: str
    category: str
    component: str
    shape: tuple[int, ...]
    drops: int


class InfoReply(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a physical graph."""

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
        yield f"  {format_size(self.bytes)} in memory, digest {self.digest[:16]}"
        rows = [
            (node.name, node.category, " x ".join(map(str, node.shape)) or "1", node.drops, node.component)
            for node in self.nodes
        ]
        yield from columns(rows, header=("node", "category", "shape", "drops", "component"))


@click.command("info")
@output_options
@graph_argument
def command(output: CommandOutput, *, graph: str) -> Exit:
    """Show what is in GRAPH: totals, and one line per logical node with the shape of its index space.

    GRAPH is usually a .dfg file; other graphs are unrolled first.
    """
    import numpy as np

    from dropflow.cli.graph_files import count_drops, note_warnings, read_graph
    from dropflow.graph.digest import digest
    from dropflow.graph.order import critical_path, levels

    done = read_graph(graph)
    note_warnings(output, done.problems)
    physical = done.graph
    sizes = np.bincount(physical.template, minlength=len(physical.templates))
    out = physical.successors
    arrays = (physical.template, physical.instance, physical.part, out.ptr, out.neighbour, out.link)
    output.answer(
        InfoReply(
            name=physical.name,
            prefix=physical.prefix,
            parts=physical.parts,
            places=physical.places,
            levels=int(levels(physical).max(initial=-1)) + 1,
            critical_path=critical_path(physical).length,
            bytes=sum(array.nbytes for array in arrays),
            digest=digest(physical),
            nodes=tuple(
                NodeCount(
                    name=template.name,
                    category=template.category,
                    component=template.component,
                    shape=template.shape,
                    drops=int(size),
                )
                for template, size in zip(physical.templates, sizes, strict=True)
            ),
            **count_drops(physical),
        )
    )
    return Exit.FINISHED
