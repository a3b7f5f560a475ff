"""``dropflow doctor``: what is wrong between the hosts of a cluster, and what to do."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.client_options import asks
from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.connection import Target
    from dropflow.cli.output import Output

__all__ = ["doctor"]


@click.command("doctor")
@speaks
@asks
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
def doctor(output: "Output", *, target: "Target", timeout: float, peers: int) -> Exit:
    """Examine a manager and everything below it, and the ways between all of them.

    Asks each manager who it is; compares versions, protocols, keys and clocks; lets every node try the links of the
    others with the cluster key, from where it stands, and every island and master the way to its children. Says what
    is wrong, between which hosts, and what to do; exit status 1 if something is.
    """
    from dropflow.cli.connection import connect_to, manager_url
    from dropflow.cli.examination import DoctorReply, examine_cluster

    url = manager_url(target)
    found = examine_cluster(
        url, lambda address: connect_to(address, target, timeout=timeout), timeout=timeout, peers=peers
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
