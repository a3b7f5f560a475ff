"""The outline of a physical graph: its templates, links and index maps. Its size is that of the logical graph.

Numbers of drops and edges are products, known before the physical graph is made.
"""

from dataclasses import dataclass, replace
from math import prod

import msgspec

from dropflow.failure import Problem, Severity
from dropflow.graph.physical import MOST_ROWS
from dropflow.graph.templates import ORDER_PORT, Link, Template
from dropflow.ids import safe_name
from translator.logical import LogicalGraph
from translator.options import UnrollOptions
from translator.problem_codes import TOO_LARGE, problem
from translator.unroll.adapters import adapt
from translator.unroll.gathers import gather_map, width
from translator.unroll.group_bys import groupby_joint, groupby_map
from translator.unroll.layout import Layout, lay_out
from translator.unroll.levels import LOOP, MPI, Findings, spelled
from translator.unroll.link_maps import (
    IndexMap,
    Unpairable,
    carry_level,
    join,
    link_map,
    why_not_zipped,
    zip_hint,
)
from translator.unroll.loops import close_loops, cycles, feedback_hint, feedback_map, never_waits, with_feedback
from translator.unroll.services import add_services
from translator.unroll.wires import Unit, Wire, draw_wires, list_units

_MANY_EDGES = 10_000_000
"""Edges of the physical graph from which one edge of the logical graph gets a warning."""
_LISTED_UNITS = 12
"""Units of a cycle whose names a message lists, before the last one."""


