"""``dropflow partition``: assign the drops of a graph to parts, and report how good the plan is."""

import time
from dataclasses import replace
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
from dropflow.cli.plan_reply import PartitionReply, PlansReply, reply_of
from dropflow.cli.planning_options import (
    PlanningChoice,
    machines_and_parts,
    machines_option,
    note_problems,
    planning_options,
)

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from translator.planning.judge import Verdict
    from translator.planning.machines import Machines

__all__ = ["command", "detailed", "graph_to_plan"]


@click.command("partition")
@output_options
@graph_argument
@setting_options
@prefix_option
@click.option(
    "-k",
    "-n",
    "--parts",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of parts; by default one for each node of --nodes.",
)
@planning_options
@machines_option
@click.option("--compare", is_flag=True, help="Show the plans of all algorithms side by side instead.")
@click.option("--details", is_flag=True, help="Add loads, drops, memory and parallelism to the answer.")
@target_option
@form_option
def command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
    parts: int | None,
    choice: PlanningChoice,
    machines: str | None,
    compare: bool,
    details: bool,
    target: str | None,
    form: GraphFormat | None,
) -> Exit:
    """Partition GRAPH and report how good the partition is.

    GRAPH is a logical graph, a physical graph (JSON or .dfg) or a workflow of WfCommons. Part k is planned for the k-th
    node. The partitioned graph goes to FILE, with the priorities of its applications. With -o - it goes to standard
    output, and takes the place of the answer.
    """
    from dropflow.cli.graph_files import graph_target
    from dropflow.errors import UsageError
    from translator.partition.registry import machines_of_plan, plan, promised_imbalance
    from translator.planning.judge import judge

    if compare and target is not None:
        raise UsageError("--compare writes no graph", hint="leave out -o, or choose an --algorithm")
    written = None if target is None else graph_target(target, form)
    where, count = machines_and_parts(output, machines, parts)
    whole = graph_to_plan(output, graph, choice, configuration=configuration, settings=settings, prefix=prefix)
    options = choice.options(count)
    if compare:
        output.answer(_compared(whole, choice, where, count))
        return Exit.FINISHED
    note_problems(output, whole, options, where)
    begun = time.perf_counter()
    made = plan(whole, options, where)
    seconds = time.perf_counter() - begun
    if written is not None:
        written.write(made.graph)
        if written.is_standard_output:
            return Exit.FINISHED
    verdict = judge(made.graph, machines_of_plan(whole, options, where), imbalance=promised_imbalance(options))
    reply = reply_of(made.algorithm, verdict, seconds)
    output.answer(detailed(reply, made.graph, verdict, made.note) if details else _noted(output, reply, made.note))
    return Exit.FINISHED


def _noted(output: CommandOutput, reply: PartitionReply, note: str) -> PartitionReply:
    """Return the answer, with the reason of `auto` for people."""
    return msgspec.structs.replace(reply, note=note) if output.kind == "table" and note else reply


def _compared(graph: "PhysicalGraph", choice: PlanningChoice, machines: "Machines | None", parts: int) -> PlansReply:
    """Return the plans of all algorithms."""
    from translator.partition.comparison import compared

    plans = list(compared(graph, choice.options(parts), machines))
    made = tuple(reply_of(one.algorithm, one.verdict, one.seconds) for one in plans if one.verdict is not None)
    return PlansReply(
        ok=bool(made), plans=made, failed={one.algorithm: one.problem for one in plans if one.verdict is None}
    )


def detailed(reply: PartitionReply, graph: "PhysicalGraph", verdict: "Verdict", note: str) -> PartitionReply:
    """Return the answer with what is known about each part."""
    from translator.partition.quality import quality_of

    quality = quality_of(replace(graph, places=()))
    padding = (0,) * (verdict.parts - quality.parts)
    return msgspec.structs.replace(
        reply,
        note=note,
        bound_with_moves_s=verdict.bound_with_moves_s,
        bytes_given=verdict.bytes_given,
        island_imbalance=verdict.island_imbalance,
        bytes_between_islands=verdict.bytes_between_islands,
        edges=quality.edges,
        cut_edges=quality.cut_edges,
        acyclic=quality.acyclic,
        fused=quality.fused,
        divided=quality.divided,
        loads=verdict.loads,
        memory=verdict.memory,
        part_drops=(*quality.drops, *padding),
        dop=verdict.dop,
        dop_mean=verdict.dop_mean,
        dop_over_time=verdict.dop_over_time,
    )


def graph_to_plan(
    output: CommandOutput,
    graph: str,
    choice: PlanningChoice,
    *,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
) -> "PhysicalGraph":
    """Return the physical graph of a file, with what earlier runs have measured.

    What cannot run on this host is a warning, as the graph may run on other hosts.
    """
    from dropflow.cli.graph_files import note_warnings, read_graph

    done = read_graph(
        graph,
        configuration=configuration,
        settings=settings,
        prefix=prefix,
    )
    note_warnings(output, done.problems)
    return choice.measured(output, done.graph)
