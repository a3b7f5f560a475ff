"""The ways between the managers of a cluster: which to try, and what is wrong with those that do not lead there.

Nodes need each other's links; islands and masters need the REST servers of their children. A node also looks at the
REST servers of other nodes, which no session needs: that tells of managers that cannot be asked from here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from dropflow.cli.doctor.observations import Finding, Sight, Way
from dropflow.rest.schema import NodeInfo

__all__ = ["Plan", "Target", "label", "labels", "plan_ways", "trouble_of", "way_findings"]

_LISTED = 5
"""Names in one finding; the others are counted."""
_SEVERAL = 2
_ALL = 3
"""Nodes that must fail each other before it is told as one thing."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a manager is to try; see `Way`."""

    far: str
    means: Literal["links", "rest"]
    address: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What each manager is to try.

    Attributes
    ----------
    targets : mapping
        By the URL of the manager that tries.
    tried, possible : int
        Ways between the links of nodes that are tried, and all that there are.
    peers : int
        How many other nodes each node tries at most.
    is_bounded : bool
        Whether there are more.
    """

    targets: Mapping[str, tuple[Target, ...]]
    tried: int
    possible: int
    peers: int
    is_bounded: bool


def plan_ways(sights: Sequence[Sight], *, peers: int) -> Plan:
    """Each node tries the `peers` nodes that come after it by name, in a ring; islands and masters their children.

    So each node is tried as often as it tries, and a cluster of up to ``peers + 1`` nodes is tried as a whole.
    """
    nodes = _nodes(sights)
    ring = sorted(nodes.values(), key=lambda node: (node.name, node.url))
    places = {node.url: place for place, node in enumerate(ring)}
    targets: dict[str, tuple[Target, ...]] = {}
    tried = 0
    for sight in sights:
        if sight.info is None:
            continue
        found = [Target(far=child.url, means="rest", address=child.url) for child in sight.children]
        if sight.info.role == "node" and sight.url in places:
            start = places[sight.url] + 1
            others = [ring[(start + step) % len(ring)] for step in range(min(peers, len(ring) - 1))]
            links = [Target(far=node.url, means="links", address=node.links) for node in others if node.links]
            tried += len(links)
            found += links
            found += [Target(far=node.url, means="rest", address=node.url) for node in others]
        if found:
            targets[sight.url] = tuple(found)
    possible = len(ring) * (len(ring) - 1)
    return Plan(targets=targets, tried=tried, possible=possible, peers=peers, is_bounded=peers < len(ring) - 1)


def _nodes(sights: Iterable[Sight]) -> dict[str, NodeInfo]:
    """All nodes that anybody has told of, by URL; what a node says about itself counts more."""
    found: dict[str, NodeInfo] = {}
    for sight in sights:
        for node in sight.nodes:
            if node.url and (node.url == sight.url or node.url not in found):
                found[node.url] = node
    return found


def labels(sights: Iterable[Sight]) -> dict[str, str]:
    """What to call the manager at each URL: its role and name."""
    found: dict[str, str] = {}
    for sight in sights:
        for child in sight.children:
            found.setdefault(child.url, f"{child.role} {child.name or child.url}")
        for node in sight.nodes:
            found.setdefault(node.url, f"node {node.name}")
    return found | {sight.url: f"{sight.info.role} {sight.info.name}" for sight in sights if sight.info is not None}


def label(names: Mapping[str, str], url: str) -> str:
    """What to call the manager at `url`."""
    return names.get(url, url)


def trouble_of(way: Way, names: Mapping[str, str]) -> tuple[str, str]:
    """Why a way does not lead to whom it should, and what to do; empty if it does."""
    reach = way.reach
    if not reach.ok:
        return reach.trouble or "it does not answer", reach.hint or "look at the network between the hosts"
    meant = names.get(way.far, "").partition(" ")[2]
    if reach.name and meant and meant not in (reach.name, way.far):
        hint = "let each manager advertise an address by which all hosts reach it, and nobody else"
        return f"{reach.name} answers there", hint
    return "", ""


def way_findings(ways: Sequence[Way], names: Mapping[str, str], skip: Iterable[Way] = ()) -> Iterator[Finding]:
    """What is wrong with ways of one kind: the same fault once, at the end where it is.

    Parameters
    ----------
    ways : sequence of Way
        All that were tried, sound ones too.
    names : mapping of str to str
        See `labels`.
    skip : iterable of Way
        Those whose fault is told elsewhere.
    """
    skipped = {(way.near, way.far) for way in skip}
    bad = [way for way in ways if trouble_of(way, names)[0]]
    left = [way for way in bad if (way.near, way.far) not in skipped]
    ends = {way.near for way in ways} | {way.far for way in ways}
    if len(left) == len(ways) and len(ends) >= _ALL and left[0].means == "links":
        text = f"none of {len(ends)} nodes can reach the links of any other: {_reasons(left, names, 'far')}"
        yield Finding(where="everywhere", text=text, hint=trouble_of(left[0], names)[1])
        return
    for far, total in Counter(way.far for way in ways).items():
        mine = [way for way in left if way.far == far]
        if len(mine) == total >= _SEVERAL:
            reasons = _reasons(mine, names, "near")
            text = f"{_what(mine[0])} of {label(names, far)} at {mine[0].reach.address} cannot be reached by any of "
            text += f"{total} managers that tried: {reasons}"
            yield Finding(where=far, text=text, hint=trouble_of(mine[0], names)[1])
            left = [way for way in left if way.far != far]
    totals = Counter(way.near for way in ways)
    for near in dict.fromkeys(way.near for way in left):
        mine = [way for way in left if way.near == near]
        whole = [way for way in bad if way.near == near]
        if len(whole) == totals[near] >= _SEVERAL and len(mine) > 1:
            text = f"{label(names, near)} cannot reach {_what(mine[0])} of any of {totals[near]} others: "
            yield Finding(where=near, text=text + _reasons(mine, names, "far"), hint=trouble_of(mine[0], names)[1])
        else:
            yield from _by_reason(near, mine, names)


def _by_reason(near: str, ways: Iterable[Way], names: Mapping[str, str]) -> Iterator[Finding]:
    """One finding for each reason that a manager has not to reach some of the others."""
    found: dict[tuple[str, str], list[Way]] = defaultdict(list)
    for way in ways:
        found[trouble_of(way, names)].append(way)
    for (trouble, hint), same in found.items():
        far = f"{_what(same[0])} of {_listed([label(names, way.far) for way in same])}"
        at = f" at {same[0].reach.address}" if len(same) == 1 else ""
        yield Finding(where=near, text=f"{label(names, near)} cannot reach {far}{at}: {trouble}", hint=hint)


def _reasons(ways: Iterable[Way], names: Mapping[str, str], end: Literal["near", "far"]) -> str:
    """Each reason once, the most frequent first, with who has it where they differ."""
    found: dict[str, list[str]] = defaultdict(list)
    for way in ways:
        found[trouble_of(way, names)[0]].append(label(names, way.near if end == "near" else way.far))
    ordered = sorted(found.items(), key=lambda row: -len(row[1]))
    if len(ordered) == 1:
        return ordered[0][0]
    return "; ".join(f"{reason} ({_listed(who)})" for reason, who in ordered)


def _what(way: Way) -> str:
    return "the links" if way.means == "links" else "the REST server"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"
