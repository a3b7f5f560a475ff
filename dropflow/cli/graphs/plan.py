"""``dropflow unroll``, ``partition``, ``map``, ``schedule`` and ``translate``: from a graph to its plan.

The last four are stages of one function, `planned`, and have one set of options, a `PlanOrder`.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec
from msgspec import UNSET, UnsetType

from dropflow.cli.common_options import (
    GraphFormat,
    form_option,
    fuse_option,
    graph_argument,
    grouped,
    output_options,
    prefix_option,
    setting_options,
    target_option,
)
from dropflow.cli.exit_status import Exit
from dropflow.cli.graphs.plan_options import PlanningChoice, is_url, nodes_of_manager, planning_options
from dropflow.cli.output import CommandOutput, OutputKind, columns, problem_lines
from dropflow.cli.understand.written_files import file_form, file_options, write_file
from dropflow.errors import UsageError
from dropflow.failure import Problem, Severity
from dropflow.formatting import plural
from dropflow.submission.options import environment_connection

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from translator.options import PartitionOptions
    from translator.plan.machines import Machines
    from translator.plan.move_bound import Verdict
_EQUAL_NODES = re.compile(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?|[-+]?\d+(?:x\d*)?")
"""A number of nodes, and of the cores of each; without groups if it is out of range."""
_SESSION = re.compile(r"\w[\w-]*")
"""The name of a session, where nearly all files and addresses of graphs have a dot or a slash."""
_SHOWN_PARTS = 20
"""Parts in the table of a partition."""
_MEASURES = ("parts", "nodes_used", "cut_bytes", "bytes_moved", "imbalance", "makespan_s", "lower_bound_s")
_DETAILS = (
    *("bound_with_moves_s", "bytes_given", "bytes_between_islands", "island_imbalance"),
    *("loads", "memory", "dop", "dop_mean", "dop_over_time"),
)
_CUTS = ("edges", "cut_edges", "acyclic", "fused", "divided")
_FILES = ("trace", "svg", "json")


class UnrollReply(msgspec.Struct, frozen=True, kw_only=True):
    """The size of an unrolled graph, or why it cannot be unrolled.

    `edges` counts pairs of drops that are joined, `connections` counts their ports too: two drops that are joined at
    two ports are one edge and two connections. `graph` is the graph itself, unless it went elsewhere.
    """

    ok: bool
    format: str
    drops: int = 0
    data_drops: int = 0
    app_drops: int = 0
    edges: int = 0
    connections: int = 0
    problems: tuple[Problem, ...] = ()
    graph: msgspec.Raw | str | msgspec.UnsetType = msgspec.UNSET

    def lines(self) -> Iterator[str]:
        """Yield the counts, after warnings; or the problems."""
        if not self.ok:
            yield from problem_lines(self.problems)
            yield "cannot be translated"
            return
        yield from problem_lines(self.problems, least=Severity.WARNING)
        yield f"{self.format} graph"
        yield from columns(
            [
                ("drops", self.drops),
                ("data drops", self.data_drops),
                ("app drops", self.app_drops),
                ("edges", self.edges),
            ]
        )


@click.command("unroll")
@output_options
@graph_argument
@setting_options
@prefix_option
@target_option
@form_option
@fuse_option
@click.option("--summary", is_flag=True, help="Answer with the counts of drops and edges instead of the graph.")
def unroll_command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
    target: str | None,
    form: GraphFormat | None,
    no_fuse: bool,
    summary: bool,
) -> Exit:
    """Unroll GRAPH into a physical graph.

    The physical graph goes to FILE, or to standard output where no file is named. With --summary, or with a file, the
    answer is how many drops and edges it has. With --output json and without -o, the answer has the counts and the
    graph; -o - prints the graph alone. What cannot run on this host is a warning, as for check.
    """
    from dropflow.cli.graphs.graph_files import (
        as_problems,
        count_drops,
        examine_graph,
        graph_for_answer,
        graph_target,
        note_warnings,
    )
    from dropflow.graph.physical import without_fusion
    from translator.pipeline import finish

    inside = target is None and not summary and output.kind is OutputKind.JSON
    if target is None and not summary:
        target = "-"
    written = None if target is None else graph_target(target, form)
    if no_fuse and written is not None and written.form != "dfg":
        raise UsageError(
            f"{written.form} files have no place for --no-fuse",
            hint="write a .dfg file, or use --no-fuse of run or submit",
        )
    family = ""
    try:
        examined = examine_graph(
            graph,
            configuration=configuration,
            settings=settings,
            prefix=prefix,
        )
        family = examined.family
        done = finish(examined)
    except UsageError as error:
        output.error(UnrollReply(ok=False, format=family, problems=as_problems(error)))
        return Exit.BAD_INPUT
    made = without_fusion(done.graph) if no_fuse else done.graph
    if written is not None and not inside:
        written.write(made)
        if written.is_standard_output:
            note_warnings(output, done.problems)
            return Exit.FINISHED
    shown = graph_for_answer(made, form) if inside else msgspec.UNSET
    counts = count_drops(done.graph)
    output.answer(UnrollReply(ok=True, format=done.family, problems=done.problems, graph=shown, **counts))
    return Exit.FINISHED


# The plans of a graph.


class PlanOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The graph that is to be planned, and how, from the options of a command."""

    graph: str
    configuration: str | None
    settings: tuple[str, ...]
    prefix: str
    parts: int | None
    choice: PlanningChoice
    nodes: str | None


