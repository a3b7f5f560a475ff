"""``dropflow retry``: try the failed drops of a run again."""

from pathlib import Path

import click

from dropflow.cli.cancel_on_signal import CancelOnSignal
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options, runner_options
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run_reply import RunReply, exit_of_run

__all__ = ["command"]


@click.command("retry")
@output_options
@click.argument("directory", metavar="DIR")
@click.argument("drops", metavar="[DROP]...", nargs=-1)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[NODE.]PARAM=VALUE",
    help="Set a parameter of the nodes that failed, for all of their drops that run from now on. May be repeated.",
)
@runner_options
def command(
    output: CommandOutput,
    *,
    directory: str,
    drops: tuple[str, ...],
    settings: tuple[str, ...],
    runner: str,
    workers: int | None,
    infrastructure_retries: int,
    durable: bool,
) -> Exit:
    """Run the failed drops of the run in DIR again, after their cause was corrected.

    These are all root causes, or those of each DROP (a text id as reports show it, or the end of one), and the drops
    that failed or were cancelled because of them. Drops that were completed are kept, if their contents are still there
    or not needed. Failed drops have all of their tries again. The answer is that of run.
    """
    from dropflow.cli.progress import session_progress
    from dropflow.local import RunOptions
    from dropflow.retry_run import retry

    with CancelOnSignal() as signals, session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        options = RunOptions(
            runner=runner,
            workers=workers,
            infrastructure_retries=infrastructure_retries,
            durable=durable,
            on_session=signals.watch,
            on_statistics=show,
            check_invariants=bool(click.get_current_context().params.get("debug")),
        )
        result = retry(Path(directory), drops, options, settings=settings)
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)
