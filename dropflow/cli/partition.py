"""``dropflow partition`` and ``dropflow map``: a physical graph is cut into parts, and the parts get their nodes."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import form_option, graph_argument, prefix_option, setting_options, speaks, target_option

if TYPE_CHECKING:
    from dropflow.cli.output import Output
    from dropflow.graph.physical import PhysicalGraph

__all__ = ["map_command", "partition"]

_algorithm_option = click.option(
    "-a", "--algorithm", default="metis", show_default=True, metavar="NAME", help="metis, blocks or none."
)


@click.command("partition")
@speaks
@graph_argument
@setting_options
@prefix_option
@click.option("-n", "--parts", type=click.IntRange(min=1), required=True, help="Number of parts.")
@_algorithm_option
@target_option
@form_option
def partition(
    output: "Output",
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
    parts: int,
    algorithm: str,
    target: str | None,
    form: str | None,
) -> Exit:
    """Cut GRAPH into parts and say how good the cut is.

    The partitioned graph goes to FILE. With -o - it goes to standard output, and takes the place of the answer.
    """
    from dropflow.cli.sink import format_for
    from translator.options import PartitionOptions
    from translator.partition.registry import partition as cut

    if target is not None:
        form = format_for(target, form)
    translated = _translated(output, graph, configuration=configuration, settings=settings, prefix=prefix)
    _answer(output, cut(translated, PartitionOptions(algorithm=algorithm, parts=parts)), algorithm, target, form)
    return Exit.FINISHED


@click.command("map")
@speaks
@graph_argument
@setting_options
@prefix_option
@click.option(
    "--nodes", required=True, metavar="NODE,NODE...", help="Names of the nodes; as many parts are made as needed."
)
@_algorithm_option
@target_option
@form_option
def map_command(
    output: "Output",
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
    nodes: str,
    algorithm: str,
    target: str | None,
    form: str | None,
) -> Exit:
    """Place GRAPH on nodes: part k of it on the k-th node.

    A graph that has no parts yet is cut into one part per node first.
    """
    from dropflow.cli.sink import format_for
    from translator.options import PartitionOptions
    from translator.partition.registry import partition as cut
    from translator.placement import place

    if target is not None:
        form = format_for(target, form)
    translated = _translated(output, graph, configuration=configuration, settings=settings, prefix=prefix)
    names = [name.strip() for name in nodes.split(",")]
    parted = translated
    if parted.parts == 1:
        parted = cut(parted, PartitionOptions(algorithm=algorithm, parts=len(names)))
    else:
        algorithm = "an earlier command"
    _answer(output, place(parted, names), algorithm, target, form)
    return Exit.FINISHED


def _translated(
    output: "Output", graph: str, *, configuration: str | None, settings: tuple[str, ...], prefix: str
) -> "PhysicalGraph":
    """Return the physical graph to cut; what only this host lacks is a warning, because it may run elsewhere."""
    from dropflow.cli.source import component_options, note_problems, translate_source

    done = translate_source(
        graph,
        configuration=configuration,
        settings=settings,
        prefix=prefix,
        components=component_options(elsewhere=True),
    )
    note_problems(output, done.problems)
    return done.graph


def _answer(output: "Output", graph: "PhysicalGraph", algorithm: str, target: str | None, form: str | None) -> None:
    """Write the graph where it shall go, and say how good its parts are unless it took the place of the answer."""
    from dropflow.cli.replies import PartitionReply
    from dropflow.cli.sink import write_graph
    from translator.partition.quality import quality_of

    if target is not None:
        write_graph(graph, target, form)
    if target == "-":
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
