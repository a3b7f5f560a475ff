"""``dropflow info``: the contents of a physical graph."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import graph_argument, graphs, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns
from dropflow.formatting import format_size, plural
from dropflow.problems import Problem, Severity

__all__ = [
    "diff_command",
    "info_command",
]


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
def info_command(output: CommandOutput, *, graph: str) -> Exit:
    """Show what is in GRAPH: totals, and one line per logical node with the shape of its index space.

    GRAPH is usually a .dfg file; other graphs are unrolled first.
    """
    import numpy as np

    from dropflow.cli.graph_files import count_drops, note_warnings, read_graph
    from dropflow.graph.codec import digest
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


# ``dropflow diff``: the differences of two logical graphs in meaning.


class DifferenceReply(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: in words, and as values."""

    change: str
    what: str
    where: str
    old: Any = None
    new: Any = None
    text: str


class DiffReply(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two graphs; `same` if there are none."""

    ok: bool
    same: bool
    differences: tuple[DifferenceReply, ...] = ()
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line for each difference."""
        yield from problem_lines(self.problems, least=Severity.ERROR)
        if not self.ok:
            yield "cannot be compared"
        elif self.same:
            yield "the graphs mean the same"
        else:
            signs = {"added": "+", "removed": "-", "changed": "~"}
            yield from (f"{signs[one.change]} {one.text}" for one in self.differences)
            yield plural(len(self.differences), "difference")


@click.command("diff")
@output_options
@click.argument("old", metavar="A", shell_complete=graphs)
@click.argument("new", metavar="B", shell_complete=graphs)
def diff_command(output: CommandOutput, *, old: str, new: str) -> Exit:
    """Show the differences of two logical graphs A and B in meaning.

    Layout, the order of nodes, and old and new spellings of a file make no difference. Exit status 0 if the graphs mean
    the same, 1 if not, 2 if one of them cannot be read.
    """
    from translator.differences import differences
    from translator.formats.load import read_logical
    from translator.formats.read_file import read_file

    readings = []
    for name in (old, new):
        data = sys.stdin.buffer.read() if name == "-" else read_file(Path(name))
        readings.append(read_logical(data, name="stdin" if name == "-" else Path(name).stem))
    problems = tuple(one for reading in readings for one in reading.problems)
    before, after = readings[0].graph, readings[1].graph
    if before is None or after is None:
        output.error(DiffReply(ok=False, same=False, problems=problems))
        return Exit.BAD_INPUT
    found = differences(before, after)
    replies = tuple(msgspec.convert(msgspec.to_builtins(one), DifferenceReply) for one in found)
    output.answer(DiffReply(ok=True, same=not found, differences=replies))
    return Exit.FINISHED if not found else Exit.FAILED
