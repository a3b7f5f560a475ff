"""The body of ``dropflow doctor``: asks every manager it hears of, and lets each of them try the ways to the others."""

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from dropflow.cli.doctor.checks import judge, notes
from dropflow.cli.doctor.observations import Finding, Sight, Way
from dropflow.cli.doctor.probes import Target, plan_ways
from dropflow.cli.tables import columns, plural
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError
from dropflow.rest.client import Client
from dropflow.rest.clock_skew import measure_clock_skew
from dropflow.rest.schema import ProbeResult

__all__ = ["DoctorReply", "Examination", "examine_cluster"]

_ABREAST = 16
_AT_ONCE = 32
"""Addresses that a manager tries for one question."""
_LONGEST = 10.0
"""Seconds that it may take for them."""


@dataclass(frozen=True)
class Examination:
    """Everything that was seen, what is wrong with it, and what is worth knowing besides."""

    managers: tuple[Sight, ...]
    ways: tuple[Way, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


class DoctorReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the doctor saw and found."""

    ok: bool
    url: str
    managers: tuple[Sight, ...]
    findings: tuple[Finding, ...]
    ways: tuple[Way, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line a manager, what is worth knowing, then the findings."""
        rows = [
            (
                sight.info.name if sight.info else "?",
                sight.info.role if sight.info else "?",
                sight.url,
                sight.info.version if sight.info else "-",
                (sight.info.key if sight.info else "") or "-",
                f"{sight.skew:+.2f} s" if sight.info else "-",
                f"{1000 * sight.delay:.0f} ms" if sight.info else "no answer",
            )
            for sight in self.managers
        ]
        header = ("name", "role", "address", "version", "key", "clock", "answers in")
        yield from columns(rows, header=header, indent="")
        yield ""
        yield from self.notes
        for finding in self.findings:
            yield f"wrong: {finding.where}: {finding.text}"
            yield f"  {finding.hint}"
        yield plural(len(self.findings), "finding") if self.findings else "nothing is wrong"


def examine_cluster(
    url: str, connect: Callable[[str], Client], *, timeout: float, peers: int = _AT_ONCE, clock: Clock | None = None
) -> Examination:
    """Ask the manager at `url` and all below it, each once, many at a time; then what each reaches of the others.

    Parameters
    ----------
    connect : callable
        Makes a client for an address.
    timeout : float
        Seconds to reach the port of a node's links, and that a manager may take to try a set of ways.
    peers : int
        Other nodes that each node tries at most.
    """
    time = clock or SystemClock()
    with ThreadPoolExecutor(_ABREAST, thread_name_prefix="doctor") as pool:
        seen = _distinct(_seen(url, connect, time, pool))
        links = {node.url: node.links for sight in seen for node in sight.nodes if node.url and node.links}
        tried = dict(zip(links, pool.map(lambda address: _try(address, timeout), links.values()), strict=True))
        seen = [msgspec.structs.replace(sight, links=tried.get(sight.url, "")) for sight in seen]
        plan = plan_ways(seen, peers=peers)
        answers = pool.map(lambda near: _ways(near, plan.targets[near], connect, timeout), plan.targets)
        found = dict(zip(plan.targets, answers, strict=True))
    managers = tuple(
        msgspec.structs.replace(sight, mute=found[sight.url][1]) if sight.url in found else sight for sight in seen
    )
    ways = tuple(way for some, _ in found.values() for way in some)
    return Examination(
        managers=managers, ways=ways, findings=tuple(judge(managers, ways)), notes=tuple(notes(managers, ways, plan))
    )


def _seen(url: str, connect: Callable[[str], Client], clock: Clock, pool: ThreadPoolExecutor) -> list[Sight]:
    """The manager at `url` and all that it and those below it tell of."""
    seen: dict[str, Sight] = {}
    wanted = [url]
    while wanted:
        sights = list(pool.map(lambda address: _look(address, connect, clock), wanted))
        seen |= {sight.url: sight for sight in sights}
        below = [child.url for sight in sights for child in sight.children]
        below += [node.url for sight in sights for node in sight.nodes]
        wanted = [address for address in dict.fromkeys(below) if address and address not in seen]
    return list(seen.values())


def _distinct(sights: Sequence[Sight]) -> list[Sight]:
    """Each manager once: of several addresses of one process, the one that it calls its own."""
    found: dict[object, Sight] = {}
    for sight in sights:
        info = sight.info
        key = sight.url if info is None else (info.name, info.role, info.host, info.process, info.incarnation)
        if key not in found or (info is not None and sight.url == info.url):
            found[key] = sight
    return list(found.values())


def _look(url: str, connect: Callable[[str], Client], clock: Clock) -> Sight:
    try:
        with connect(url) as client:
            found = measure_clock_skew(client, clock)
            info = found.info
            children = client.children() if info.role in ("island", "master") else ()
            nodes = client.nodes() if info.role in ("node", "island", "master") else ()
    except DropflowError as error:
        return Sight(url=url, code=error.code, trouble=error.text, hint=error.hint)
    return Sight(url=url, info=info, skew=found.skew, delay=found.delay, children=children, nodes=nodes)


def _ways(
    near: str, targets: Sequence[Target], connect: Callable[[str], Client], timeout: float
) -> tuple[list[Way], str]:
    """What a manager found on its ways to others, and why it did not tell, if it did not."""
    reaches: dict[str, ProbeResult] = {}
    addresses = list(dict.fromkeys(target.address for target in targets))
    mute = ""
    try:
        with connect(near) as client:
            for start in range(0, len(addresses), _AT_ONCE):
                some = addresses[start : start + _AT_ONCE]
                reaches |= {found.address: found for found in client.probe(some, seconds=min(timeout, _LONGEST))}
    except DropflowError as error:
        mute = error.text
    ways = [
        Way(near=near, far=target.far, means=target.means, reach=reaches[target.address])
        for target in targets
        if target.address in reaches
    ]
    return ways, mute


def _try(address: str, timeout: float) -> str:
    """Why the port of links at `address` cannot be reached; empty if it can."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout):
            return ""
    except (OSError, ValueError) as error:
        return f"its links at {address} cannot be reached from here: {getattr(error, 'strerror', None) or error}"
