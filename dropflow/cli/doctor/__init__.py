"""``dropflow doctor``: what is wrong between the hosts of a cluster, and what to do."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import connection_options, output_options

if TYPE_CHECKING:
    from dropflow.cli.connection import ConnectionOptions
    from dropflow.cli.output import Output

__all__ = ["command"]


@click.command("doctor")
@output_options
@connection_options
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long each host may take to answer.",
)
@click.option(
    "--peers",
    type=click.IntRange(min=0),
    default=32,
    show_default=True,
    metavar="N",
    help="How many other nodes each node tries: all of them in clusters of up to N + 1 nodes.",
)
def command(output: "Output", *, manager: "ConnectionOptions", timeout: float, peers: int) -> Exit:
    """Check a manager, all managers below it, and the network between them.

    Compares the versions, protocols, keys and clocks of all managers. Each node connects to the links of the other
    nodes with the cluster key, and each island and master to its children. Reports what is wrong, between which hosts,
    and what to do; exit status 1 if something is wrong.
    """
    from dropflow.cli.connection import connect_to, manager_url
    from dropflow.cli.doctor.survey import DoctorReply, examine_cluster

    url = manager_url(manager)
    found = examine_cluster(
        url, lambda address: connect_to(address, manager, timeout=timeout), timeout=timeout, peers=peers
    )
    reply = DoctorReply(
        ok=not found.findings,
        url=url,
        managers=found.managers,
        findings=found.findings,
        ways=found.ways,
        notes=found.notes,
    )
    output.answer(reply)
    return Exit.FINISHED if not found.findings else Exit.FAILED
