"""``dropflow log`` and ``dropflow fetch``: what drops wrote, and the results of a session."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.client_options import asks
from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.connection import Target
    from dropflow.cli.output import Output

__all__ = ["fetch", "log"]


@click.command("log")
@speaks
@click.argument("session", metavar="SESSION")
@click.argument("drop", metavar="DROP")
@asks
def log(output: "Output", *, target: "Target", session: str, drop: str) -> Exit:
    """Print what DROP of SESSION wrote to its log, from whichever node has it.

    DROP is a text id as reports show it, or the end of one if only one drop ends so.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.fetching import print_log

    with connect(target) as client:
        return print_log(output, client, session, drop)


@click.command("fetch")
@speaks
@click.argument("session", metavar="SESSION")
@click.argument("drop", metavar="[DROP]", required=False)
@asks
@click.option(
    "-o", "directory", metavar="DIR", help="Where to put them; a directory with the session's name by default."
)
def fetch(output: "Output", *, target: "Target", session: str, drop: str | None, directory: str | None) -> Exit:
    """Bring the results of SESSION here, or the content of one DROP of it.

    DIR becomes what 'dropflow run --keep DIR' would have left: results/ and files/. A file that is there already with
    the same content stays, and another one of that name is replaced, so a fetch that was interrupted goes on where it
    was. Exit status 1 if something could not be brought: the answer lists what, and why.
    """
    from dropflow.cli.connection import connect
    from dropflow.cli.fetching import fetch_results

    with connect(target) as client:
        return fetch_results(output, client, session, drop, directory)
