"""The body of ``dropflow doctor``: asks every manager it hears of, and judges what the answers say together.

`judge` is pure: it takes what was seen and answers the findings, so that every one of them has a test.
"""

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from dropflow import __version__
from dropflow.cli.tables import columns, plural
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError
from dropflow.rest.client import Client
from dropflow.rest.schema import Child, ManagerInfo, NodeInfo

__all__ = ["DoctorReply", "Examination", "Finding", "Sight", "examine_cluster", "judge"]

_SKEW = 2.0
"""Seconds by which clocks may differ before times in the pages confuse people."""

_SKEW_LIMIT = 60.0
"""Seconds by which clocks may differ before signed requests are refused."""

_FULL = 0.05
"""A disk or memory with less than this share free is nearly full."""

_ABREAST = 16


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong: where, what, and what to do."""

    where: str
    text: str
    hint: str


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one manager.

    Attributes
    ----------
    url : str
        Where it was asked.
    info : ManagerInfo or None
        What it says about itself; None if it did not answer.
    skew : float
        Seconds by which its clock is ahead of the clock here.
    delay : float
        Seconds that it took to answer.
    children, nodes : tuples
        What it sees below itself.
    links : str
        Why the port of its links cannot be reached from here; empty if it can, or if it has none.
    trouble, hint : str
        Why it did not answer, and what to do.
    """

    url: str
    info: ManagerInfo | None = None
    skew: float = 0.0
    delay: float = 0.0
    children: tuple[Child, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    links: str = ""
    trouble: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Examination:
    """Everything that was seen, and what is wrong with it."""

    managers: tuple[Sight, ...]
    findings: tuple[Finding, ...]


class DoctorReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the doctor saw and found."""

    ok: bool
    url: str
    managers: tuple[Sight, ...]
    findings: tuple[Finding, ...]

    def lines(self) -> Iterator[str]:
        """One line a manager, then the findings."""
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
        for finding in self.findings:
            yield f"wrong: {finding.where}: {finding.text}"
            yield f"  {finding.hint}"
        yield plural(len(self.findings), "finding") if self.findings else "nothing is wrong"


def examine_cluster(
    url: str, connect: Callable[[str], Client], *, timeout: float, clock: Clock | None = None
) -> Examination:
    """Ask the manager at `url` and all below it, each once, many at a time.

    Parameters
    ----------
    connect : callable
        Makes a client for an address.
    timeout : float
        Seconds to reach the port of a node's links.
    """
    time = clock or SystemClock()
    seen: dict[str, Sight] = {}
    wanted = [url]
    with ThreadPoolExecutor(_ABREAST, thread_name_prefix="doctor") as pool:
        while wanted:
            sights = list(pool.map(lambda address: _look(address, connect, time), wanted))
            seen |= {sight.url: sight for sight in sights}
            below = [child.url for sight in sights for child in sight.children]
            below += [node.url for sight in sights for node in sight.nodes]
            wanted = [address for address in dict.fromkeys(below) if address and address not in seen]
        links = {node.url: node.links for sight in seen.values() for node in sight.nodes if node.url and node.links}
        tried = dict(zip(links, pool.map(lambda address: _try(address, timeout), links.values()), strict=True))
    managers = tuple(msgspec.structs.replace(sight, links=tried.get(sight.url, "")) for sight in seen.values())
    return Examination(managers=managers, findings=tuple(judge(managers)))


def judge(sights: Sequence[Sight]) -> Iterator[Finding]:
    """Everything that is wrong with what was seen, the most basic first. Pure."""
    answered = [sight for sight in sights if sight.info is not None]
    for sight in sights:
        if sight.info is None:
            yield Finding(where=sight.url, text=sight.trouble, hint=sight.hint or "is the manager running?")
    told = {sight.url: sight.trouble for sight in sights if sight.info is None}
    for sight in answered:
        yield from _own_findings(sight)
        yield from _child_findings(sight, told)
    yield from _odd_ones(answered, "cluster key", lambda info: info.key or "none", _KEY_HINT)
    yield from _odd_ones(answered, "protocol of the links", lambda info: str(info.protocol), _VERSION_HINT)
    yield from _odd_ones(answered, "version of dropflow", lambda info: info.version, _VERSION_HINT)
    names = Counter((sight.info.name, sight.info.role) for sight in answered if sight.info)
    for (name, role), count in names.items():
        if count > 1:
            hint = "give each a --name of its own: graphs name the nodes that they are placed on"
            yield Finding(where=name, text=f"{count} managers ({role}) have this name", hint=hint)


_KEY_HINT = "copy the key file to that host and start its manager again; compare with 'dropflow keys show'"
_VERSION_HINT = "install the same version on all hosts"


def _own_findings(sight: Sight) -> Iterator[Finding]:
    skew = abs(sight.skew) - sight.delay
    if skew > _SKEW:
        way = "ahead of" if sight.skew > 0 else "behind"
        more = "; signed requests are refused" if skew > _SKEW_LIMIT else ""
        text = f"its clock is {abs(sight.skew):.1f} s {way} the clock here{more}"
        yield Finding(where=sight.url, text=text, hint="let both hosts set their clocks by NTP")
    if sight.links:
        hint = "open that port for the other nodes in the firewall, or advertise an address that they reach"
        yield Finding(where=sight.url, text=sight.links, hint=hint)
    if sight.info is not None and sight.info.role in ("island", "master") and not sight.children:
        hint = "name its children with --nodes or --islands, or let it find them with --discover"
        yield Finding(where=sight.url, text=f"the {sight.info.role} has no children", hint=hint)
    if sight.info is not None and sight.info.role == "node":
        for node in sight.nodes:
            yield from _load_findings(sight, node)


def _child_findings(sight: Sight, told: Mapping[str, str]) -> Iterator[Finding]:
    """Children that a manager misses, unless the same was told of them already."""
    for child in sight.children:
        if child.state != "alive" and not (child.text and child.text == told.get(child.url)):
            text = f"its child {child.name or child.url} is {child.state}{f': {child.text}' if child.text else ''}"
            yield Finding(where=sight.url, text=text, hint="look at that manager's log, and at the network between")


def _load_findings(sight: Sight, node: NodeInfo) -> Iterator[Finding]:
    for what, free, whole in (
        ("disk", node.load.disk_free, node.load.disk),
        ("memory", node.load.memory_free, node.load.memory),
    ):
        if whole and free < _FULL * whole:
            text = f"only {100 * free / whole:.1f} % of its {what} is free"
            yield Finding(where=sight.url, text=text, hint="delete sessions that nobody needs, or give it more")


def _odd_ones(sights: Sequence[Sight], what: str, value: Callable[[ManagerInfo], str], hint: str) -> Iterator[Finding]:
    """Those whose value differs from that of the first, which is the manager that was asked."""
    values = [(sight.url, value(sight.info)) for sight in sights if sight.info is not None]
    for url, other in values[1:]:
        if other != values[0][1]:
            yield Finding(where=url, text=f"its {what} is {other}, that of {values[0][0]} is {values[0][1]}", hint=hint)
    if what == "version of dropflow" and values and values[0][1] != __version__:
        yield Finding(where=values[0][0], text=f"its {what} is {values[0][1]}, here it is {__version__}", hint=hint)


def _look(url: str, connect: Callable[[str], Client], clock: Clock) -> Sight:
    try:
        with connect(url) as client:
            client.ready()  # so that connecting does not count as the way of the request
            before, began = clock.now(), clock.monotonic()
            info = client.info()
            delay = clock.monotonic() - began
            children = client.children() if info.role in ("island", "master") else ()
            nodes = client.nodes() if info.role in ("node", "island", "master") else ()
    except DropflowError as error:
        return Sight(url=url, trouble=error.text, hint=error.hint)
    # The clock was read somewhere between the two ends of the request: half-way is the best guess.
    skew = info.time - (before + delay / 2)
    return Sight(url=url, info=info, skew=round(skew, 3), delay=round(delay, 4), children=children, nodes=nodes)


def _try(address: str, timeout: float) -> str:
    """Why the port of links at `address` cannot be reached; empty if it can."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=timeout):
            return ""
    except (OSError, ValueError) as error:
        return f"its links at {address} cannot be reached from here: {getattr(error, 'strerror', None) or error}"
