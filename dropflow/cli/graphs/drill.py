"""``dropflow drill``: a graph, or what a run has measured, on simulated nodes with faults, many times."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from dropflow.cli.common_options import Duration, output_options, parse_duration
from dropflow.cli.exit_status import Exit
from dropflow.cli.graphs.plan import PlanOrder, check_parts, plan_options, planned
from dropflow.cli.output import CommandOutput, columns
from dropflow.cli.understand.written_files import file_form, file_options, write_file
from dropflow.errors import UsageError
from dropflow.formatting import DASH, format_brief, plural
from dropflow.host.processors import usable_cores

if TYPE_CHECKING:
    from dropflow.cli.graphs.plan import Plan
    from managers.simulation.drill import Cut, Drill, DrilledNode, NodeLoss, Trial
    from translator.plan.machines import Machines


_FILES = ("html", "json")
_SHOWN_DROPS = 5
"""Drops without a second copy that are named, those that cost most first."""
_SHARE = 5
"""One in so many seeds is run again with each change, but at least ten."""
_MOST_DROPS = 20_000
"""Most drops of a graph whose contents are examined: the time grows with the square."""
_NOT_WORKED_OUT = f"not worked out with --protect, and for more than {_MOST_DROPS:,} drops"
_TRIALS_OF_PROCESS = 20
"""Fewer are done before another process has begun."""
_TIME_BARS = 40
"""Bars of the histogram of completion times."""
_ALL_CONTENTS = 1e-6
"""Seconds of `protect` with which every content is copied."""
_CUT = re.compile(r"([^@+]+)(?:@([^+]*))?(?:\+(.*))?")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%")


class Quantiles(msgspec.Struct, frozen=True):
    """The distribution of the values of all trials."""

    least: float
    median: float
    p95: float
    most: float

    @classmethod
    def of(cls, values: "Sequence[float]") -> "Quantiles":
        """Return the quantiles of some values: NaN if there are none."""
        ordered = sorted(values) or [math.nan]
        last = len(ordered) - 1
        return cls(*(ordered[math.ceil(share * last)] for share in (0, 0.5, 0.95, 1)))

    def row(self) -> tuple[str, ...]:
        """Return the values as text."""
        return tuple(DASH if math.isnan(number) else format_brief(number) for number in msgspec.structs.astuple(self))


class SingleCopy(msgspec.Struct, frozen=True):
    """A content that one node has when it is needed last, and the core seconds that its loss would cost then."""

    drop: str
    node: str
    recompute_s: float


class DrillChange(msgspec.Struct, frozen=True):
    """The effect of a change on the first `seeds` trials: ends and repeated core seconds, before and after it."""

    change: str
    seeds: int
    before_s: Quantiles
    end_s: Quantiles
    repeated_before_s: float
    repeated_s: float


class DrillReply(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the trials.

    Attributes
    ----------
    graph : str
        Name of the graph.
    nodes, cores : int
        Number of nodes, and of their cores together.
    faults : tuple of str
        What happens in each trial, from the options.
    planned_s : float
        Seconds that the plan takes.
    undisturbed_s : float
        Seconds that a trial without faults takes.
    seeds, ended : int
        Number of trials, and of those whose session finished.
    end_s : Quantiles
        Seconds to the end of those that finished.
    work_s : float
        Core seconds of the work without faults.
    repeated_s : Quantiles
        Core seconds of work that was done again.
    repeated_percent : float
        Their mean as a share of the work.
    walltime_s, in_time : float or None, int or None
        The walltime, and how many trials finished by then.
    single_copies : tuple of SingleCopy or None
        The contents whose loss costs most. None if they are not worked out: of very many drops, and with --protect.
    changes : tuple of DrillChange
        The effects of one more copy of each content, and of one more node.
    ends : tuple of float
        Seconds of each trial that finished, ascending.
    """

    ok: bool = True
    graph: str
    nodes: int
    cores: int
    faults: tuple[str, ...]
    planned_s: float
    undisturbed_s: float
    seeds: int
    ended: int
    end_s: Quantiles
    work_s: float
    repeated_s: Quantiles
    repeated_percent: float
    walltime_s: float | None = None
    in_time: int | None = None
    single_copies: tuple[SingleCopy, ...] | None
    changes: tuple[DrillChange, ...]
    ends: tuple[float, ...]

    def lines(self) -> Iterator[str]:
        """Tables of the ends, of the contents with one copy, and of the changes."""
        yield f"{self.graph}: {plural(self.seeds, 'trial')} on {plural(self.nodes, 'node')}, {', '.join(self.faults)}"
        yield f"  planned {format_brief(self.planned_s)}, simulated without faults {format_brief(self.undisturbed_s)}"
        if self.ended < self.seeds:
            yield f"  {self.seeds - self.ended} of {self.seeds} sessions did not finish"
        yield from columns(
            [("end", *self.end_s.row()), ("repeated core time", *self.repeated_s.row())],
            header=("", "least", "median", "95 %", "most"),
        )
        yield f"  repeated in the mean: {self.repeated_percent:.1f} % of {format_brief(self.work_s)} of core time"
        yield from (f"  {text}" for text in self.walltime_lines())
        if self.single_copies is None:
            yield f"contents with one copy: {_NOT_WORKED_OUT}"
        elif self.single_copies:
            yield "contents with one copy, by the core time that it takes to make them again:"
            rows = [(copy.drop, copy.node, format_brief(copy.recompute_s)) for copy in self.single_copies]
            yield from columns(rows, header=("drop", "node", "to make again"))
        if self.changes:
            yield f"what would change, in {plural(self.changes[0].seeds, 'trial')}:"
            yield from columns(self.change_rows(), header=("", "median", "now", "95 %", "now", "repeated", "now"))

    def walltime_lines(self) -> Iterator[str]:
        """Return lines about how many trials finish by the walltime, and which one would be enough for nearly all."""
        if self.walltime_s is not None:
            yield f"within {format_brief(self.walltime_s)}: {self.in_time} of {self.seeds}"
        if self.ended:
            yield f"a walltime of {format_brief(self.end_s.p95)} is enough for 95 % of those that finish"

    def change_rows(self) -> list[tuple[str, ...]]:
        """Return the effect of each change as a row of texts."""
        return [
            (
                change.change,
                *(text for at in (1, 2) for text in (change.end_s.row()[at], change.before_s.row()[at])),
                format_brief(change.repeated_s),
                format_brief(change.repeated_before_s),
            )
            for change in self.changes
        ]

    def bars(self) -> list[tuple[float, float, int]]:
        """Return the picture of the ends: where each bar begins and ends, and how many trials end there."""
        if not self.ends:
            return []
        low, high = min(self.planned_s, self.ends[0]), max(self.ends[-1], self.planned_s)
        width = (high - low) / _TIME_BARS or 1.0
        counts = [0] * _TIME_BARS
        for end in self.ends:
            counts[min(int((end - low) / width), _TIME_BARS - 1)] += 1
        return [(low + bar * width, low + (bar + 1) * width, count) for bar, count in enumerate(counts)]


