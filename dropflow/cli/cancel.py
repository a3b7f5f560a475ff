"""``dropflow cancel``: stop a session."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.exit_status import Exit, exit_for_status
from dropflow.cli.option_types import (
    ConnectionOptions,
    connection_options,
    drops,
    grace_option,
    output_options,
    session_argument,
)
from dropflow.cli.output import CommandOutput
from dropflow.errors import LinkError, UsageError
from dropflow.states import UNKNOWN

__all__ = [
    "cancel_command",
    "continue_command",
    "delete_command",
    "force_continue_command",
    "pause_command",
    "rebalance_command",
    "status_command",
]


# ``dropflow status``: one session as it is now.


@click.command("status")
@output_options
@session_argument
@connection_options
def status_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Show SESSION as it is now: progress by logical node, and why drops failed.

    Exit status 1 if the session FAILED or was CANCELLED, 3 if its state is UNKNOWN because nodes do not answer.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionReply

    with connect(manager) as client:
        reply = SessionReply.of(client.session(session), manager=client.url)
    output.answer(reply)
    return exit_for_status(reply.session.status)


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
def cancel_command(
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


# ``dropflow pause``: start nothing more of a session.


@click.command("pause")
@output_options
@session_argument
@connection_options
def pause_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Start nothing more of SESSION. What runs goes on, and 'dropflow continue' starts the rest.

    Repeating the command changes nothing, and a session that is over stays as it is. Exit status 3 if
    nodes of it do not answer: the message names them, and the others have paused it.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        info = client.pause(session)
    is_known = info.status != UNKNOWN
    output.answer(SessionChange(ok=is_known, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED if is_known else Exit.UNKNOWN


# ``dropflow continue``: continue a session after a pause.


@click.command("continue")
@output_options
@session_argument
@connection_options
def continue_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
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


# ``dropflow delete``: remove a session and its files.


@click.command("delete")
@output_options
@session_argument
@connection_options
def delete_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Remove SESSION and all of its files, also its results. A running session is stopped first."""
    from dropflow.cli.connection import connect
    from dropflow.cli.session_replies import SessionChange

    with connect(manager) as client:
        client.delete(session)
    output.answer(SessionChange(session=session, status="DELETED"))
    return Exit.FINISHED


# ``dropflow rebalance``: spread what a session has not begun over its nodes again.


@click.command("rebalance")
@output_options
@session_argument
@connection_options
def rebalance_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
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


# ``dropflow force-continue``: have a session go on although no majority of its voters answers.


@click.command("force-continue")
@output_options
@session_argument
@click.option(
    "--others-are-stopped",
    is_flag=True,
    help="Needed. The nodes that do not answer are stopped or switched off, and stay so until the session is over.",
)
@connection_options
def force_continue_command(
    output: CommandOutput, *, manager: ConnectionOptions, session: str, others_are_stopped: bool
) -> Exit:
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
