"""``dropflow node``: the node manager of this host."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks
from dropflow.cli.serve_options import discover_options, lost_option, serve_options, suspect_option

if TYPE_CHECKING:
    from dropflow.cli.managing import DiscoverOptions
    from dropflow.cli.output import Output
    from dropflow.cli.serving import ServeOptions

__all__ = ["node"]


@click.command("node")
@speaks
@serve_options(8000)
@click.option(
    "--links-port",
    type=click.IntRange(0, 65535),
    default=5555,
    show_default=True,
    help="Port for events and data of other nodes; 0 takes any that is free.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; one per core by default.")
@suspect_option("Another node that is silent for so long is suspect.")
@lost_option("Another node that is silent for so long is lost, and its sessions fail.")
@discover_options(finds="")
def node(
    _: "Output",
    *,
    options: "ServeOptions",
    links_port: int,
    workers: int | None,
    suspect_after: float,
    lost_after: float,
    discovery: "DiscoverOptions",
) -> Exit:
    """Run the node manager of this host, until SIGINT or SIGTERM.

    It hosts sessions: worker processes run the applications, and events and data go straight to the other nodes. When
    it is ready, standard output gets one line, {"ready": true, "role": "node", "url": ..., "token": ...}. Ends with 0
    after a clean end; a second signal ends it at once, with 128 plus its number.
    """
    from dropflow.cli.managing import serve_node

    return serve_node(
        options,
        links_port=links_port,
        workers=workers,
        suspect_after=suspect_after,
        lost_after=lost_after,
        discovery=discovery,
    )
