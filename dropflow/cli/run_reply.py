"""How a run on this machine ended: the answer of ``run``, ``resume`` and ``retry``, and their exit status."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.session_replies import count_lines, failure_lines, headline
from dropflow.cli.tables import shell_command
from dropflow.drop_counts import NO_DROPS, DropCounts
from dropflow.formatting import plural
from dropflow.states import DropState, SessionState

if TYPE_CHECKING:
    from dropflow.engine.reports import FailureReport, SessionResult

__all__ = ["RunReply", "exit_of_run"]

_SHOWN_RESULTS = 12


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
            counts=result.counts,
            seconds=round(result.seconds, 3),
            failures=result.failures,
            notes=result.notes,
            infrastructure_faults=result.infrastructure_faults,
            output=result.directory,
        )

    def lines(self) -> Iterator[str]:
        """The end, the root causes of failures, and where the results are."""
        from dropflow.run_report import failure_infos

        yield headline(self.status, self.drops, self.seconds, self.states)
        if self.status == SessionState.PAUSED.name:
            settled = sum(count for state, count in self.states.items() if DropState[state].is_terminal)
            yield (
                f"stopped at walltime: {settled:,} of {plural(self.drops, 'drop')} are settled; "
                f"go on with {shell_command('resume', self.output)}"
            )
        yield from count_lines(self.counts)
        logs = {failure.drop: failure.log for failure in self.failures}
        yield from failure_lines(
            failure_infos(self.failures),
            log=lambda failure: logs[failure.drop],
            more=str(Path(self.output, "summary.json")),
        )
        yield from (f"note: {note}" for note in self.notes)
        results = _results(Path(self.output))
        yield f"results in {self.output}"
        yield from (f"  {path}" for path in results[:_SHOWN_RESULTS])
        if len(results) > _SHOWN_RESULTS:
            yield f"  ... and {len(results) - _SHOWN_RESULTS} more"
        if self.status == SessionState.CANCELLED.name:
            yield f"to continue: {shell_command('resume', self.output)}"
        elif any(failure.drop for failure in self.failures):
            yield f"to try failed drops again: {shell_command('retry', self.output)}"


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
    """Return the files with results, those of drops first, in alphabetical order."""
    found = (path for name in ("files", "results") for path in (directory / name).rglob("*"))
    return sorted(path for path in found if path.is_file())
