"""``dropflow times``: how long attempts waited and ran, and when; as a table, or in a file of one of several forms."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from dropflow.cli.candidates import runs
from dropflow.cli.common_options import connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.cli.understand.measured_runs import are_directories, measured_by, measured_run, recorded
from dropflow.cli.understand.written_files import file_form, file_options, write_file
from dropflow.errors import UsageError
from dropflow.formatting import format_brief, format_size, plural
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.times.statistics import TimesStatistics
    from translator.plan.measured import MeasuredNode
_SHOWN_PAIRS = 20
"""Pairs of nodes in the table of moved bytes."""
_USES = ("busy", "data", "message", "worker", "rest")
_FILES = ("trace", "otlp", "svg", "html", "json", "profile")


class MeasuredSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one logical node.

    Attributes
    ----------
    key, kind : str
        Its id, and ``application`` or ``data``.
    instances, measurements : int
        How many instances were measured, and how often in all.
    mean, largest : float
        Mean and maximum of its instances: seconds of applications, bytes of data.
    processor : float or None
        Mean seconds of processor time of an application; None if it is not known.
    memory : float or None
        Largest resident memory of an application, in bytes; None if it is not known.
    """

    key: str
    kind: str
    instances: int
    measurements: int
    mean: float
    largest: float
    processor: float | None
    memory: float | None


