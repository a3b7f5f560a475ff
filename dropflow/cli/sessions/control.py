"""``dropflow sessions``, ``pause``, ``cancel``, ``rebalance``, ``delete`` and ``drain``: sessions of a manager."""

from collections.abc import Iterator
from time import localtime, strftime

import click
import msgspec

from dropflow.api import operations
from dropflow.api.requests import DEFAULT_DRAIN, DrainedSession, DrainRequest
from dropflow.api.session_records import SessionInfo, UserUse
from dropflow.cli.candidates import drops, nodes
from dropflow.cli.common_options import (
    Duration,
    connection_options,
    grace_option,
    output_options,
    session_argument,
)
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.errors import LinkError
from dropflow.formatting import few, format_duration, plural
from dropflow.states import UNKNOWN
from dropflow.submission.options import ConnectionOptions


class SessionsReply(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of a manager, the youngest first."""

    ok: bool = True
    url: str
    sessions: tuple[SessionInfo, ...]
    users: tuple[UserUse, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line a session, and one for each user with limits."""
        if self.sessions:
            yield from self._table()
        else:
            yield f"no sessions at {self.url}"
        yield from (f"user {user.user} runs {user.text}" for user in self.users if user.text)

    def _table(self) -> Iterator[str]:
        has_users = any(info.user for info in self.sessions)
        rows = [
            (
                info.session,
                info.status,
                f"{100 * info.settled // max(info.drops, 1)} %",  # 100 only if all are settled
                info.drops,
                format_duration(info.seconds),
                strftime("%Y-%m-%d %H:%M:%S", localtime(info.created)),
                *([info.user or "-"] if has_users else []),
                few(info.nodes),
            )
            for info in self.sessions
        ]
        user = ("user",) if has_users else ()
        header = ("session", "status", "settled", "drops", "time", "created", *user, "nodes")
        yield from columns(rows, header=header, indent="")


@click.command("sessions")
@output_options
@connection_options
def sessions_command(output: CommandOutput, *, manager: ConnectionOptions) -> Exit:
    """List the sessions of a manager, the youngest first.

    For users with limits, it prints what they run, and what they may run.
    """
    with manager.connect() as client:
        reply = client.call(operations.SESSIONS)
        output.answer(SessionsReply(url=client.url, sessions=reply.sessions, users=reply.users))
    return Exit.FINISHED


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
    with manager.connect() as client:
        if drops:
            states, unknown = {}, {}
            for drop in drops:
                try:
                    info = client.cancel_drop(session, drop, reason, grace)
                    states[info.oid] = info.state
                except LinkError as error:  # the others are cancelled all the same
                    unknown[drop] = str(error)
            output.answer(CancelledDrops(ok=not unknown, session=session, drops=states, unknown=unknown))
            return Exit.UNKNOWN if unknown else Exit.FINISHED
        return _changed(output, client.cancel(session, reason, grace))


def _changed(output: CommandOutput, info: SessionInfo) -> Exit:
    """Answer with the status of a session after a request to change it; it is not known if nodes do not answer."""
    from dropflow.cli.sessions.session_replies import SessionChange

    is_known = info.status != UNKNOWN
    output.answer(SessionChange(ok=is_known, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED if is_known else Exit.UNKNOWN


@click.command("pause")
@output_options
@session_argument
@connection_options
def pause_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Start nothing more of SESSION. What runs goes on, and 'dropflow resume' starts the rest.

    Repeating the command changes nothing, and a session that is over stays as it is. Exit status 3 if nodes of it do
    not answer: the message names them, and the others have paused it.
    """
    with manager.connect() as client:
        return _changed(output, client.pause(session))


@click.command("rebalance")
@output_options
@session_argument
@connection_options
def rebalance_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Move drops of SESSION that have not begun, so that all its nodes end at about the same time.

    Nodes get as much as they have worked off before. What runs goes on where it is, and what has completed stays. The
    command returns when the nodes have decided. A note of the session lists what moved.
    """
    with manager.connect() as client:
        return _changed(output, client.rebalance(session))


@click.command("delete")
@output_options
@session_argument
@connection_options
def delete_command(output: CommandOutput, *, manager: ConnectionOptions, session: str) -> Exit:
    """Remove SESSION and all of its files, also its results. A running session is stopped first."""
    from dropflow.cli.sessions.session_replies import SessionChange

    with manager.connect() as client:
        client.delete(session)
    output.answer(SessionChange(session=session, status="DELETED"))
    return Exit.FINISHED


# ``dropflow drain``: have a node give its sessions to their other nodes, and end.


class DrainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a drained node, and how each of its sessions goes on."""

    ok: bool
    node: str
    seconds: float
    sessions: tuple[DrainedSession, ...]
    over: int = 0

    def lines(self) -> Iterator[str]:
        """One line about the node, and one for each session."""
        yield f"node {self.node} takes no sessions any more, and ends within {self.seconds:.0f} s"
        for session in self.sessions:
            yield f"session {session.session}: {session.text}"
        if self.over:
            yield (
                f"{plural(self.over, 'session')} that ended before: their files on this node stay in its directory, "
                "and cannot be read until it is started again; 'dropflow fetch' copies it as long as the node is there"
            )


@click.command("drain")
@output_options
@click.argument("node", shell_complete=nodes)
@click.option(
    "--grace",
    type=Duration(),
    default=f"{DEFAULT_DRAIN.grace / 60:g}m",
    show_default=True,
    help="How long attempts that run, and sessions without other nodes, have to end.",
)
@connection_options
def drain_command(output: CommandOutput, *, manager: ConnectionOptions, node: str, grace: float) -> Exit:
    """Tell NODE to give its sessions to their other nodes, and to end.

    The node takes no sessions any more. What it has not begun moves to the other nodes of each session, what runs ends
    there, and its contents are copied. When no session is left, its process ends with status 0. Attempts that have not
    ended in time run again on other nodes. A session that no other node can go on with is cancelled then, unless it has
    ended. The command returns at once, and prints how each session goes on; called again, it prints what is left.
    """
    with manager.connect() as client:
        reply = client.drain(node, DrainRequest(grace=grace))
    output.answer(
        DrainAnswer(ok=True, node=reply.node, seconds=reply.seconds, sessions=reply.sessions, over=reply.over)
    )
    return Exit.FINISHED
