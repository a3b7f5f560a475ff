"""The plan of a deployment: which nodes run a graph, under which name and epoch."""

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np

from dropflow.clock import Clock
from dropflow.data.replication import replicas_of
from dropflow.errors import UsageError
from dropflow.formatting import plural
from dropflow.graph.codec import dump
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.software_note import note_software
from dropflow.ids import SESSION_NAME_HINT, dated_session_name, is_session_name
from dropflow.loopback import is_loopback
from dropflow.rest.manager_records import NodeInfo
from dropflow.rest.session_records import SubmitQuery
from dropflow.rest.submission_note import note_options
from managers.composite.assignment import assign
from managers.deployment import Deployment, Place
from managers.recovery.records import FEWEST_VOTERS

__all__ = ["plan_deployment", "usable_witness"]


def plan_deployment(
    graph: PhysicalGraph,
    options: SubmitQuery,
    nodes: Sequence[NodeInfo],
    *,
    clock: Clock,
    after: int = 0,
    witness: Place | None = None,
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

    Raises
    ------
    UsageError
        The name of the session cannot be used.
    BadGraphError, LinkError
        See `managers.composite.assignment.assign`.
    """
    if options.session and not is_session_name(options.session):
        raise UsageError(f"{options.session!r} cannot be the name of a session", hint=SESSION_NAME_HINT)
    assignment = assign(graph, nodes, anew=options.anew)
    placed = note_software(note_options(replace(graph, places=assignment.places), options))
    used = sorted({placed.places[part] for part in np.unique(placed.part).tolist()})
    replicas = max([options.replicas, 2 if options.protect else 1, *map(replicas_of, graph.templates)])
    by_name = {node.name: node for node in nodes}
    witness = usable_witness(nodes, witness)
    members = [*used, *_standby(used, nodes, replicas, has_witness=witness is not None)]
    witnesses = () if witness is None else (witness,)
    survives = len(members) + len(witnesses) >= FEWEST_VOTERS
    notes = [assignment.note, _shortage(replicas, len(members), survives=survives)]
    return Deployment(
        session=options.session or dated_session_name(graph.name, clock.now()),
        epoch=max(int(clock.now() * 1e6), after + 1),
        graph=graph.name,
        drops=graph.drops,
        created=clock.now(),
        places=tuple(Place(node, by_name[node].links, by_name[node].incarnation) for node in members),
        witnesses=witnesses,
        nodes=tuple(members),
        check=options.check,
        infrastructure_retries=options.infrastructure_retries,
        until=options.until,
        replicas=options.replicas,
        protect=options.protect,
        memory_limit=options.memory_limit,
        request_id=options.request_id,
        notes=tuple(note for note in notes if note),
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
