"""``dropflow partition``, ``translate``, ``schedule`` and ``map``: plans of a graph."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import UNSET, UnsetType

from dropflow.cli.exit_status import Exit
from dropflow.cli.graph_options import (
    PlanningChoice,
    is_url,
    machines_and_parts,
    machines_option,
    note_problems,
    planning_options,
)
from dropflow.cli.option_types import (
    GraphFormat,
    form_option,
    graph_argument,
    output_options,
    prefix_option,
    setting_options,
    target_option,
)
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.progress import columns
from dropflow.cli.times import check_targets, replacing
from dropflow.formatting import plural

__all__ = [
    "PartitionReply",
    "PlansReply",
    "detailed",
    "graph_to_plan",
    "map_command",
    "partition_command",
    "reply_of",
    "schedule_command",
    "translate_command",
]


# The answers of commands that plan.

if TYPE_CHECKING:
    from translator.plan.move_bound import Verdict


_SHOWN_PARTS = 20


class PartitionReply(msgspec.Struct, frozen=True, kw_only=True):
    """How good a plan is.

    Attributes
    ----------
    algorithm : str
        The algorithm that made it.
    parts, nodes_used : int
        Number of parts, and of those that have drops.
    cut_bytes, bytes_moved : float
        Volume of all edges between parts, and bytes that move: each data drop once to each other part.
    imbalance : float
        How much the load of the heaviest part exceeds its share, in percent.
    makespan_s, lower_bound_s : float
        Seconds until the last drop is complete, and seconds that no plan can beat.
    seconds : float
        Seconds that planning took.
    violations : tuple of str
        Constraints that the plan does not keep, such as the imbalance that was asked for; absent if it keeps all.
    note : str
        Why this plan. This and the following are only present if details are asked for.
    bound_with_moves_s : float
        Seconds that no plan can beat, counting what any plan moves.
    bytes_given : float
        Those of the bytes moved that no application makes.
    bytes_between_islands : float
        Those of the bytes moved that go from one island to another.
    island_imbalance : float
        Excess of the heaviest island over the lightest one, in percent.
    loads, memory : tuple of float
        Core seconds of each part, and the largest sum of memory that its applications declare at a time.
    part_drops : tuple of int
        Drops of each part.
    fused, divided : int
        Applications that run as one unit with the one before them, and those that would if the plan did not divide
        their chain.
    dop : int
        Largest number of applications at a time.
    dop_over_time : tuple of pairs
        Times, and the number of applications that run from then on.
    places : tuple of str
        Names of the nodes, if they are known.
    graph : list or str
        The physical graph, if it is in no file.
    """

    ok: bool = True
    algorithm: str
    parts: int
    nodes_used: int
    cut_bytes: float
    bytes_moved: float
    imbalance: float
    makespan_s: float
    lower_bound_s: float
    seconds: float
    violations: tuple[str, ...] | UnsetType = UNSET
    note: str | UnsetType = UNSET
    bound_with_moves_s: float | UnsetType = UNSET
    bytes_given: float | UnsetType = UNSET
    bytes_between_islands: float | UnsetType = UNSET
    island_imbalance: float | UnsetType = UNSET
    edges: int | UnsetType = UNSET
    cut_edges: int | UnsetType = UNSET
    acyclic: bool | UnsetType = UNSET
    fused: int | UnsetType = UNSET
    divided: int | UnsetType = UNSET
    loads: tuple[float, ...] | UnsetType = UNSET
    memory: tuple[float, ...] | UnsetType = UNSET
    part_drops: tuple[int, ...] | UnsetType = UNSET
    dop: int | UnsetType = UNSET
    dop_mean: float | UnsetType = UNSET
    dop_over_time: tuple[tuple[float, int], ...] | UnsetType = UNSET
    places: tuple[str, ...] | UnsetType = UNSET
    graph: msgspec.Raw | str | UnsetType = UNSET

    def lines(self) -> Iterator[str]:
        """The measures, then the load of each of the first parts, if there are details."""
        ratio = self.makespan_s / self.lower_bound_s if self.lower_bound_s > 0 else 1.0
        yield f"{plural(self.parts, 'part')} on {plural(self.nodes_used, 'node')} by {self.algorithm}"
        yield f"  completion   {self.makespan_s:,.6g} s, {ratio:.3f} of the lower bound {self.lower_bound_s:,.6g} s"
        yield f"  data moved   {self.bytes_moved:,.6g} bytes ({self.cut_bytes:,.6g} on cut edges)"
        yield f"  imbalance    {self.imbalance:.1f} %"
        if isinstance(self.fused, int) and (self.fused or self.divided):
            chains = f"{plural(self.fused, 'application')} run in one unit with the one before"
            yield f"  chains       {chains}, {self.divided} more would if their chain were in one part"
        if isinstance(self.violations, tuple):
            yield from (f"  not kept     {text}" for text in self.violations)
        if isinstance(self.note, str) and self.note:
            yield f"  {self.note}"
        loads, drops = self.loads, self.part_drops
        if isinstance(loads, tuple) and isinstance(drops, tuple):
            names = self.places if isinstance(self.places, tuple) else tuple(f"#{part}" for part in range(len(loads)))
            rows = list(zip(names, drops, loads, strict=False))[:_SHOWN_PARTS]
            yield from columns(rows, header=("part", "drops", "load"))
            if len(loads) > _SHOWN_PARTS:
                yield f"  ... and {len(loads) - _SHOWN_PARTS} more"


class PlansReply(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of several algorithms side by side, and the errors of those that made none."""

    ok: bool = True
    plans: tuple[PartitionReply, ...]
    failed: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """One line for each algorithm."""
        rows = [
            (
                one.algorithm,
                one.nodes_used,
                one.makespan_s,
                one.makespan_s / one.lower_bound_s if one.lower_bound_s > 0 else 1.0,
                one.bytes_moved,
                one.imbalance,
                one.seconds,
            )
            for one in self.plans
        ]
        header = ("algorithm", "nodes", "completion s", "of bound", "bytes moved", "imbalance %", "planning s")
        yield from columns(rows, header=header)
        for one in self.plans:
            if isinstance(one.violations, tuple):
                yield from (f"  {one.algorithm}: {text}" for text in one.violations)
        for name, text in self.failed.items():
            yield f"  {name}: {text}"


