"""The plan of a physical graph: its templates, links and index maps. Its size is that of the logical graph.

Numbers of drops and edges are products, known before the physical graph is made.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import InternalError
from dropflow.failure import Problem, Severity, refuse_errors
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import ORDER_PORT, Kind, Link, Template
from dropflow.ids import safe_name
from translator.logical import LogicalGraph, LogicalNode, NodeKind, Role
from translator.options import UnrollOptions
from translator.problem_codes import problem
from translator.unroll.layout import Layout, lay_out
from translator.unroll.levels import LOOP, MPI, Findings, Levels, spelled, strides
from translator.unroll.link_maps import (
    IndexCounter,
    IndexMap,
    Unpairable,
    carry_level,
    gather_map,
    groupby_joint,
    groupby_map,
    join,
    link_map,
    why_not_zipped,
    width,
    zip_hint,
)
from translator.unroll.loops import close_loops, cycles, feedback_hint, feedback_map, never_waits, with_feedback
from translator.unroll.node_template import COPY, MEMORY, NULL
from translator.unroll.wires import Unit, Wire, draw_wires, list_units

# Adapters: drops between two nodes of the same kind, so that every edge joins data and an
# application.
#
# Between two applications it is a memory drop (a null drop if only events pass) for each output of
# the source, so that each has one producer. Between two data nodes it is a copying application for
# each input of the target.


class Adapted(msgspec.Struct, frozen=True):
    """An adapter, and the two maps that replace the one of its link."""

    template: Template
    before: IndexMap
    after: IndexMap


def adapt(wire: Wire, source: Unit, target: Unit, plain: IndexMap, taken: set[str]) -> Adapted:
    """Insert an adapter into a wire.

    Parameters
    ----------
    wire : Wire
        The wire.
    source, target : Unit
        Its ends, of the same kind.
    plain : IndexMap
        The edges of the wire without adapter.
    taken : set of str
        Keys of templates; the key of the adapter is added.
    """
    at_source = source.is_app
    if plain.chunk_of_source:
        return _at_gather(wire, source, target, plain, taken)
    standing = [counter for counter in plain.counters if (counter.source if at_source else counter.target)]
    levels: Levels = tuple(msgspec.structs.replace(counter.level, size=counter.size) for counter in standing)
    steps = dict(zip(map(id, standing), strides(levels), strict=True))

    def step(counter: IndexCounter) -> int:
        return steps.get(id(counter), 0)

    if at_source:
        before = tuple(IndexCounter(counter.level, counter.size, counter.source, step(counter)) for counter in standing)
        after = tuple(
            IndexCounter(counter.level, counter.size, step(counter), counter.target, counter.flat)
            for counter in plain.counters
        )
    else:
        before = tuple(
            IndexCounter(counter.level, counter.size, counter.source, step(counter)) for counter in plain.counters
        )
        after = tuple(IndexCounter(counter.level, counter.size, step(counter), counter.target) for counter in standing)
    return Adapted(
        template=_template(wire, source, target, levels, taken),
        before=IndexMap(counters=before, source_start=plain.source_start),
        after=msgspec.structs.replace(plain, counters=after, source_start=0),
    )


def _at_gather(wire: Wire, source: Unit, target: Unit, plain: IndexMap, taken: set[str]) -> Adapted:
    """Insert an adapter for each instance of a source that feeds back, so that its chunks keep their numbers."""
    counters = tuple(
        IndexCounter(level, level.size, step, step)
        for level, step in zip(source.levels, strides(source.levels), strict=True)
    )
    return Adapted(
        template=_template(wire, source, target, source.levels, taken), before=IndexMap(counters=counters), after=plain
    )


def _template(wire: Wire, source: Unit, target: Unit, levels: Levels, taken: set[str]) -> Template:
    stem = f"{source.template.key}-to-{target.template.key}"
    key = next(key for number in count(1) if (key := stem if number == 1 else f"{stem}-{number}") not in taken)
    taken.add(key)
    component = COPY if not source.is_app else NULL if wire.event else MEMORY
    return Template(
        key=key,
        name=f"{source.template.name} to {target.template.name}",
        kind=Kind.DATA if source.is_app else Kind.APP,
        component=component,
        category={COPY: "DALiuGEApp", NULL: "null", MEMORY: "Memory"}[component],
        axes=tuple(level.axis for level in levels),
        artificial=True,
        origin=wire.pointer or f"{source.node} to {target.node}",
    )


# Services: constructs whose application runs alongside their content.
#
# The application of a Service starts before the applications that use it, and stops after the last of
# them. It becomes two applications: one starts the program and completes when the program is ready,
# the other stops it. They are joined to the users of the service by drops without content, at a port
# that applications do not see (`ORDER_PORT`).
#
# Users are the applications inside the construct, and those outside that read what the service
# writes.

START, STOP = "dropflow.apps.service.ServiceApp", "dropflow.apps.service.StopServiceApp"
_COMMANDS = frozenset({"", "BashShellApp"})


def add_services(layout: Layout, units: dict[str, Unit], wires: Sequence[Wire], findings: Findings) -> list[Wire]:
    """Return the wires with those of services; their units are added.

    Adds LG088 for a service whose application is not a command, and LG032 for one without an application.
    """
    made = list(wires)
    for node in layout.graph.nodes:
        if node.kind is NodeKind.CONSTRUCT and node.category == "Service":
            app = next((one for one in layout.graph.embedded.get(node.id, ()) if one.role is Role.INPUT), None)
            if app is None:
                text = f"Service {node.name!r} has no input application, which would be the service"
                hint = "give it a BashShellApp as its input application"
                findings.append(problem("LG032", text, where=node.pointer, hint=hint))
            elif _is_command(app, node, findings):
                made += _service(layout, units, made, node, app)
    return made


def _is_command(app: LogicalNode, node: LogicalNode, findings: Findings) -> bool:
    named = str(app.value("dropclass") or "").strip().rpartition(".")[2]
    if named in _COMMANDS and (app.category == "BashShellApp" or named):
        return True
    text = f"the application of Service {node.name!r} is a {named or app.category}; a service is a command"
    findings.append(problem("LG088", text, where=app.pointer, hint="use a BashShellApp that starts the program"))
    return False


def _service(
    layout: Layout, units: dict[str, Unit], wires: Iterable[Wire], node: LogicalNode, app: LogicalNode
) -> list[Wire]:
    start = units[app.id]
    units[app.id] = msgspec.structs.replace(start, template=msgspec.structs.replace(start.template, component=START))
    running, stop = f"{start.template.key}-running", f"{start.template.key}-stop"
    units[running] = _added(start, running, f"{node.name} is running", Kind.DATA)
    units[stop] = _added(start, stop, f"stop {node.name}", Kind.APP)
    known = list(wires)
    written = {wire.target for wire in known if wire.source == app.id}
    readers = {wire.target for wire in known if wire.source in written}
    inside = {one.id for one in layout.graph.nodes if one.id in layout.home and node.id in layout.around(one.id)}
    users = [
        one for one in units if units[one].is_app and (one in readers or one in inside) and one not in (app.id, stop)
    ]

    def ordered(source: str, target: str) -> Wire:
        ports = ORDER_PORT, ORDER_PORT
        return Wire(source=source, target=target, source_port=ports[0], target_port=ports[1], event=True, pointer=where)

    where = node.pointer
    made = [ordered(app.id, running), ordered(running, stop)]
    for user in users:
        if user not in readers:
            made.append(ordered(running, user))
        made.append(ordered(user, stop))
        if not any(wire.source == user for wire in known):
            end = f"{user}-end"
            units[end] = _added(units[user], end, f"{units[user].template.name} has ended", Kind.DATA)
            made.append(ordered(user, end))
    return made


def _added(like: Unit, key: str, name: str, kind: Kind) -> Unit:
    """Return a unit with the index space of another one: a drop without content, or the application that stops."""
    template = Template(
        key=key,
        name=name,
        kind=kind,
        component=NULL if kind is Kind.DATA else STOP,
        category="null" if kind is Kind.DATA else "DALiuGEApp",
        axes=tuple(level.axis for level in like.levels),
        error_threshold=100.0 if kind is Kind.APP else 0.0,
        block_skip=kind is Kind.APP,
        artificial=True,
        origin=like.node,
    )
    return Unit(template, like.levels, like.node)


_MANY_PAIRS = 10_000_000
_LARGEST = 2**31 - 1
_LONGEST_CIRCLE = 12


@dataclass(frozen=True)
class UnrollPlan:
    """The plan of a physical graph.

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
        All findings. With an error among them the plan cannot be unrolled.
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


