"""``dropflow sessions``, ``status``, ``watch``, ``cancel`` and others: sessions of a manager."""

from collections.abc import Iterator
from time import localtime, strftime

import click
import msgspec

from dropflow.api.records import SessionInfo
from dropflow.api.requests import DrainedSession, DrainRequest
from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import ConnectionOptions, Duration, connection_options, nodes, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns, few
from dropflow.formatting import format_duration, plural

__all__ = [
    "drain_command",
    "sessions_command",
]


class SessionsReply(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of a manager, the youngest first."""

    ok: bool = True
    url: str
    sessions: tuple[SessionInfo, ...]

    def lines(self) -> Iterator[str]:
        """One line a session."""
        if not self.sessions:
            yield f"no sessions at {self.url}"
            return
        rows = [
            (
                info.session,
                info.status,
                f"{100 * info.settled // max(info.drops, 1)} %",  # 100 only if all are settled
                info.drops,
                format_duration(info.seconds),
                strftime("%Y-%m-%d %H:%M:%S", localtime(info.created)),
                few(info.nodes),
            )
            for info in self.sessions
        ]
        header = ("session", "status", "settled", "drops", "time", "created", "nodes")
        yield from columns(rows, header=header, indent="")


@click.command("sessions")
@output_options
@connection_options
def sessions_command(output: CommandOutput, *, manager: ConnectionOptions) -> Exit:
    """List the sessions of a manager, the youngest first."""
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        output.answer(SessionsReply(url=client.url, sessions=client.sessions()))
    return Exit.FINISHED


# ``dropflow drain``: have a node give its sessions to their other nodes, and end.


class DrainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the sessions of a node."""

    ok: bool
    node: str
    seconds: float
    sessions: tuple[DrainedSession, ...]
    over: int = 0

    def lines(self) -> Iterator[str]:
        """One line about the node, and one for each session."""
        yield f"node {self.node} takes no sessions any more, and ends within {self.seconds:.0f} s"
        for one in self.sessions:
            yield f"session {one.session}: {one.text}"
        if self.over:
            yield (
                f"{plural(self.over, 'session')} that ended before: what this node has of them stays in its directory, "
                "and cannot be read until it is started again; 'dropflow fetch' copies it as long as the node is there"
            )


@click.command("drain")
@output_options
@click.argument("node", shell_complete=nodes)
@click.option(
    "--grace",
    type=Duration(),
    default="10m",
    show_default=True,
    help="How long attempts that run, and sessions without other nodes, have to end.",
)
@connection_options
def drain_command(output: CommandOutput, *, manager: ConnectionOptions, node: str, grace: float) -> Exit:
    """Have NODE give its sessions to their other nodes, and end.

    The node takes no sessions any more. What it has not begun moves to the other nodes of each session, what runs ends
    there, and its contents are copied. When no session is left, its process ends with status 0. Attempts that have not
    ended in time run again on other nodes. A session that no other node can go on with is cancelled then, unless it has
    ended. The command returns at once, and tells what happens to each session; again, it shows what is left.
    """
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        reply = client.drain(node, DrainRequest(grace=grace))
    output.answer(
        DrainAnswer(ok=True, node=reply.node, seconds=reply.seconds, sessions=reply.sessions, over=reply.over)
    )
    return Exit.FINISHED
