"""The nodes that run the parts of a graph, and the name and epoch of the session."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from urllib.parse import urlsplit

import numpy as np

from dropflow.api.addresses import is_loopback
from dropflow.api.node_records import Lack, NodeComponents, NodeInfo
from dropflow.api.requests import SubmitQuery
from dropflow.apps.needs import has_images, host_needs
from dropflow.clock import Clock
from dropflow.data.survival import replicas_of
from dropflow.errors import BadGraphError, LinkError, MissingDependencyError, UsageError
from dropflow.failure import Problem, Severity
from dropflow.formatting import few, plural
from dropflow.graph.codec import dump
from dropflow.graph.notes import note_options, note_software, repository_of
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.reassign import BooleanColumn, app_weights, reassign_together
from dropflow.graph.slices import FREE, placement_groups, with_placement
from dropflow.graph.templates import Template
from dropflow.ids import SESSION_NAME_HINT, dated_session_name, is_session_name
from dropflow.session_options import chosen_of
from managers.deployment import Deployment, Place
from managers.recovery.records import FEWEST_VOTERS

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN_NODES = 5
"""Names of nodes, and problems with them, in a message."""


@dataclass(frozen=True)
class Assignment:
    """The node of each part of a graph, and a note for users if the graph names other nodes."""

    places: tuple[str, ...]
    note: str = ""


def assign(graph: PhysicalGraph, nodes: Sequence[NodeInfo], *, anew: bool = False) -> Assignment:
    """Return the node of each part of `graph`.

    If the graph names nodes, its parts are assigned to those. A node is named by its own name, or by the name or
    address of its host (with or without a port, as in DALiuGE's graphs) if only one node is on that host. If the graph
    names no nodes, it is spread over all nodes that are alive: part k on the k-th by name, and from the first again
    when there are more parts than nodes.

    A graph whose nodes are all unknown (placed for another cluster, or on ``localhost``) is spread in the same way,
    with a note. If there is only one node, it gets the parts of all unknown nodes.

    Parameters
    ----------
    graph : PhysicalGraph
        Its `places` are one name a part, or none.
    nodes : sequence of NodeInfo
        All nodes, including those that are not alive.
    anew : bool
        Spread the parts, even if the graph names nodes.

    Raises
    ------
    LinkError
        No node is alive.
    BadGraphError
        Some of the nodes that the graph names are unknown while others are known, or are not alive, or are ambiguous.
        The error names all of them.
    """
    alive = sorted(node.name for node in nodes if node.state == "alive")
    if not alive:
        known = ", ".join(f"{node.name} ({node.state})" for node in nodes) or "none is known"
        raise LinkError(f"no node is alive: {known}", hint="start a node with 'dropflow node', or wait for one to join")
    spread = tuple(alive[part % len(alive)] for part in range(graph.parts))
    if anew or not graph.places:
        return Assignment(spread)
    if len(graph.places) < graph.parts:
        raise BadGraphError(
            f"the graph has {graph.parts} parts but names nodes for {len(graph.places)} only",
            where=graph.name,
            hint="map it again, or submit it with --anew to spread it over the nodes that are alive",
        )
    used = sorted(set(graph.places))
    matching = {place: _matching(place, nodes) for place in used}
    unknown = [place for place in used if not matching[place]]
    if unknown == used or (unknown and len(nodes) == 1):
        there = "all are on" if len(set(spread)) == 1 else f"the {graph.parts} parts are spread over"
        text = f"the graph names unknown nodes ({few([repr(place) for place in unknown], _SHOWN_NODES)})"
        return Assignment(spread, f"{text}: {there} {few(sorted(set(spread)), _SHOWN_NODES)}")
    wrong = [text for place in used if (text := _wrong(place, matching[place], alive))]
    if wrong:
        more = f" (and {len(wrong) - _SHOWN_NODES} more)" if len(wrong) > _SHOWN_NODES else ""
        raise BadGraphError(
            f"the graph names nodes that cannot be used: {'; '.join(wrong[:_SHOWN_NODES])}{more}",
            where=graph.name,
            hint=f"submit it with --anew to spread it over the nodes that are alive: {few(alive, _SHOWN_NODES)}",
        )
    return Assignment(tuple(matching[place][0].name for place in graph.places))


def _matching(place: str, nodes: Sequence[NodeInfo]) -> list[NodeInfo]:
    """Return the nodes that `place` may mean: the one of that name, else all on a host of that name or address.

    A name of the loopback interface may mean any host, so it matches only if there is one node.
    """
    by_name = [node for node in nodes if node.name == place]
    if by_name:
        return by_name
    if place in _LOOPBACK:
        return list(nodes) if len(nodes) == 1 else []
    spellings = {place, ":".join(place.split(":")[:2])}  # DALiuGE's HOST:REST:EVENTS:RPC
    by_host = [node for node in nodes if spellings & _addresses(node)]
    alive = [node for node in by_host if node.state == "alive"]
    return alive or by_host


def _addresses(node: NodeInfo) -> set[str]:
    parts = urlsplit(node.url)
    return {name for name in (node.host, parts.hostname, parts.netloc) if name}


def _wrong(place: str, matching: Sequence[NodeInfo], alive: Sequence[str]) -> str:
    if not matching:
        close = get_close_matches(place, alive, n=1)
        return f"{place!r} is unknown" + (f", did it mean {close[0]!r}?" if close else "")
    if len(matching) > 1:
        return f"{place!r} may be any of {few([node.name for node in matching], _SHOWN_NODES)}"
    node = matching[0]
    if node.state != "alive":
        return f"{place!r} is {node.state}" + (f": {node.text}" if node.text else "")
    return ""


# Drops go to nodes that have what they need.


def where_they_run(
    graph: PhysicalGraph, nodes: Sequence[str], components: Sequence[NodeComponents], *, is_movable: bool
) -> tuple[PhysicalGraph, str]:
    """Return a placed graph whose drops are on nodes that can run them, and a note if drops were moved for that.

    What has to move goes to nodes that have what it needs, balanced (`dropflow.graph.reassign`), with its placement
    group. Data stay where they are. Nodes without an answer in `components` count as able.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph, with a node for each part.
    nodes : sequence of str
        The nodes that are alive.
    components : sequence of NodeComponents
        What they lack.
    is_movable : bool
        Whether drops may be moved.

    Raises
    ------
    BadGraphError
        DF106: drops are on nodes that cannot run them and must not move, or no node can run them. There is one problem
        for each component and node: what is missing, and what to install.
    """
    lacks = {
        component.node: {lack.need: lack for lack in component.lacks} for component in components if component.lacks
    }
    if not lacks:
        return graph, ""
    needs = host_needs(graph.templates)
    unable: dict[frozenset[str], list[int]] = {}
    for row, wanted in needs.items():
        if refusing := frozenset(node for node in nodes if not lacks.get(node, {}).keys().isdisjoint(wanted)):
            unable.setdefault(refusing, []).append(row)
    names = sorted({*nodes, *graph.places})
    number = {name: at for at, name in enumerate(names)}
    before = np.array([number[place] for place in graph.places], dtype=np.int32)[graph.part]
    placement = before
    for refusing, rows in unable.items():
        able = [number[node] for node in nodes if node not in refusing]
        moving = np.isin(graph.template, rows) & np.isin(placement, [number[node] for node in refusing])
        if is_movable and able and moving.any():
            placement = _moved(graph, placement, moving, sorted(able))
    problems = tuple(
        _lacking(graph.templates[row], node, [lacks[node][need] for need in needs[row] if need in lacks[node]])
        for refusing, rows in unable.items()
        for row in rows
        for node in sorted(refusing)
        if (is_movable and refusing.issuperset(nodes)) or ((placement == number[node]) & (graph.template == row)).any()
    )
    if problems:
        text = (
            "nodes cannot run the drops placed on them" if not is_movable else "no node can run all that it would get"
        )
        hint = "install what is missing" + ("" if is_movable else ", or submit the graph with --anew to place it again")
        where = few([str(problem.where) for problem in problems], _SHOWN_NODES)
        raise BadGraphError(f"{text}: {where}", problems=problems, hint=hint)
    changed = int((placement != before).sum())
    if not changed:
        return graph, ""
    used = np.unique(placement)
    targets = sorted({names[at] for at in placement[placement != before].tolist()})
    note = f"{plural(changed, 'drop')} moved to {few(targets, _SHOWN_NODES)}, because other nodes lack what they need"
    placed = with_placement(
        graph, np.searchsorted(used, placement).astype(np.int32), [names[at] for at in used.tolist()]
    )
    return replace(placed, planned=None), note


def _moved(graph: PhysicalGraph, placement: IntColumn, moving: BooleanColumn, able: Sequence[int]) -> IntColumn:
    """Return a placement in which moving drops, and those that must be with them, are on one of the able nodes."""
    groups = placement_groups(graph)
    if groups is not None:
        bound = np.unique(groups.group[moving])
        moving = moving | np.isin(groups.group, bound[bound != FREE])
    work = app_weights(graph)
    load = np.bincount(placement[~moving], weights=work[~moving], minlength=max(able) + 1)
    had = [float(load[at]) for at in able]
    equal, runs = [1.0] * len(able), np.ones(graph.drops, dtype=np.bool_)
    return reassign_together(graph, placement, moving, able, had, capacities=equal, work=work, runs=runs)


def _lacking(template: Template, node: str, lacks: Sequence[Lack]) -> Problem:
    """Return one row of the table of what is missing: component, node, what, and what to install."""
    return Problem(
        code=MissingDependencyError.code,
        severity=Severity.ERROR,
        where=f"{template.app_name or template.name or template.key} on {node}",
        text="; ".join(lack.text for lack in lacks),
        hint="; ".join(dict.fromkeys(lack.hint for lack in lacks if lack.hint)),
    )


# The plan of a deployment: which nodes run a graph, under which name and epoch.


def plan_deployment(
    graph: PhysicalGraph,
    options: SubmitQuery,
    nodes: Sequence[NodeInfo],
    *,
    clock: Clock,
    after: int = 0,
    witness: Place | None = None,
    components: Sequence[NodeComponents] = (),
) -> Deployment:
    """Return the deployment of `graph` on `nodes`: the placed graph, and its members.

    Members are the nodes that have drops, and standby nodes: a session with at least three members, or with two and a
    witness, survives the loss of one, so nodes without drops are added to fewer ones as long as there are any. More are
    added if contents are to be on more nodes.

    Its epoch is the time in microseconds, or the next number after an epoch of this session that is known already: a
    later deployment has a greater epoch, also when the clock went back or another host with a fast clock deployed it.

    Parameters
    ----------
    after : int
        Greatest epoch of a session of this name that the caller knows.
    witness : Place or None
        The process that may vote about views of the session. Left out if the nodes cannot reach it.
    components : sequence of NodeComponents
        The answers of the nodes about the needs of the graph.

    Raises
    ------
    UsageError
        The name of the session cannot be used.
    BadGraphError, LinkError
        See `assign` and `where_they_run`.
    """
    if options.session and not is_session_name(options.session):
        raise UsageError(f"{options.session!r} cannot be the name of a session", hint=SESSION_NAME_HINT)
    assignment = assign(graph, nodes, anew=options.anew)
    is_movable = options.anew or options.movable or not graph.places
    alive = [node.name for node in nodes if node.state == "alive"]
    able, moved = where_they_run(replace(graph, places=assignment.places), alive, components, is_movable=is_movable)
    placed = note_software(note_options(able, options))
    used = sorted({placed.places[part] for part in np.unique(placed.part).tolist()})
    replicas = max([options.replicas, 2 if options.protect else 1, *map(replicas_of, graph.templates)])
    by_name = {node.name: node for node in nodes}
    witness = usable_witness(nodes, witness)
    members = [*used, *_standby(used, nodes, replicas, has_witness=witness is not None)]
    witnesses = () if witness is None else (witness,)
    survives = len(members) + len(witnesses) >= FEWEST_VOTERS
    notes = [repository_of(graph), assignment.note, moved, _shortage(replicas, len(members), survives=survives)]
    return Deployment(
        session=options.session or dated_session_name(graph.name, clock.now()),
        epoch=max(int(clock.now() * 1e6), after + 1),
        graph=graph.name,
        drops=graph.drops,
        created=clock.now(),
        places=tuple(Place(node, by_name[node].links, by_name[node].incarnation) for node in members),
        witnesses=witnesses,
        nodes=tuple(members),
        **chosen_of(options),
        request_id=options.request_id,
        user=options.user,
        notes=tuple(str(note) for note in notes if note),
        has_images=has_images(graph.templates),
        dfg=b"".join(dump(placed)),
    )


def usable_witness(nodes: Sequence[NodeInfo], witness: Place | None) -> Place | None:
    """Return a witness if all nodes can reach it, else None."""
    return witness if witness is not None and all(_can_reach(node.links, witness) for node in nodes) else None


def _can_reach(links: str, witness: Place) -> bool:
    """Return whether a node with these links may reach a witness: one on loopback only from the same host."""
    here, there = (urlsplit(address).hostname or "" for address in (links, witness.address))
    return not is_loopback(there) or is_loopback(here)


def _standby(used: Sequence[str], nodes: Sequence[NodeInfo], replicas: int, *, has_witness: bool) -> list[str]:
    """Return the nodes that hold the graph and copies, and no drops until a node is lost.

    None if they would be too few for a session that survives the loss of a node.
    """
    others = sorted(node.name for node in nodes if node.state == "alive" and node.name not in used)
    missing = max(FEWEST_VOTERS - len(used), 0)
    return others[: max(missing, replicas - len(used))] if len(others) >= missing - has_witness else []


def _shortage(replicas: int, members: int, *, survives: bool) -> str:
    """Return a note if contents are to be on more nodes than the session has; empty if they are not."""
    if replicas > 1 and not survives:
        text = f"contents are to be on {replicas} nodes, but a session on {plural(members, 'node')} does not survive"
        return f"{text} the loss of one: no copies are made"
    if replicas > members:
        return f"contents are to be on {replicas} nodes, but the session has {members}: each of them has a copy"
    return ""
