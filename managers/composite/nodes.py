"""The nodes below a composite, as its children reported them."""

from collections.abc import Iterable

import msgspec

from dropflow.rest.manager_records import NodeInfo, Role
from managers.composite.children import DRAINED, ChildView

__all__ = ["children_by_node", "nodes_of"]


def nodes_of(children: Iterable[ChildView], *, role: Role) -> tuple[NodeInfo, ...]:
    """Return all nodes below, sorted by name; none is in a better state than the child through which it is reached.

    Parameters
    ----------
    children : iterable of ChildView
        A child that is a node and never answered is a node whose name is its address.
    role : str
        Role of the composite: a master adds the island to which each node belongs.
    """
    found: dict[str, NodeInfo] = {}
    for view in children:
        if view.is_unfit:
            continue
        reported = view.nodes or ((_node_without_answer(view),) if view.role == "node" else ())
        for node in reported:
            known = found.get(node.name)
            seen = _seen_through(node, view, role)
            if known is None or (known.state != "alive" and seen.state == "alive"):
                found[node.name] = seen
    return tuple(sorted(found.values(), key=lambda node: node.name))


def children_by_node(children: Iterable[ChildView]) -> dict[str, ChildView]:
    """Return the child through which each node is reached, by name. A child that is asked comes first."""
    found: dict[str, ChildView] = {}
    for view in sorted(children, key=lambda view: not view.is_asked):
        for node in view.nodes:
            found.setdefault(node.name, view)
    return found


def _node_without_answer(view: ChildView) -> NodeInfo:
    return NodeInfo(name=view.name, url=view.url, state=view.state, text=view.text)


def _seen_through(node: NodeInfo, view: ChildView, role: Role) -> NodeInfo:
    island = view.name if role == "master" and view.role == "island" else node.island
    if view.state == "alive":
        return msgspec.structs.replace(node, island=island)
    if view.is_drained:
        return msgspec.structs.replace(node, island=island, state="drained", text=DRAINED)
    if view.role == "island":
        # The island does not answer. Its nodes may be alive, but cannot be deployed to through it.
        state, text = ("suspect" if node.state == "alive" else node.state), f"island {view.name} {view.text}"
    else:
        state, text = view.state, view.text
    return msgspec.structs.replace(node, island=island, state=state, text=text)
