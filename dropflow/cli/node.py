"""``dropflow node``: the node manager of this host."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.server_options import (
    DiscoverOptions,
    ServeOptions,
    discover_options,
    lost_option,
    memory_option,
    serve_options,
    suspect_option,
)

if TYPE_CHECKING:
    from dropflow.cli.server_process import ServerContext

__all__ = ["command"]

_DRAIN_SECONDS = 30.0
"""As long as Slurm and Kubernetes wait by default between SIGTERM and SIGKILL."""


@click.command("node")
@output_options
@serve_options(8000)
@click.option(
    "--links-port",
    type=click.IntRange(0, 65535),
    default=5555,
    show_default=True,
    help="Port for events and data of other nodes; 0 takes any that is free.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; one per core by default.")
@memory_option(
    "Memory that the node and what it runs may use together, such as '2 GiB'; by default what the machine, its control "
    "group and ulimit allow. Contents beyond go to the disk, and attempts wait."
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(min=0, max=86400),
    metavar="SECONDS",
    help="How long the node may take to give its sessions to other nodes when it gets a signal; 0 cancels them. 30 by "
    "default, 0 for a node that another command has started.",
)
@suspect_option("A node that does not answer for this long is suspect.")
@lost_option("A node that does not answer for this long is lost.")
@discover_options(finds="")
def command(
    _: CommandOutput,
    *,
    options: ServeOptions,
    links_port: int,
    workers: int | None,
    memory: int | None,
    drain_seconds: float | None,
    suspect_after: float,
    lost_after: float,
    discovery: DiscoverOptions,
) -> Exit:
    """Run the node manager of this host, until SIGINT or SIGTERM.

    It hosts sessions: worker processes run the applications, and events and data go directly to the other nodes. When
    it is ready, standard output gets one line, {"ready": true, "role": "node", "url": ..., "token": ...}.

    After a signal it gives its sessions to their other nodes, within --drain-seconds, and ends. Sessions that no other
    node can go on with are cancelled. Exit status 0 after a clean end; a second signal ends it immediately, with 128
    plus its number.
    """
    from dropflow.cli.manager_service import announce_by_zeroconf, rest_service
    from dropflow.cli.server_process import links_advertise, links_bind, serve
    from dropflow.engine.host_memory import restrict_memory
    from managers.node.manager import NodeManager

    if memory is not None:
        restrict_memory(memory)

    def build(context: "ServerContext") -> str:
        manager = NodeManager(
            context.name,
            root=context.root,
            links_bind=links_bind(context, links_port),
            links_advertise=links_advertise(context),
            key=context.key,
            workers=workers,
            suspect_after=suspect_after,
            lost_after=lost_after,
            on_drained=context.stop.set,
        )
        context.stack.callback(manager.close)
        service = rest_service(context, manager)
        manager.set_url(service.url)
        service.start()
        context.stack.callback(manager.drain_before_end, _drain_seconds(context.options, drain_seconds))
        announce_by_zeroconf(context, manager.info(), discovery)
        return service.url

    return serve("node", options, build)


def _drain_seconds(options: ServeOptions, wanted: float | None) -> float:
    """Return how long a node may drain after a signal.

    What another process has started, as ``dropflow up`` does, ends together with all other nodes.
    """
    return wanted if wanted is not None else 0.0 if options.watch_parent is not None else _DRAIN_SECONDS
