"""``dropflow run`` and ``resume``: graphs on this machine, and how sessions go on."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

import click
import msgspec

from dropflow.cli.candidates import runs
from dropflow.cli.common_options import (
    GivenOptions,
    connection_options,
    fuse_option,
    grace_option,
    graph_argument,
    options_of,
    output_options,
    patience_option,
    setting_options,
)
from dropflow.cli.exit_status import Exit
from dropflow.cli.graphs.plan_options import profile_option, seconds_by
from dropflow.cli.output import CommandOutput, OutputKind, columns, shell_command
from dropflow.cli.run_or_session import continue_session, continues_directory, manager_session_options
from dropflow.cli.sessions.session_end import count_lines, failure_lines, headline, incomplete_lines
from dropflow.files import SUMMARY
from dropflow.formatting import format_brief, format_duration, plural
from dropflow.graph.drop_counts import MOST_PARTS, NO_DROPS, DropCounts
from dropflow.session_options import RunOptions
from dropflow.states import DropState, SessionState
from dropflow.stopping import GRACE_SECONDS
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.session_records import SessionInfo
    from dropflow.execution.session import Session
    from dropflow.execution.statistics import FailureReport, SessionResult
    from dropflow.graph.drop_counts import IncompleteDrop
    from dropflow.reuse.reasons import NodeForecast

_SHOWN_RESULTS = 12
"""Paths of results in the answer."""
_LIVE = (SessionState.RUNNING.name, SessionState.PAUSED.name)

# How a run on this machine ended: the answer of ``run``, ``resume`` and ``retry``, and their exit status.


class RunReply(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended; ``docs/reference/session-directory.md`` describes the files in `output`."""

    ok: bool
    session: str
    status: str
    drops: int
    states: dict[str, int]
    counts: DropCounts = NO_DROPS
    seconds: float
    failures: "tuple[FailureReport, ...]" = ()
    notes: tuple[str, ...] = ()
    infrastructure_faults: int = 0
    computed: int = 0
    reused: int = 0
    saved: float = 0.0
    incomplete: "tuple[IncompleteDrop, ...]" = ()
    results: tuple[str, ...] = ()
    more_results: int = 0
    output: str

    @classmethod
    def of(cls, result: "SessionResult") -> "RunReply":
        """Return the reply for a result."""
        from dropflow.sessions.local_run import summary

        return cls(**summary(result))

    def lines(self) -> Iterator[str]:
        """Yield the end, the root causes of failures, and where the results are."""
        yield headline(self.status, self.drops, self.seconds, self.states)
        if self.reused:
            saved = f" (saved about {format_duration(self.saved)})" if self.saved >= 1 else ""
            yield f"{plural(self.computed, 'application')} run, {self.reused:,} reused{saved}"
        yield from incomplete_lines(self.incomplete)
        if self.status == SessionState.PAUSED.name:
            settled = sum(count for state, count in self.states.items() if DropState[state].is_terminal)
            yield (
                f"stopped at walltime: {settled:,} of {plural(self.drops, 'drop')} are settled; "
                f"go on with {shell_command('resume', self.output)}"
            )
        yield from count_lines(self.counts)
        if self.failures:
            from dropflow.sessions.summaries import failure_info

            logs = {failure.drop: failure.log for failure in self.failures}
            yield from failure_lines(
                [failure_info(failed) for failed in self.failures],
                log=lambda failure: logs[failure.drop],
                more=str(Path(self.output, SUMMARY)),
            )
        yield from (f"note: {note}" for note in self.notes)
        listed = set(map(Path, self.results))  # directories stand for the files in them
        there = [path for path in _results(Path(self.output)) if listed.isdisjoint(path.parents)]
        results = [*dict.fromkeys((*self.results, *map(str, there)))]
        count = len(results) + self.more_results
        yield f"results outside of {self.output}" if results and not there else f"results in {self.output}"
        yield from (f"  {path}" for path in results[:_SHOWN_RESULTS])
        if count > _SHOWN_RESULTS:
            yield f"  ... and {count - _SHOWN_RESULTS} more"
        if self.status == SessionState.CANCELLED.name:
            yield f"to continue: {shell_command('resume', self.output)}"
        elif any(failure.drop for failure in self.failures):
            yield f"to try failed drops again: {shell_command('retry', self.output)}"


