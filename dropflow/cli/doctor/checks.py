"""What is wrong with what the doctor saw. Pure: every finding has a test."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dropflow.cli.doctor.observations import Finding, Sight, Way
from dropflow.cli.doctor.probes import Plan, label, labels, trouble_of, way_findings
from dropflow.cli.tables import plural
from dropflow.errors import ClockSkewError
from dropflow.rest.schema import NodeInfo
from dropflow.version import __version__

__all__ = ["judge", "notes"]

_SKEW = 2.0
"""Seconds by which clocks may differ before times in the pages confuse people."""

_FULL = 0.05
"""A disk or memory with less than this share free is nearly full."""

_SEVERAL = 2
_KEY_HINT = "copy the key file to that host and start its manager again; compare with 'dropflow keys show'"
_VERSION_HINT = "install the same version on all hosts"
_CLOCK_HINT = "let both hosts set their clocks by NTP"


def judge(sights: Sequence[Sight], ways: Sequence[Way] = ()) -> Iterator[Finding]:
    """Everything that is wrong with what was seen, the most basic first."""
    names = labels(sights)
    yield from _silent(sights, ways, names)
    told = {sight.url: sight.trouble for sight in sights if sight.info is None}
    tried = {way.far for way in ways if way.means == "links"}
    yield from _clocks(sights, ways)
    for sight in sights:
        if sight.info is not None:
            yield from _own_findings(sight, is_tried=sight.url in tried)
            yield from _child_findings(sight, told)
    links = [way for way in ways if way.means == "links"]
    yield from way_findings(links, names, skip=_explained(links, sights))
    # Between nodes, requests are not needed; see `notes`.
    below = [way for way in ways if way.means == "rest" and not names.get(way.near, "").startswith("node ")]
    yield from way_findings(below, names, skip=_explained(below, sights))
    claims = _claims(sights, ways)
    yield from _odd_ones(claims, "cluster key", 0, _KEY_HINT)
    yield from _odd_ones(claims, "protocol of the links", 1, _VERSION_HINT)
    yield from _odd_ones(claims, "version of dropflow", 2, _VERSION_HINT)
    counts = Counter((sight.info.name, sight.info.role) for sight in sights if sight.info)
    for (name, role), count in counts.items():
        if count > 1:
            hint = "give each a --name of its own: graphs name the nodes that they are placed on"
            yield Finding(where=name, text=f"{count} managers ({role}) have this name", hint=hint)


def notes(sights: Sequence[Sight], ways: Sequence[Way], plan: Plan) -> Iterator[str]:
    """What is not wrong, but worth knowing: how much was tried, and which ways are closed that no session needs."""
    names = labels(sights)
    links = [way for way in ways if way.means == "links"]
    if plan.possible:
        sound = sum(not trouble_of(way, names)[0] for way in links)
        yield f"links between nodes: {sound} of {plural(len(links), 'way')} tried are sound"
    untried = plan.possible - len(links)
    if untried and plan.is_bounded:
        yield f"{untried} of {plan.possible} ways were not tried: each node tries {plan.peers} others at most (--peers)"
    elif untried:
        yield f"{untried} of {plan.possible} ways were not tried: some nodes do not answer, or nobody knows their links"
    answers = {sight.url for sight in sights if sight.info is not None}
    closed = [
        way
        for way in ways
        if way.means == "rest"
        and names.get(way.near, "").startswith("node ")
        and not way.reach.ok
        and way.far in answers
    ]
    if closed:
        first = closed[0]
        yield (
            f"{plural(len(closed), 'way')} between the REST servers of nodes "
            f"{'is' if len(closed) == 1 else 'are'} closed, which no session needs: {label(names, first.near)} to "
            f"{label(names, first.far)}{' and others' if len(closed) > 1 else ''}: {trouble_of(first, names)[0]}"
        )
    tried = {way.far for way in links}
    for sight in sights:
        if sight.links and sight.url in tried:
            yield f"{sight.url}: {sight.links}; only nodes need that"


def _silent(sights: Sequence[Sight], ways: Sequence[Way], names: Mapping[str, str]) -> Iterator[Finding]:
    """Managers that do not answer, and those that do not say what they reach."""
    silent = [sight for sight in sights if sight.info is None]
    late = [sight for sight in silent if sight.code == ClockSkewError.code]
    if len(late) >= _SEVERAL:
        text = f"{len(late)} managers refuse what is signed here: {late[0].trouble}"
        yield Finding(where="this host", text=text, hint="set the clock of this host (NTP)")
    for sight in silent:
        if len(late) >= _SEVERAL and sight in late:
            continue
        seen = [label(names, way.near) for way in ways if way.far == sight.url and way.means == "rest" and way.reach.ok]
        more = f" from here, though {', '.join(seen[:3])} can reach it" if seen else ""
        yield Finding(where=sight.url, text=f"{sight.trouble}{more}", hint=sight.hint or "is the manager running?")
    for sight in sights:
        # Another version may not know the question, and is told of as such.
        if sight.mute and sight.info is not None and sight.info.version == __version__:
            hint = "ask again; if it stays so, look at the log of that manager"
            yield Finding(where=sight.url, text=f"it does not say what it reaches: {sight.mute}", hint=hint)


def _clocks(sights: Sequence[Sight], ways: Sequence[Way]) -> Iterator[Finding]:
    """Clocks that differ from the clock here; the clock here, where it is the odd one."""
    seen = {sight.url: (sight.skew, sight.delay) for sight in sights if sight.info is not None}
    for way in ways:
        # Whoever cannot be asked from here was perhaps asked by somebody whose clock is known.
        if way.far not in seen and way.near in seen and way.reach.ok and way.reach.skew is not None:
            skew, delay = seen[way.near]
            seen[way.far] = (skew + way.reach.skew, delay + way.reach.seconds)
    off = {url: skew for url, (skew, delay) in seen.items() if abs(skew) - delay > _SKEW}
    if len(off) == len(seen) >= _SEVERAL and max(off.values()) - min(off.values()) <= _SKEW:
        skew = next(iter(off.values()))
        text = f"its clock is {abs(skew):.1f} s {_way(-skew)} those of all {len(off)} managers"
        yield Finding(where="this host", text=text, hint="let this host set its clock by NTP")
        return
    for url, skew in off.items():
        text = f"its clock is {abs(skew):.1f} s {_way(skew)} the clock here"
        yield Finding(where=url, text=text, hint=_CLOCK_HINT)


def _way(skew: float) -> str:
    return "ahead of" if skew > 0 else "behind"


def _own_findings(sight: Sight, *, is_tried: bool) -> Iterator[Finding]:
    if sight.links and not is_tried:
        hint = "open that port for the other nodes in the firewall, or advertise an address that they reach"
        yield Finding(where=sight.url, text=sight.links, hint=hint)
    if sight.info is not None and sight.info.role in ("island", "master") and not sight.children:
        hint = "name its children with --nodes or --islands, or let it find them with --discover"
        yield Finding(where=sight.url, text=f"the {sight.info.role} has no children", hint=hint)
    for finding in () if sight.info is None else sight.info.findings:
        hint = "look at the files of that session, or delete it: 'dropflow delete SESSION'"
        yield Finding(where=sight.url, text=finding, hint=hint)
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


def _explained(ways: Sequence[Way], sights: Sequence[Sight]) -> Iterator[Way]:
    """Ways whose fault is told of elsewhere: of managers that are down, or have another key, protocol or clock."""
    by_url = {sight.url: sight for sight in sights}
    reached = {way.far for way in ways if way.reach.ok}
    missed = {(sight.url, child.url) for sight in sights for child in sight.children if child.state != "alive"}
    for way in ways:
        near, far = by_url.get(way.near), by_url.get(way.far)
        if far is None or near is None or near.info is None:
            is_told = False
        elif far.info is None:
            is_told = way.far not in reached
        else:
            is_told = (near.info.key, near.info.protocol) != (far.info.key, far.info.protocol)
            is_told |= way.reach.code == ClockSkewError.code and max(abs(near.skew), abs(far.skew)) > _SKEW
        if is_told or (way.near, way.far) in missed:
            yield way


def _claims(sights: Sequence[Sight], ways: Sequence[Way]) -> dict[str, tuple[str, str, str]]:
    """Key, protocol and version of each manager, of those that cannot be asked from here as others saw them."""
    found = {
        sight.url: (sight.info.key or "none", str(sight.info.protocol), sight.info.version)
        for sight in sights
        if sight.info is not None
    }
    for way in ways:
        if way.reach.ok and way.means == "rest":
            reach = way.reach
            found.setdefault(way.far, (reach.key or "none", str(reach.protocol), reach.version))
    return found


def _odd_ones(claims: Mapping[str, tuple[str, str, str]], what: str, column: int, hint: str) -> Iterator[Finding]:
    """Those whose value differs from that of the first, which is the manager that was asked."""
    values = [(url, claim[column]) for url, claim in claims.items()]
    for url, other in values[1:]:
        if other != values[0][1]:
            yield Finding(where=url, text=f"its {what} is {other}, that of {values[0][0]} is {values[0][1]}", hint=hint)
    if what == "version of dropflow" and values and values[0][1] != __version__:
        yield Finding(where=values[0][0], text=f"its {what} is {values[0][1]}, here it is {__version__}", hint=hint)
