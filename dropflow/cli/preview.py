"""``dropflow preview``: what a logical graph will become, before it is unrolled."""

from collections.abc import Iterator, Sequence

import click
import msgspec

from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import graph_argument, output_options, setting_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns
from dropflow.problems import Problem, Severity

__all__ = ["command"]

_BARS = 20
_WIDTH = 40
_LARGEST = 8


class PhaseReply(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the same number of applications runs."""

    start_s: float
    end_s: float
    running: int
    cores: int


class NodeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A logical node with its number of drops."""

    name: str
    category: str
    drops: int


class PreviewReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a graph will become, or why it cannot be translated.

    `critical_path_s` is the least time of a session, and `phases` the degree of parallelism over time, both with as
    many processors as can be used. They are empty if loops make the graph too large.
    """

    ok: bool
    format: str
    drops: int = 0
    data_drops: int = 0
    app_drops: int = 0
    edges: int = 0
    volume: float = 0.0
    work_core_s: float = 0.0
    critical_path_s: float | None = None
    most_running: int = 0
    most_cores: int = 0
    mean_cores: float = 0.0
    largest: tuple[NodeReply, ...] = ()
    phases: tuple[PhaseReply, ...] = ()
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """The sizes, the largest nodes, and a bar for each part of the time."""
        yield from problem_lines(self.problems, least=Severity.WARNING if self.ok else Severity.ERROR)
        if not self.ok:
            yield "cannot be translated"
            return
        yield f"{self.format} graph"
        rows: list[tuple[str, object]] = [
            ("drops", self.drops),
            ("data drops", self.data_drops),
            ("app drops", self.app_drops),
            ("edges", self.edges),
            ("data volume", self.volume),
            ("work (core seconds)", self.work_core_s),
        ]
        if self.critical_path_s is not None:
            rows += [
                ("critical path (seconds)", self.critical_path_s),
                ("most applications at a time", self.most_running),
                ("most cores at a time", self.most_cores),
                ("cores on average", self.mean_cores),
            ]
        yield from columns(rows)
        yield "most drops"
        yield from columns([(one.name, one.category, one.drops) for one in self.largest])
        if self.critical_path_s and self.phases:
            yield "applications that run, by time in seconds"
            yield from _bars(self.phases, self.critical_path_s)


def _bars(phases: Sequence[PhaseReply], end: float) -> Iterator[str]:
    """Yield a bar for each part of the time: the mean number of applications that run in it."""
    step = end / _BARS
    means = [
        sum(max(min(one.end_s, at + step) - max(one.start_s, at), 0.0) * one.running for one in phases) / step
        for at in (number * step for number in range(_BARS))
    ]
    most = max(means) or 1.0
    for number, mean in enumerate(means):
        yield f"  {number * step:>12,.6g}  {'#' * round(mean / most * _WIDTH):<{_WIDTH}}  {mean:,.4g}"


@click.command("preview")
@output_options
@graph_argument
@setting_options
def command(output: CommandOutput, *, graph: str, configuration: str | None, settings: tuple[str, ...]) -> Exit:
    """Show what GRAPH will become: drops, edges, volumes, critical path, parallelism over time.

    Nothing is unrolled, so graphs that are too large for it can be shown, too. Times come from the execution times in
    the graph, with as many processors as can be used.
    """
    from dropflow.cli.graph_files import examine_graph
    from dropflow.errors import UsageError
    from translator.preview import preview

    found = examine_graph(graph, configuration=configuration, settings=settings, components=None)
    errors = [one for one in found.problems if one.severity is Severity.ERROR]
    fatal = [one for one in errors if one.code.startswith(("LG", "PG")) and one.code != "LG120"]
    if found.logical is None and found.graph is not None:
        raise UsageError("this is a physical graph", where=graph, hint="show it with: dropflow info")
    if fatal or found.logical is None or found.plan is None:
        output.error(PreviewReply(ok=False, format=found.family, problems=found.problems))
        return Exit.BAD_INPUT
    made = preview(found.logical, found.plan)
    sizes = sorted(zip(found.plan.sizes, found.plan.templates, strict=True), key=lambda one: -one[0])[:_LARGEST]
    output.answer(
        PreviewReply(
            ok=True,
            format=found.family,
            drops=made.drops,
            data_drops=made.data_drops,
            app_drops=made.app_drops,
            edges=made.edges,
            volume=made.volume,
            work_core_s=made.work,
            critical_path_s=made.critical_path,
            most_running=made.most_running,
            most_cores=made.most_cores,
            mean_cores=made.mean_cores,
            largest=tuple(NodeReply(name=one.name, category=one.category, drops=size) for size, one in sizes),
            phases=tuple(
                PhaseReply(start_s=one.start, end_s=one.end, running=one.running, cores=one.cores)
                for one in made.phases
            ),
            problems=found.problems,
        )
    )
    return Exit.FINISHED