class ForecastReply(msgspec.Struct, frozen=True, kw_only=True):
    """How many applications a run would execute or reuse, and how many wait for their inputs to decide.

    Seconds are those of all applications that run or wait, together, as they were measured; core-hours count their
    processors, too. `unmeasured` applications are in neither.
    """

    ok: bool = True
    runs: int
    reused: int
    waits: int
    seconds: float
    seconds_least: float
    seconds_most: float
    core_hours: float
    core_hours_least: float
    core_hours_most: float
    unmeasured: int
    nodes: "tuple[NodeForecast, ...]"

    @classmethod
    def of(cls, nodes: "tuple[NodeForecast, ...]") -> "ForecastReply":
        """Return the reply for these logical nodes."""
        return cls(
            runs=sum(node.runs for node in nodes),
            reused=sum(node.reused for node in nodes),
            waits=sum(node.waits for node in nodes),
            seconds=round(sum(node.seconds for node in nodes), 6),
            seconds_least=round(sum(node.least for node in nodes), 6),
            seconds_most=round(sum(node.most for node in nodes), 6),
            core_hours=round(sum(node.seconds * node.cpus for node in nodes) / 3600, 9),
            core_hours_least=round(sum(node.least * node.cpus for node in nodes) / 3600, 9),
            core_hours_most=round(sum(node.most * node.cpus for node in nodes) / 3600, 9),
            unmeasured=sum(node.unmeasured for node in nodes),
            nodes=nodes,
        )

    def lines(self) -> Iterator[str]:
        """Yield the sums, then one line for each node."""
        waits = f", {self.waits:,} only if their inputs change" if self.waits else ""
        yield f"{plural(self.runs, 'application')} would run{waits}; {self.reused:,} reused"
        yield from (f"  {text}" for text in self.price_lines())
        rows = [(node.node, node.runs, node.waits, node.reused, "; ".join(node.reasons)) for node in self.nodes]
        yield from columns(rows, header=("node", "runs", "waits", "reused", "why"))

    def price_lines(self) -> Iterator[str]:
        """Yield the measured cost of the run, with a range, and how much of it was not measured."""
        if self.seconds:
            seconds = [format_brief(amount) for amount in (self.seconds, self.seconds_least, self.seconds_most)]
            hours = [f"{amount:,.2g}" for amount in (self.core_hours, self.core_hours_least, self.core_hours_most)]
            yield (
                f"{seconds[0]} of applications ({seconds[1]} to {seconds[2]}), {hours[0]} core-hours "
                f"({hours[1]} to {hours[2]}), as measured in earlier runs"
            )
        if self.unmeasured:
            more = " more" if self.seconds else ""
            verb = "was" if self.unmeasured == 1 else "were"
            yield f"{self.unmeasured:,}{more} of them {verb} never measured, and may take any time"


def exit_of_run(status: SessionState, last_signal: int) -> Exit:
    """Return the exit status for a session that ended so, where the command got this signal last; 0 for none."""
    if status is SessionState.FINISHED:
        return Exit.FINISHED
    if status is SessionState.PAUSED:
        return Exit.PAUSED
    if status is SessionState.CANCELLED:
        return Exit.TERMINATED if last_signal == signal.SIGTERM else Exit.INTERRUPTED
    return Exit.FAILED


def _results(directory: Path) -> list[Path]:
    """Return the files with results, those in ``results`` first, in alphabetical order."""
    paths = (path for name in ("results", "files") for path in sorted((directory / name).rglob("*")))
    return [path for path in paths if path.is_file()]


# Cancelling the session of a command on SIGINT and SIGTERM.


class CancelOnSignal:
    """Cancels the session on SIGINT or SIGTERM, and raises KeyboardInterrupt on the second signal.

    Parameters
    ----------
    grace : float
        Seconds that applications have to clean up.
    """

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self._grace = grace
        self.last = 0
        self._session: Session | None = None

    def __enter__(self) -> Self:
        self._former = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def watch(self, session: "Session") -> None:
        """Cancel this session on a signal, also on one that came before."""
        self._session = session
        if self.last:
            session.cancel(signal.Signals(self.last).name, self._grace)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.last:
            raise KeyboardInterrupt
        self.last = number
        if self._session is not None:
            self._session.cancel(signal.Signals(number).name, self._grace)


