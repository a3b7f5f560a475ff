"""``dropflow cancel``: stop a session."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.candidates import drops
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


class CancelledDrops(msgspec.Struct, frozen=True, kw_only=True):
    """The states of the drops that were to be cancelled."""

    ok: bool = True
    session: str
    drops: dict[str, str]

    def lines(self) -> Iterator[str]:
        """One line for each drop."""
        yield from (f"{drop}: {state}" for drop, state in self.drops.items())


@click.command("cancel")
@output_options
@session_argument
@click.argument("drops", metavar="[DROP]...", nargs=-1, shell_complete=drops)
@connection_options
@click.option("--reason", default="", metavar="TEXT", help="The reason, which is shown with the session.")
@grace_option
def command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    session: str,
    drops: tuple[str, ...],
    reason: str,
    grace: float,
) -> Exit:
    """Stop SESSION: drops that are not settled become CANCELLED. A session that is over does not change.

    With one or more DROPs, only these become CANCELLED and the session goes on: what depends on them is treated as
    after an error. A DROP is a text id, or the end of one if only one drop ends so.

    The session is CANCELLING while running applications clean up: Python functions get dropflow.Interrupted, programs
    SIGTERM. What still runs after the grace period is killed. Repeat the command with a shorter one to kill it sooner.

    Exit status 3 if the session is UNKNOWN because nodes do not answer: they may not have stopped it.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        if drops:
            found = [client.cancel_drop(session, drop, reason, grace) for drop in drops]
            output.answer(CancelledDrops(session=session, drops={drop.oid: drop.state for drop in found}))
            return Exit.FINISHED
        info = client.cancel(session, reason, grace)
    is_known = info.status != UNKNOWN
    output.answer(SessionChange(ok=is_known, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED if is_known else Exit.UNKNOWN
