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
def doctor(output: "Output", *, target: "Target", timeout: float) -> Exit:
    """Examine a manager and everything below it, from this host.

    Asks each manager who it is; compares versions, protocols, keys and clocks; tries the ports of the nodes' links;
    and asks islands and masters what they see of their children. Says what is wrong and what to do; exit status 1 if
    something is.
    """
    from dropflow.cli.connection import connect_to, manager_url
    from dropflow.cli.examination import DoctorReply, examine_cluster

    url = manager_url(target)
    found = examine_cluster(url, lambda address: connect_to(address, target, timeout=timeout), timeout=timeout)
    output.answer(DoctorReply(ok=not found.findings, url=url, managers=found.managers, findings=found.findings))
    return Exit.FINISHED if not found.findings else Exit.FAILED
