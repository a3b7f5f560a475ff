"""``dropflow continue``: continue a session after a pause."""  # noqa: N999 - the module of a command has its name

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options, session_argument
from dropflow.cli.output import CommandOutput
from dropflow.rest.status import UNKNOWN

__all__ = ["command"]


@click.command("continue")
@output_options
@session_argument
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Continue SESSION after 'dropflow pause'.

    A session that is not paused stays as it is. Exit status 3 if nodes of it do not answer: the message names them, and
    the others have continued it.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        info = client.unpause(session)
    is_known = info.status != UNKNOWN
    output.answer(SessionChange(ok=is_known, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED if is_known else Exit.UNKNOWN
