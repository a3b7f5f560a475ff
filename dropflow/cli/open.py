"""``dropflow open``: an address that signs a browser in."""

import html
from collections.abc import Iterator
from urllib.parse import quote

import click
import msgspec

from dropflow.cli.candidates import sessions
from dropflow.cli.common_options import connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.errors import LinkError
from dropflow.submission.options import ConnectionOptions


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``dropflow open``: the address, and how many seconds it may wait for its use."""

    ok: bool = True
    url: str
    seconds: float

    def lines(self) -> Iterator[str]:
        """Yield the address alone."""
        yield self.url


@click.command("open")
@output_options
@click.argument("session", required=False, shell_complete=sessions)
@connection_options
@click.option("--read-only", is_flag=True, help="The browser may read everything, and change nothing.")
@click.option("--browser", is_flag=True, help="Open it in the browser of this host, instead of printing it.")
def open_command(
    output: CommandOutput, *, manager: ConnectionOptions, session: str | None, read_only: bool, browser: bool
) -> Exit:
    """Print an address that signs a browser in, and opens SESSION or the first page.

    It works once, within ten minutes; each call prints a fresh one. From there all managers of the cluster and its
    translator are reached without another sign-in. Through ssh only this manager is, as long as the command runs:
    until Ctrl-C.
    """
    from dropflow.submission.connection import ticket_of
    from dropflow.web.known_servers import login_url
    from dropflow.web.tickets import LONGEST

    with manager.connect() as client:
        path = "/" if session is None else f"/sessions/{quote(client.session(session).session, safe='')}"
        ticket = ticket_of(client.url, manager, seconds=LONGEST, read_only=read_only)
        base = ticket.url or client.url
        url = login_url(base, ticket.ticket, path)
        if browser and _opened(url):
            output.note(f"opened {base}{path}")
        else:
            output.answer(OpenReply(url=url, seconds=LONGEST))
    if manager.tunnel is not None:
        output.note("it works until this command ends; Ctrl-C ends it")
        manager.tunnel.wait()
        raise LinkError("the connection of ssh was cut", where=str(manager.url))
    return Exit.FINISHED


def _opened(url: str) -> bool:
    """Open an address in a browser; return whether there is one.

    Other users of this host see the arguments of the browser, so these name a file that only its owner can read.
    """
    import webbrowser

    from dropflow.api.auth import store_token
    from dropflow.submission.manager_records import token_directory

    page = token_directory() / "open.html"
    target = html.escape(url, quote=True)
    store_token(
        page, f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><a href="{target}">open</a>\n'
    )
    return webbrowser.open(page.as_uri())