def plan(graph: LogicalGraph, options: UnrollOptions | None = None) -> UnrollPlan:
    """Plan the physical graph of a logical graph, in time and memory proportional to the logical graph.

    Never raises for a bad graph: all findings are in `UnrollPlan.problems`.

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
        hint = "remove an edge, or mark the one that leads to the next iteration of a loop as closes-loop"
        findings.append(problem("LG050", f"the graph has a cycle: {names}", where=where, hint=hint))
    templates, links, maps = _connect(layout, units, wires, findings)
    made = UnrollPlan(
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
    if len(circle) > _LONGEST_CIRCLE:
        cut = _names_of(units, circle[:_LONGEST_CIRCLE])
        return [*cut, f"{len(circle) - _LONGEST_CIRCLE - 1} more", *_names_of(units, circle[-1:])]
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
    if edges.edges > _MANY_PAIRS:
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
    loops = [source.levels[one] for one in sorted(joint.last)] + [target.levels[one] for one in sorted(joint.first)]
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
    ways.append(f"gather {source.template.name!r} first")
    if verdict.left[-1].kind != MPI:
        ways.append(f"move {target.template.name!r} into {verdict.left[-1].label}")
    return problem("LG070", text, where=wire.pointer, hint=", or ".join(ways))


def _too_large(made: UnrollPlan, options: UnrollOptions) -> list[Problem]:
    """Return LG120 if the size exceeds the limits of the options or of the columns."""
    found = []
    for what, number, limit in (
        ("drops", made.drops, min(options.max_drops, _LARGEST)),
        ("edges", made.edges, min(options.max_edges, _LARGEST)),
    ):
        if number > limit:
            text = f"{made.name} would become {in_words(number)} {what}, more than {in_words(limit)}"
            largest = max(zip(made.sizes, made.templates, strict=True), key=lambda entry: entry[0])[1]
            hint = f"most drops come from {largest.name!r}; reduce its copies, or raise the limit"
            found.append(problem("LG120", text, hint=hint))
    return found


def in_words(number: int) -> str:
    """Return a number with separators, or its magnitude if it is huge."""
    return f"{number:,}" if number < 10**18 else f"more than 10^{(number.bit_length() - 1) * 3 // 10}"


# Unrolls a plan: writes the columns of drops and edges. Only this module's time grows with the number
# of drops.


def unroll(plan: UnrollPlan) -> PhysicalGraph:
    """Make the physical graph of a plan, in time and memory proportional to its drops and edges.

    Drops are in the order of templates, and for each template in row-major order of their index tuples.

    Raises
    ------
    BadGraphError
        The plan has errors; all its problems are attached.
    InternalError
        An edge leads to a drop of another template than that of its link: a bug in the planner.
    """
    refuse_errors(plan.problems)
    sizes = plan.sizes
    offsets = [0, *accumulate(sizes)]
    template = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    instance = np.arange(plan.drops, dtype=np.int32)
    for offset, size in zip(offsets, sizes, strict=False):
        instance[offset : offset + size] -= np.int32(offset)
    edges = plan.edges
    source, target, link = (np.empty(edges, dtype=np.int32) for _ in range(3))
    # Links are written in the order of their sources, so that most edges are sorted already.
    position = 0
    for row in sorted(range(len(plan.links)), key=lambda row: plan.links[row].source):
        found, ends = plan.maps[row], plan.links[row]
        rows = slice(position, position + found.edges)
        source[rows] = offsets[ends.source]
        target[rows] = offsets[ends.target]
        link[rows] = row
        found.write(source[rows], target[rows])
        _check_inside(plan, row, source[rows], offsets[ends.source], sizes[ends.source])
        _check_inside(plan, row, target[rows], offsets[ends.target], sizes[ends.target])
        position = rows.stop
    return from_columns(
        name=plan.name,
        prefix=plan.prefix,
        templates=plan.templates,
        links=plan.links,
        template=template,
        instance=instance,
        source=source,
        target=target,
        link=link,
        meta=plan.meta,
    )


def _check_inside(plan: UnrollPlan, row: int, drops: npt.NDArray[Any], offset: int, size: int) -> None:
    """Raise if the edges of a link join drops of other templates, which no later stage could detect."""
    if len(drops) and not (offset <= int(drops.min()) and int(drops.max()) < offset + size):
        link = plan.links[row]
        names = f"{plan.templates[link.source].name!r} to {plan.templates[link.target].name!r}"
        raise InternalError(
            f"the edges from {names} lead outside their templates",
            hint="this is a bug in dropflow, not in the graph: please report it with the graph",
        )
