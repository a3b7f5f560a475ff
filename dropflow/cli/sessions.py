"""``dropflow sessions``, ``status``, ``watch``, ``cancel`` and ``delete``: sessions of a manager."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.client_options import asks, patience_option
from dropflow.cli.exits import Exit, exit_for_status
from dropflow.cli.options import speaks
from dropflow.rest.status import UNKNOWN

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

    Exit status 1 if the session FAILED or was CANCELLED, 3 if its state is UNKNOWN because nodes do not answer.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.manager_replies import SessionReply

    with connect(target) as client:
        reply = SessionReply.of(client.session(session), manager=client.url)
    output.answer(reply)
    return exit_for_status(reply.session.status)


@click.command("watch")
@speaks
@_session_argument
@asks
@patience_option
def watch(output: "Output", *, target: "Target", session: str, patience: float) -> Exit:
    """Follow SESSION live until it is over, and tell how it ended.

    While the manager is away, also at the start, standard error says so and it is asked again (see --patience). An
    address or a token that is wrong ends the command at once.

    Exit status 0 if the session FINISHED, 1 if it FAILED or was CANCELLED, 3 if its end is not known because the
    manager or nodes do not answer, and 130 if you stopped watching: the session goes on.
    """
    from dropflow.cli.connection import manager_url
    from dropflow.cli.following import follow
    from dropflow.cli.manager_replies import SessionReply

    url = manager_url(target)
    try:
        detail = follow(target, url, session, output, patience=patience)
    except KeyboardInterrupt:
        output.note(f"stopped watching; session {session} goes on")
        return Exit.INTERRUPTED
    reply = SessionReply.of(detail, manager=url)
    output.answer(reply)
    return exit_for_status(reply.session.status)


@click.command("cancel")
@speaks
@_session_argument
@asks
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who look at the session later.")
def cancel(output: "Output", *, target: "Target", session: str, reason: str) -> Exit:
    """Stop SESSION: whatever is not settled becomes CANCELLED. One that is over stays as it is.

    Exit status 3 if the session is UNKNOWN because nodes do not answer: they may not have stopped it.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.manager_replies import DoneReply

    with connect(target) as client:
        info = client.cancel(session, reason)
    is_known = info.status != UNKNOWN
    output.answer(DoneReply(ok=is_known, session=info.session, status=info.status, text=info.text))
    return Exit.FINISHED if is_known else Exit.UNKNOWN


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
