"""``dropflow run``: run a graph on this machine."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import graph_argument, infrastructure_retries_option, output_options, setting_options
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.session_replies import cause_lines, headline
from dropflow.formatting import plural
from dropflow.states import SessionState

if TYPE_CHECKING:
    from dropflow.engine.reports import FailureReport, SessionResult
    from dropflow.engine.session import Session

__all__ = ["command"]

_SHOWN_FAILURES = 10
_SHOWN_RESULTS = 12


class RunReply(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended; ``docs/reference/session-directory.md`` describes the files in `output`."""

    ok: bool
    session: str
    status: str
    drops: int
    states: dict[str, int]
    seconds: float
    failures: "tuple[FailureReport, ...]" = ()
    notes: tuple[str, ...] = ()
    infrastructure_faults: int = 0
    output: str

    @classmethod
    def of(cls, result: "SessionResult") -> "RunReply":
        """Return the reply for a result."""
        return cls(
            ok=result.status is SessionState.FINISHED,
            session=result.session,
            status=result.status.name,
            drops=result.drops,
            states=result.states,
            seconds=round(result.seconds, 3),
            failures=result.failures,
            notes=result.notes,
            infrastructure_faults=result.infrastructure_faults,
            output=result.directory,
        )

    def lines(self) -> Iterator[str]:
        """The end, the root causes of failures, and where the results are."""
        yield headline(self.status, self.drops, self.seconds, self.states)
        for failure in self.failures[:_SHOWN_FAILURES]:
            drop = f" ({failure.drop})" if failure.drop else ""
            others = f", and {plural(failure.count - 1, 'drop')} because of it" if failure.count > 1 else ""
            yield from cause_lines(f"failed: {failure.name}{drop}", failure, others, failure.log)
        if len(self.failures) > _SHOWN_FAILURES:
            yield f"... and {plural(len(self.failures) - _SHOWN_FAILURES, 'more cause')}: see summary.json"
        yield from (f"note: {note}" for note in self.notes)
        results = _results(Path(self.output))
        yield f"results in {self.output}"
        yield from (f"  {path}" for path in results[:_SHOWN_RESULTS])
        if len(results) > _SHOWN_RESULTS:
            yield f"  ... and {len(results) - _SHOWN_RESULTS} more"


@click.command("run")
@output_options
@graph_argument
@setting_options
@click.option("-n", "--parts", type=click.IntRange(min=1), help="Partition the graph into this many parts first.")
@click.option(
    "--runner",
    type=click.Choice(["inline", "threads", "processes"]),
    default="processes",
    show_default=True,
    help="Where applications run: in this process one by one, in its threads, or in worker processes.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Number of threads or processes; one per core by default.")
@infrastructure_retries_option
@click.option(
    "--keep",
    metavar="DIR",
    help="Put the results into DIR instead of dropflow-runs/<graph>-<time>. An earlier run there is replaced.",
)
def command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    parts: int | None,
    runner: str,
    workers: int | None,
    infrastructure_retries: int,
    keep: str | None,
) -> Exit:
    """Run GRAPH on this machine.

    Shows the progress of each logical node, then where the results are; after a failure, its root causes and what to
    do. Ctrl-C cancels the session; a second Ctrl-C ends the command immediately. With --debug all state of the engine
    is checked after every step, which is slow.
    """
    from dropflow import local
    from dropflow.cli.graph_files import note_warnings, read_graph
    from dropflow.cli.progress import session_progress
    from translator.partition.registry import partition
    from translator.stage_options import PartitionOptions

    translation = read_graph(graph, configuration=configuration, settings=settings)
    note_warnings(output, translation.problems)
    physical = translation.graph
    if parts is not None:
        physical = partition(physical, PartitionOptions(parts=parts))
    local.refuse_unusable(physical)  # before an earlier run in the same directory is removed
    for note in local.placement_notes(physical):
        output.note(note)
    directory = local.prepare_directory(Path(keep)) if keep else local.new_directory(physical)
    with _CancelOnSignal() as signals, session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        result = local.run(
            physical,
            directory=directory,
            runner=runner,
            workers=workers,
            on_session=signals.watch,
            on_statistics=show,
            infrastructure_retries=infrastructure_retries,
            check_invariants=bool(click.get_current_context().params.get("debug")),
        )
    output.answer(RunReply.of(result))
    if result.status is SessionState.FINISHED:
        return Exit.FINISHED
    if result.status is SessionState.CANCELLED:
        return Exit.TERMINATED if signals.last == signal.SIGTERM else Exit.INTERRUPTED
    return Exit.FAILED


class _CancelOnSignal:
    """Cancels the session on SIGINT or SIGTERM, and raises KeyboardInterrupt on the second signal."""

    def __init__(self) -> None:
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
            session.cancel(signal.Signals(self.last).name)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.last:
            raise KeyboardInterrupt
        self.last = number
        if self._session is not None:
            self._session.cancel(signal.Signals(number).name)


def _results(directory: Path) -> list[Path]:
    """Return the files with results, those of drops first, in alphabetical order."""
    found = (path for name in ("files", "results") for path in (directory / name).rglob("*"))
    return sorted(path for path in found if path.is_file())