def reply_of(algorithm: str, verdict: "Verdict", seconds: float) -> PartitionReply:
    """Return the answer without details."""
    return PartitionReply(
        algorithm=algorithm,
        parts=verdict.parts,
        nodes_used=verdict.nodes_used,
        cut_bytes=verdict.cut_bytes,
        bytes_moved=verdict.bytes_moved,
        imbalance=verdict.imbalance,
        makespan_s=verdict.makespan_s,
        lower_bound_s=verdict.lower_bound_s,
        seconds=round(seconds, 6),
        violations=verdict.violations or UNSET,
    )


if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from translator.plan.machines import Machines
    from translator.plan.move_bound import Verdict


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
def partition_command(
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
    from translator.plan.move_bound import judge
    from translator.plan.registry import machines_of_plan, plan, promised_imbalance

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
    from translator.plan.registry import compared

    plans = list(compared(graph, choice.options(parts), machines))
    made = tuple(reply_of(one.algorithm, one.verdict, one.seconds) for one in plans if one.verdict is not None)
    return PlansReply(
        ok=bool(made), plans=made, failed={one.algorithm: one.problem for one in plans if one.verdict is None}
    )


def detailed(reply: PartitionReply, graph: "PhysicalGraph", verdict: "Verdict", note: str) -> PartitionReply:
    """Return the answer with what is known about each part."""
    from translator.plan.quality import quality_of

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


# ``dropflow translate``: make a placed or partitioned physical graph from a logical graph, in one step.


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
def translate_command(
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
    from translator.placement import place
    from translator.plan.move_bound import judge
    from translator.plan.registry import machines_of_plan, plan, promised_imbalance

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


# ``dropflow map``: assign the parts of a physical graph to nodes.


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
def map_command(
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
    from translator.placement import place
    from translator.plan.move_bound import judge
    from translator.plan.registry import machines_for, plan, promised_imbalance

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


# ``dropflow schedule``: the simulated course of a plan, as a trace or a picture.


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
def schedule_command(
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
    from dropflow.times.timeline_files import write_png, write_svg
    from translator.plan.judge import simulate
    from translator.plan.move_bound import lower_bound, verdict_of
    from translator.plan.registry import machines_for, plan
    from translator.plan.task_graph import work_of
    from translator.plan.timeline import timeline_picture
    from translator.plan.timeline_trace import perfetto_trace

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
