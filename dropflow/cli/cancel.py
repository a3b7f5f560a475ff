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
from dropflow.errors import LinkError
from dropflow.rest.status import UNKNOWN

__all__ = ["command"]


class CancelledDrops(msgspec.Struct, frozen=True, kw_only=True):
    """The states of the drops that were to be cancelled, and why others are unknown: their nodes do not answer."""

    ok: bool = True
    session: str
    drops: dict[str, str]
    unknown: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """One line for each drop."""
        yield from (f"{drop}: {state}" for drop, state in self.drops.items())
        yield from (f"{drop}: {UNKNOWN} ({why})" for drop, why in self.unknown.items())


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

    Exit status 3 if nodes of it do not answer, which the message names: they may not have stopped it. Repeat the
    command when they answer. With DROPs, those on nodes that answer are cancelled all the same.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        if drops:
            states, unknown = {}, {}
            for drop in drops:
                try:
                    found = client.cancel_drop(session, drop, reason, grace)
                    states[found.oid] = found.state
                except LinkError as error:  # the others are cancelled all the same
                    unknown[drop] = str(error)
            output.answer(CancelledDrops(ok=not unknown, session=session, drops=states, unknown=unknown))
            return Exit.UNKNOWN if unknown else Exit.FINISHED
        info = client.cancel(session, reason, grace)
    is_known = info.status != UNKNOWN
    output.answer(SessionChange(ok=is_known, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED if is_known else Exit.UNKNOWN
