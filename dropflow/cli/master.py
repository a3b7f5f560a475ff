"""``dropflow master``: a master manager, above islands."""

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


@click.command("master")
@output_options
@serve_options(8002)
@click.option("--islands", multiple=True, metavar="URL", help="An island; several with commas, or repeat the option.")
@click.option("--nodes", multiple=True, metavar="URL", help="A node without an island; as --islands.")
@click.option(
    "--links-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="any that is free",
    help="Port at which nodes reach this manager when it votes about their losses.",
)
@suspect_option("A child that does not answer for this long is suspect.")
@lost_option("A child that does not answer for this long is lost.")
@discover_options(finds="islands", daliuge=False)
def command(
    _: CommandOutput,
    *,
    options: ServeOptions,
    islands: tuple[str, ...],
    nodes: tuple[str, ...],
    links_port: int,
    suspect_after: float,
    lost_after: float,
    discovery: DiscoverOptions,
) -> Exit:
    """Run a master manager over islands, until SIGINT or SIGTERM.

    It is to islands what an island is to nodes. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.composite_process import serve_composite

    return serve_composite(
        "master",
        options,
        children=(*islands, *nodes),
        suspect_after=suspect_after,
        lost_after=lost_after,
        links_port=links_port,
        discovery=discovery,
    )
