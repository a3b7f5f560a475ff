"""Gathers with an exit: in old graphs the content of a gather may have links back to the gather's own application.

They mean a second instance of that application after the gather: it reads what the content wrote, and the links that
leave the gather start there.
"""

from collections.abc import Callable

import msgspec

from translator.logical import LogicalGraph, LogicalLink, LogicalNode, Role

__all__ = ["with_exits"]


def with_exits(graph: LogicalGraph, collectors: dict[str, str], inside: Callable[[str, str], bool]) -> LogicalGraph:
    """Return the graph with an exit application after every gather whose content has links back to its application.

    Parameters
    ----------
    graph : LogicalGraph
        The graph.
    collectors : dict
        Ids of collecting applications by the ids of their constructs.
    inside : callable
        Returns whether a node is in a construct, by their ids.
    """
    gathers = {
        app: construct
        for construct, app in collectors.items()
        if graph.by_id[construct].category == "Gather" and len(graph.embedded[construct]) == 1
    }
    known = [link for link in graph.links if link.source in graph.by_id and link.target in graph.by_id]
    back = {link.target for link in known if link.target in gathers and inside(link.source, gathers[link.target])}
    back -= {link.source for link in known if link.source == link.target}
    if not back:
        return graph

    def moved(link: LogicalLink) -> LogicalLink:
        if link.target in back and link.source in graph.by_id and inside(link.source, gathers[link.target]):
            return msgspec.structs.replace(link, target=_exit(link.target))
        if link.source in back and link.target in graph.by_id and not inside(link.target, gathers[link.source]):
            return msgspec.structs.replace(link, source=_exit(link.source))
        return link

    nodes: list[LogicalNode] = []
    for node in graph.nodes:
        nodes.append(node)
        if node.id in back:
            nodes.append(
                msgspec.structs.replace(
                    node,
                    id=_exit(node.id),
                    key=_exit(node.key or node.id),
                    parent=graph.by_id[gathers[node.id]].parent,
                    embedded_in=None,
                    role=Role.NONE,
                )
            )
    return msgspec.structs.replace(graph, nodes=tuple(nodes), links=tuple(map(moved, graph.links)))


def _exit(name: str) -> str:
    return f"{name}-exit"
