"""The nodes below a composite, as its children told of them."""

from collections.abc import Iterable

import msgspec

from dropflow.rest.schema import NodeInfo, Role
from managers.composite.children import ChildView

__all__ = ["children_by_node", "nodes_of"]


def nodes_of(children: Iterable[ChildView], *, role: Role) -> tuple[NodeInfo, ...]:
    """All nodes below, sorted by name; each is no better off than the child by which it is reached.

    Parameters
    ----------
    children : iterable of ChildView
        A child that is a node and never answered is a node whose name is its address.
    role : str
        Of the composite: a master says which island each node belongs to.
    """
    found: dict[str, NodeInfo] = {}
    for view in children:
        if view.is_unfit:
            continue
        told = view.nodes or ((_never_heard(view),) if view.role == "node" else ())
        for node in told:
            known = found.get(node.name)
            seen = _seen_through(node, view, role)
            if known is None or (known.state != "alive" and seen.state == "alive"):
                found[node.name] = seen
    return tuple(sorted(found.values(), key=lambda node: node.name))


def children_by_node(children: Iterable[ChildView]) -> dict[str, ChildView]:
    """The child by which each node is reached, by the node's name: the first that is asked."""
    found: dict[str, ChildView] = {}
    for view in sorted(children, key=lambda view: not view.is_asked):
        for node in view.nodes:
            found.setdefault(node.name, view)
    return found


def _never_heard(view: ChildView) -> NodeInfo:
    return NodeInfo(name=view.name, url=view.url, state=view.state, text=view.text)


def _seen_through(node: NodeInfo, view: ChildView, role: Role) -> NodeInfo:
    island = view.name if role == "master" and view.role == "island" else node.island
    if view.state == "alive":
        return msgspec.structs.replace(node, island=island)
    if view.role == "island":
        # The island does not answer. Its nodes may be alive, but cannot be deployed to through it.
        state, text = ("suspect" if node.state == "alive" else node.state), f"island {view.name} {view.text}"
    else:
        state, text = view.state, view.text
    return msgspec.structs.replace(node, island=island, state=state, text=text)
