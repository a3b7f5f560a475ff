"""``dropflow doctor``: what is wrong between the hosts of a cluster, and what to do.

It asks all managers from this host, and makes them connect to each other; `doctor_checks` has the checks of what both
found. In the managers, `managers.probing` makes these connections.
"""

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import msgspec

from dropflow.cli.common_options import Duration, connection_options, output_options
from dropflow.cli.doctor_checks import Connection, Evidence, Finding, ManagerReport
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, NoManagerError
from dropflow.formatting import plural
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from dropflow.api.client import Client

EXTRAS = {
    "dask": "arrays, bags and data frames of dask, computed by dropflow",
    "dask-runner": "attempts on the workers of a Dask cluster",
    "ray": "attempts on the workers of a Ray cluster",
    "threads": "NumPy that is loaded uses as many threads as an attempt has processors",
    "stores": "contents at URLs and in buckets",
    "databases": "tables of databases",
    "formats": "functions get and return FITS, HDF5, zarr, NetCDF, tables and pictures",
    "views": "pages show pictures, FITS files and zarr arrays",
    "examples": "PNG pictures in the examples",
    "radio": "the radio pipeline of the examples",
    "kahypar": "partitions with least movement of data",
    "dill": "function code that DALiuGE and EAGLE stored with dill",
    "palettes": "descriptions in palettes of own code",
    "provenance": "Workflow Run RO-Crates",
    "debug": "replayed attempts in the debugger of an editor",
}
"""The features that each extra of ``pyproject.toml`` adds."""
_OF_EXTRA = re.compile(r"(?P<package>[\w.-]+).* extra == ['\"](?P<extra>[\w-]+)['\"]")
_REQUESTS = 16
"""Concurrent requests."""
_PROBED_PEERS = 32
"""Other nodes to which each node connects, by default."""


class DoctorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, everything that was found out, and the names of extras that this host does not have."""

    ok: bool
    url: str
    managers: tuple[ManagerReport, ...]
    findings: tuple[Finding, ...]
    connections: tuple[Connection, ...] = ()
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

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
        if rows:
            yield from columns(rows, header=header, indent="")
            yield ""
        yield from self.notes
        if self.absent:
            yield "optional and not installed on this host; to add one: pip install 'dropflow[NAME]'"
            yield from columns([(name, EXTRAS[name]) for name in self.absent])
        for finding in self.findings:
            yield f"wrong: {finding.where}: {finding.text}"
            yield f"  {finding.hint}"
        yield plural(len(self.findings), "finding") if self.findings else "nothing is wrong"


@click.command("doctor")
@output_options
@connection_options
@click.option(
    "--timeout",
    type=Duration(min=0.1, max=3600),
    default=5.0,
    show_default=True,
    metavar="DURATION",
    help="How long each host may take to answer.",
)
@click.option(
    "--peers",
    type=click.IntRange(min=0),
    default=_PROBED_PEERS,
    show_default=True,
    metavar="N",
    help="How many other nodes each node connects to: all of them in clusters of up to N + 1 nodes.",
)
def doctor_command(output: CommandOutput, *, manager: ConnectionOptions, timeout: float, peers: int) -> Exit:
    """Check a manager, all managers below it, and the network between them.

    Compares the versions, protocols, keys and clocks of all managers. Each node connects to the links of the other
    nodes with the cluster key, and each island and master to its children. Reports what is wrong, between which hosts,
    and what to do; exit status 1 if something is wrong. Names the optional parts that are not installed on this host,
    also if no manager is named and none runs here; the exit status is 5 then.
    """
    from dropflow.submission.connection import connect_to, manager_url

    try:
        url = manager_url(manager)
    except NoManagerError as none:
        wrong = Finding(where="this host", text=none.text, hint=none.hint)
        output.answer(DoctorReply(ok=False, url="", managers=(), findings=(wrong,), absent=absent_extras()))
        return Exit.NO_MANAGER
    reply = examine_cluster(
        url, lambda address: connect_to(address, manager, timeout=timeout), timeout=timeout, peers=peers
    )
    output.answer(msgspec.structs.replace(reply, absent=absent_extras()))
    return Exit.FINISHED if reply.ok else Exit.FAILED


def absent_extras() -> tuple[str, ...]:
    """Return the extras that are not completely installed on this host."""
    from importlib import metadata

    def is_absent(package: str) -> bool:
        try:
            metadata.distribution(package)
        except metadata.PackageNotFoundError:
            return True
        return False

    texts = () if is_absent("dropflow") else metadata.requires("dropflow") or ()
    wanted = [match for text in texts if (match := _OF_EXTRA.match(text))]
    absent = {match["extra"] for match in wanted if is_absent(match["package"])}
    return tuple(name for name in EXTRAS if name in absent)


def examine_cluster(
    url: str,
    connect: "Callable[[str], Client]",
    *,
    timeout: float,
    peers: int = _PROBED_PEERS,
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

    from dropflow.cli.doctor_checks import findings, notes, plan_probes, probe

    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="doctor") as pool:
        reports = ask_managers(url, connect, timeout=timeout, clock=clock or SystemClock(), pool=pool)
        plan = plan_probes(reports, peers=peers)
        connections, errors = probe(plan, connect, timeout=timeout, pool=pool)
    managers = tuple(msgspec.structs.replace(report, probe_error=errors.get(report.url, "")) for report in reports)
    evidence = Evidence(managers, connections)
    problems = tuple(findings(evidence))
    return DoctorReply(
        ok=not problems,
        url=url,
        managers=managers,
        findings=problems,
        connections=connections,
        notes=tuple(notes(evidence, plan)),
    )


# This host asks all managers, and connects to the ports of links.


def ask_managers(
    url: str, connect: "Callable[[str], Client]", *, timeout: float, clock: Clock, pool: "Executor"
) -> list[ManagerReport]:
    """Ask the manager at `url` and all managers below it, each once, and connect to the links of all nodes."""
    reports = _distinct(_reports(url, connect, clock, pool))
    links = {node.url: node.links for report in reports for node in report.nodes if node.url and node.links}
    errors = pool.map(lambda address: _link_error(address, timeout), links.values())
    errors_by_url = dict(zip(links, errors, strict=True))
    return [msgspec.structs.replace(report, links=errors_by_url.get(report.url, "")) for report in reports]


def _reports(url: str, connect: "Callable[[str], Client]", clock: Clock, pool: "Executor") -> Iterable[ManagerReport]:
    """Return the reports of the manager at `url` and of all managers that it and those below it name."""
    report_of: dict[str, ManagerReport] = {}
    wanted = [url]
    while wanted:
        reports = list(pool.map(lambda address: _ask(address, connect, clock), wanted))
        report_of |= {report.url: report for report in reports}
        below = [child.url for report in reports for child in report.children]
        below += [node.url for report in reports for node in report.nodes]
        wanted = [address for address in dict.fromkeys(below) if address and address not in report_of]
    return report_of.values()


def _distinct(reports: Iterable[ManagerReport]) -> Sequence[ManagerReport]:
    """Return one report for each process, if possible that of the address which the process advertises."""
    distinct: dict[object, ManagerReport] = {}
    for report in reports:
        info = report.info
        key = report.url if info is None else (info.name, info.role, info.host, info.process, info.incarnation)
        if key not in distinct or (info is not None and report.url == info.url):
            distinct[key] = report
    return list(distinct.values())


def _ask(url: str, connect: "Callable[[str], Client]", clock: Clock) -> ManagerReport:
    from dropflow.api.client import measure_clock_skew

    try:
        with connect(url) as client:
            measured = measure_clock_skew(client, clock)
            info = measured.info
            children = client.children() if info.role in ("island", "master") else ()
            nodes = client.nodes() if info.role in ("node", "island", "master") else ()
    except DropflowError as error:
        return ManagerReport(url=url, code=error.code, trouble=error.text, hint=error.hint)
    return ManagerReport(url=url, info=info, skew=measured.skew, delay=measured.delay, children=children, nodes=nodes)


def _link_error(address: str, timeout: float) -> str:
    """Return why the port of links at `address` cannot be reached from this host; empty if it can."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout):
            return ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"its links at {address} cannot be reached from this host: {reason}"