plan_options = grouped(
    "order",
    PlanOrder,
    graph_argument,
    setting_options,
    prefix_option,
    click.option(
        "-k",
        "-n",
        "--parts",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of parts; by default one for each node of --nodes.",
    ),
    planning_options,
    click.option(
        "--nodes",
        metavar="FILE.toml|URL|NODE,NODE...|N|NxCORES",
        help="The nodes to plan for: described in a file, or those of the manager at URL with their load now, or names "
        "of equal nodes of one core, or a number of equal nodes, such as 4x16 for four with 16 cores.",
    ),
)
"""Adds GRAPH and the options of a plan; the command gets them as one `PlanOrder`, called `order`."""


@dataclass(frozen=True)
class Plan:
    """A planned graph: by which algorithm, why, in how many seconds, and for which machines and names of nodes."""

    graph: "PhysicalGraph"
    options: "PartitionOptions"
    machines: "Machines | None"
    names: tuple[str, ...]
    algorithm: str = "an earlier command"
    note: str = ""
    seconds: float = 0.0

    def placed(self) -> "Plan":
        """Return the plan with part k on the k-th node."""
        from translator.plan.planner import place

        return replace(self, graph=place(self.graph, self.names))

    def verdict(self) -> "Verdict":
        """Return how good it is."""
        from translator.plan.move_bound import judge
        from translator.plan.registry import machines_for, promised_imbalance

        machines = machines_for(self.graph, self.options, self.machines)
        return judge(self.graph, machines, imbalance=promised_imbalance(self.options))

    def reply(self) -> "PartitionReply":
        """Return the answer with all details."""
        verdict = self.verdict()
        reply = _detailed(_reply_of(self.algorithm, verdict, self.seconds), self.graph, verdict, self.note)
        return msgspec.structs.replace(reply, places=self.graph.places) if self.graph.places else reply


def _graph_to_plan(output: CommandOutput, order: PlanOrder, *, may_be_run: bool = False) -> "PhysicalGraph":
    """Return the physical graph of a file, or of a run or session, with what it or earlier runs have measured.

    What cannot run on this host is a warning, as the graph may run on other hosts.
    """
    from dropflow.cli.graphs.graph_files import note_warnings, read_graph
    from dropflow.cli.understand.measured_runs import measured_graph

    path = Path(order.graph)
    if may_be_run and (path.is_dir() or (_SESSION.fullmatch(order.graph) and not path.is_file())):
        return order.choice.measured(output, measured_graph(output, environment_connection(), order.graph))

    done = read_graph(order.graph, configuration=order.configuration, settings=order.settings, prefix=order.prefix)
    note_warnings(output, done.problems)
    return order.choice.measured(output, done.graph)


def _nodes_of(
    output: CommandOutput, source: str | None, parts: int | None, graph: "PhysicalGraph"
) -> "tuple[Machines | None, tuple[str, ...], int]":
    """Return the machines if they are described, the names of the nodes, and the number of parts: one for each node.

    Notes tell which nodes of a manager are left out.

    Raises
    ------
    UsageError
        Neither nodes nor a number of parts are given, or no node of the manager is alive.
    """
    from translator.plan.machines import equal_machines, read_machines

    if source is None:
        if parts is None:
            raise UsageError("the number of parts is missing", hint="give -k N, or describe machines with --nodes")
        return None, (), parts
    if is_url(source):
        layout = nodes_of_manager(output, source)
        machines = layout.machines(len(layout.nodes) if parts is None else parts, graph.templates)
    elif source.endswith(".toml") or Path(source).is_file():
        machines = read_machines(Path(source))
    elif equal := _EQUAL_NODES.fullmatch(source):
        if equal[1] is None:
            hint = "from 1 to 99999, such as 4, or 4x8 for four nodes of eight cores"
            raise UsageError(f"--nodes {source} is not a number of nodes", hint=hint)
        machines = equal_machines(int(equal[1]), cores=int(equal[2] or 1))
    else:
        names = tuple(name.strip() for name in source.split(","))
        if len(set(names)) < len(names):
            raise UsageError(f"--nodes {source} names a node more than once", hint="names of nodes are unique")
        return None, names, parts or len(names)
    return machines, tuple(node.name for node in machines.nodes), parts or len(machines.nodes)


