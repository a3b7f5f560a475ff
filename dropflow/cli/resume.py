"""``dropflow resume``: continue a run that was killed or cancelled."""

from pathlib import Path

import click

from dropflow.cli.cancel_on_signal import CancelOnSignal
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import grace_option, output_options, runner_options
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run_reply import RunReply, exit_of_run
from dropflow.cli.walltime import until_option

__all__ = ["command"]


@click.command("resume")
@output_options
@click.argument("directory", metavar="DIR")
@runner_options
@grace_option
@until_option
@click.option(
    "--ignore-damage", is_flag=True, help="Continue from what is before the damage of a damaged journal, if it is."
)
def command(
    output: CommandOutput,
    *,
    directory: str,
    runner: str,
    workers: int | None,
    infrastructure_retries: int,
    durable: bool,
    grace: float,
    until: float,
    ignore_damage: bool,
) -> Exit:
    """Continue the run in DIR, which was killed, cancelled, or stopped at its walltime.

    Drops that were completed are kept if their contents are still there. Those whose contents are lost and still needed
    run again, and so do attempts that had not ended. The answer is that of run; its notes say how many drops were kept
    and how many run again. A run that has ended by itself is not changed: the answer is how it ended.
    """
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
        result = resume(Path(directory), options, ignore_damage=ignore_damage)
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)
