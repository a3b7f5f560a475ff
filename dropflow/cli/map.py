"""``dropflow map``: assign the parts of a physical graph to nodes."""

import click

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
from dropflow.cli.partition import algorithm_option, answer_with, graph_for_others

__all__ = ["command"]


@click.command("map")
@output_options
@graph_argument
@setting_options
@prefix_option
@click.option(
    "--nodes", required=True, metavar="NODE,NODE...", help="Names of the nodes; as many parts are made as needed."
)
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
    nodes: str,
    algorithm: str,
    target: str | None,
    form: GraphFormat | None,
) -> Exit:
    """Place GRAPH on nodes: part k of it on the k-th node.

    A graph without parts is partitioned first, into one part per node.
    """
    from dropflow.cli.graph_files import graph_target
    from translator.partition.registry import partition
    from translator.placement import place
    from translator.stage_options import PartitionOptions

    written = None if target is None else graph_target(target, form)
    parted = graph_for_others(output, graph, configuration=configuration, settings=settings, prefix=prefix)
    names = [name.strip() for name in nodes.split(",")]
    if parted.parts == 1:
        parted = partition(parted, PartitionOptions(algorithm=algorithm, parts=len(names)))
    else:
        algorithm = "an earlier command"
    answer_with(output, place(parted, names), algorithm, written)
    return Exit.FINISHED
