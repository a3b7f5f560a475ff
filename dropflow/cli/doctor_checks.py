"""The evidence that `dropflow doctor` collects about a cluster, and checks that find problems in it without I/O."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from dropflow.api.node_records import Child, ManagerInfo, NodeInfo, ProbeResult
from dropflow.clock import MAX_SKEW_SECONDS
from dropflow.errors import ClockSkewError, DropflowError
from dropflow.formatting import few, plural
from dropflow.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from dropflow.api.client import Client
_LISTED = 5
"""Names in one finding; the others are counted."""
_SEVERAL = 2
"""Cases from which a common cause is reported once, and not each case."""
_ALL = 3
"""Nodes that must fail to reach each other before that is one finding."""
_ADDRESSES = 32
"""Addresses in one request to a manager."""
_LONGEST = 10.0
"""Seconds that a manager may take for one request."""
_MIN_FREE = 0.05
"""The share of a disk or memory below which it is nearly full."""
_KEY_HINT = "copy the key file to that host and start its manager again; compare with 'dropflow keys show'"
_VERSION_HINT = "install the same version on all hosts"
_CLOCK_HINT = "set the clocks of both hosts by NTP"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong: where, what, and what to do."""

    where: str
    text: str
    hint: str


class ManagerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one manager to this host.

    Attributes
    ----------
    url : str
        The address at which it was asked.
    info : ManagerInfo or None
        Its name, version, key and so on; None if it did not answer.
    skew : float
        Seconds by which its clock is ahead of the clock of this host.
    delay : float
        Seconds that it took to answer.
    children, nodes : tuples
        The managers below it.
    links : str
        Why the port of its links cannot be reached from this host; empty if it can, or if it has none.
    code, trouble, hint : str
        Stable code of the error, why it did not answer, and what to do.
    probe_error : str
        Why it did not report its connections; empty if it did, or was not asked.
    """

    url: str
    info: ManagerInfo | None = None
    skew: float = 0.0
    delay: float = 0.0
    children: tuple[Child, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    links: str = ""
    code: str = ""
    trouble: str = ""
    hint: str = ""
    probe_error: str = ""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that one manager tried to make to another.

    Attributes
    ----------
    near, far : str
        URLs of the manager that connected and of the other one.
    means : str
        ``links`` between nodes, ``rest`` for requests.
    result : ProbeResult
        The report of the near manager.
    """

    near: str
    far: str
    means: Literal["links", "rest"]
    result: ProbeResult


@dataclass(frozen=True)
class Evidence:
    """Everything that the checks judge: the reports of all managers, the one that was asked first, and connections."""

    managers: tuple[ManagerReport, ...]
    connections: tuple[Connection, ...] = ()

    @cached_property
    def identities(self) -> Mapping[str, tuple[str, str]]:
        """Role and name of the manager at each URL; what a manager reports about itself has precedence."""
        names: dict[str, tuple[str, str]] = {}
        for report in self.managers:
            for child in report.children:
                names.setdefault(child.url, (child.role, child.name or child.url))
            for node in report.nodes:
                names.setdefault(node.url, ("node", node.name))
        own = {report.url: (report.info.role, report.info.name) for report in self.managers if report.info}
        return names | own

    @cached_property
    def leaving(self) -> frozenset[str]:
        """The URLs of nodes that are drained, and end on purpose."""
        nodes = (node for report in self.managers for node in report.nodes)
        return frozenset(node.url for node in nodes if node.state in ("draining", "drained"))

    @cached_property
    def links(self) -> tuple[Connection, ...]:
        """The connections between the links of nodes."""
        return tuple(connection for connection in self.connections if connection.means == "links")

    @cached_property
    def requests_of_nodes(self) -> tuple[Connection, ...]:
        """The connections from nodes to REST servers of other nodes, which no session needs."""
        return tuple(connection for connection in self._requests if self._is_node(connection.near))

    @cached_property
    def requests_to_children(self) -> tuple[Connection, ...]:
        """The connections from islands and masters to the REST servers of their children."""
        return tuple(connection for connection in self._requests if not self._is_node(connection.near))

    def label(self, url: str) -> str:
        """Return the role and name of the manager at `url`."""
        return " ".join(self.identities.get(url, (url,)))

    @property
    def _requests(self) -> tuple[Connection, ...]:
        return tuple(connection for connection in self.connections if connection.means == "rest")

    def _is_node(self, url: str) -> bool:
        return url in self.identities and self.identities[url][0] == "node"


