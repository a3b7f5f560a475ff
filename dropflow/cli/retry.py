"""``dropflow retry``: try failed drops of a run, or of a session of a manager, again, or run it again from a drop."""

from pathlib import Path

import click

from dropflow.cli.cancel_on_signal import CancelOnSignal
from dropflow.cli.candidates import drops, runs
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    ConnectionOptions,
    connection_options,
    output_options,
    patience_option,
    runner_options,
)
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run_or_session import continue_session, is_directory, session_options
from dropflow.cli.run_reply import RunReply, exit_of_run
from dropflow.errors import UsageError

__all__ = ["command"]


@click.command("retry")
@output_options
@click.argument("run", metavar="RUN", shell_complete=runs)
@click.argument("drops", metavar="[DROP]...", nargs=-1, shell_complete=drops)
@connection_options
@session_options
@patience_option
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="DROP",
    shell_complete=drops,
    help="Run this drop again and all that depends on it, whatever their outcome was. May be repeated.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[NODE.]PARAM=VALUE",
    help="Set a parameter of the nodes that failed, or are named with --from, for all of their drops that run from now "
    "on. May be repeated.",
)
@runner_options
def command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    run: str,
    drops: tuple[str, ...],
    start: tuple[str, ...],
    settings: tuple[str, ...],
    wait: bool,
    patience: float,
    without_missing: bool,
    runner: str,
    workers: int | None,
    infrastructure_retries: int,
    durable: bool,
) -> Exit:
    """Run the failed drops of RUN again, after their cause was corrected.

    RUN is the directory of a run that has ended, or a session of a manager if there is no such directory, or with --to.
    The session may still run, unless parameters are set.

    These are all root causes, or those of each DROP (a text id as reports show it, or the end of one), and the drops
    that failed or were cancelled because of them. Drops that were completed are kept, if their contents are still there
    or not needed. Failed drops have all of their tries again. The answer is that of run, or for a session of a manager
    that of submit.

    Functions whose code is in the graph run with the code that the run began with, also if their source was edited
    since: 'dropflow run' with --overwrite takes the new code, and computes everything again.

    With --from, these drops run again and all that depends on them, also if they were completed; all others stay as
    they are. DROP is a text id, the end of one, or the name of a logical node, for all of its drops. A data drop is
    written again by its producers. Inputs whose contents are gone are made again. The session must be over.
    """
    if start and drops:
        raise UsageError(
            f"DROP ({', '.join(drops)}) and --from cannot be given together",
            hint="DROP names drops that failed; name all from which the run starts again with --from",
        )
    if not is_directory(run):
        from dropflow.rest.operation_records import RetryRequest

        request = RetryRequest(drops=drops, start=start, settings=settings, without_missing=without_missing)
        return continue_session(
            output, manager, lambda client: client.retry(run, request), wait=wait, patience=patience
        )

    from dropflow.cli.progress import session_progress
    from dropflow.graph_file import load
    from dropflow.local import RunOptions
    from dropflow.retry_run import retry, run_again

    kept = Path(run, "graph.dfg")
    if kept.exists() and any(
        one.name == "func_code" and one.value for app in load(kept).templates for one in app.arguments
    ):
        output.note(
            "functions in the graph have the code that the run began with; for code that was edited since, "
            f"run its source again with --keep {run} --overwrite"
        )
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
        if start:
            result = run_again(Path(run), start, options, settings=settings)
        else:
            result = retry(Path(run), drops, options, settings=settings)
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)