@click.command("drill")
@output_options
@plan_options
@click.option(
    "--lose",
    "losses",
    multiple=True,
    metavar="NODE[@WHEN]",
    help="Lose a node, 'any' for a drawn one; WHEN is a share of the planned time (50%) or a duration (30m), by "
    "default drawn. Repeatable.",
)
@click.option(
    "--slow",
    multiple=True,
    metavar="NODE=SPEED",
    help="The real speed of a node, as a factor of the one that is planned for, such as 0.3. Repeatable.",
)
@click.option(
    "--cut",
    "cuts",
    multiple=True,
    metavar="NODES|NODES[@WHEN][+LENGTH]",
    help="Cut the network between two groups of nodes for a while, by default 10m. Repeatable.",
)
@click.option("--walltime", type=Duration(), metavar="DURATION", help="Count the trials that finish by then.")
@click.option("--replicas", type=click.IntRange(1, 100), default=1, help="As of submit: nodes that have each result.")
@click.option(
    "--protect", type=Duration(), metavar="DURATION", help="As of submit: copy contents that took as long to make."
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Number of trials, each drawn anew.",
)
@click.option(
    "--spread",
    type=click.FloatRange(0, 99),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="How far times of attempts differ from the measured ones.",
)
@file_options(*_FILES)
def drill_command(
    output: CommandOutput,
    *,
    order: PlanOrder,
    losses: tuple[str, ...],
    slow: tuple[str, ...],
    cuts: tuple[str, ...],
    walltime: float | None,
    replicas: int,
    protect: float | None,
    seeds: int,
    spread: float,
    form: str | None,
    target: str | None,
) -> Exit:
    """Simulate how GRAPH, or the graph of a run, ends on nodes that fail.

    GRAPH is a graph, the directory of a run, or a session of a manager ($DROPFLOW_URL). The times of applications are
    those that a run or session has measured, or --profile; else those that the graph declares. Each trial runs
    sessions and the recovery of the managers on virtual time. The answer has the distribution of the ends, the work
    that is repeated, the contents that are worst to lose, and what another copy, node or walltime would change.
    """
    form = file_form(form, target, *_FILES)
    made = planned(output, order, keep=order.parts is None, may_be_run=True)
    prepared = _Prepared(made, losses=losses, slow=slow, cuts=cuts)
    reply = prepared.reply(
        seeds=seeds, spread=spread / 100, replicas=replicas, protect=protect or 0.0, walltime=walltime
    )
    if form is None:
        output.answer(reply)
        return Exit.FINISHED

    def html(stream: BinaryIO) -> None:
        from dropflow.web.report import render_page

        stream.write(render_page("drill", reply=reply))

    writers: dict[str, Callable[[BinaryIO], object]] = {
        "html": html,
        "json": lambda stream: stream.write(msgspec.json.encode(reply)),
    }
    write_file(output, reply.graph, form, target, writers[form])
    return Exit.FINISHED