@click.command("run")
@output_options
@graph_argument
@setting_options
@click.option(
    "-n", "--parts", type=click.IntRange(1, MOST_PARTS), help="Partition the graph into this many parts first."
)
@options_of(RunOptions)
@fuse_option
@grace_option
@click.option(
    "--keep",
    metavar="DIR",
    help="Put the results into DIR instead of dropflow-runs/<graph>-<time>; a run there is not replaced, but "
    "with --reuse one of the same graph is.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier run in --keep DIR, with all of its results.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Run nothing: show what --reuse would take from earlier runs, what would run, why, and what it costs.",
)
@profile_option("Tell the price of --dry-run by")
def run_command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    parts: int | None,
    options: GivenOptions[RunOptions],
    no_fuse: bool,
    keep: str | None,
    overwrite: bool,
    dry_run: bool,
    profiles: tuple[str, ...],
    grace: float,
) -> Exit:
    """Run GRAPH on this machine.

    Shows the progress of each logical node, then where the results are; after a failure, its root causes and what to
    do. Ctrl-C cancels the session: running applications clean up, as with 'dropflow cancel'. A second Ctrl-C ends the
    command immediately. A run that was killed or cancelled is continued by 'dropflow resume'; 'dropflow retry' tries
    failed drops again.

    With --reuse, only what has changed since earlier runs is computed, and what depends on it. The same command in the
    same --keep DIR goes on with what is there.

    With --until, for batch jobs, nothing is started that cannot end by then. If drops are left when the rest has ended,
    the session is PAUSED and the exit status is 4; 'dropflow resume' goes on with them.
    """
    from dropflow.cli.graphs.graph_files import note_warnings, read_graph
    from dropflow.graph.physical import without_fusion
    from dropflow.sessions import local_run
    from dropflow.submission.progress import session_progress
    from translator.options import ComponentOptions, PartitionOptions

    translation = read_graph(
        graph, configuration=configuration, settings=settings, components=ComponentOptions(here=True)
    )
    note_warnings(output, translation.problems)
    physical = translation.graph
    if parts is not None:
        from translator.plan.registry import partition

        physical = partition(physical, PartitionOptions(parts=parts))
    if no_fuse:
        physical = without_fusion(physical)
    if dry_run:
        measured = seconds_by(output, physical, profiles)
        output.answer(ForecastReply.of(local_run.foresee(physical, options.options, measured=measured)))
        return Exit.FINISHED
    with CancelOnSignal(grace) as signals, session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        result = local_run.run(
            physical,
            lambda: local_run.directory_for(physical, keep or None, options.options, overwrite=overwrite),
            options.options,
            hooks=local_run.RunHooks(on_preparing=output.note, on_session=signals.watch, on_statistics=show),
        )
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)


# ``dropflow resume``: continue a run, or a session of a manager.


@click.command("resume")
@output_options
@click.argument("run", metavar="RUN", shell_complete=runs)
@connection_options
@manager_session_options
@patience_option
@options_of(RunOptions)
@grace_option
@click.option(
    "--ignore-damage", is_flag=True, help="If the journal is damaged, continue from the part before the damage."
)
@click.option(
    "--force",
    is_flag=True,
    help="Have the nodes of a session that are left go on without a majority. The others must be stopped or switched "
    "off, and stay so until the session is over: if they still run, the session may run twice.",
)
def resume_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    run: str,
    wait: bool,
    patience: float,
    without_missing: bool,
    options: GivenOptions[RunOptions],
    grace: float,
    ignore_damage: bool,
    force: bool,
) -> Exit:
    """Continue RUN, which was paused, killed, cancelled, switched off, or stopped at its walltime.

    RUN is the directory of a run, or a session of a manager if there is no such directory, or with --to.

    Drops that were completed are kept if their contents are still there. Those whose contents are lost and still needed
    run again, and so do attempts that had not ended. The answer is that of run; its notes say how many drops were kept
    and how many run again. A run that has ended by itself is not changed: the answer is how it ended.

    A session of a manager goes on under its name on those of its nodes that are there, after all of them were switched
    off, too; contents stay where they are. The answer is that of submit. A session that may have gone on on nodes that
    are missing is refused. One that is PAUSED starts again what it has to start, and one that runs stays as it is; if
    nodes of it do not answer, the exit status is 3, and the message names them.

    A session that waits for a majority of its voters cannot know whether the others go on without it. With --force it
    goes on; if the others do so too, applications run on both sides, and the results may differ. It is refused if a
    majority answers.
    """
    if not continues_directory(run):
        from dropflow.api.requests import ResumeRequest

        request = ResumeRequest(
            without_missing=without_missing, ignore_damage=ignore_damage, until=options.options.until
        )

        def go_on(client: "Client") -> "SessionInfo":
            if force:
                return client.force_continue(run)
            is_live = client.session(run).status in _LIVE
            return client.unpause(run) if is_live else client.resume(run, request)

        return continue_session(output, manager, go_on, wait=wait, patience=patience)

    from dropflow.sessions.local_run import RunHooks, resume
    from dropflow.submission.progress import session_progress

    with CancelOnSignal(grace) as signals, session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        hooks = RunHooks(on_preparing=output.note, on_session=signals.watch, on_statistics=show)
        result = resume(Path(run), options.options, hooks=hooks, ignore_damage=ignore_damage)
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)
