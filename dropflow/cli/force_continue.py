"""``dropflow force-continue``: have a session go on although no majority of its voters answers."""

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options, session_argument
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError

__all__ = ["command"]


@click.command("force-continue")
@output_options
@session_argument
@click.option(
    "--others-are-stopped",
    is_flag=True,
    help="Needed. The nodes that do not answer are stopped or switched off, and stay so until the session is over.",
)
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions, session: str, others_are_stopped: bool) -> Exit:
    """Have the nodes of SESSION that are left go on without a majority.

    A session that waits for a majority of its voters cannot know whether the others go on without it. If they do,
    this makes the session run twice: applications run on both sides, and the results may differ. So stop the nodes
    that do not answer, or switch them off, before. It is refused if a majority answers.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    if not others_are_stopped:
        raise UsageError(
            "if the nodes that do not answer still run, the session may run twice",
            hint="stop them or switch them off, and repeat the command with --others-are-stopped",
        )
    with connect(manager) as client:
        info = client.force_continue(session)
    output.answer(SessionChange(ok=True, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED
