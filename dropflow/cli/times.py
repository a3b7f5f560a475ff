"""``dropflow times``: how long the attempts of a run waited and ran, and its critical path as executed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.recorded_times import are_directories, runs_argument, sections_of_directories
from dropflow.cli.tables import columns
from dropflow.formatting import format_brief, format_size, plural

if TYPE_CHECKING:
    from dropflow.times.statistics import TimesStatistics

__all__ = ["command"]


class TimesReply(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the attempts of a run."""

    ok: bool = True
    run: str
    statistics: "TimesStatistics"

    def lines(self) -> Iterator[str]:
        """Templates, slowest attempts, critical path, and use of workers."""
        found = self.statistics
        failed = f", {found.failed} failed" if found.failed else ""
        yield f"{self.run}: {plural(found.attempts, 'attempt')}{failed}, {format_brief(found.ended - found.began)}"
        yield from (f"node {node} did not answer: its attempts are missing" for node in found.missing)
        if not found.attempts:
            return
        yield from self._templates()
        if found.slowest:
            yield "slowest attempts:"
            rows = [
                (one.name, one.drop, one.attempt, format_brief(one.ran), format_brief(one.waited))
                for one in found.slowest
            ]
            yield from columns(rows, header=("node", "drop", "attempt", "ran", "waited"))
        yield from self._critical()
        yield from self._traffic()
        yield "workers:"
        lanes = [
            (one.node, one.lane, one.attempts, *(format_brief(getattr(one, field)) for field in _USES))
            for one in found.lanes
        ]
        yield from columns(lanes, header=("node", "worker", "attempts", "busy", *(f"for {use}" for use in _USES[1:])))

    def _traffic(self) -> Iterator[str]:
        found = self.statistics.traffic
        if found:
            total = format_size(sum(one.size for one in found))
            cut = f", the first {_SHOWN_PAIRS} of {len(found)} pairs" if len(found) > _SHOWN_PAIRS else ""
            yield f"moved between nodes: {total}{cut}:"
            rows = [
                (
                    one.source,
                    one.target,
                    one.contents,
                    format_size(one.size),
                    format_size(one.shared_size) if one.shared_contents else "",
                    format_size(one.planned) if one.planned else "",
                )
                for one in found[:_SHOWN_PAIRS]
            ]
            yield from columns(rows, header=("from", "to", "contents", "bytes", "in place", "planned"))
            if self.statistics.uncounted:
                nodes = ", ".join(self.statistics.uncounted)
                yield f"these sums are incomplete: what {nodes} received is not known"

    def _templates(self) -> Iterator[str]:
        rows = [
            (
                one.name,
                one.attempts,
                one.failed,
                format_brief(one.median),
                format_brief(one.p95),
                format_brief(one.longest),
                format_brief(one.waited),
                format_brief(one.queued),
                format_brief(one.planned) if one.planned else "",
                format_brief(one.processor),
                format_size(one.memory) if one.memory else "",
            )
            for one in self.statistics.templates
        ]
        header = ("node", "attempts", "failed", "median", "95 %", "longest", "ready", "queued")
        yield from columns(rows, header=(*header, "planned", "processor", "memory"))

    def _critical(self) -> Iterator[str]:
        found = self.statistics
        cut = f", the {len(found.critical)} longest" if len(found.critical) < found.critical_steps else ""
        yield (
            f"critical path: {plural(found.critical_steps, 'attempt')}, which ran {format_brief(found.critical_ran)}"
            f" and waited {format_brief(found.critical_waited)}{cut}:"
        )
        rows = [
            (
                one.name,
                one.drop,
                one.node,
                one.waited_for,
                format_brief(one.moved),
                format_brief(one.waited - one.moved),
                format_brief(one.ran),
            )
            for one in found.critical
        ]
        yield from columns(rows, header=("node", "drop", "on", "after", "moving", "for worker", "ran"))


_SHOWN_PAIRS = 20
_USES = ("busy", "data", "message", "worker", "rest")


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
@runs_argument
@connection_options
def command(
    output: CommandOutput, *, manager: ConnectionOptions, runs: tuple[str, ...], slowest: int, steps: int
) -> Exit:
    """Show how long attempts of RUN waited and ran, by logical node, and its critical path as executed.

    RUN is a session of a manager, or the directory of a run, also of one that is running or was killed. Of a session of
    managers, its directories on its nodes may be given together. Attempts that have not ended are not counted.

    'ready' is the median from when an attempt could begin until it was given to the workers, 'queued' from then
    until one began it. Each step of the critical path began 'after' data, after a worker was free, or after an
    attempt of the same drop that had failed; 'moving' is how long its data or a message about them took to its
    node, 'for worker' how long it then waited until a worker had room, or had started. Workers were idle 'for'
    data, for a message that the data are there, or for a worker, although the attempt that they ran next was ready;
    'for rest' is after their last attempt. What was 'moved between nodes' is counted by the nodes that received it;
    'in place' was read where it is, on a file system that both see, and 'planned' follows from the volumes that the
    graph declares.
    """
    here = are_directories(manager, runs)
    output.answer(_of_directories(runs, slowest, steps) if here else _of_session(manager, runs[0], slowest, steps))
    return Exit.FINISHED


def _of_directories(runs: tuple[str, ...], slowest: int, steps: int) -> TimesReply:
    from dropflow.times.analysis import analyse, statistics_of
    from dropflow.times.attempts import attempts_of
    from dropflow.times.traffic import traffic_of, uncounted_nodes

    graph, sections = sections_of_directories(runs)
    found = analyse(graph, attempts_of(sections))
    traffic, uncounted = traffic_of(graph, sections), uncounted_nodes(sections)
    statistics = statistics_of(found, most=slowest, most_steps=steps, traffic=traffic, uncounted=uncounted)
    return TimesReply(run=graph.name, statistics=statistics)


def _of_session(manager: ConnectionOptions, session: str, slowest: int, steps: int) -> TimesReply:
    from dropflow.cli.connection import connect
    from dropflow.rest.operation_records import StatisticsQuery

    with connect(manager) as client:
        statistics = client.times_statistics(session, StatisticsQuery(slowest=slowest, steps=steps))
    return TimesReply(run=session, statistics=statistics)
