"""The checks of `dropflow doctor`. They take evidence and yield findings, without I/O."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dropflow.cli.doctor.connection_checks import connection_findings, failure
from dropflow.cli.doctor.evidence import Connection, Evidence, Finding, ManagerReport
from dropflow.cli.doctor.remote import ProbePlan
from dropflow.errors import ClockSkewError
from dropflow.formatting import plural
from dropflow.rest.manager_records import NodeInfo
from dropflow.version import __version__

__all__ = ["CHECKS", "findings", "notes"]

_MAX_SKEW = 2.0
"""Seconds by which clocks may differ; with more, the times of events on pages are confusing."""

_MIN_FREE = 0.05
"""The share of a disk or memory below which it is nearly full."""

_SEVERAL = 2
_KEY_HINT = "copy the key file to that host and start its manager again; compare with 'dropflow keys show'"
_VERSION_HINT = "install the same version on all hosts"
_CLOCK_HINT = "set the clocks of both hosts by NTP"


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Yield everything that is wrong, the most basic first."""
    for check in CHECKS:
        yield from check(evidence)


def _answers(evidence: Evidence) -> Iterator[Finding]:
    """Managers that do not answer."""
    unanswered = [report for report in evidence.managers if report.info is None]
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
    off = {url: skew for url, (skew, delay) in measured.items() if abs(skew) - delay > _MAX_SKEW}
    if len(off) == len(measured) >= _SEVERAL and max(off.values()) - min(off.values()) <= _MAX_SKEW:
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
            hint = "look at the files of that session, or delete it: 'dropflow delete SESSION'"
            yield Finding(where=report.url, text=text, hint=hint)
        for node in report.nodes if report.info.role == "node" else ():
            yield from _load_findings(report, node)
        for child in report.children:
            # What the manager reports about the child may be what this host found, too.
            if child.state not in ("alive", "drained") and not (child.text and child.text == unanswered.get(child.url)):
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
    """What all managers of a cluster must have in common."""

    key: str
    protocol: int
    version: str


def _identities(evidence: Evidence) -> dict[str, _Identity]:
    """Return the identity of each manager, by URL; of managers that did not answer, as other managers report it."""
    found = {
        report.url: _Identity(report.info.key or "none", report.info.protocol, report.info.version)
        for report in evidence.managers
        if report.info is not None
    }
    for connection in evidence.connections:
        result = connection.result
        if result.ok and connection.means == "rest":
            found.setdefault(connection.far, _Identity(result.key or "none", result.protocol, result.version))
    return found


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
        if far is None or near is None or near.info is None:
            is_explained = False
        elif far.info is None:
            is_explained = connection.far not in reached
        else:
            is_explained = (near.info.key, near.info.protocol) != (far.info.key, far.info.protocol)
            is_skewed = max(abs(near.skew), abs(far.skew)) > _MAX_SKEW
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
