"""``dropflow island``: a data island manager, above nodes."""

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.server_options import (
    DiscoverOptions,
    ServeOptions,
    discover_options,
    lost_option,
    serve_options,
    suspect_option,
)

__all__ = ["command"]


@click.command("island")
@output_options
@serve_options(8001)
@click.option(
    "--nodes", multiple=True, metavar="URL", help="A node of the island; several with commas, or repeat the option."
)
@click.option(
    "--links-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="any that is free",
    help="Port at which nodes reach this manager when it votes about their losses.",
)
@suspect_option("A child that does not answer for this long is suspect.")
@lost_option("A child that does not answer for this long is lost.")
@discover_options(finds="nodes")
def command(
    _: CommandOutput,
    *,
    options: ServeOptions,
    nodes: tuple[str, ...],
    links_port: int,
    suspect_after: float,
    lost_after: float,
    discovery: DiscoverOptions,
) -> Exit:
    """Run a data island manager over nodes, until SIGINT or SIGTERM.

    It deploys sessions on its nodes and merges their status. A running session does not need it, so it may be stopped
    and started again. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.composite_process import serve_composite

    return serve_composite(
        "island",
        options,
        children=nodes,
        suspect_after=suspect_after,
        lost_after=lost_after,
        links_port=links_port,
        discovery=discovery,
    )