@dataclass(frozen=True)
class GraphOutline:
    """The outline of a physical graph.

    Attributes
    ----------
    name, prefix : str
        Name and prefix of the physical graph.
    templates : tuple of Template
        Nodes in the order of the file, then adapters.
    links : tuple of Link
        Links in the order of the file, then those that were added.
    maps : tuple of IndexMap
        The edges of each link.
    problems : tuple of Problem
        All findings. If one is an error, the outline cannot be unrolled.
    meta : dict
        Notes that are kept with the graph.
    """

    name: str
    prefix: str
    templates: tuple[Template, ...]
    links: tuple[Link, ...]
    maps: tuple[IndexMap, ...]
    problems: tuple[Problem, ...]
    meta: dict[str, str]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of drops of each template."""
        return tuple(prod(template.shape) for template in self.templates)

    @property
    def drops(self) -> int:
        """Number of drops."""
        return sum(self.sizes)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return sum(edges.edges for edges in self.maps)

    @property
    def is_acyclic(self) -> bool:
        """Whether it is certain that no drop waits for itself. If not, only the unrolled graph shows it."""
        return never_waits(self.links, self.maps)


def outline_of(graph: LogicalGraph, options: UnrollOptions | None = None) -> GraphOutline:
    """Plan the physical graph of a logical graph, in time and memory proportional to the logical graph.

    Never raises for a bad graph: all findings are in `GraphOutline.problems`.

    Parameters
    ----------
    graph : LogicalGraph
        The graph, with its values filled in.
    options : UnrollOptions, optional
        Options of unrolling.
    """
    options = options or UnrollOptions()
    findings: Findings = []
    layout = lay_out(graph, options, findings)
    units = list_units(layout, findings)
    drawn = add_services(layout, units, draw_wires(layout, units, findings), findings)
    drawn = with_feedback(layout, units, drawn, findings)
    wires = close_loops(layout, units, drawn, findings)
    for circle in cycles(units, wires):
        names = " -> ".join(_names_of(units, [*circle, circle[0]]))
        where = layout.graph.by_id[units[circle[0]].node].pointer
        hint = 'remove an edge, or mark the one that leads to the next iteration as closes-loop ("closesLoop": true)'
        findings.append(problem("LG050", f"the graph has a cycle: {names}", where=where, hint=hint))
    templates, links, maps = _connect(layout, units, wires, findings)
    made = GraphOutline(
        name=graph.name,
        prefix=options.prefix or safe_name(graph.name),
        templates=tuple(templates),
        links=tuple(links),
        maps=tuple(maps),
        problems=(),
        meta={},
    )
    findings += _too_large(made, options)
    return replace(made, problems=tuple(findings))


def _names_of(units: dict[str, Unit], circle: list[str]) -> list[str]:
    """Return the names of the units of a cycle, with ids if different units have the same name."""
    if len(circle) > _LISTED_UNITS:
        cut = _names_of(units, circle[:_LISTED_UNITS])
        return [*cut, f"{len(circle) - _LISTED_UNITS - 1} more", *_names_of(units, circle[-1:])]
    names = [units[unit].template.name for unit in circle]
    if len(set(names)) == len(set(circle)):
        return [repr(name) for name in names]
    return [f"{name!r} ({units[unit].template.key})" for name, unit in zip(names, circle, strict=True)]


def _connect(
    layout: Layout, units: dict[str, Unit], wires: list[Wire], findings: Findings
) -> tuple[list[Template], list[Link], list[IndexMap]]:
    """Return templates, links and maps, with an adapter in each wire between two units of the same kind."""
    templates = [unit.template for unit in units.values()]
    rows = {unit: row for row, unit in enumerate(units)}
    taken = {template.key for template in templates}
    links: list[Link] = []
    maps: list[IndexMap] = []
    for wire in wires:
        edges = _map_of(layout, units, wire, findings)
        if edges is None:
            continue
        source, target = units[wire.source], units[wire.target]
        link = Link(
            source=rows[wire.source],
            target=rows[wire.target],
            source_port=wire.source_port,
            target_port=wire.target_port,
            streaming=wire.streaming,
            carry=wire.closes or bool(wire.feedback),
        )
        if source.is_app is not target.is_app:
            links.append(link)
            maps.append(edges)
            continue
        if wire.source_port != ORDER_PORT:
            findings.append(_same_kind(layout.options, wire, source, target))
        adapted = adapt(wire, source, target, edges, taken)
        row = len(templates)
        templates.append(adapted.template)
        links.append(Link(source=link.source, target=row, source_port=wire.source_port, streaming=wire.streaming))
        links.append(msgspec.structs.replace(link, source=row, source_port="", streaming=False))
        maps += [adapted.before, adapted.after]
    return _collecting(templates, links, maps), links, maps


def _collecting(templates: list[Template], links: list[Link], maps: list[IndexMap]) -> list[Template]:
    """Return the templates with the ports at which they collect."""
    ports: dict[int, dict[str, None]] = {}
    for link, edges in zip(links, maps, strict=True):
        if edges.collects:
            ports.setdefault(link.target, {})[link.target_port] = None
    return [
        msgspec.structs.replace(template, collects=tuple(ports[row])) if row in ports else template
        for row, template in enumerate(templates)
    ]


def _same_kind(options: UnrollOptions, wire: Wire, source: Unit, target: Unit) -> Problem:
    names = f"{source.template.name!r} to {target.template.name!r}"
    kind = "applications" if source.is_app else "data nodes"
    if not options.adapters:
        text = f"the edge from {names} joins two {kind}"
        return problem("LG040", text, where=wire.pointer, hint="insert a node, or switch adapters on")
    added = "a data drop" if source.is_app else "a copying application"
    return problem("LG041", f"the edge from {names} joins two {kind}: {added} was inserted", where=wire.pointer)


def _map_of(layout: Layout, units: dict[str, Unit], wire: Wire, findings: Findings) -> IndexMap | None:
    names = f"{units[wire.source].template.name!r} to {units[wire.target].template.name!r}"
    try:
        edges = feedback_map(layout, units, wire) if wire.feedback else _levels_map(layout, wire, units)
    except Unpairable as verdict:
        findings.append(_unpairable(layout, units, wire, verdict))
        return None
    if wire.aware and not wire.feedback:
        findings += _unaware(layout, wire, units)
    if edges.edges > _MANY_EDGES:
        text = f"the edge from {names} becomes {in_words(edges.edges)} edges"
        findings.append(problem("LG071", text, where=wire.pointer))
    return edges


def _levels_map(layout: Layout, wire: Wire, units: dict[str, Unit]) -> IndexMap:
    source, target = units[wire.source].levels, units[wire.target].levels
    if not wire.entry:
        carry = carry_level(source, target) if wire.closes else None
        return link_map(source, target, aware=wire.aware, options=layout.options, carry=carry, once=wire.once)
    position = len(layout.context(wire.entry))
    node = layout.graph.by_id[wire.entry]
    if node.category == "GroupBy":
        return groupby_map(source, target, position=position, aware=wire.aware, options=layout.options)
    return gather_map(source, target, position=position, width=width(node, []), options=layout.options)


def _unaware(layout: Layout, wire: Wire, units: dict[str, Unit]) -> list[Problem]:
    """Return LG062 or LG064 if a loop-aware wire has the same edges as an ordinary one."""
    source, target = units[wire.source], units[wire.target]
    names = f"{source.template.name!r} to {target.template.name!r}"
    entered = layout.graph.by_id.get(wire.entry)
    if entered is not None and entered.category == "GroupBy":
        position = len(layout.context(entered.id))
        joint = groupby_joint(source.levels, target.levels, position=position, aware=True, options=layout.options)
    else:
        joint = join(source.levels, target.levels, aware=True, options=layout.options)
    loops = [source.levels[place] for place in sorted(joint.last)] + [
        target.levels[place] for place in sorted(joint.first)
    ]
    if not loops:
        text = f"the edge from {names} is loop-aware, but enters and leaves no loop"
        return [problem("LG062", text, where=wire.pointer, severity=Severity.INFO)]
    several = tuple(loop for loop in loops if loop.size > 1)
    if entered is None or entered.category == "GroupBy" or not several:
        return []
    text = (
        f"loop-aware is ignored on the edge from {names}, because it enters gather {entered.name!r}: "
        f"the gather takes all iterations of {spelled(several)}"
    )
    hint = (
        "to use all iterations, switch loop-aware off; to use only the last one, link a node after the loop with a "
        "loop-aware edge, and gather that node"
    )
    return [problem("LG064", text, where=wire.pointer, hint=hint)]


def _unpairable(layout: Layout, units: dict[str, Unit], wire: Wire, verdict: Unpairable) -> Problem:
    """Return LG070: why the levels of the two ends cannot be paired, and what to change."""
    source, target = units[wire.source], units[wire.target]
    names = f"{source.template.name!r} to {target.template.name!r}"
    text = f"the edge from {names} leads out of {spelled(verdict.left)} and into {spelled(verdict.right)}: "
    kinds = {level.kind for level in (*verdict.left, *verdict.right)}
    zipped = why_not_zipped(verdict.left, verdict.right)
    if zipped:
        text += zipped
    elif kinds == {LOOP}:
        text += "loops are paired only if they have equal numbers of iterations"
    else:
        text += "there is no rule for pairing their copies"
    ways = []
    aware = join(source.levels, target.levels, aware=True, options=layout.options)
    if not (wire.aware or (aware.left and aware.right)):
        ways.append(
            "mark the edge as loop-aware: it then leaves loops from the last iteration and enters them at the first"
        )
    if hint := zip_hint(verdict.left, verdict.right):
        ways.append(hint)
    if hint := feedback_hint(layout, source.levels, target.levels):
        ways.append(hint)
    around = layout.graph.by_id.get(layout.home[wire.target] or "")
    if around is not None and around.category == "Gather" and around.id not in layout.entries:
        ways.append(f"end the edge at gather {around.name!r}, not at the application in it")
    else:
        ways.append(f"gather {source.template.name!r} first")
    if verdict.left[-1].kind != MPI:
        ways.append(f"move {target.template.name!r} into {verdict.left[-1].label}")
    return problem("LG070", text, where=wire.pointer, hint=", or ".join(ways))


def _too_large(made: GraphOutline, options: UnrollOptions) -> list[Problem]:
    """Return LG120 if the size exceeds the limits of the options or of the columns."""
    problems = []
    for what, number, limit in (
        ("drops", made.drops, min(options.max_drops, MOST_ROWS)),
        ("edges", made.edges, min(options.max_edges, MOST_ROWS)),
    ):
        if number > limit:
            text = f"{made.name} would become {in_words(number)} {what}, more than {in_words(limit)}"
            largest = max(zip(made.sizes, made.templates, strict=True), key=lambda entry: entry[0])[1]
            hint = f"most drops come from {largest.name!r}; reduce its copies"
            problems.append(problem(TOO_LARGE, text, hint=hint))
    return problems


def in_words(number: int) -> str:
    """Return a number with separators, or its magnitude if it is huge."""
    return f"{number:,}" if number < 10**18 else f"more than 10^{(number.bit_length() - 1) * 3 // 10}"
