"""Loops: the wires that carry data from one iteration to the next, and feedback to a scatter.

A closes-loop edge is a carry. So is an unmarked edge from the end to the start of a loop that would close a cycle
within an iteration. A loop without such edges is closed from its end components to its start components, as in DALiuGE.
Several of these components are paired by the names or types of their ports, if these are unique.

A port with a carry gets data from outside the loop in the first iteration, and from the carry in later ones.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import rustworkx

from dropflow.graph.templates import Link
from translator.logical import Field, LogicalNode, NodeKind
from translator.options import UnrollOptions
from translator.problem_codes import problem
from translator.unroll.gathers import gathered_levels, width
from translator.unroll.layout import Layout
from translator.unroll.levels import GATHER, LOOP, Findings, Level, Levels, is_on, part, strides
from translator.unroll.link_maps import IndexCounter, IndexMap, carry_level, join
from translator.unroll.wires import Unit, Wire

_IN, _OUT = ("InputPort", "InputOutput"), ("OutputPort", "InputOutput")
_ANY = ("", "Object", "Unknown")


def close_loops(layout: Layout, units: dict[str, Unit], wires: Sequence[Wire], findings: Findings) -> list[Wire]:
    """Return the wires with `closes` set on carries, `once` set on entries, and carries that are not drawn added.

    Parameters
    ----------
    layout : Layout
        Constructs and levels of the nodes.
    units : dict of Unit
        The ends of wires.
    wires : sequence of Wire
        The wires of the links in the file.
    findings : list of Problem
        LG060 to LG063 are added.
    """
    marked = [_checked(units, wire, findings) for wire in wires]
    component = _components(marked)
    closed = [
        wire
        if wire.closes or component.get(wire.source) != component.get(wire.target)
        else _unmarked(layout, units, wire, findings)
        for wire in marked
    ]
    loops = {_loop_of(units, wire) for wire in closed if wire.closes}
    for node in layout.graph.nodes:
        if node.kind is NodeKind.CONSTRUCT and node.category == "Loop" and node.id not in loops:
            closed += _synthesised(layout, node, findings)
    return _entered_once(layout.options, units, closed, findings)


def cycles(units: dict[str, Unit], wires: Iterable[Wire]) -> list[list[str]]:
    """Return the ids of the units of every cycle without carry or feedback, from the first unit in the file."""
    order = {unit: position for position, unit in enumerate(units)}
    graph, _ = _digraph([wire for wire in wires if not (wire.closes or wire.feedback)])
    circles: list[list[str]] = []
    for group in rustworkx.strongly_connected_components(graph):
        if len(group) == 1 and not graph.has_edge(group[0], group[0]):
            continue
        part = graph.subgraph(sorted(group))
        circle = [part[edge[0]] for edge in rustworkx.digraph_find_cycle(part)]
        if circle:
            lead = min(range(len(circle)), key=lambda place: order[circle[place]])
            circles.append([*circle[lead:], *circle[:lead]])
    return sorted(circles, key=lambda names: order[names[0]])


def never_waits(links: Sequence[Link], maps: Sequence[IndexMap]) -> bool:
    """Return whether it is certain, without the drops, that none of them waits for itself through carries and feedback.

    A cycle of links is harmless in a loop in which all of them stay: each of its links leads to the same iteration or
    to the next one. Without the links to the next one there is no cycle, or again a harmless one.
    """
    return _in_order([(link.source, link.target, edges) for link, edges in zip(links, maps, strict=True)])


def _in_order(links: list[tuple[int, int, IndexMap]]) -> bool:
    graph: rustworkx.PyDiGraph[int, None] = rustworkx.PyDiGraph(multigraph=False)
    rows: dict[int, int] = {}
    for source, target, _ in links:
        for end in (source, target):
            if end not in rows:
                rows[end] = graph.add_node(end)
        graph.add_edge(rows[source], rows[target], None)
    groups = rustworkx.strongly_connected_components(graph)
    group_of = {graph[row]: number for number, group in enumerate(groups) for row in group}
    inside: dict[int, list[tuple[int, int, IndexMap]]] = {}
    for source, target, edges in links:
        if group_of[source] == group_of[target] and edges.edges:
            inside.setdefault(group_of[source], []).append((source, target, edges))
    return all(_carried(group) for group in inside.values())


def _carried(links: list[tuple[int, int, IndexMap]]) -> bool:
    """Return whether the links, between nodes that reach each other, stay in a loop with one of them as its carry."""
    steps = [_steps(edges) for _, _, edges in links]
    for loop in set.intersection(*(set(step) for step in steps)):
        rest = [link for link, step in zip(links, steps, strict=True) if not step[loop]]
        if len(rest) < len(links):
            return _in_order(rest)
    return len(links) == 0


def _steps(edges: IndexMap) -> dict[str, int]:
    """Return the loops that a link stays in, and by how many iterations it leads on in each."""
    return {
        counter.level.construct: counter.level.size - counter.size
        for counter in edges.counters
        if counter.level.kind == LOOP and counter.source and counter.target and not counter.flat
    }


def _checked(units: dict[str, Unit], wire: Wire, findings: Findings) -> Wire:
    """Return the wire, without `closes` if it cannot close a loop."""
    if not wire.closes or (_loop_of(units, wire) is not None and not wire.entry):
        return wire
    names = f"{units[wire.source].template.name!r} to {units[wire.target].template.name!r}"
    if wire.entry:
        why, hint = "enters a gather or a group-by", "end the edge on the node that the next iteration starts with"
    else:
        why, hint = "is in no loop", "put both ends into one loop"
    text = f"the closes-loop edge from {names} {why}: it is used as an ordinary edge"
    findings.append(problem("LG062", text, where=wire.pointer, hint=hint))
    return msgspec.structs.replace(wire, closes=False)


def _entered_once(
    options: UnrollOptions, units: dict[str, Unit], wires: Sequence[Wire], findings: Findings
) -> list[Wire]:
    """Return the wires, with `once` set on those that enter a loop at a port with a carry of that loop."""
    carried: dict[tuple[str, str], set[str | None]] = {}
    for wire in wires:
        if wire.closes and wire.target_port:
            carried.setdefault((wire.target, wire.target_port), set()).add(_loop_of(units, wire))
    marked: list[Wire] = []
    for wire in wires:
        loops = carried.get((wire.target, wire.target_port), set())
        entered = _repeated(options, units, wire, loops) if loops else []
        if entered:
            names = f"{units[wire.source].template.name!r} to {units[wire.target].template.name!r}"
            inner = " and ".join(repr(level.name) for level in entered)
            text = (
                f"the edge from {names} enters loop {inner} at port {wire.target_port!r}, which also gets data from "
                "the previous iteration: the edge is used for the first iteration only"
            )
            hint = "mark the edge as loop-aware, or use another port if every iteration reads it"
            findings.append(problem("LG063", text, where=wire.pointer, hint=hint))
        marked.append(msgspec.structs.replace(wire, once=tuple(level.construct for level in entered)))
    return marked


def _repeated(
    options: UnrollOptions, units: dict[str, Unit], wire: Wire, loops: AbstractSet[str | None]
) -> list[Level]:
    """Return the loops, among these, that an ordinary wire enters in every iteration."""
    target = units[wire.target].levels
    joint = join(units[wire.source].levels, target, aware=wire.aware, options=options)
    if wire.entry or (joint.left and joint.right):
        return []
    return [target[level] for level in joint.right if target[level].construct in loops]


def _loop_of(units: dict[str, Unit], wire: Wire) -> str | None:
    """Return the id of the innermost loop around both ends."""
    level = carry_level(units[wire.source].levels, units[wire.target].levels)
    return None if level is None else units[wire.source].levels[level].construct


def _digraph(wires: Iterable[Wire]) -> tuple["rustworkx.PyDiGraph[str, None]", dict[str, int]]:
    graph: rustworkx.PyDiGraph[str, None] = rustworkx.PyDiGraph(multigraph=False)
    rows: dict[str, int] = {}
    for wire in wires:
        for end in (wire.source, wire.target):
            if end not in rows:
                rows[end] = graph.add_node(end)
        graph.add_edge(rows[wire.source], rows[wire.target], None)
    return graph, rows


def _components(wires: Iterable[Wire]) -> dict[str, int]:
    """Return the strongly connected component of each unit, along wires that are not carries."""
    graph, rows = _digraph([wire for wire in wires if not (wire.closes or wire.feedback)])
    groups = enumerate(rustworkx.strongly_connected_components(graph))
    numbers = {row: number for number, group in groups for row in group}
    return {unit: numbers[row] for unit, row in rows.items()}


def _unmarked(layout: Layout, units: dict[str, Unit], wire: Wire, findings: Findings) -> Wire:
    """Return the wire as a carry if it leads from the end of a loop to its start, both directly in that loop."""
    source, target = (layout.graph.by_id[units[end].node] for end in (wire.source, wire.target))
    loop = _loop_of(units, wire)
    if loop is None or not layout.home[source.id] == layout.home[target.id] == loop:
        return wire
    if not (is_on(source.value("group_end")) and is_on(target.value("group_start"))):
        return wire
    names = f"{source.name!r} to {target.name!r}"
    text = f"the edge from {names} leads back to the start of its loop: it is used as a closes-loop edge"
    findings.append(
        problem("LG061", text, where=wire.pointer, hint='mark the edge as closes-loop ("closesLoop": true)')
    )
    return msgspec.structs.replace(wire, closes=True)


def _synthesised(layout: Layout, loop: LogicalNode, findings: Findings) -> list[Wire]:
    children = layout.children.get(loop.id, [])
    ends = [node for node in children if is_on(node.value("group_end"))]
    starts = [node for node in children if is_on(node.value("group_start"))]
    if not (ends and starts):
        lacking = " and ".join(name for name, nodes in (("group_start", starts), ("group_end", ends)) if not nodes)
        text = f"loop {loop.name!r} has no closes-loop edge and no component with {lacking}"
        marks = "group_start and group_end on its first and last component"
        hint = f'mark an edge as closes-loop ("closesLoop": true), or set {marks}'
        findings.append(problem("LG060", text, where=loop.pointer, hint=hint))
        return []
    return [
        Wire(source=end.id, target=start.id, source_port=out, target_port=into, closes=True, pointer=loop.pointer)
        for end, start, out, into in _pairs(ends, starts)
    ]


def _pairs(ends: list[LogicalNode], starts: list[LogicalNode]) -> list[tuple[LogicalNode, LogicalNode, str, str]]:
    """Pair ends and starts, with their ports: by equal names, else by equal types, else all with all."""
    together = [(end, start) for end in ends for start in starts]
    for matching in (_same_name, _same_type):
        pairs = [(end, start, *ports) for end, start in together if (ports := _ports(end, start, matching)) is not None]
        complete = {end.id for end, *_ in pairs} == {end.id for end in ends}
        if complete and {start.id for _, start, *_ in pairs} == {start.id for start in starts}:
            return pairs
    return [(end, start, *_only_ports(end, start)) for end, start in together]


def _same_name(out: Field, into: Field) -> bool:
    return out.name == into.name


def _same_type(out: Field, into: Field) -> bool:
    return out.type == into.type and out.type not in _ANY


def _ports(end: LogicalNode, start: LogicalNode, matching: Callable[[Field, Field], bool]) -> tuple[str, str] | None:
    outs, ins = _side(end, _OUT), _side(start, _IN)
    return next(((out.name, into.name) for out in outs for into in ins if matching(out, into)), None)


def _only_ports(end: LogicalNode, start: LogicalNode) -> tuple[str, str]:
    """Return the names of ports if there is only one on a side."""
    outs, ins = _side(end, _OUT), _side(start, _IN)
    return (outs[0].name if len(outs) == 1 else "", ins[0].name if len(ins) == 1 else "")


def _side(node: LogicalNode, usages: tuple[str, ...]) -> list[Field]:
    return [field for field in node.fields if field.usage in usages]


# Sequentialised scatters: a gather that feeds the start of the scatter that it gathers.
#
# A link from inside a gather to an application with `group_start`, in the scatter around the input of the gather,
# orders the copies: those of the first chunk run, then those of the second, and so on. With width w, chunk i feeds the
# copies (i + 1) w to (i + 2) w - 1. The first w copies get nothing through the link.


def with_feedback(layout: Layout, units: dict[str, Unit], wires: Iterable[Wire], findings: Findings) -> list[Wire]:
    """Return the wires, with `feedback` set on those from a gather to the start of its scatter.

    Adds LG073 if the gather takes all copies at once.
    """
    marked = []
    for wire in wires:
        gather = "" if wire.entry or wire.closes else _gather_of(layout, units, wire)
        if gather:
            levels = units[wire.source].levels
            if next(level for level in levels if level.construct == gather).size <= 1:
                node = layout.graph.by_id[gather]
                text = (
                    f"gather {node.name!r} takes all its inputs at once, so the edge back to its scatter has no effect"
                )
                hint = "set its num_of_inputs to the number of copies that may run at a time"
                findings.append(problem("LG073", text, where=wire.pointer, hint=hint))
        marked.append(msgspec.structs.replace(wire, feedback=gather) if gather else wire)
    return marked


def _gather_of(layout: Layout, units: dict[str, Unit], wire: Wire) -> str:
    """Return the id of the gather that a wire feeds back; empty for an ordinary wire."""
    source, target = units[wire.source], units[wire.target]
    node = layout.graph.by_id[target.node]
    if node.kind is not NodeKind.APP or not is_on(node.value("group_start")):
        return ""
    level = _leaving(source.levels, target.levels)
    if level is None:
        return ""
    taken = _taken(layout, level.construct)
    return level.construct if _start_of(target.levels, source.levels, taken) is not None else ""


def _leaving(source: Levels, target: Levels) -> Level | None:
    """Return the outermost level that only the source has, if it is that of a gather."""
    rest = part(source, target).left
    return source[rest[0]] if rest and source[rest[0]].kind == GATHER else None


def _taken(layout: Layout, gather: str) -> Levels:
    """Return the levels of its input that a gather counts through: of the first link that has any."""
    context = layout.context(gather)
    level_lists = [
        gathered_levels(layout.levels_of(link.source), context, layout.options)
        for link in layout.entries.get(gather, ())
    ]
    return next((levels for levels in level_lists if levels), ())


def _start_of(target: Levels, source: Levels, taken: Levels) -> int | None:
    """Return the position of the gathered levels in the target, directly inside those that both ends share."""
    rest = part(source, target).right
    inner = [target[position].id for position in rest[: len(taken)]]
    return rest[0] if taken and inner == [level.id for level in taken] else None


def feedback_map(layout: Layout, units: dict[str, Unit], wire: Wire) -> IndexMap:
    """Return the edges of a wire from a gather to the copies after those of each chunk."""
    source, target = units[wire.source].levels, units[wire.target].levels
    taken = _taken(layout, wire.feedback)
    parting = part(source, target)
    out, into = strides(source), strides(target)
    first = parting.right[0]
    last = parting.right[len(taken) - 1]
    copies = 1
    for level in taken:
        copies *= level.size
    at = parting.left[0]
    step = width(layout.graph.by_id[wire.feedback], []) or max(copies, 1)
    counters = [
        IndexCounter(source[level], source[level].size, out[level], into[level]) for level in range(parting.shared)
    ]
    counters += [IndexCounter(source[level], source[level].size, out[level]) for level in parting.left[1:]]
    counters.append(IndexCounter(target[first], max(copies - step, 0), 0, into[last], 1))
    counters += [
        IndexCounter(target[level], target[level].size, 0, into[level]) for level in parting.right[len(taken) :]
    ]
    return IndexMap(
        counters=tuple(counters),
        target_start=min(step, copies) * into[last],
        chunk=source[at],
        width=step,
        chunk_stride=out[at],
        chunk_of_source=True,
    )


def feedback_hint(layout: Layout, source: Levels, target: Levels) -> str:
    """Return how to run the copies of a scatter chunk by chunk; empty if the edge does not come from a gather."""
    level = _leaving(source, target)
    right = [target[position] for position in part(source, target).right]
    if level is None or any(other.kind == LOOP for other in right):
        return ""
    if level.construct not in layout.entries:
        return f"link what {level.label} is to gather to it, as it has no input"
    return (
        f"if {level.label} gathers these copies and the next ones are to wait for it, set group_start on the "
        "application that the edge leads to"
    )