class _Prepared:
    """A planned graph, its machines, and what happens to them."""

    def __init__(self, made: "Plan", *, losses: Sequence[str], slow: Sequence[str], cuts: Sequence[str]) -> None:
        from translator.plan.registry import machines_for

        self._made = made
        self._machines = machines_for(made.graph, made.options, made.machines, least=made.graph.parts)
        nodes = self._machines.nodes
        check_parts(made.graph.parts, len(nodes))
        given = made.names or made.graph.places
        if made.machines is None and len(given) >= len(nodes):
            named = (msgspec.structs.replace(machine, name=name) for machine, name in zip(nodes, given, strict=False))
            self._machines = msgspec.structs.replace(self._machines, nodes=tuple(named))
        self._names = [node.name for node in self._machines.nodes]
        self._losses, self._cuts = losses, cuts
        self._speeds = dict(self._speed(text) for text in slow)
        self._texts = (
            *(f"lose {loss}" for loss in losses),
            *(f"slow {slow_node}" for slow_node in slow),
            *(f"cut {cut}" for cut in cuts),
        )

    def reply(self, *, seeds: int, spread: float, replicas: int, protect: float, walltime: float | None) -> DrillReply:
        """Run all trials."""
        from managers.simulation.drill import run_trials

        drill = self._drill(self._made, self._machines)
        calm = msgspec.structs.replace(drill, faults=(), hosts=self._hosts(self._machines, {}))
        drill = msgspec.structs.replace(drill, spread=spread, replicas=replicas, protect=protect)
        changed, fewer = dict(self._changed(drill)), min(seeds, max(10, seeds // _SHARE))
        orders = [(calm, 0), *((drill, seed) for seed in range(seeds))]
        orders += [(changed_plan, seed) for changed_plan in changed.values() for seed in range(fewer)]
        first, *trials_of_changes = run_trials(orders, jobs=min(usable_cores(), -(-len(orders) // _TRIALS_OF_PROCESS)))
        trials, changes = trials_of_changes[:seeds], []
        for at, change in enumerate(changed):
            before, after = trials_of_changes[:fewer], trials_of_changes[seeds + at * fewer :][:fewer]
            repeated_before, repeated_after = (
                sum(outcome.repeated for outcome in some) / fewer for some in (before, after)
            )
            ends_before, ends_after = Quantiles.of(_ends(before)), Quantiles.of(_ends(after))
            changes.append(DrillChange(change, fewer, ends_before, ends_after, repeated_before, repeated_after))
        repeated, ends = [trial.repeated for trial in trials], sorted(_ends(trials))
        mean = sum(repeated) / len(repeated)
        return DrillReply(
            graph=drill.graph.name,
            nodes=len(drill.hosts),
            cores=sum(host.cores for host in drill.hosts),
            faults=self._texts or ("no faults",),
            planned_s=drill.planned,
            undisturbed_s=first.end,
            seeds=seeds,
            ended=len(ends),
            end_s=Quantiles.of(ends),
            work_s=first.spent,
            repeated_s=Quantiles.of(repeated),
            repeated_percent=100 * mean / first.spent if first.spent else 0.0,
            walltime_s=walltime,
            in_time=None if walltime is None else sum(end <= walltime for end in ends),
            single_copies=None if protect or drill.graph.drops > _MOST_DROPS else self._single_copies(drill),
            changes=tuple(changes),
            ends=tuple(ends),
        )

    def _drill(self, made: "Plan", machines: "Machines") -> "Drill":
        from managers.simulation.drill import Drill
        from translator.plan.judge import simulate
        from translator.plan.task_graph import work_of

        work = work_of(made.graph)
        run = simulate(work, machines, made.graph.part, made.graph.priority)
        return Drill(
            graph=made.graph,
            seconds=work.seconds,
            volume=work.volume,
            cores=work.cpus,
            hosts=self._hosts(machines, self._speeds),
            bandwidth=machines.links.bandwidth,
            planned=run.completion,
            faults=self._faults(run.completion),
        )

    def _hosts(self, machines: "Machines", speeds: Mapping[str, float]) -> "tuple[DrilledNode, ...]":
        from managers.simulation.drill import DrilledNode

        return tuple(
            DrilledNode(node.name, node.cores, node.speed * speeds.get(node.name, 1.0)) for node in machines.nodes
        )

    def _changed(self, drill: "Drill") -> "Iterator[tuple[str, Drill]]":
        """Yield the drill with one more copy of each content, and with one more node."""
        from translator.plan.registry import plan

        change = msgspec.structs.replace
        if len(drill.hosts) > drill.replicas:
            yield "a copy of each content", change(drill, replicas=drill.replicas + 1, protect=_ALL_CONTENTS)
        last = self._machines.nodes[-1]
        more = change(self._machines, nodes=(*self._machines.nodes, change(last, name=f"{last.name} again")))
        made = plan(self._made.graph, change(self._made.options, parts=len(more.nodes)), more)
        larger = self._drill(replace(self._made, graph=made.graph), more)
        kept = change(larger, spread=drill.spread, replicas=drill.replicas, protect=drill.protect, faults=drill.faults)
        yield f"a node like {last.name}", kept

    def _single_copies(self, drill: "Drill") -> tuple[SingleCopy, ...]:
        from dropflow.graph.text_ids import label
        from managers.simulation.drill import recomputations
        from translator.plan.judge import simulate
        from translator.plan.task_graph import work_of

        graph = drill.graph
        work = work_of(graph)
        run = simulate(work, self._machines, graph.part, graph.priority)
        costs = recomputations(graph, work.work, run.end[: graph.drops])
        worst = sorted((drop for drop in costs if costs[drop]), key=lambda drop: -costs[drop])[:_SHOWN_DROPS]
        return tuple(SingleCopy(label(graph, drop), self._names[graph.part[drop]], costs[drop]) for drop in worst)

    # What the options say.

    def _faults(self, completion: float) -> "tuple[NodeLoss | Cut, ...]":
        from managers.simulation.drill import ANY, Cut, NodeLoss

        faults: list[NodeLoss | Cut] = []
        for text in self._losses:
            name, _, when = text.rpartition("@") if "@" in text else (text, "", "")
            node = ANY if name == "any" else self._named(name, text)
            faults.append(NodeLoss(node, _moment(when, completion, text)))
        for text in self._cuts:
            parts = _CUT.fullmatch(text)
            groups = (
                [tuple(self._named(name, text) for name in side.split(",")) for side in parts[1].split("|")]
                if parts
                else []
            )
            if parts is None or len(groups) != 2 or set(groups[0]) & set(groups[1]):
                raise UsageError(f"--cut {text} names no two groups", hint="write it as a,b|c,d@50%+10m")
            seconds = 600.0 if parts[3] is None else _seconds(parts[3], text)
            faults.append(Cut(groups[0], groups[1], _moment(parts[2] or "", completion, text), seconds))
        return tuple(faults)

    def _speed(self, text: str) -> tuple[str, float]:
        name, _, factor = text.rpartition("=")
        try:
            speed = float(factor)
        except ValueError:
            speed = math.nan
        if not 0 < speed < math.inf:
            raise UsageError(f"--slow {text} gives no speed", hint="write it as NODE=0.3")
        return self._named(name, text), speed

    def _named(self, name: str, text: str) -> str:
        if name not in self._names:
            few = ", ".join(self._names[:10])
            raise UsageError(f"there is no node {name!r} in {text}", hint=f"the nodes are {few}")
        return name


def _ends(trials: "Sequence[Trial]") -> list[float]:
    return [trial.end for trial in trials if trial.status == "FINISHED"]


def _moment(when: str, completion: float, text: str) -> float:
    """Return when a fault happens; NaN if that is drawn."""
    if not when:
        return math.nan
    share = _PERCENT.fullmatch(when)
    return completion * float(share[1]) / 100 if share else _seconds(when, text)


def _seconds(duration: str, text: str) -> float:
    seconds = parse_duration(duration)
    if seconds is None:
        raise UsageError(f"{duration!r} in {text} is neither a share nor a duration", hint="write 50%, 30m or 2h")
    return seconds
