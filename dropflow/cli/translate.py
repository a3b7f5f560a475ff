"""``dropflow translate``: make a placed or partitioned physical graph from a logical graph, in one step."""

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
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.partition import detailed, graph_to_plan
from dropflow.cli.plan_reply import reply_of
from dropflow.cli.planning_options import (
    PlanningChoice,
    machines_and_parts,
    machines_option,
    note_problems,
    planning_options,
)

__all__ = ["command"]


@click.command("translate")
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
    help="Number of parts; by default one for each node of --nodes, or 1.",
)
@planning_options
@machines_option
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
    target: str | None,
    form: GraphFormat | None,
) -> Exit:
    """Translate GRAPH: fill its parameters, check, unroll, partition and, with --nodes, place it.

    The physical graph goes to FILE, or to standard output where no file is named. With a file, the answer is how good
    the plan is; with --output json and without -o, it has the graph, too. A graph that has parts already keeps them.
    """
    from dropflow.cli.graph_files import graph_for_answer, graph_target
    from translator.partition.registry import machines_of_plan, plan, promised_imbalance
    from translator.placement import place
    from translator.planning.judge import judge

    inside = target is None and output.kind is OutputKind.JSON
    written = graph_target("-" if target is None else target, form)
    where, count = machines_and_parts(output, machines, parts or (1 if machines is None else None))
    made = graph_to_plan(output, graph, choice, configuration=configuration, settings=settings, prefix=prefix)
    algorithm, note, seconds = "an earlier command", "", 0.0
    if made.parts == 1:
        options = choice.options(count)
        note_problems(output, made, options, where)
        begun = time.perf_counter()
        done = plan(made, options, where)
        made, algorithm, note, seconds = done.graph, done.algorithm, done.note, time.perf_counter() - begun
    if where is not None:
        made = place(made, [node.name for node in where.nodes])
    if not inside:
        written.write(made)
        if written.is_standard_output:
            return Exit.FINISHED
    options = choice.options(max(count, made.parts))
    verdict = judge(made, machines_of_plan(made, options, where), imbalance=promised_imbalance(options))
    reply = detailed(reply_of(algorithm, verdict, seconds), made, verdict, note)
    if inside:
        reply = msgspec.structs.replace(reply, graph=graph_for_answer(made, form))
    output.answer(msgspec.structs.replace(reply, places=made.places) if made.places else reply)
    return Exit.FINISHED
