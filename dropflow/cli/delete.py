"""``dropflow delete``: remove a session and its files."""

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options, session_argument
from dropflow.cli.output import CommandOutput

__all__ = ["command"]


@click.command("delete")
@output_options
@session_argument
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Remove SESSION and all of its files, also its results. A running session is stopped first."""
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        client.delete(session)
    output.answer(SessionChange(session=session, status="DELETED"))
    return Exit.FINISHED
