"""``dropflow up``: everything on this host, for a newcomer."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks
from dropflow.cli.serve_options import lost_option

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["up"]


@click.command("up")
@speaks
@click.option("--nodes", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of node managers.")
@click.option(
    "--port",
    type=click.IntRange(0, 65000),
    default=None,
    help="First of consecutive ports: translator, master, island, nodes; 0 takes any that are free. By default 8084, "
    "8002, 8001, and any for the nodes.",
)
@click.option("--no-auth", is_flag=True, help="Ask for no token: every user of this host enters.")
@click.option("--root", metavar="DIR", help="Directory to work in; one in the user's state by default.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes of each node; the cores, shared.")
@click.option(
    "--key", metavar="FILE", help="The cluster key; in the user's configuration by default, made when needed."
)
@lost_option("A node that is silent for so long is lost, and its sessions fail.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least severe records in the log files of the managers.",
)
def up(
    _: "Output",
    *,
    nodes: int,
    port: int | None,
    no_auth: bool,
    root: str | None,
    workers: int | None,
    key: str | None,
    lost_after: float,
    log_level: str,
) -> Exit:
    """Run a translator, a master, an island and nodes on this host, until SIGINT or SIGTERM.

    Everything listens on loopback, with one token and one key. When all of them are ready, standard output gets one
    line, {"ready": true, "translator": URL, "master": URL, "island": URL, "nodes": [URL, ...], "token": ...}, and
    standard error the address for the browser. A process that ends early is told, and the others go on. Each writes
    its log to DIR/NAME/manager.log.
    """
    from dropflow.cli.upping import UpOptions, run_up

    return run_up(
        UpOptions(
            nodes=nodes,
            port=port,
            no_auth=no_auth,
            root=root,
            workers=workers,
            key=key,
            lost_after=lost_after,
            log_level=log_level,
        )
    )
