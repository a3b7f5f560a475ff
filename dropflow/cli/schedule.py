"""``dropflow schedule``: the simulated course of a plan, as a trace or a picture."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import graph_argument, output_options, prefix_option, setting_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.partition import graph_to_plan
from dropflow.cli.picture_files import check_targets, replacing
from dropflow.cli.planning_options import (
    PlanningChoice,
    machines_and_parts,
    machines_option,
    note_problems,
    planning_options,
)

__all__ = ["command"]


class ScheduleReply(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated run, and the files that were written."""

    ok: bool = True
    algorithm: str
    parts: int
    nodes_used: int
    makespan_s: float
    lower_bound_s: float
    bytes_moved: float
    files: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Completion time and files."""
        yield f"{self.makespan_s:,.6g} s by {self.algorithm}, lower bound {self.lower_bound_s:,.6g} s"
        for file in self.files:
            yield f"  {file}"


@click.command("schedule")
@output_options
@graph_argument
@setting_options
@prefix_option
@click.option(
    "-k",
    "--parts",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of parts; that of GRAPH if it is partitioned, else one for each node of --nodes.",
)
@planning_options
@machines_option
@click.option("--trace", metavar="FILE", help="Write the run as a trace (JSON), for https://ui.perfetto.dev.")
@click.option("--svg", metavar="FILE", help="Write the run as a picture (SVG).")
@click.option("--png", metavar="FILE", help="Write the run as a picture (PNG); needs the extra png.")
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
    trace: str | None,
    svg: str | None,
    png: str | None,
) -> Exit:
    """Simulate how GRAPH runs on nodes, and write the timeline.

    A graph that is partitioned is simulated as it is, unless -k asks for other parts.
    """
    from dropflow.times.picture import write_png, write_svg
    from translator.partition.registry import machines_for, plan
    from translator.planning.graph_work import work_of
    from translator.planning.judge import lower_bound, verdict_of
    from translator.planning.simulation import simulate
    from translator.planning.timeline_picture import timeline_picture
    from translator.planning.timeline_trace import perfetto_trace

    check_targets(trace, svg, png)
    whole = graph_to_plan(output, graph, choice, configuration=configuration, settings=settings, prefix=prefix)
    is_planned = whole.parts > 1 and parts is None
    where, count = machines_and_parts(output, machines, whole.parts if is_planned and machines is None else parts)
    options, algorithm = choice.options(count), "an earlier command"
    note_problems(output, whole, options, where)
    if not is_planned:
        made = plan(whole, options, where)
        whole, algorithm = made.graph, made.algorithm
    nodes, work = machines_for(options, where), work_of(whole)
    _check_parts(whole.parts, len(nodes.nodes))
    bound = lower_bound(whole, work, nodes)
    run = simulate(work, nodes, whole.part, whole.priority)
    verdict = verdict_of(work, nodes, whole.part, run, bound)
    if trace is not None:
        with replacing(Path(trace)) as stream:
            stream.writelines(perfetto_trace(whole, work, nodes, run))
    for file, write in ((svg, write_svg), (png, write_png)):
        if file is not None:
            with replacing(Path(file)) as stream:
                write(timeline_picture(whole, work, nodes, run), stream)
    output.answer(
        ScheduleReply(
            algorithm=algorithm,
            parts=verdict.parts,
            nodes_used=verdict.nodes_used,
            makespan_s=verdict.makespan_s,
            lower_bound_s=bound,
            bytes_moved=verdict.bytes_moved,
            files=tuple(file for file in (trace, svg, png) if file is not None),
        )
    )
    return Exit.FINISHED


def _check_parts(parts: int, nodes: int) -> None:
    from dropflow.errors import UsageError

    if parts > nodes:
        text = f"{parts} parts cannot be on {nodes} nodes"
        raise UsageError(text, hint=f"describe {parts} nodes, or partition again with -k {nodes}")
