"""The body of ``dropflow run``: translate, run, watch, and tell how it ended."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Self

import msgspec

from dropflow import local
from dropflow.cli.exits import Exit
from dropflow.cli.output import Output, OutputKind
from dropflow.cli.progress import progress_for
from dropflow.cli.source import note_problems, translate_source
from dropflow.cli.tables import plural, readable_seconds
from dropflow.engine.reports import FailureReport, SessionResult
from dropflow.engine.session import Session
from dropflow.states import SessionState
from translator.options import PartitionOptions
from translator.partition.registry import partition

__all__ = ["RunReply", "run_graph"]

_SHOWN_FAILURES = 10
_SHOWN_RESULTS = 12
_DETAIL_LINES = 12


class RunReply(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended; see ``docs/reference/session-directory.md`` for what is in `output`."""

    ok: bool
    session: str
    status: str
    drops: int
    states: dict[str, int]
    seconds: float
    failures: tuple[FailureReport, ...] = ()
    notes: tuple[str, ...] = ()
    output: str

    @classmethod
    def of(cls, result: SessionResult) -> "RunReply":
        """The reply for a result."""
        return msgspec.convert(local.summary(result), cls)

    def lines(self) -> Iterator[str]:
        """The end, the root causes of failures, and where the results are."""
        states = ", ".join(f"{count:,} {state}" for state, count in self.states.items() if count)
        how_long = f"{plural(self.drops, 'drop')} in {readable_seconds(self.seconds)}"
        yield f"{self.status}  {how_long}  ({states or 'nothing to do'})"
        for failure in self.failures[:_SHOWN_FAILURES]:
            yield from _failure_lines(failure)
        if len(self.failures) > _SHOWN_FAILURES:
            yield f"... and {plural(len(self.failures) - _SHOWN_FAILURES, 'more cause')}: see summary.json"
        yield from (f"note: {note}" for note in self.notes)
        results = _results(Path(self.output))
        yield f"results in {self.output}"
        yield from (f"  {path}" for path in results[:_SHOWN_RESULTS])
        if len(results) > _SHOWN_RESULTS:
            yield f"  ... and {len(results) - _SHOWN_RESULTS} more"


def run_graph(
    output: Output,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    parts: int | None,
    runner: str,
    workers: int | None,
    keep: str | None,
    debug: bool,
) -> Exit:
    """Run the graph in the file called `graph` to its end, or to the signal that stops it."""
    translation = translate_source(graph, configuration=configuration, settings=settings)
    note_problems(output, translation.problems)
    wanted = translation.graph
    if parts is not None:
        wanted = partition(wanted, PartitionOptions(parts=parts))
    local.refuse_unusable(wanted)  # before an earlier run in the same directory is cleared away
    for note in local.placement_notes(wanted):
        output.note(note)
    directory = local.prepare_directory(Path(keep)) if keep else local.new_directory(wanted)
    with _Signals() as signals, progress_for(quiet=output.kind is OutputKind.QUIET) as progress:
        result = local.run(
            wanted,
            directory=directory,
            runner=runner,
            workers=workers,
            on_session=signals.watch,
            on_statistics=progress,
            check_invariants=debug,
        )
    output.answer(RunReply.of(result))
    if result.status is SessionState.FINISHED:
        return Exit.FINISHED
    if result.status is SessionState.CANCELLED:
        return Exit.TERMINATED if signals.last == signal.SIGTERM else Exit.INTERRUPTED
    return Exit.FAILED


class _Signals:
    """SIGINT and SIGTERM cancel the session; a second one leaves at once."""

    def __init__(self) -> None:
        self.last = 0
        self._session: Session | None = None

    def __enter__(self) -> Self:
        self._former = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def watch(self, session: Session) -> None:
        """Cancel this session from now on."""
        self._session = session
        if self.last:
            session.cancel(signal.Signals(self.last).name)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.last:
            raise KeyboardInterrupt
        self.last = number
        if self._session is not None:
            self._session.cancel(signal.Signals(number).name)


def _failure_lines(failure: FailureReport) -> Iterator[str]:
    tries = f", after {failure.attempts} attempts" if failure.attempts > 1 else ""
    others = f", and {plural(failure.count - 1, 'drop')} behind it" if failure.count > 1 else ""
    drop = f" ({failure.drop})" if failure.drop else ""
    yield f"  failed: {failure.name}{drop}{others}{tries}"
    yield f"    {failure.code} {failure.text}"
    if failure.hint:
        yield f"    {failure.hint}"
    yield from (f"    | {line}" for line in failure.detail.splitlines()[-_DETAIL_LINES:])
    if failure.log:
        yield f"    log: {failure.log}"


def _results(directory: Path) -> list[Path]:
    """Files that the run left for people, those of drops first in alphabetical order."""
    found = (path for name in ("files", "results") for path in (directory / name).rglob("*"))
    return sorted(path for path in found if path.is_file())
