"""``dropflow log``: what a drop wrote to its log."""

import sys
from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.candidates import drops
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import ConnectionOptions, connection_options, output_options, session_argument
from dropflow.cli.output import CommandOutput, OutputKind

__all__ = ["command"]


class LogReply(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one drop."""

    ok: bool = True
    session: str
    drop: str
    log: str

    def lines(self) -> Iterator[str]:
        """The lines of the log."""
        yield from self.log.splitlines()


@click.command("log")
@output_options
@session_argument
@click.argument("drop", metavar="DROP", shell_complete=drops)
@connection_options
def command(output: CommandOutput, *, manager: ConnectionOptions, session: str, drop: str) -> Exit:
    """Print what DROP of SESSION wrote to its log, from the node that has it.

    DROP is a text id as reports show it, or the end of one if only one drop ends so.
    """
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        chunks = client.log(session, drop).chunks
        if output.kind is OutputKind.TABLE:
            for chunk in chunks:  # a log may be larger than memory
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        else:
            output.answer(LogReply(session=session, drop=drop, log=b"".join(chunks).decode(errors="replace")))
    return Exit.FINISHED
