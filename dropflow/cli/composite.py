"""``dropflow island`` and ``dropflow master``: managers that have managers below them."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks
from dropflow.cli.serve_options import discover_options, lost_option, serve_options, suspect_option

if TYPE_CHECKING:
    from dropflow.cli.managing import DiscoverOptions
    from dropflow.cli.output import Output
    from dropflow.cli.serving import ServeOptions

__all__ = ["island", "master"]


@click.command("island")
@speaks
@serve_options(8001)
@click.option(
    "--nodes", multiple=True, metavar="URL", help="A node of the island; several with commas, or repeat the option."
)
@suspect_option("A child that does not answer for so long is suspect.")
@lost_option("A child that does not answer for so long is lost.")
@discover_options(finds="nodes")
def island(
    _: "Output",
    *,
    options: "ServeOptions",
    nodes: tuple[str, ...],
    suspect_after: float,
    lost_after: float,
    discovery: "DiscoverOptions",
) -> Exit:
    """Run a data island manager over nodes, until SIGINT or SIGTERM.

    It splits graphs among its nodes and asks them about sessions; while a session runs it is on nobody's path, and may
    be stopped and started again. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.managing import serve_composite

    return serve_composite(
        "island",
        options,
        children=nodes,
        suspect_after=suspect_after,
        lost_after=lost_after,
        discovery=discovery,
    )


@click.command("master")
@speaks
@serve_options(8002)
@click.option("--islands", multiple=True, metavar="URL", help="An island; several with commas, or repeat the option.")
@click.option("--nodes", multiple=True, metavar="URL", help="A node without an island; as --islands.")
@suspect_option("A child that does not answer for so long is suspect.")
@lost_option("A child that does not answer for so long is lost.")
@discover_options(finds="islands", daliuge=False)
def master(
    _: "Output",
    *,
    options: "ServeOptions",
    islands: tuple[str, ...],
    nodes: tuple[str, ...],
    suspect_after: float,
    lost_after: float,
    discovery: "DiscoverOptions",
) -> Exit:
    """Run a master manager over islands, until SIGINT or SIGTERM.

    As an island, one storey higher. Ready line and exit status are those of dropflow node.
    """
    from dropflow.cli.managing import serve_composite

    return serve_composite(
        "master",
        options,
        children=(*islands, *nodes),
        suspect_after=suspect_after,
        lost_after=lost_after,
        discovery=discovery,
    )
