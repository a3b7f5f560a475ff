"""``dropflow nodes``: the nodes of a manager and their load."""

import html
from collections.abc import Iterator
from urllib.parse import quote

import click
import msgspec

from dropflow.api.records import NodeInfo, cores_of_hosts
from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import ConnectionOptions, connection_options, output_options, sessions
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns
from dropflow.formatting import format_size, plural

__all__ = [
    "nodes_command",
    "open_command",
]


# ``dropflow open``: an address that signs a browser in.


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``dropflow open``: the address, and how many seconds it may wait for its use."""

    ok: bool = True
    url: str
    seconds: float

    def lines(self) -> Iterator[str]:
        """The address alone."""
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
    translator are reached without another sign-in.
    """
    from dropflow.cli.connection import connect, ticket_of
    from dropflow.web.places import login_url
    from dropflow.web.tickets import LONGEST

    with connect(manager) as client:
        path = "/" if session is None else f"/sessions/{quote(client.session(session).session, safe='')}"
        found = ticket_of(client.url, manager, seconds=LONGEST, read_only=read_only)
        base = found.url or client.url
        url = login_url(base, found.ticket, path)
        if browser and _opened(url):
            output.note(f"opened {base}{path}")
            return Exit.FINISHED
    output.answer(OpenReply(url=url, seconds=LONGEST))
    return Exit.FINISHED


def _opened(url: str) -> bool:
    """Open an address in a browser; return whether there is one.

    Other users of this host see the arguments of the browser, so these name a file that only its owner can read.
    """
    import webbrowser

    from dropflow.api.auth import store_token
    from dropflow.cli.paths import token_directory

    page = token_directory() / "open.html"
    target = html.escape(url, quote=True)
    store_token(
        page, f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><a href="{target}">open</a>\n'
    )
    return webbrowser.open(page.as_uri())


class NodesReply(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes at or below a manager; not ok unless each of them is alive or drained.

    `cores` has the processors of each host: nodes on one host share them.
    """

    ok: bool
    url: str
    nodes: tuple[NodeInfo, ...]
    cores: dict[str, int]

    def lines(self) -> Iterator[str]:
        """One line a node."""
        if not self.nodes:
            yield f"no nodes at {self.url}"
            return
        rows = [
            (
                node.name,
                node.state,
                node.island or "-",
                f"{node.load.busy}/{node.load.workers}",
                f"{node.load.processor:.0f} %",
                f"{format_size(node.load.memory_free)} of {format_size(node.load.memory)}",
                format_size(node.load.disk_free),
                node.sessions,
                node.text or node.url,
            )
            for node in self.nodes
        ]
        header = ("node", "state", "island", "busy", "processor", "memory free", "disk free", "sessions", "address")
        yield from columns(rows, header=header, indent="")
        if len(self.nodes) > 1:
            number = plural(sum(self.cores.values()), "core")
            yield f"{plural(len(self.nodes), 'node')} on {plural(len(self.cores), 'host')} with {number}"


@click.command("nodes")
@output_options
@connection_options
def nodes_command(output: CommandOutput, *, manager: ConnectionOptions) -> Exit:
    """List the nodes at or below a manager, with their load.

    Exit status 1 if one of them is neither alive nor drained. A drained node is shown until it is started again or
    removed from the children of its island.
    """
    from dropflow.cli.connection import connect

    with connect(manager) as client:
        found = client.nodes()
        ok = all(node.state in ("alive", "drained") for node in found)
        output.answer(NodesReply(ok=ok, url=client.url, nodes=found, cores=cores_of_hosts(found)))
    return Exit.FINISHED if ok else Exit.FAILED
