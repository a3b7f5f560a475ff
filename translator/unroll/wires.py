"""Wires: the links of a logical graph between units, which have instances.

Links may end on a gather or a group-by, which have no drops. Here every end becomes a unit: an application, a data
node, or a node that the translator adds (the data of a group, the copying application of a gather without one).
"""

from collections.abc import Iterator
from math import prod

import msgspec

from dropflow.graph.templates import Kind, Template
from translator.logical import LogicalLink, LogicalNode, NodeKind
from translator.problem_codes import problem
from translator.unroll.group_bys import groupby_joint
from translator.unroll.layout import Layout
from translator.unroll.levels import Findings, Levels, is_on
from translator.unroll.node_template import COPY, GROUP, MEMORY, template_of


class Unit(msgspec.Struct, frozen=True):
    """A node with instances.

    Attributes
    ----------
    template : Template
        Template of its instances.
    levels : tuple of Level
        Its index space.
    node : str
        Id of its logical node.
    """

    template: Template
    levels: Levels
    node: str

    @property
    def is_app(self) -> bool:
        """Whether its drops are applications."""
        return self.template.kind is Kind.APP


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A link between two units.

    Attributes
    ----------
    source, target : str
        Ids of the units.
    source_port, target_port : str
        Names of the ports.
    aware, closes : bool
        Whether the link is loop-aware, and whether it closes a loop.
    streaming : bool
        Whether the consumer reads the data while they are written.
    event : bool
        Whether both ports carry events only.
    entry : str
        Id of the gather or group-by that the wire enters; empty for none.
    once : tuple of str
        Ids of loops that the wire enters only in the first iteration, because a carry ends on the same port.
    feedback : str
        Id of the gather from which the wire feeds back to the scatter that it gathers; empty for none.
    pointer : str
        JSON pointer of the link.
    """

    source: str
    target: str
    source_port: str = ""
    target_port: str = ""
    aware: bool = False
    closes: bool = False
    streaming: bool = False
    event: bool = False
    entry: str = ""
    once: tuple[str, ...] = ()
    feedback: str = ""
    pointer: str = ""


def group_data(construct: str) -> str:
    """Return the id of the unit with the data of a group-by."""
    return f"{construct}-grp-data"


def list_units(layout: Layout, findings: Findings) -> dict[str, Unit]:
    """Return all units by id, in the order of the file."""
    units: dict[str, Unit] = {}
    owners = {app: construct for construct, app in layout.collector.items()}
    for node in layout.graph.nodes:
        if node.kind in (NodeKind.DATA, NodeKind.APP):
            levels = layout.levels_of(node.id)
            units[node.id] = Unit(template_of(node, levels, findings), levels, node.id)
            owner = owners.get(node.id)
            if owner is not None and layout.graph.by_id[owner].category == "GroupBy":
                units[group_data(owner)] = _group_data(layout, layout.graph.by_id[owner])
        elif node.kind is NodeKind.CONSTRUCT and node.id not in layout.collector:
            if node.category == "GroupBy":
                template = template_of(node, layout.content[node.id], findings)
                template = msgspec.structs.replace(template, kind=Kind.APP, component=GROUP, weight=1.0)
                units[node.id] = Unit(template, layout.content[node.id], node.id)
                units[group_data(node.id)] = _group_data(layout, node)
            elif node.category == "Gather" and _needs_collector(layout, node.id):
                units[node.id] = _collector(layout, node)
    return units


def _group_data(layout: Layout, node: LogicalNode) -> Unit:
    """Return the unit for the data of groups, with the volume of a whole group."""
    levels = layout.content[node.id]
    entries = layout.entries.get(node.id, [])
    volume = 1.0
    for link in entries[:1]:
        discarded: Findings = []
        inputs, context = layout.levels_of(link.source), layout.context(node.id)
        joint = groupby_joint(inputs, levels, position=len(context), aware=link.loop_aware, options=layout.options)
        volume = template_of(layout.graph.by_id[link.source], (), discarded).weight
        volume *= prod(inputs[level].size for level in joint.left)
    template = Template(
        key=group_data(node.key or node.id),
        name="grpdata",
        kind=Kind.DATA,
        component=MEMORY,
        category="Memory",
        axes=tuple(level.axis for level in levels),
        weight=volume,
        artificial=True,
        origin=node.id,
    )
    return Unit(template, levels, node.id)


def _needs_collector(layout: Layout, gather: str) -> bool:
    """Return whether a gather without application passes its inputs on to data, inside or outside."""
    if gather in layout.sources:
        return True
    by_id = layout.graph.by_id
    return gather in layout.entries and any(by_id[child].kind is NodeKind.DATA for child in starts(layout, gather))


def _collector(layout: Layout, node: LogicalNode) -> Unit:
    levels = layout.content[node.id]
    template = Template(
        key=node.key or node.id,
        name=node.name,
        kind=Kind.APP,
        component=COPY,
        category="DALiuGEApp",
        axes=tuple(level.axis for level in levels),
        artificial=True,
        origin=node.id,
    )
    return Unit(template, levels, node.id)


def starts(layout: Layout, construct: str) -> list[str]:
    """Return the ids of the first nodes in a construct: those marked `group_start`, else those without inputs."""
    children = layout.children.get(construct, [])
    marked = [node.id for node in children if is_on(node.value("group_start"))]
    return marked or [node.id for node in children if node.id not in layout.fed]


def draw_wires(layout: Layout, units: dict[str, Unit], findings: Findings) -> list[Wire]:
    """Return the wires of all links in the order of the file, then those from groups to their content."""
    wires: dict[tuple[str, str, str, str, str], Wire] = {}
    bare: dict[str, int] = {}
    for link in layout.graph.links:
        if link.source not in layout.home or link.target not in layout.home:
            continue  # `validate` reports ends that are not nodes as LG003
        for wire in _wires_of(layout, units, link, bare, findings):
            key = (wire.source, wire.target, wire.source_port, wire.target_port, wire.entry)
            if key in wires:
                text = f"the edge from {_named(units, wire)} appears more than once; one is kept"
                findings.append(problem("LG042", text, where=link.pointer))
            else:
                wires[key] = wire
    for construct, number in bare.items():
        node = layout.graph.by_id[construct]
        edges = "an edge ends" if number == 1 else f"{number} edges end"
        text = f"{edges} on {node.category} {node.name!r}, which has no application"
        hint = "give the construct an application, or link to a node inside it"
        findings.append(problem("LG032", text, where=node.pointer, hint=hint))
    drawn = {(wire.source, wire.target) for wire in wires.values()}
    return [*wires.values(), *(wire for wire in _group_wires(layout, units) if (wire.source, wire.target) not in drawn)]


def _named(units: dict[str, Unit], wire: Wire) -> str:
    return f"{units[wire.source].template.name!r} to {units[wire.target].template.name!r}"


def _wires_of(
    layout: Layout, units: dict[str, Unit], link: LogicalLink, bare: dict[str, int], findings: Findings
) -> Iterator[Wire]:
    """Yield the wires of one link: one wire, or for a gather without application one to each of its first nodes.

    Ends on other constructs without application are counted in `bare`.
    """
    entry = layout.entered(link)
    targets = [link.target]
    if entry == link.target and entry not in units:
        targets = starts(layout, entry)
        if not targets:
            text = f"gather {layout.graph.by_id[entry].name!r} has an input but no content"
            findings.append(problem("LG072", text, where=link.pointer, hint="give it an application"))
    for target in targets:
        source = _handing_on(layout, units, link.source, target)
        missing = [end for end in (source, target) if end not in units]
        for end in missing:
            bare[end] = bare.get(end, 0) + 1
        if not missing:
            yield _wire(layout, link, source, target, entry or "")


def _handing_on(layout: Layout, units: dict[str, Unit], source: str, target: str) -> str:
    """Return the unit at the source of a link: for a group-by, its data if the target is an application."""
    owner = layout.owner(source)
    if owner is None or group_data(owner) not in units:
        return source
    collector = layout.collector.get(owner, owner)
    if source not in (owner, collector):
        return source
    return group_data(owner) if target in units and units[target].is_app else collector


def _wire(layout: Layout, link: LogicalLink, source: str, target: str, entry: str) -> Wire:
    ends = layout.graph.by_id[link.source], layout.graph.by_id[link.target]
    ports = ends[0].by_id.get(link.source_port), ends[1].by_id.get(link.target_port)
    return Wire(
        source=source,
        target=target,
        source_port="" if ports[0] is None else ports[0].name,
        target_port="" if ports[1] is None else ports[1].name,
        aware=link.loop_aware,
        closes=link.closes_loop,
        streaming=link.streaming or (ends[0].kind is NodeKind.DATA and is_on(ends[0].value("streaming"))),
        event=all(port is not None and port.type == "Event" for port in ports),
        entry=entry,
        pointer=link.pointer,
    )


def _group_wires(layout: Layout, units: dict[str, Unit]) -> Iterator[Wire]:
    """Yield wires from the application of each group-by to its data, and from there to its first nodes."""
    for construct in layout.content:
        data = group_data(construct)
        if data not in units:
            continue
        collector = layout.collector.get(construct, construct)
        where = layout.graph.by_id[construct].pointer
        yield Wire(source=collector, target=data, pointer=where)
        for child in starts(layout, construct):
            source = data if units[child].is_app else collector
            yield Wire(source=source, target=child, pointer=where)
