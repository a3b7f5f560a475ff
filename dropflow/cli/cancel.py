"""``dropflow cancel``: stop a session."""

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    ConnectionOptions,
    connection_options,
    grace_option,
    output_options,
    session_argument,
)
from dropflow.cli.output import CommandOutput
from dropflow.rest.status import UNKNOWN

__all__ = ["command"]


@click.command("cancel")
@output_options
@session_argument
@connection_options
@click.option("--reason", default="", metavar="TEXT", help="The reason, which is shown with the session.")
@grace_option
def command(output: CommandOutput, *, manager: ConnectionOptions, session: str, reason: str, grace: float) -> Exit:
    """Stop SESSION: drops that are not settled become CANCELLED. A session that is over does not change.

    The session is CANCELLING while running applications clean up: Python functions get dropflow.Interrupted, programs
    SIGTERM. What still runs after the grace period is killed. Repeat the command with a shorter one to kill it sooner.

    Exit status 3 if the session is UNKNOWN because nodes do not answer: they may not have stopped it.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        info = client.cancel(session, reason, grace)
    is_known = info.status != UNKNOWN
    output.answer(SessionChange(ok=is_known, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED if is_known else Exit.UNKNOWN
