"""The construct around every logical node, and the levels of its index space.

Most constructs have a field with the number of repetitions. The levels of a gather or group-by depend on the levels of
their inputs, so constructs are processed in the order of these dependencies.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import msgspec

from translator.logical import LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.options import UnrollOptions
from translator.problem_codes import problem
from translator.unroll.gathers import Mkn, chunks, find_applications, mkn_levels
from translator.unroll.group_bys import group_keys
from translator.unroll.levels import (
    EXCLUSIVE,
    GATHER,
    GROUPBY,
    LOOP,
    MPI,
    SCATTER,
    SERVICE,
    SUBGRAPH,
    Findings,
    Level,
    Levels,
    is_on,
    multiplicity,
)
from translator.unroll.link_maps import zip_with

COLLECTING = ("Gather", "GroupBy")
"""Constructs whose first application is inside them and collects their inputs."""
_REPEATING = {"Scatter": (SCATTER, "num_of_copies"), "Loop": (LOOP, "num_of_iter")}
_TRANSPARENT = {"SubGraph": SUBGRAPH, "ExclusiveForceNode": EXCLUSIVE, "Service": SUBGRAPH}


# Gathers with an exit: in old graphs the content of a gather may have links back to the gather's own application.
#
# They mean a second instance of that application after the gather: it reads what the content wrote, and the links that
# leave the gather start there.


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


@dataclass
class Layout:
    """The constructs and levels of the nodes of a logical graph; filled by `lay_out`, only read afterwards.

    Attributes
    ----------
    graph : LogicalGraph
        The graph, with exits of gathers added.
    options : UnrollOptions
        Options of unrolling.
    home : dict
        Id of the construct around a node, by node id; None at the top level. The applications of a construct are beside
        it, except for the first one of a gather or group-by, which is inside.
    collector : dict
        Id of the collecting application of a gather or group-by, by construct id.
    content : dict
        Levels of the content of a construct, by construct id.
    ranks : dict
        The level of the ranks of an MPI application, by node id.
    mkn : Mkn
        The applications and outputs of MKN constructs.
    entries : dict
        Links that enter a gather or group-by, by construct id, in the order of the file.
    """

    graph: LogicalGraph
    options: UnrollOptions
    home: dict[str, str | None] = field(default_factory=dict)
    collector: dict[str, str] = field(default_factory=dict)
    content: dict[str, Levels] = field(default_factory=dict)
    ranks: dict[str, Levels] = field(default_factory=dict)
    mkn: Mkn = field(default_factory=Mkn)
    entries: dict[str, list[LogicalLink]] = field(default_factory=dict)

    def around(self, node: str) -> Iterator[str]:
        """Ids of the constructs around a node, innermost first."""
        inner = self.home[node]
        while inner is not None:
            yield inner
            inner = self.home[inner]

    @cached_property
    def children(self) -> dict[str, list[LogicalNode]]:
        """Data and application nodes directly in a construct, by its id, without its own application."""
        children: dict[str, list[LogicalNode]] = {}
        collectors = set(self.collector.values())
        for node in self.graph.nodes:
            home = self.home[node.id]
            if home is not None and node.kind in (NodeKind.DATA, NodeKind.APP) and node.id not in collectors:
                children.setdefault(home, []).append(node)
        return children

    @cached_property
    def fed(self) -> set[str]:
        """Ids of the nodes that some link ends on."""
        return {link.target for link in self.graph.links}

    @cached_property
    def sources(self) -> set[str]:
        """Ids of the nodes that some link starts from."""
        return {link.source for link in self.graph.links}

    def context(self, construct: str) -> Levels:
        """Return the levels of the context of a construct."""
        return self.within(self.home[construct])

    def owner(self, node: str) -> str | None:
        """Return the construct that a node is, or that it is an application of; None for others."""
        logical_node = self.graph.by_id[node]
        if logical_node.kind is NodeKind.CONSTRUCT:
            return node
        owner = self.graph.by_id.get(logical_node.embedded_in or "")
        return owner.id if owner is not None and owner.kind is NodeKind.CONSTRUCT else None

    def within(self, construct: str | None) -> Levels:
        """Return the levels of the content of a construct; none at the top level."""
        return () if construct is None else self.content[construct]

    def entered(self, link: LogicalLink) -> str | None:
        """Return the id of the gather, group-by or MKN that a link enters, or None for an ordinary link."""
        construct = self.mkn.inputs.get(link.target)
        if construct is not None:
            return None if construct in self.around(link.source) else construct
        construct = self.owner(link.target)
        if construct is None or self.graph.by_id[construct].category not in COLLECTING:
            return None
        if link.target not in (construct, self.collector.get(construct)):
            return None
        return None if link.source == construct or construct in self.around(link.source) else construct

    def levels_of(self, node: str) -> Levels:
        """Return the levels of a data or application node; for a construct, those of its content."""
        if node in self.mkn.apps:
            return self.content[self.mkn.apps[node]][:-1]
        if node in self.mkn.outputs:
            construct = self.mkn.outputs[node]
            return (*self.content[construct][:-1], *self.mkn.copies[construct])
        return self.content[node] if node in self.content else self.within(self.home[node]) + self.ranks.get(node, ())


def lay_out(graph: LogicalGraph, options: UnrollOptions, findings: Findings) -> Layout:
    """Find the construct and the levels of every node.

    Parameters
    ----------
    graph : LogicalGraph
        The graph, with its values filled in.
    options : UnrollOptions
        Options of unrolling.
    findings : list of Problem
        LG005, LG020, LG021, LG032, LG050, LG072 and LG080 to LG084 are added.
    """
    layout = Layout(graph, options)
    _place(layout, findings)
    graph = with_exits(graph, layout.collector, lambda node, construct: construct in layout.around(node))
    if graph is not layout.graph:
        layout = Layout(graph, options)
        _place(layout, [])
    find_applications(layout.mkn, graph, layout.home, findings)
    for link in graph.links:
        if link.source in layout.home and link.target in layout.home:
            construct = layout.entered(link)
            if construct is not None:
                layout.entries.setdefault(construct, []).append(link)
    for node in graph.nodes:
        if node.category == "Mpi":
            layout.ranks[node.id] = (_level(node, MPI, multiplicity(node, "num_of_procs", findings)),)
    _place_services(layout)
    for construct in _order(layout, findings):
        node = graph.by_id[construct]
        layout.content[construct] = layout.context(construct) + _own(layout, node, findings)
    return layout


def _place_services(layout: Layout) -> None:
    """Give the input applications of services a level of their own, which keeps their start and stop on one node."""
    for construct, apps in layout.graph.embedded.items():
        owner = layout.graph.by_id.get(construct)
        if owner is not None and owner.category == "Service" and owner.kind is NodeKind.CONSTRUCT:
            own = (Level(owner.id, owner.name, SERVICE, 1, 1),)
            layout.ranks.update((app.id, own) for app in apps if app.role is Role.INPUT)


def _place(layout: Layout, findings: Findings) -> None:
    """Find the construct around every node, ignoring parents that are not constructs or form a cycle."""
    graph = layout.graph
    for construct, apps in graph.embedded.items():
        owner = graph.by_id.get(construct)
        if owner is not None and owner.kind is NodeKind.CONSTRUCT and owner.category in COLLECTING:
            layout.collector[construct] = apps[0].id
    for node in graph.nodes:
        parent = node.parent
        owner_id = None if node.kind is NodeKind.CONSTRUCT else layout.owner(node.id)
        if owner_id is not None:
            parent = owner_id if layout.collector.get(owner_id) == node.id else graph.by_id[owner_id].parent
        known = parent is not None and parent in graph.by_id and graph.by_id[parent].kind is NodeKind.CONSTRUCT
        layout.home[node.id] = parent if known else None
    for node in graph.nodes:
        _cut_circle(layout, node, findings)


def _cut_circle(layout: Layout, node: LogicalNode, findings: Findings) -> None:
    seen: set[str] = set()
    inner: str | None = node.id
    while inner is not None and inner not in seen:
        seen.add(inner)
        inner = layout.home[inner]
    if inner is not None:
        layout.home[inner] = None
        name = layout.graph.by_id[inner].name
        text = f"construct {name!r} is inside itself"
        findings.append(problem("LG005", text, where=layout.graph.by_id[inner].pointer))


def _order(layout: Layout, findings: Findings) -> list[str]:
    """Return the ids of the constructs, each after the one around it and those around its inputs."""
    constructs = [node for node in layout.graph.nodes if node.kind is NodeKind.CONSTRUCT]
    needs: dict[str, set[str]] = {}
    for node in constructs:
        home = layout.home[node.id]
        needs[node.id] = set() if home is None else {home}
        for link in layout.entries.get(node.id, ()):
            source = layout.graph.by_id[link.source]
            needs[node.id].update([source.id] if source.kind is NodeKind.CONSTRUCT else [])
            needs[node.id].update(list(layout.around(source.id))[:1])
            needs[node.id].update(layout.mkn.owners(source.id))
    while True:
        try:
            return list(TopologicalSorter(needs).static_order())
        except CycleError as error:
            circle = [layout.graph.by_id[construct] for construct in error.args[1]]
            names = " -> ".join(repr(node.name) for node in reversed(circle))
            text = f"the sizes of these constructs depend on each other in a cycle: {names}"
            findings.append(problem("LG050", text, where=circle[0].pointer))
            for node in circle:
                layout.entries.pop(node.id, None)
                home = layout.home[node.id]
                needs[node.id] = set() if home is None else {home}


def _own(layout: Layout, node: LogicalNode, findings: Findings) -> Levels:
    """Return the levels that a construct adds to those of its context."""
    if node.category in _REPEATING:
        kind, name = _REPEATING[node.category]
        return (_level(node, kind, multiplicity(node, name, findings), zip_with(layout.graph, node, findings)),)
    if node.category in _TRANSPARENT:
        return (_level(node, _TRANSPARENT[node.category], 1),)
    context = layout.context(node.id)
    sources = [layout.levels_of(link.source) for link in layout.entries.get(node.id, ())]
    if node.category == "MKN":
        takes = node.id in layout.mkn.inputs.values()
        return mkn_levels(node, chunks(node, context, sources, layout.options, findings) if takes else 1, findings)
    if node.category in COLLECTING:
        if node.category == "Gather":
            level = _level(node, GATHER, chunks(node, context, sources, layout.options, findings))
            return (msgspec.structs.replace(level, is_list=is_on(node.value("always_list", default=False))),)
        keys = group_keys(node, context, sources, findings)
        return tuple(
            Level(node.id, node.name, GROUPBY, key.size, place, key.id, (node.name, node.id, *key.group_keys))
            for place, key in enumerate(keys)
        )
    findings.append(
        problem(
            "LG032",
            f"{node.category} {node.name!r} cannot be translated",
            where=node.pointer,
            hint="replace it by a construct of another kind",
        )
    )
    return (_level(node, SUBGRAPH, 1),)


def _level(node: LogicalNode, kind: str, size: int, zipped: tuple[str, ...] = ()) -> Level:
    return Level(node.id, node.name, kind, size, group_keys=(node.name, node.id), zip_with=zipped)
