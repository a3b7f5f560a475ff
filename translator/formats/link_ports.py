"""Ids of the ports of links, in files that have their names."""

from collections.abc import Mapping

from msgspec.structs import replace

from translator.logical import LogicalLink, LogicalNode

__all__ = ["name_ports"]


def name_ports(link: LogicalLink, nodes: Mapping[str, LogicalNode]) -> LogicalLink:
    """Return the link with ids of its ports instead of their names, which old files have."""
    source = _port(nodes.get(link.source), link.source_port, "OutputPort")
    target = _port(nodes.get(link.target), link.target_port, "InputPort")
    if (source, target) == (link.source_port, link.target_port):
        return link
    return replace(link, source_port=source, target_port=target)


def _port(node: LogicalNode | None, port: str, usage: str) -> str:
    if node is None or not port or port in node.by_id:
        return port
    named = [field for field in node.fields if field.name == port and field.usage in (usage, "InputOutput")]
    return named[0].id if len(named) == 1 else port