def planned(
    output: CommandOutput, order: PlanOrder, *, keep: bool, least: int | None = None, may_be_run: bool = False
) -> Plan:
    """Return the plan of a graph; one that has parts may keep them. Warnings about the plan are notes.

    Parameters
    ----------
    least : int, optional
        Number of parts if neither parts nor nodes are given; without it, that is an error.
    may_be_run : bool
        Whether the graph may also be named by a run or a session that had it.
    """
    from dropflow.cli.graphs.graph_files import note_warnings
    from translator.plan.registry import check_partition, machines_for, plan

    graph = _graph_to_plan(output, order, may_be_run=may_be_run)
    is_kept = keep and graph.parts > 1
    parts = order.parts if order.nodes else order.parts or (graph.parts if is_kept else least)
    machines, names, count = _nodes_of(output, order.nodes, parts, graph)
    if is_kept:
        options = order.choice.for_parts(max(count, graph.parts))
        return Plan(graph, options, machines, names)
    options = order.choice.for_parts(count)
    note_warnings(output, check_partition(graph, options, machines))
    begun = time.perf_counter()
    made = plan(graph, options, machines)
    seconds = time.perf_counter() - begun
    if machines is not None:
        names = tuple(node.name for node in machines_for(graph, options, machines).nodes)
    return Plan(made.graph, options, machines, names, made.algorithm, made.note, seconds)


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
        Bytes among the moved ones that no application makes.
    bytes_between_islands : float
        Bytes among the moved ones that go from one island to another.
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
        """Yield the measures, then the load of each of the first parts, if there are details."""
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
                plan.algorithm,
                plan.nodes_used,
                plan.makespan_s,
                plan.makespan_s / plan.lower_bound_s if plan.lower_bound_s > 0 else 1.0,
                plan.bytes_moved,
                plan.imbalance,
                plan.seconds,
            )
            for plan in self.plans
        ]
        header = ("algorithm", "nodes", "completion s", "of bound", "bytes moved", "imbalance %", "planning s")
        yield from columns(rows, header=header)
        for plan in self.plans:
            if isinstance(plan.violations, tuple):
                yield from (f"  {plan.algorithm}: {text}" for text in plan.violations)
        for name, text in self.failed.items():
            yield f"  {name}: {text}"


