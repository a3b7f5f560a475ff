"""``dropflow up``: a translator, a master, an island and nodes on this host."""

from typing import Any

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.server_options import log_level_option, lost_option, memory_option, public_url_option

__all__ = ["command"]


@click.command("up")
@output_options
@click.option("--nodes", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of node managers.")
@click.option(
    "--port",
    type=click.IntRange(0, 65000),
    default=None,
    help="First of consecutive ports: translator, master, island, nodes; 0 takes any that are free. By default 8084, "
    "8002, 8001, and any for the nodes.",
)
@click.option("--no-auth", is_flag=True, help="Need no token: every user of this host has access.")
@click.option("--new-token", is_flag=True, help="Make a new token, so that the old one is of no use any more.")
@click.option("--root", metavar="DIR", help="Directory to work in; one in the user's state by default.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Worker processes of each node; by default the nodes share the cores."
)
@memory_option(
    "Memory that all nodes may use together, such as '8 GiB'; each gets an equal share. By default what the machine, "
    "its control group and ulimit allow."
)
@click.option(
    "--key", metavar="FILE", help="The cluster key; in the user's configuration by default, made when needed."
)
@public_url_option(of_many=True)
@lost_option("A node that does not answer for this long is lost.")
@log_level_option("The least severe records in the log files of the managers.")
def command(_: CommandOutput, **options: Any) -> Exit:
    """Run a translator, a master, an island and nodes on this host, until SIGINT or SIGTERM.

    All of them listen on loopback, with one token and one key, and are reached from one address in a browser. When
    they are ready, standard output gets one line, {"ready": true, "translator": URL, "master": URL, "island": URL,
    "nodes": [URL, ...], "token": ...}, and standard error that address. The token stays the same when the command is
    started again. A process that ends early is reported, and the others continue. Each writes its
    log to DIR/NAME/manager.log.
    """
    from dropflow.cli.local_cluster import UpOptions, run

    return run(UpOptions(**options))
