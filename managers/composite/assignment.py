"""Assignment of the parts of a graph to nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import urlsplit

from dropflow.errors import BadGraphError, LinkError
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.manager_records import NodeInfo

__all__ = ["Assignment", "assign"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN = 5


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
    found = {place: _matching(place, nodes) for place in used}
    unknown = [place for place in used if not found[place]]
    if unknown == used or (unknown and len(nodes) == 1):
        there = "all are on" if len(set(spread)) == 1 else f"the {graph.parts} parts are spread over"
        text = f"the graph names unknown nodes ({_listed([repr(place) for place in unknown])})"
        return Assignment(spread, f"{text}: {there} {_listed(sorted(set(spread)))}")
    wrong = [text for place in used if (text := _wrong(place, found[place], alive))]
    if wrong:
        more = f" (and {len(wrong) - _SHOWN} more)" if len(wrong) > _SHOWN else ""
        raise BadGraphError(
            f"the graph names nodes that cannot be used: {'; '.join(wrong[:_SHOWN])}{more}",
            where=graph.name,
            hint=f"submit it with --anew to spread it over the nodes that are alive: {_listed(alive)}",
        )
    return Assignment(tuple(found[place][0].name for place in graph.places))


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


def _wrong(place: str, found: Sequence[NodeInfo], alive: Sequence[str]) -> str:
    if not found:
        close = get_close_matches(place, alive, n=1)
        return f"{place!r} is unknown" + (f", did it mean {close[0]!r}?" if close else "")
    if len(found) > 1:
        return f"{place!r} may be any of {_listed([node.name for node in found])}"
    node = found[0]
    if node.state != "alive":
        return f"{place!r} is {node.state}" + (f": {node.text}" if node.text else "")
    return ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
