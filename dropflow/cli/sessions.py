"""``dropflow sessions``, ``status``, ``watch``, ``cancel`` and ``delete``: sessions of a manager."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.client_options import asks
from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.connection import Target
    from dropflow.cli.output import Output

__all__ = ["cancel", "delete", "sessions", "status", "watch"]

_session_argument = click.argument("session", metavar="SESSION")


@click.command("sessions")
@speaks
@asks
def sessions(output: "Output", *, target: "Target") -> Exit:
    """List the sessions of a manager, the youngest first."""
    from dropflow.cli.connection import connect
    from dropflow.cli.manager_replies import SessionsReply

    with connect(target) as client:
        output.answer(SessionsReply(url=client.url, sessions=client.sessions()))
    return Exit.FINISHED


@click.command("status")
@speaks
@_session_argument
@asks
def status(output: "Output", *, target: "Target", session: str) -> Exit:
    """Show SESSION as it is now: progress by logical node, and why drops failed.

    Exit status 1 if the session FAILED or was CANCELLED.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.manager_replies import SessionReply

    with connect(target) as client:
        reply = SessionReply.of(client.session(session), manager=client.url)
    output.answer(reply)
    return Exit.FINISHED if reply.ok else Exit.FAILED


@click.command("watch")
@speaks
@_session_argument
@asks
def watch(output: "Output", *, target: "Target", session: str) -> Exit:
    """Follow SESSION live until it is over, and tell how it ended.

    Exit status 0 if it FINISHED, 1 if not, 130 if you stopped watching: the session goes on.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.following import follow
    from dropflow.cli.manager_replies import SessionReply

    with connect(target) as client:
        try:
            detail = follow(client, session, output)
        except KeyboardInterrupt:
            output.note(f"stopped watching; session {session} goes on")
            return Exit.INTERRUPTED
        reply = SessionReply.of(detail, manager=client.url)
    output.answer(reply)
    return Exit.FINISHED if reply.ok else Exit.FAILED


@click.command("cancel")
@speaks
@_session_argument
@asks
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who look at the session later.")
def cancel(output: "Output", *, target: "Target", session: str, reason: str) -> Exit:
    """Stop SESSION: whatever is not settled becomes CANCELLED. One that is over stays as it is."""
    from dropflow.cli.connection import connect
    from dropflow.cli.manager_replies import DoneReply

    with connect(target) as client:
        info = client.cancel(session, reason)
    output.answer(DoneReply(session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED


@click.command("delete")
@speaks
@_session_argument
@asks
def delete(output: "Output", *, target: "Target", session: str) -> Exit:
    """Remove SESSION and everything it left behind, results too. One that runs is stopped first."""
    from dropflow.cli.connection import connect
    from dropflow.cli.manager_replies import DoneReply

    with connect(target) as client:
        client.delete(session)
    output.answer(DoneReply(session=session, status="DELETED"))
    return Exit.FINISHED