def _named(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a record by their names."""
    return {name: getattr(record, name) for name in names}


def _reply_of(algorithm: str, verdict: "Verdict", seconds: float) -> PartitionReply:
    """Return the answer without details."""
    measures = _named(verdict, _MEASURES)
    broken = verdict.violations or UNSET
    return PartitionReply(algorithm=algorithm, seconds=round(seconds, 6), violations=broken, **measures)


def _detailed(reply: PartitionReply, graph: "PhysicalGraph", verdict: "Verdict", note: str) -> PartitionReply:
    """Return the answer with what is known about each part."""
    from translator.plan.quality import quality_of

    quality = quality_of(replace(graph, places=()))
    drops = (*quality.drops, *(0,) * (verdict.parts - quality.parts))
    details = _named(verdict, _DETAILS) | _named(quality, _CUTS)
    return msgspec.structs.replace(reply, note=note, part_drops=drops, **details)


@click.command("partition")
@output_options
@plan_options
@click.option("--compare", is_flag=True, help="Show the plans of all algorithms side by side instead.")
@click.option("--details", is_flag=True, help="Add loads, drops, memory and parallelism to the answer.")
@target_option
@form_option
def partition_command(
    output: CommandOutput,
    *,
    order: PlanOrder,
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
    from dropflow.cli.graphs.graph_files import graph_target

    if compare and target is not None:
        raise UsageError("--compare writes no graph", hint="leave out -o, or choose an --algorithm")
    written = None if target is None else graph_target(target, form)
    if compare:
        graph = _graph_to_plan(output, order)
        machines, _, count = _nodes_of(output, order.nodes, order.parts, graph)
        output.answer(_compared(graph, order.choice, machines, count))
        return Exit.FINISHED
    made = planned(output, order, keep=False)
    if written is not None:
        written.write(made.graph)
        if written.is_standard_output:
            return Exit.FINISHED
    if details:
        output.answer(made.reply())
        return Exit.FINISHED
    reply = _reply_of(made.algorithm, made.verdict(), made.seconds)
    # People get the reason of `auto` too.
    is_noted = output.kind == "table" and bool(made.note)
    output.answer(msgspec.structs.replace(reply, note=made.note) if is_noted else reply)
    return Exit.FINISHED


def _compared(graph: "PhysicalGraph", choice: PlanningChoice, machines: "Machines | None", parts: int) -> PlansReply:
    """Return the plans of all algorithms."""
    from translator.plan.registry import compared

    plans = list(compared(graph, choice.for_parts(parts), machines))
    made = tuple(_reply_of(plan.algorithm, plan.verdict, plan.seconds) for plan in plans if plan.verdict is not None)
    return PlansReply(
        ok=bool(made), plans=made, failed={plan.algorithm: plan.problem for plan in plans if plan.verdict is None}
    )


@click.command("translate")
@output_options
@plan_options
@target_option
@form_option
def translate_command(output: CommandOutput, *, order: PlanOrder, target: str | None, form: GraphFormat | None) -> Exit:
    """Translate GRAPH: fill its parameters, check, unroll, partition and, with --nodes, place it.

    The physical graph goes to FILE, or to standard output where no file is named. With a file, the answer is how good
    the plan is; with --output json and without -o, it has the graph, too. A graph that has parts already keeps them.
    """
    from dropflow.cli.graphs.graph_files import graph_for_answer, graph_target

    inside = target is None and output.kind is OutputKind.JSON
    written = graph_target("-" if target is None else target, form)
    made = planned(output, order, keep=True, least=1)
    made = made.placed() if made.names else made
    if not inside:
        written.write(made.graph)
        if written.is_standard_output:
            return Exit.FINISHED
    reply = made.reply()
    output.answer(msgspec.structs.replace(reply, graph=graph_for_answer(made.graph, form)) if inside else reply)
    return Exit.FINISHED


@click.command("map")
@output_options
@plan_options
@target_option
@form_option
def map_command(output: CommandOutput, *, order: PlanOrder, target: str | None, form: GraphFormat | None) -> Exit:
    """Place GRAPH on nodes: part k of it on the k-th node.

    A graph without parts is partitioned first, into one part per node.
    """
    from dropflow.cli.graphs.graph_files import graph_target

    if order.nodes is None:
        raise UsageError("the nodes are missing", hint="name them with --nodes NODE,NODE..., a FILE.toml or a URL")
    written = None if target is None else graph_target(target, form)
    made = planned(output, order, keep=True).placed()
    if written is not None:
        written.write(made.graph)
        if written.is_standard_output:
            return Exit.FINISHED
    output.answer(made.reply())
    return Exit.FINISHED


class ScheduleReply(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated run."""

    ok: bool = True
    algorithm: str
    parts: int
    nodes_used: int
    makespan_s: float
    lower_bound_s: float
    bytes_moved: float

    def lines(self) -> Iterator[str]:
        """Completion time."""
        yield f"{self.makespan_s:,.6g} s by {self.algorithm}, lower bound {self.lower_bound_s:,.6g} s"


@click.command("schedule")
@output_options
@plan_options
@file_options(*_FILES)
def schedule_command(output: CommandOutput, *, order: PlanOrder, form: str | None, target: str | None) -> Exit:
    """Simulate how GRAPH runs on nodes, and write the timeline.

    A graph that is partitioned is simulated as it is, unless -k asks for other parts. 'dropflow times' writes what was
    executed in the same forms.
    """
    from dropflow.times.timeline_files import write_svg
    from translator.plan.judge import simulate
    from translator.plan.move_bound import lower_bound, verdict_of
    from translator.plan.registry import machines_for
    from translator.plan.task_graph import work_of
    from translator.plan.timeline import perfetto_trace, timeline_picture

    form = file_form(form, target, *_FILES)
    made = planned(output, order, keep=order.parts is None)
    graph, nodes = made.graph, machines_for(made.graph, made.options, made.machines, least=made.graph.parts)
    check_parts(graph.parts, len(nodes.nodes))
    work = work_of(graph)
    bound = lower_bound(graph, work, nodes)
    run = simulate(work, nodes, graph.part, graph.priority)
    verdict = verdict_of(work, nodes, graph.part, run, bound)
    reply = ScheduleReply(algorithm=made.algorithm, **_named(verdict, ScheduleReply.__struct_fields__[2:]))
    if form is None:
        output.answer(reply)
        return Exit.FINISHED

    writers: dict[str, Callable[[BinaryIO], object]] = {
        "trace": lambda stream: stream.writelines(perfetto_trace(graph, work, nodes, run)),
        "svg": lambda stream: write_svg(timeline_picture(graph, work, nodes, run), stream),
        "json": lambda stream: stream.write(msgspec.json.encode(reply)),
    }
    write_file(output, graph.name, form, target, writers[form])
    return Exit.FINISHED


def check_parts(parts: int, nodes: int) -> None:
    """Refuse a graph with more parts than there are nodes."""
    if parts > nodes:
        text = f"{parts} parts cannot be on {nodes} nodes"
        raise UsageError(text, hint=f"describe {parts} nodes, or partition again with -k {nodes}")