# Findings about failed connections: those with one cause become one finding, at the manager where the cause is.


def failure(connection: Connection, evidence: Evidence) -> tuple[str, str]:
    """Return why a connection failed or reached another manager, and what to do; empty if it did not fail."""
    result = connection.result
    if not result.ok:
        return result.trouble or "it does not answer", result.hint or "look at the network between the hosts"
    _, expected = evidence.identities.get(connection.far, ("", ""))
    if result.name and expected and expected not in (result.name, connection.far):
        hint = "let each manager advertise an address by which all hosts reach it and no other manager"
        return f"{result.name} answers there", hint
    return "", ""


def connection_findings(
    connections: Sequence[Connection], evidence: Evidence, skip: Iterable[Connection] = ()
) -> Iterator[Finding]:
    """Yield what is wrong with connections of one kind.

    Parameters
    ----------
    connections : sequence of Connection
        All that were tried, also those that succeeded.
    skip : iterable of Connection
        Failures that other findings explain.
    """
    skipped = {(connection.near, connection.far) for connection in skip}
    failed = [connection for connection in connections if failure(connection, evidence)[0]]
    left = [connection for connection in failed if (connection.near, connection.far) not in skipped]
    ends = {connection.near for connection in connections} | {connection.far for connection in connections}
    if len(left) == len(connections) and len(ends) >= _ALL and left[0].means == "links":
        reasons = _reasons(left, evidence, "far")
        text = f"none of {len(ends)} nodes can reach the links of any other: {reasons}"
        yield Finding(where="everywhere", text=text, hint=failure(left[0], evidence)[1])
        return
    unreachable = list(_unreachable(connections, left, evidence))
    yield from (finding for _, finding in unreachable)
    isolated = {far for far, _ in unreachable}
    left = [connection for connection in left if connection.far not in isolated]
    totals = Counter(connection.near for connection in connections)
    failures = Counter(connection.near for connection in failed)
    for near in dict.fromkeys(connection.near for connection in left):
        own = [connection for connection in left if connection.near == near]
        if failures[near] == totals[near] >= _SEVERAL and len(own) > 1:
            reasons = _reasons(own, evidence, "far")
            text = f"{evidence.label(near)} cannot reach {_what(own[0])} of any of {totals[near]} others: {reasons}"
            yield Finding(where=near, text=text, hint=failure(own[0], evidence)[1])
        else:
            yield from _by_reason(near, own, evidence)


def _unreachable(
    connections: Iterable[Connection], failed: Sequence[Connection], evidence: Evidence
) -> Iterator[tuple[str, Finding]]:
    """Yield the managers to which all connections of several managers failed, each with its finding."""
    for far, total in Counter(connection.far for connection in connections).items():
        own = [connection for connection in failed if connection.far == far]
        if len(own) == total >= _SEVERAL:
            what = f"{_what(own[0])} of {evidence.label(far)} at {own[0].result.address}"
            reasons = _reasons(own, evidence, "near")
            text = f"{what} cannot be reached by any of {total} managers that tried: {reasons}"
            yield far, Finding(where=far, text=text, hint=failure(own[0], evidence)[1])


def _by_reason(near: str, failed: Iterable[Connection], evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each reason for which a manager cannot reach others."""
    connections: dict[tuple[str, str], list[Connection]] = defaultdict(list)
    for connection in failed:
        connections[failure(connection, evidence)].append(connection)
    for (reason, hint), same in connections.items():
        far = f"{_what(same[0])} of {few([evidence.label(connection.far) for connection in same], _LISTED)}"
        at = f" at {same[0].result.address}" if len(same) == 1 else ""
        yield Finding(where=near, text=f"{evidence.label(near)} cannot reach {far}{at}: {reason}", hint=hint)


def _reasons(failed: Iterable[Connection], evidence: Evidence, end: Literal["near", "far"]) -> str:
    """Return each reason once, the most frequent first, with the managers that report it if there are several."""
    labels_of: dict[str, list[str]] = defaultdict(list)
    for connection in failed:
        label = evidence.label(connection.near if end == "near" else connection.far)
        labels_of[failure(connection, evidence)[0]].append(label)
    ordered = sorted(labels_of.items(), key=lambda row: -len(row[1]))
    if len(ordered) == 1:
        return ordered[0][0]
    return "; ".join(f"{reason} ({few(labels, _LISTED)})" for reason, labels in ordered)


def _what(connection: Connection) -> str:
    return "the links" if connection.means == "links" else "the REST server"


# What `dropflow doctor` finds out on other hosts: each manager connects to others and reports the results.
#
# Nodes need the links of other nodes, islands and masters the REST servers of their children. A node also connects to
# the REST servers of other nodes, which no session needs: the results show managers that cannot be asked from this
# host.


class ProbeTarget(msgspec.Struct, frozen=True, kw_only=True):
    """An address to which a manager connects; see `Connection`."""

    far: str
    means: Literal["links", "rest"]
    address: str


class ProbePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses to which each manager connects.

    Attributes
    ----------
    targets : mapping
        By the URL of the manager that connects.
    planned, possible : int
        Connections between the links of nodes that are planned, and all that are possible.
    peers : int
        To how many other nodes each node connects at most.
    is_bounded : bool
        Whether there are more nodes than that.
    """

    targets: Mapping[str, tuple[ProbeTarget, ...]]
    planned: int
    possible: int
    peers: int
    is_bounded: bool


def plan_probes(reports: Sequence[ManagerReport], *, peers: int) -> ProbePlan:
    """Plan connections: each node to the `peers` nodes after it in a ring by name, islands and masters to children.

    So each node connects to as many nodes as connect to it, and in a cluster of up to ``peers + 1`` nodes all pairs of
    nodes are covered.
    """
    ring = sorted(_nodes(reports).values(), key=lambda node: (node.name, node.url))
    places = {node.url: place for place, node in enumerate(ring)}
    targets: dict[str, tuple[ProbeTarget, ...]] = {}
    planned = 0
    for report in reports:
        if report.info is None:
            continue
        own_targets = [ProbeTarget(far=child.url, means="rest", address=child.url) for child in report.children]
        if report.info.role == "node" and report.url in places:
            start = places[report.url] + 1
            others = [ring[(start + step) % len(ring)] for step in range(min(peers, len(ring) - 1))]
            links = [ProbeTarget(far=node.url, means="links", address=node.links) for node in others if node.links]
            planned += len(links)
            own_targets += links
            own_targets += [ProbeTarget(far=node.url, means="rest", address=node.url) for node in others]
        if own_targets:
            targets[report.url] = tuple(own_targets)
    possible = len(ring) * (len(ring) - 1)
    return ProbePlan(targets=targets, planned=planned, possible=possible, peers=peers, is_bounded=peers < len(ring) - 1)


def probe(
    plan: ProbePlan, connect: "Callable[[str], Client]", *, timeout: float, pool: "Executor"
) -> tuple[tuple[Connection, ...], Mapping[str, str]]:
    """Make the managers connect as planned; return the connections, and the errors of managers that did not report."""
    answers = pool.map(lambda near: _probe_from(near, plan.targets[near], connect, timeout), plan.targets)
    results = dict(zip(plan.targets, answers, strict=True))
    connections = tuple(connection for some, _ in results.values() for connection in some)
    return connections, {near: error for near, (_, error) in results.items()}


def _nodes(reports: Iterable[ManagerReport]) -> dict[str, NodeInfo]:
    """Return all nodes that any manager reports, by URL; what a node reports about itself has precedence."""
    nodes: dict[str, NodeInfo] = {}
    for report in reports:
        for node in report.nodes:
            if node.url and (node.url == report.url or node.url not in nodes):
                nodes[node.url] = node
    return nodes


def _probe_from(
    near: str, targets: Sequence[ProbeTarget], connect: "Callable[[str], Client]", timeout: float
) -> tuple[list[Connection], str]:
    """Return the connections that a manager reports, and why some are missing, if some are."""
    results: dict[str, ProbeResult] = {}
    addresses = list(dict.fromkeys(target.address for target in targets))
    error_text = ""
    try:
        with connect(near) as client:
            for start in range(0, len(addresses), _ADDRESSES):
                some = addresses[start : start + _ADDRESSES]
                results |= {answer.address: answer for answer in client.probe(some, seconds=min(timeout, _LONGEST))}
    except DropflowError as error:
        error_text = error.text
    connections = [
        Connection(near=near, far=target.far, means=target.means, result=results[target.address])
        for target in targets
        if target.address in results
    ]
    return connections, error_text


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield everything that is wrong, the most basic first."""
    for check in CHECKS:
        yield from check(evidence)


def _answers(evidence: Evidence) -> Iterator[Finding]:
    """Managers that do not answer."""
    unanswered = [report for report in evidence.managers if report.info is None and report.url not in evidence.leaving]
    skewed = [report for report in unanswered if report.code == ClockSkewError.code]
    if len(skewed) >= _SEVERAL:
        text = f"{len(skewed)} managers reject requests that are signed on this host: {skewed[0].trouble}"
        yield Finding(where="this host", text=text, hint="set the clock of this host by NTP")
        unanswered = [report for report in unanswered if report not in skewed]
    for report in unanswered:
        reached_by = [
            evidence.label(connection.near)
            for connection in evidence.connections
            if connection.far == report.url and connection.means == "rest" and connection.result.ok
        ]
        more = f" from this host, but {', '.join(reached_by[:3])} can reach it" if reached_by else ""
        yield Finding(where=report.url, text=f"{report.trouble}{more}", hint=report.hint or "is the manager running?")


def _probe_errors(evidence: Evidence) -> Iterator[Finding]:
    """Managers that did not report their connections."""
    for report in evidence.managers:
        # Another version may not know the request; that it is another version is a finding already.
        if report.probe_error and report.info is not None and report.info.version == __version__:
            hint = "run this again; if that does not help, look at the log of that manager"
            text = f"it did not report what it can reach: {report.probe_error}"
            yield Finding(where=report.url, text=text, hint=hint)


def _clocks(evidence: Evidence) -> Iterator[Finding]:
    """Clocks that differ from the clock of this host, or the clock of this host if it differs from all others."""
    measured = {report.url: (report.skew, report.delay) for report in evidence.managers if report.info is not None}
    for connection in evidence.connections:
        result = connection.result
        # A manager that did not answer this host may have answered another one, so that its clock is known.
        if connection.far not in measured and connection.near in measured and result.ok and result.skew is not None:
            skew, delay = measured[connection.near]
            measured[connection.far] = (skew + result.skew, delay + result.seconds)
    off = {url: skew for url, (skew, delay) in measured.items() if abs(skew) - delay > MAX_SKEW_SECONDS}
    if len(off) == len(measured) >= _SEVERAL and max(off.values()) - min(off.values()) <= MAX_SKEW_SECONDS:
        skew = next(iter(off.values()))
        text = f"its clock is {_difference(-skew)} those of all {len(off)} managers"
        yield Finding(where="this host", text=text, hint="set the clock of this host by NTP")
        return
    for url, skew in off.items():
        yield Finding(where=url, text=f"its clock is {_difference(skew)} the clock of this host", hint=_CLOCK_HINT)


def _managers(evidence: Evidence) -> Iterator[Finding]:
    """Each manager by itself: its links, children, sessions, disk and memory."""
    unanswered = {report.url: report.trouble for report in evidence.managers if report.info is None}
    probed = {connection.far for connection in evidence.links}
    for report in evidence.managers:
        if report.info is None:
            continue
        if report.links and report.url not in probed:
            hint = "open that port for the other nodes in the firewall, or advertise an address that they reach"
            yield Finding(where=report.url, text=report.links, hint=hint)
        if report.info.role in ("island", "master") and not report.children:
            hint = "name its children with --nodes or --islands, or let it find them with --discover"
            yield Finding(where=report.url, text=f"the {report.info.role} has no children", hint=hint)
        for text in report.info.findings:
            hint = "look at what it names; 'dropflow delete SESSION' removes a session"
            yield Finding(where=report.url, text=text, hint=hint)
        for node in report.nodes if report.info.role == "node" else ():
            yield from _load_findings(report, node)
        for child in report.children:
            if child.state in ("alive", "drained") or child.url in evidence.leaving:
                continue
            # What the manager reports about the child may be what this host found, too.
            if not child.text or child.text != unanswered.get(child.url):
                text = f"its child {child.name or child.url} is {child.state}{f': {child.text}' if child.text else ''}"
                hint = "look at that manager's log, and at the network between"
                yield Finding(where=report.url, text=text, hint=hint)


def _links(evidence: Evidence) -> Iterator[Finding]:
    """Connections between nodes."""
    yield from connection_findings(evidence.links, evidence, skip=_explained(evidence.links, evidence))


def _requests(evidence: Evidence) -> Iterator[Finding]:
    """Connections from islands and masters to their children. Those between nodes are in `notes`."""
    connections = evidence.requests_to_children
    yield from connection_findings(connections, evidence, skip=_explained(connections, evidence))


def _keys(evidence: Evidence) -> Iterator[Finding]:
    """Cluster keys that differ."""
    values = {url: identity.key for url, identity in _identities(evidence).items()}
    yield from _differences("cluster key", values, _KEY_HINT)


def _protocols(evidence: Evidence) -> Iterator[Finding]:
    """Protocols of links that differ."""
    values = {url: str(identity.protocol) for url, identity in _identities(evidence).items()}
    yield from _differences("protocol of the links", values, _VERSION_HINT)


def _versions(evidence: Evidence) -> Iterator[Finding]:
    """Versions that differ from each other or from that of this command."""
    values = {url: identity.version for url, identity in _identities(evidence).items()}
    yield from _differences("version of dropflow", values, _VERSION_HINT)
    first = next(iter(values), None)
    if first is not None and values[first] != __version__:
        text = f"its version of dropflow is {values[first]}, that of this host is {__version__}"
        yield Finding(where=first, text=text, hint=_VERSION_HINT)


def _names(evidence: Evidence) -> Iterator[Finding]:
    """Managers of one role with the same name."""
    counts = Counter((report.info.name, report.info.role) for report in evidence.managers if report.info)
    for (name, role), count in counts.items():
        if count > 1:
            hint = "give each a --name of its own: graphs name the nodes that they are placed on"
            yield Finding(where=name, text=f"{count} managers ({role}) have this name", hint=hint)


CHECKS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    _answers,
    _probe_errors,
    _clocks,
    _managers,
    _links,
    _requests,
    _keys,
    _protocols,
    _versions,
    _names,
)
"""All checks, in the order of their findings."""


def notes(evidence: Evidence, plan: ProbePlan) -> Iterator[str]:
    """Yield notes: how many connections were tried, and failures that do not affect sessions."""
    if plan.possible:
        good = sum(not failure(connection, evidence)[0] for connection in evidence.links)
        yield f"links between nodes: {good} of {plural(len(evidence.links), 'connection')} succeeded"
    untried = plan.possible - len(evidence.links)
    of = f"{untried} of {plan.possible} connections between nodes were not tried"
    if untried and plan.is_bounded:
        yield f"{of}: each node tries {plan.peers} others at most (--peers)"
    elif untried:
        yield f"{of}: some nodes do not answer, or their links are unknown"
    answering = {report.url for report in evidence.managers if report.info is not None}
    failed = [
        connection
        for connection in evidence.requests_of_nodes
        if not connection.result.ok and connection.far in answering
    ]
    if failed:
        first = failed[0]
        example = f"{evidence.label(first.near)} to {evidence.label(first.far)}"
        yield (
            f"{plural(len(failed), 'connection')} to REST servers of other nodes failed, which no session needs: "
            f"{example}{' and others' if len(failed) > 1 else ''}: {failure(first, evidence)[0]}"
        )
    probed = {connection.far for connection in evidence.links}
    for report in evidence.managers:
        if report.links and report.url in probed:
            yield f"{report.url}: {report.links}; only nodes need that"


class _Identity(NamedTuple):
    """The key, protocol and version that all managers of a cluster must have in common."""

    key: str
    protocol: int
    version: str


def _identities(evidence: Evidence) -> dict[str, _Identity]:
    """Return the identity of each manager, by URL; of managers that did not answer, as other managers report it."""
    identities = {
        report.url: _Identity(report.info.key or "none", report.info.protocol, report.info.version)
        for report in evidence.managers
        if report.info is not None
    }
    for connection in evidence.connections:
        result = connection.result
        if result.ok and connection.means == "rest":
            identities.setdefault(connection.far, _Identity(result.key or "none", result.protocol, result.version))
    return identities


def _differences(what: str, values: dict[str, str], hint: str) -> Iterator[Finding]:
    """Yield the managers whose value differs from that of the first, which is the manager that was asked first."""
    (first, wanted), *others = values.items() or [("", "")]
    for url, value in others:
        if value != wanted:
            yield Finding(where=url, text=f"its {what} is {value}, that of {first} is {wanted}", hint=hint)


def _explained(connections: Sequence[Connection], evidence: Evidence) -> Iterator[Connection]:
    """Yield connections whose failure other findings explain: managers without an answer, other keys or clocks."""
    by_url = {report.url: report for report in evidence.managers}
    reached = {connection.far for connection in connections if connection.result.ok}
    missed = {
        (report.url, child.url)
        for report in evidence.managers
        for child in report.children
        if child.state not in ("alive", "drained")
    }
    for connection in connections:
        near, far = by_url.get(connection.near), by_url.get(connection.far)
        if connection.far in evidence.leaving:
            is_explained = True
        elif far is None or near is None or near.info is None:
            is_explained = False
        elif far.info is None:
            is_explained = connection.far not in reached
        else:
            is_explained = (near.info.key, near.info.protocol) != (far.info.key, far.info.protocol)
            is_skewed = max(abs(near.skew), abs(far.skew)) > MAX_SKEW_SECONDS
            is_explained |= connection.result.code == ClockSkewError.code and is_skewed
        if is_explained or (connection.near, connection.far) in missed:
            yield connection


def _load_findings(report: ManagerReport, node: NodeInfo) -> Iterator[Finding]:
    for what, free, whole in (
        ("disk", node.load.disk_free, node.load.disk),
        ("memory", node.load.memory_free, node.load.memory),
    ):
        if whole and free < _MIN_FREE * whole:
            text = f"only {100 * free / whole:.1f} % of its {what} is free"
            yield Finding(where=report.url, text=text, hint="delete sessions that are not needed, or give it more")


def _difference(skew: float) -> str:
    return f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'}"
