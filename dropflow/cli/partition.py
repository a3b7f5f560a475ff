"""``dropflow partition``: assign the drops of a physical graph to parts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    GraphFormat,
    form_option,
    graph_argument,
    output_options,
    prefix_option,
    setting_options,
    target_option,
)
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns
from dropflow.formatting import plural

if TYPE_CHECKING:
    from dropflow.cli.graph_files import GraphTarget
    from dropflow.graph.physical import PhysicalGraph

__all__ = ["algorithm_option", "answer_with", "command", "graph_for_others"]

_SHOWN_PARTS = 20

algorithm_option = click.option(
    "-a", "--algorithm", default="metis", show_default=True, metavar="NAME", help="metis, blocks or none."
)


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
        """The measures, then the load of each of the first parts."""
        share = 100 * self.cut_edges / max(self.edges, 1)
        yield f"{plural(self.drops, 'drop')} in {plural(self.parts, 'part')} by {self.algorithm}"
        yield f"  cut edges   {self.cut_edges:,} of {self.edges:,} ({share:.1f} %)"
        yield f"  data moved  {self.volume_moved:,.6g}"
        yield f"  imbalance   {self.imbalance:.1f} %"
        names = self.places or tuple(f"part {part}" for part in range(self.parts))
        rows = list(zip(names, self.part_drops, self.loads, strict=True))[:_SHOWN_PARTS]
        yield from columns(rows, header=("part", "drops", "load"))
        if self.parts > _SHOWN_PARTS:
            yield f"  ... and {self.parts - _SHOWN_PARTS} more"


@click.command("partition")
@output_options
@graph_argument
@setting_options
@prefix_option
@click.option("-n", "--parts", type=click.IntRange(min=1), required=True, help="Number of parts.")
@algorithm_option
@target_option
@form_option
def command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
    parts: int,
    algorithm: str,
    target: str | None,
    form: GraphFormat | None,
) -> Exit:
    """Partition GRAPH and report how good the partition is.

    The partitioned graph goes to FILE. With -o - it goes to standard output, and takes the place of the answer.
    """
    from dropflow.cli.graph_files import graph_target
    from translator.partition.registry import partition
    from translator.stage_options import PartitionOptions

    written = None if target is None else graph_target(target, form)
    whole = graph_for_others(output, graph, configuration=configuration, settings=settings, prefix=prefix)
    parted = partition(whole, PartitionOptions(algorithm=algorithm, parts=parts))
    answer_with(output, parted, algorithm, written)
    return Exit.FINISHED


def graph_for_others(
    output: CommandOutput, graph: str, *, configuration: str | None, settings: tuple[str, ...], prefix: str
) -> "PhysicalGraph":
    """Return the physical graph of a file; what only this host lacks is a warning, as the graph may run elsewhere."""
    from dropflow.cli.graph_files import component_options, note_warnings, read_graph

    done = read_graph(
        graph,
        configuration=configuration,
        settings=settings,
        prefix=prefix,
        components=component_options(elsewhere=True),
    )
    note_warnings(output, done.problems)
    return done.graph


def answer_with(output: CommandOutput, graph: "PhysicalGraph", algorithm: str, target: "GraphTarget | None") -> None:
    """Write the graph to its target, and answer with the quality of its parts unless the graph is the answer."""
    from translator.partition.quality import quality_of

    if target is not None:
        target.write(graph)
        if target.is_standard_output:
            return
    quality = quality_of(graph)
    output.answer(
        PartitionReply(
            algorithm=algorithm,
            parts=quality.parts,
            drops=graph.drops,
            edges=quality.edges,
            cut_edges=quality.cut_edges,
            volume_moved=quality.volume_moved,
            imbalance=quality.imbalance,
            acyclic=quality.acyclic,
            loads=quality.loads,
            part_drops=quality.drops,
            places=graph.places,
        )
    )
