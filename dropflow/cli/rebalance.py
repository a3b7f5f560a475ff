"""``dropflow rebalance``: spread what a session has not begun over its nodes again."""

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options, session_argument
from dropflow.cli.output import CommandOutput

__all__ = ["command"]


@click.command("rebalance")
@output_options
@session_argument
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Move what has not begun of SESSION, so that all its nodes end at about the same time.

    Nodes get as much as they have worked off before. What runs goes on where it is, and what has completed stays. The
    command returns when the nodes have decided. A note of the session tells what moved.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        info = client.rebalance(session)
    output.answer(SessionChange(ok=True, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED
