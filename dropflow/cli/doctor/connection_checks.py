"""Findings about failed connections: those with one cause become one finding, at the manager where the cause is."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from dropflow.cli.doctor.evidence import Connection, Evidence, Finding
from dropflow.cli.tables import few

__all__ = ["connection_findings", "failure"]

_LISTED = 5
"""Names in one finding; the others are counted."""
_SEVERAL = 2
_ALL = 3
"""Nodes that must fail to reach each other before that is one finding."""


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
    found = {far for far, _ in unreachable}
    left = [connection for connection in left if connection.far not in found]
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
    found: dict[tuple[str, str], list[Connection]] = defaultdict(list)
    for connection in failed:
        found[failure(connection, evidence)].append(connection)
    for (reason, hint), same in found.items():
        far = f"{_what(same[0])} of {few([evidence.label(connection.far) for connection in same], _LISTED)}"
        at = f" at {same[0].result.address}" if len(same) == 1 else ""
        yield Finding(where=near, text=f"{evidence.label(near)} cannot reach {far}{at}: {reason}", hint=hint)


def _reasons(failed: Iterable[Connection], evidence: Evidence, end: Literal["near", "far"]) -> str:
    """Return each reason once, the most frequent first, with the managers that report it if there are several."""
    found: dict[str, list[str]] = defaultdict(list)
    for connection in failed:
        label = evidence.label(connection.near if end == "near" else connection.far)
        found[failure(connection, evidence)[0]].append(label)
    ordered = sorted(found.items(), key=lambda row: -len(row[1]))
    if len(ordered) == 1:
        return ordered[0][0]
    return "; ".join(f"{reason} ({few(labels, _LISTED)})" for reason, labels in ordered)


def _what(connection: Connection) -> str:
    return "the links" if connection.means == "links" else "the REST server"
