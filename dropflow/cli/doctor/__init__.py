"""``dropflow doctor``: what is wrong between the hosts of a cluster, and what to do.

`local` asks all managers from this host, `remote` makes them connect to each other, and `checks` lists the checks of
the `evidence` from both. In the managers, `managers.probing` makes these connections.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.doctor.evidence import Connection, Evidence, Finding, ManagerReport
from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import ConnectionOptions, connection_options, output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns
from dropflow.clock import Clock, SystemClock
from dropflow.formatting import plural

if TYPE_CHECKING:
    from dropflow.api.client import Client

__all__ = ["DoctorReply", "doctor_command", "examine_cluster"]

_REQUESTS = 16
"""Concurrent requests."""
_PEERS = 32


class DoctorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, and everything that was found out."""

    ok: bool
    url: str
    managers: tuple[ManagerReport, ...]
    findings: tuple[Finding, ...]
    connections: tuple[Connection, ...] = msgspec.field(default=(), name="ways")
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line a manager, the notes, then the findings."""
        rows = [
            (
                report.info.name if report.info else "?",
                report.info.role if report.info else "?",
                report.url,
                report.info.version if report.info else "-",
                (report.info.key if report.info else "") or "-",
                f"{report.skew:+.2f} s" if report.info else "-",
                f"{1000 * report.delay:.0f} ms" if report.info else "no answer",
            )
            for report in self.managers
        ]
        header = ("name", "role", "address", "version", "key", "clock", "answers in")
        yield from columns(rows, header=header, indent="")
        yield ""
        yield from self.notes
        for finding in self.findings:
            yield f"wrong: {finding.where}: {finding.text}"
            yield f"  {finding.hint}"
        yield plural(len(self.findings), "finding") if self.findings else "nothing is wrong"


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
    default=_PEERS,
    show_default=True,
    metavar="N",
    help="How many other nodes each node connects to: all of them in clusters of up to N + 1 nodes.",
)
def doctor_command(output: CommandOutput, *, manager: ConnectionOptions, timeout: float, peers: int) -> Exit:
    """Check a manager, all managers below it, and the network between them.

    Compares the versions, protocols, keys and clocks of all managers. Each node connects to the links of the other
    nodes with the cluster key, and each island and master to its children. Reports what is wrong, between which hosts,
    and what to do; exit status 1 if something is wrong.
    """
    from dropflow.cli.connection import connect_to, manager_url

    url = manager_url(manager)
    reply = examine_cluster(
        url, lambda address: connect_to(address, manager, timeout=timeout), timeout=timeout, peers=peers
    )
    output.answer(reply)
    return Exit.FINISHED if reply.ok else Exit.FAILED


def examine_cluster(
    url: str,
    connect: "Callable[[str], Client]",
    *,
    timeout: float,
    peers: int = _PEERS,
    clock: Clock | None = None,
) -> DoctorReply:
    """Ask the manager at `url` and all managers below it, let them connect to each other, and check the results.

    Parameters
    ----------
    connect : callable
        Makes a client for an address.
    timeout : float
        Seconds to reach the port of a node's links, and for the connections that a manager makes.
    peers : int
        To how many other nodes each node connects at most.
    """
    from concurrent.futures import ThreadPoolExecutor

    from dropflow.cli.doctor.checks import findings, notes, plan_probes, probe
    from dropflow.cli.doctor.local import ask_managers

    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="doctor") as pool:
        reports = ask_managers(url, connect, timeout=timeout, clock=clock or SystemClock(), pool=pool)
        plan = plan_probes(reports, peers=peers)
        connections, errors = probe(plan, connect, timeout=timeout, pool=pool)
    managers = tuple(msgspec.structs.replace(report, probe_error=errors.get(report.url, "")) for report in reports)
    evidence = Evidence(managers, connections)
    found = tuple(findings(evidence))
    return DoctorReply(
        ok=not found,
        url=url,
        managers=managers,
        findings=found,
        connections=connections,
        notes=tuple(notes(evidence, plan)),
    )
