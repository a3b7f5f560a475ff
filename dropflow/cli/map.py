"""``dropflow map``: assign the parts of a physical graph to nodes."""

import time

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
from dropflow.cli.partition import detailed, graph_to_plan
from dropflow.cli.plan_reply import reply_of
from dropflow.cli.planning_options import PlanningChoice, is_url, machines_and_parts, planning_options

__all__ = ["command"]


@click.command("map")
@output_options
@graph_argument
@setting_options
@prefix_option
@click.option(
    "--nodes",
    required=True,
    metavar="NODE,NODE...",
    help="Names of the nodes, a FILE.toml that describes them, or the URL of their manager; as many parts are made as "
    "needed.",
)
@planning_options
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
    choice: PlanningChoice,
    target: str | None,
    form: GraphFormat | None,
) -> Exit:
    """Place GRAPH on nodes: part k of it on the k-th node.

    A graph without parts is partitioned first, into one part per node.
    """
    from dropflow.cli.graph_files import graph_target
    from translator.partition.registry import machines_for, plan, promised_imbalance
    from translator.placement import place
    from translator.planning.judge import judge

    written = None if target is None else graph_target(target, form)
    described = machines_and_parts(output, nodes, None)[0] if is_url(nodes) or nodes.endswith(".toml") else None
    names = [name.strip() for name in nodes.split(",")] if described is None else [one.name for one in described.nodes]
    parted = graph_to_plan(output, graph, choice, configuration=configuration, settings=settings, prefix=prefix)
    options, algorithm, note, begun = choice.options(len(names)), "an earlier command", "", time.perf_counter()
    if parted.parts == 1:
        made = plan(parted, options, described)
        parted, algorithm, note = made.graph, made.algorithm, made.note
    seconds = time.perf_counter() - begun
    placed = place(parted, names)
    if written is not None:
        written.write(placed)
        if written.is_standard_output:
            return Exit.FINISHED
    verdict = judge(placed, machines_for(options, described), imbalance=promised_imbalance(options))
    reply = detailed(reply_of(algorithm, verdict, seconds), placed, verdict, note)
    output.answer(msgspec.structs.replace(reply, places=placed.places))
    return Exit.FINISHED
