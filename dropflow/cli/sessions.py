"""``dropflow sessions``: the sessions of a manager."""

from collections.abc import Iterator
from time import localtime, strftime

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns, few
from dropflow.formatting import format_duration
from dropflow.rest.session_records import SessionInfo

__all__ = ["command"]


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
def command(output: CommandOutput, *, manager: ConnectionOptions) -> Exit:
    """List the sessions of a manager, the youngest first."""
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        output.answer(SessionsReply(url=client.url, sessions=client.sessions()))
    return Exit.FINISHED
