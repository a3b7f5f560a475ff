"""What `dropflow doctor` finds out from this host: it asks all managers and connects to the ports of links."""

import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from urllib.parse import urlsplit

import msgspec

from dropflow.api.client import Client, measure_clock_skew
from dropflow.cli.doctor.evidence import ManagerReport
from dropflow.clock import Clock
from dropflow.errors import DropflowError

__all__ = ["ask_managers"]


def ask_managers(
    url: str, connect: Callable[[str], Client], *, timeout: float, clock: Clock, pool: Executor
) -> list[ManagerReport]:
    """Ask the manager at `url` and all managers below it, each once, and connect to the links of all nodes."""
    reports = _distinct(_reports(url, connect, clock, pool))
    links = {node.url: node.links for report in reports for node in report.nodes if node.url and node.links}
    errors = pool.map(lambda address: _link_error(address, timeout), links.values())
    errors_by_url = dict(zip(links, errors, strict=True))
    return [msgspec.structs.replace(report, links=errors_by_url.get(report.url, "")) for report in reports]


def _reports(url: str, connect: Callable[[str], Client], clock: Clock, pool: Executor) -> Iterable[ManagerReport]:
    """Return the reports of the manager at `url` and of all managers that it and those below it name."""
    found: dict[str, ManagerReport] = {}
    wanted = [url]
    while wanted:
        reports = list(pool.map(lambda address: _ask(address, connect, clock), wanted))
        found |= {report.url: report for report in reports}
        below = [child.url for report in reports for child in report.children]
        below += [node.url for report in reports for node in report.nodes]
        wanted = [address for address in dict.fromkeys(below) if address and address not in found]
    return found.values()


def _distinct(reports: Iterable[ManagerReport]) -> Sequence[ManagerReport]:
    """Return one report for each process, if possible that of the address which the process advertises."""
    found: dict[object, ManagerReport] = {}
    for report in reports:
        info = report.info
        key = report.url if info is None else (info.name, info.role, info.host, info.process, info.incarnation)
        if key not in found or (info is not None and report.url == info.url):
            found[key] = report
    return list(found.values())


def _ask(url: str, connect: Callable[[str], Client], clock: Clock) -> ManagerReport:
    try:
        with connect(url) as client:
            found = measure_clock_skew(client, clock)
            info = found.info
            children = client.children() if info.role in ("island", "master") else ()
            nodes = client.nodes() if info.role in ("node", "island", "master") else ()
    except DropflowError as error:
        return ManagerReport(url=url, code=error.code, trouble=error.text, hint=error.hint)
    return ManagerReport(url=url, info=info, skew=found.skew, delay=found.delay, children=children, nodes=nodes)


def _link_error(address: str, timeout: float) -> str:
    """Return why the port of links at `address` cannot be reached from this host; empty if it can."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout):
            return ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"its links at {address} cannot be reached from this host: {reason}"
