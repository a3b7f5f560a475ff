"""``dropflow status``: one session as it is now."""

import click

from dropflow.cli.exit_status import Exit, exit_for_status
from dropflow.cli.options import ConnectionOptions, connection_options, output_options, session_argument
from dropflow.cli.output import CommandOutput

__all__ = ["command"]


@click.command("status")
@output_options
@session_argument
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Show SESSION as it is now: progress by logical node, and why drops failed.

    Exit status 1 if the session FAILED or was CANCELLED, 3 if its state is UNKNOWN because nodes do not answer.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionReply

    with connect(manager) as client:
        reply = SessionReply.of(client.session(session), manager=client.url)
    output.answer(reply)
    return exit_for_status(reply.session.status)
