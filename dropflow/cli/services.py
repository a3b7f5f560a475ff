"""``dropflow daemon`` and ``dropflow translator``: what stands beside the managers."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks
from dropflow.cli.serve_options import serve_options

if TYPE_CHECKING:
    from dropflow.cli.output import Output
    from dropflow.cli.serving import ServeOptions

__all__ = ["daemon", "translator"]


@click.command("daemon")
@speaks
@serve_options(9000)
@click.option("--discover/--no-discover", default=False, show_default=True, help="Announce this daemon by zeroconf.")
def daemon(_: "Output", *, options: "ServeOptions", discover: bool) -> Exit:
    """Run the daemon of this host, which starts and stops its other managers, until SIGINT or SIGTERM.

    Its managers end with it. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.managing import serve_daemon

    return serve_daemon(options, discover=discover)


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