class MeasuredReply(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements in the file of a profile."""

    ok: bool = True
    nodes: tuple[MeasuredSummary, ...]

    def lines(self) -> Iterator[str]:
        """One line for each logical node."""
        yield f"measurements of {plural(len(self.nodes), 'logical node')}"
        rows = [
            (
                node.key,
                node.instances,
                node.measurements,
                *map(format_brief if node.kind == "application" else _size, (node.mean, node.largest)),
                "" if node.processor is None else format_brief(node.processor),
                "" if node.memory is None else _size(node.memory),
            )
            for node in self.nodes
        ]
        yield from columns(rows, header=("node", "instances", "measured", "mean", "largest", "processor", "memory"))


def _size(number: float) -> str:
    return format_size(round(number))


def _summaries(nodes: "Sequence[MeasuredNode]") -> tuple[MeasuredSummary, ...]:
    """Return what was measured of each logical node, those with most work first, then data."""
    import numpy as np

    from dropflow.graph.templates import Kind

    summaries = []
    for node in nodes:
        processor, memory = node.processor[np.isfinite(node.processor)], node.memory[np.isfinite(node.memory)]
        summaries.append(
            MeasuredSummary(
                key=node.key,
                kind="application" if node.kind is Kind.APP else "data",
                instances=len(node.instance),
                measurements=int(node.count.sum()),
                mean=float(node.mean.mean()),
                largest=float(node.mean.max()),
                processor=float(processor.mean()) if len(processor) else None,
                memory=float(memory.max()) if len(memory) else None,
            )
        )
    return tuple(sorted(summaries, key=lambda summary: (summary.kind, -summary.mean * summary.instances, summary.key)))


class TimesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the attempts of a run."""

    ok: bool = True
    run: str
    statistics: "TimesStatistics"

    def lines(self) -> Iterator[str]:
        """Templates, slowest attempts, critical path, and use of workers."""
        statistics = self.statistics
        failed = f", {statistics.failed} failed" if statistics.failed else ""
        attempts = f"{plural(statistics.attempts, 'attempt')}{failed}"
        yield f"{self.run}: {attempts}, {format_brief(statistics.ended - statistics.began)}"
        yield from (f"node {node} did not answer: its attempts are missing" for node in statistics.missing)
        if not statistics.attempts:
            return
        yield from self._templates()
        if statistics.slowest:
            yield "slowest attempts:"
            on = ("on",) if len({lane.node for lane in statistics.lanes}) > 1 else ()
            rows = [
                (
                    attempt.name,
                    attempt.drop,
                    *(attempt.node for _ in on),
                    attempt.attempt,
                    format_brief(attempt.ran),
                    format_brief(attempt.waited),
                )
                for attempt in statistics.slowest
            ]
            yield from columns(rows, header=("node", "drop", *on, "attempt", "ran", "waited"))
        yield from self._critical()
        yield from self._traffic()
        yield "workers:"
        lanes = [
            (used.node, used.lane, used.attempts, *(format_brief(getattr(used, field)) for field in _USES))
            for used in statistics.lanes
        ]
        yield from columns(lanes, header=("node", "worker", "attempts", "busy", *(f"for {use}" for use in _USES[1:])))

    def _traffic(self) -> Iterator[str]:
        traffic = self.statistics.traffic
        if traffic:
            total = format_size(sum(pair.size for pair in traffic))
            cut = f", the first {_SHOWN_PAIRS} of {len(traffic)} pairs" if len(traffic) > _SHOWN_PAIRS else ""
            yield f"moved between nodes: {total}{cut}:"
            rows = [
                (
                    pair.source,
                    pair.target,
                    pair.contents,
                    format_size(pair.size),
                    format_size(pair.shared_size) if pair.shared_contents else "",
                    format_size(pair.planned) if pair.planned else "",
                )
                for pair in traffic[:_SHOWN_PAIRS]
            ]
            yield from columns(rows, header=("from", "to", "contents", "bytes", "in place", "planned"))
            if self.statistics.uncounted:
                nodes = ", ".join(self.statistics.uncounted)
                yield f"these sums are incomplete: transfers to {nodes} are not known"

    def _templates(self) -> Iterator[str]:
        rows = [
            (
                template.name,
                template.attempts,
                template.failed,
                format_brief(template.seconds),
                format_brief(template.median),
                format_brief(template.p95),
                format_brief(template.longest),
                format_brief(template.waited),
                format_brief(template.queued),
                format_brief(template.planned) if template.planned else "",
                format_brief(template.processor),
                format_size(template.memory) if template.memory else "",
                format_size(template.read),
                format_size(template.written),
            )
            for template in self.statistics.templates
        ]
        header = ("node", "attempts", "failed", "sum", "median", "95 %", "longest", "ready", "queued")
        yield from columns(rows, header=(*header, "planned", "processor", "memory", "read", "written"))

    def _critical(self) -> Iterator[str]:
        statistics = self.statistics
        cut = (
            f", the {len(statistics.critical)} longest" if len(statistics.critical) < statistics.critical_steps else ""
        )
        yield (
            f"critical path: {plural(statistics.critical_steps, 'attempt')}, which"
            f" ran {format_brief(statistics.critical_ran)} and waited {format_brief(statistics.critical_waited)}{cut}:"
        )
        rows = [
            (
                step.name,
                step.drop,
                step.node,
                step.waited_for,
                format_brief(step.moved),
                format_brief(step.waited - step.moved),
                format_brief(step.ran),
            )
            for step in statistics.critical
        ]
        yield from columns(rows, header=("node", "drop", "on", "after", "moving", "for worker", "ran"))


@click.command("times")
@output_options
@click.option(
    "--slowest", metavar="N", type=click.IntRange(0, 1000), default=10, show_default=True, help="List N slow attempts."
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="List N steps of the critical path, the longest ones.",
)
@file_options(*_FILES)
@click.option(
    "--with",
    "others",
    metavar="RUN",
    multiple=True,
    help="In a file of measurements, also have those of RUN, a run, a session or a file; repeatable.",
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=runs)
@connection_options
def times_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    runs: tuple[str, ...],
    slowest: int,
    steps: int,
    form: str | None,
    target: str | None,
    others: tuple[str, ...],
) -> Exit:
    """Show how long attempts of RUN waited and ran, by logical node, and its critical path as executed.

    RUN is a session of a manager, or the directory of a run, also of one that is running or was killed. Of a session of
    managers, its directories on its nodes may be given together. Attempts that have not ended are not counted. RUN may
    also be a file of measurements (--format profile): then this shows the mean times and the largest memory in it.

    'ready' is the median from when an attempt could begin until it was given to the workers, 'queued' from then
    until one began it. Each step of the critical path began 'after' data, after a worker was free, or after an
    attempt of the same drop that had failed; 'moving' is how long its data or a message about them took to its
    node, 'for worker' how long it then waited until a worker had room, or had started. Workers were idle 'for'
    data, for a message that the data are there, or for a worker, although the attempt that they ran next was ready;
    'for rest' is after their last attempt. What was 'moved between nodes' is counted by the nodes that received it;
    'in place' was read where it is, on a file system that both see, and 'planned' follows from the volumes that the
    graph declares.

    A trace in otlp is the body of a POST to /v1/traces of a collector: pipe it to 'curl --json @-'.

    A report in html opens without a server and a network, has no scripts, and does not grow with the number of drops.
    """
    form = file_form(form, target, *_FILES)
    if others and form != "profile":
        raise UsageError("--with merges measurements into a file", hint="name it with -o FILE.npz")
    if len(runs) == 1 and Path(runs[0]).is_file():
        if form not in (None, "profile"):
            raise UsageError("a file of measurements has no single attempts", where=runs[0], hint="leave out --format")
        from translator.plan.measured import merged_nodes

        nodes = merged_nodes(measured_by(output, manager, (*runs, *others)))
        if form is None:
            output.answer(MeasuredReply(nodes=_summaries(nodes)))
        else:
            write_file(output, runs[0], form, target, partial(_write_measured, nodes))
        return Exit.FINISHED
    here = are_directories(runs)
    if form in (None, "json"):
        reply = _of_directories(runs, slowest, steps) if here else _of_session(manager, runs[0], slowest, steps)
        if form is None:
            output.answer(reply)
        else:
            write_file(output, reply.run, form, target, lambda stream: stream.write(msgspec.json.encode(reply)))
    elif form == "html":
        name, page = _report(manager, runs, here=here)
        write_file(output, name, form, target, lambda stream: stream.write(page))
    elif form == "profile":
        from translator.plan.measured import measured_nodes, merged_nodes

        run = measured_run(output, manager, runs)
        nodes = merged_nodes([*measured_nodes(run), *measured_by(output, manager, others)])
        write_file(output, run.graph.name, form, target, partial(_write_measured, nodes))
    else:
        _write_timeline(output, manager, runs, form, target)
    return Exit.FINISHED


