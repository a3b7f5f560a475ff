"""``dropflow resume``: continue a run, or a session of a manager, that was killed or cancelled."""

from pathlib import Path

import click

from dropflow.cli.cancel_on_signal import CancelOnSignal
from dropflow.cli.candidates import runs
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    ConnectionOptions,
    connection_options,
    grace_option,
    output_options,
    patience_option,
    runner_options,
)
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run_or_session import continue_session, is_directory, session_options
from dropflow.cli.run_reply import RunReply, exit_of_run
from dropflow.cli.walltime import until_option

__all__ = ["command"]


@click.command("resume")
@output_options
@click.argument("run", metavar="RUN", shell_complete=runs)
@connection_options
@session_options
@patience_option
@runner_options
@grace_option
@until_option
@click.option(
    "--ignore-damage", is_flag=True, help="Continue from what is before the damage of a damaged journal, if it is."
)
def command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    run: str,
    wait: bool,
    patience: float,
    without_missing: bool,
    runner: str,
    workers: int | None,
    infrastructure_retries: int,
    durable: bool,
    grace: float,
    until: float,
    ignore_damage: bool,
) -> Exit:
    """Continue RUN, which was killed, cancelled, or stopped at its walltime.

    RUN is the directory of a run, or a session of a manager if there is no such directory, or with --to.

    Drops that were completed are kept if their contents are still there. Those whose contents are lost and still needed
    run again, and so do attempts that had not ended. The answer is that of run; its notes say how many drops were kept
    and how many run again. A run that has ended by itself is not changed: the answer is how it ended.

    A session of a manager goes on under its name on those of its nodes that are there, after all of them were switched
    off, too; contents stay where they are. The answer is that of submit. A session that runs is refused, and so is one
    that may have gone on on nodes that are missing.
    """
    if not is_directory(run):
        from dropflow.rest.operation_records import ResumeRequest

        request = ResumeRequest(without_missing=without_missing, ignore_damage=ignore_damage, until=until)
        return continue_session(
            output, manager, lambda client: client.resume(run, request), wait=wait, patience=patience
        )

    from dropflow.cli.progress import session_progress
    from dropflow.local import RunOptions
    from dropflow.resume_run import resume

    with CancelOnSignal(grace) as signals, session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        options = RunOptions(
            runner=runner,
            workers=workers,
            infrastructure_retries=infrastructure_retries,
            durable=durable,
            until=until,
            on_session=signals.watch,
            on_statistics=show,
            check_invariants=bool(click.get_current_context().params.get("debug")),
        )
        result = resume(Path(run), options, ignore_damage=ignore_damage)
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)
