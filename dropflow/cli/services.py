"""``dropflow daemon`` and ``dropflow translator``: what stands beside the managers."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks
from dropflow.cli.serve_options import discover_options, serve_options

if TYPE_CHECKING:
    from dropflow.cli.managing import DiscoverOptions
    from dropflow.cli.output import Output
    from dropflow.cli.serving import ServeOptions

__all__ = ["daemon", "translator"]


@click.command("daemon")
@speaks
@serve_options(9000)
@click.option(
    "--start",
    multiple=True,
    type=click.Choice(["node", "island", "master"]),
    help="Start this manager at once; may be repeated. Others are started by request.",
)
@discover_options(finds="", daliuge=False)
def daemon(_: "Output", *, options: "ServeOptions", start: tuple[str, ...], discovery: "DiscoverOptions") -> Exit:
    """Run the daemon of this host, which starts and stops its other managers, until SIGINT or SIGTERM.

    Its managers have its address, key and logs, usual ports (any that is free, if its own port is 0), and end with it.
    Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.managing import serve_daemon

    return serve_daemon(options, start=start, discovery=discovery)


@click.command("translator")
@speaks
@serve_options(8084)
@click.option(
    "--to",
    "managers",
    multiple=True,
    metavar="URL",
    help="A manager to which graphs may be deployed from the pages; several with commas, or repeat the option.",
)
def translator(_: "Output", *, options: "ServeOptions", managers: tuple[str, ...]) -> Exit:
    """Run the translator service, until SIGINT or SIGTERM: EAGLE's graphs become pages, files and sessions.

    Point EAGLE's translator address at URL/gen_pgt. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.managing import serve_translator

    return serve_translator(options, managers=managers)