def _write_measured(nodes: "Sequence[MeasuredNode]", stream: BinaryIO) -> None:
    from translator.plan.measured import write_profile

    content = BytesIO()
    write_profile(nodes, content)
    stream.write(content.getvalue())


def _write_timeline(
    output: CommandOutput, manager: ConnectionOptions, runs: Sequence[str], form: str, target: str | None
) -> None:
    """Write when the attempts of a run ran, on which worker."""
    from dropflow.times.attempts import attempts_of, check_rows
    from dropflow.times.executed import executed_picture, executed_trace, opentelemetry_trace
    from dropflow.times.timeline import analyse
    from dropflow.times.timeline_files import write_svg

    graph, sections = recorded(output, manager, runs)
    attempts = attempts_of(sections)
    check_rows(graph, attempts, runs[0])
    analysis = analyse(graph, attempts)
    writers: dict[str, Callable[[BinaryIO], None]] = {
        "trace": lambda stream: stream.writelines(executed_trace(analysis)),
        "otlp": lambda stream: stream.writelines(opentelemetry_trace(analysis)),
        "svg": lambda stream: write_svg(executed_picture(analysis), stream),
    }
    write_file(output, graph.name, form, target, writers[form])


def _report(manager: ConnectionOptions, runs: tuple[str, ...], *, here: bool) -> tuple[str, bytes]:
    """Return the name of a run, and its report as a page."""
    from dropflow.web.report import report_page, session_report

    if len(runs) > 1:
        raise UsageError("a report is of one run", where=runs[1], hint="name one directory, or the session")
    if here:
        from dropflow.sessions.report import run_report

        report = run_report(Path(runs[0]))
    else:
        with manager.connect() as client:
            report = session_report(client, runs[0])
    return f"{report.detail.session}, which is {report.detail.status.lower()}", report_page(report)


def _of_directories(runs: tuple[str, ...], slowest: int, steps: int) -> TimesReply:
    from dropflow.times.attempts import attempts_of
    from dropflow.times.measured_run import read_parts
    from dropflow.times.timeline import analyse, statistics_of
    from dropflow.times.traffic import traffic_of, uncounted_nodes

    graph, sections = read_parts([Path(run) for run in runs])
    analysis = analyse(graph, attempts_of(sections))
    traffic, uncounted = traffic_of(graph, sections), uncounted_nodes(sections)
    statistics = statistics_of(analysis, most=slowest, most_steps=steps, traffic=traffic, uncounted=uncounted)
    return TimesReply(run=graph.name, statistics=statistics)


def _of_session(manager: ConnectionOptions, session: str, slowest: int, steps: int) -> TimesReply:
    from dropflow.api.requests import StatisticsQuery

    with manager.connect() as client:
        statistics = client.times_statistics(session, StatisticsQuery(slowest=slowest, steps=steps))
    return TimesReply(run=session, statistics=statistics)
