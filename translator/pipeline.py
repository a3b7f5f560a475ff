"""Translation of a file into a physical graph, with all its problems.

``bytes -> read_logical -> fill -> validate -> plan -> check_components -> unroll -> partition -> place``.
A physical graph (a JSON list or a ``.dfg`` container) skips all stages before `check_components`, and `unroll`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace as structs_replace

from dropflow.apps.needs import finding, findings
from dropflow.data.registry import store_for
from dropflow.errors import BadGraphError, BadParameterError, DropflowError
from dropflow.failure import Problem, Severity, refuse_errors
from dropflow.graph import codec
from dropflow.graph.notes import DRAWN, LOGICAL, REPOSITORY, Place, RepositoryNote, note_logical, place_note
from dropflow.graph.order import Precedence, cycle_problem
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Link, Template
from translator.expressions import META, take_estimates, with_estimates
from translator.fill_document import note_of, read_note
from translator.formats import Family, Reading, read_file, read_logical
from translator.logical import LogicalGraph, LogicalNode, NodeKind, Role
from translator.options import ComponentOptions, PartitionOptions, ReadOptions, UnrollOptions
from translator.parameters import GLOBAL, fill, variables_of
from translator.plan.planner import place
from translator.problem_codes import REPEATABLE, VALUE_CODES, problem
from translator.repository import RepositoryFile
from translator.template import parameters_of, without_number
from translator.unroll import UnrollPlan, plan, unroll
from translator.unroll.node_template import MEMORY, SLEEP
from translator.validate import validate

# Test runs of a graph: placeholders replace its applications and data, so that only its structure is
# run.

REHEARSED: Problem = problem(
    "LG095",
    "this is a test run: no application of the graph is run, and no data are read or written",
    hint="translate the graph without 'test' to run it",
)


def rehearsed(templates: Iterable[Template]) -> tuple[Template, ...]:
    """Return templates with a `SleepApp` of zero seconds for each application, and memory for all data.

    Ports, weights, thresholds and the shape of the graph are kept; parameters are removed. Classes that dropflow does
    not have are replaced, too, so that a graph of container applications can be tested.
    """
    return tuple(
        structs_replace(
            template,
            component=SLEEP if template.kind is Kind.APP else MEMORY,
            category="DALiuGEApp" if template.kind is Kind.APP else "Memory",
            arguments=tuple(argument for argument in template.arguments if argument.is_port),
        )
        for template in templates
    )


# Finds files and directories that several drops would write, each replacing the content of another.

_HINT = "put {auto} or {uid} into the name, so that each drop has its own; or collect first and write once"


def same_files(
    templates: Sequence[Template], links: Sequence[Link], where: Mapping[str, str] | None = None
) -> list[Problem]:
    """Return LG085 for every file that several drops write without waiting for each other.

    Parameters
    ----------
    templates, links : sequences
        Templates and links of the physical graph.
    where : mapping of str to str, optional
        JSON pointer of each node in its file, by key.
    """
    written = {link.target for link in links if templates[link.target].kind is Kind.DATA}
    names = {row: name for row in sorted(written) if (name := _name(templates[row]))}
    if not names:
        return []
    order, places = Precedence(templates, links), where or {}
    return [
        problem(
            "LG085",
            text,
            where=places.get(templates[row].key, "") or places.get(templates[row].origin, ""),
            hint=_HINT,
        )
        for row, text in (*_alone(templates, names, order), *_in_pairs(templates, names, order))
    ]


def _name(template: Template) -> str:
    try:
        return store_for(template).shared_name
    except DropflowError:
        return ""  # the check of components reports the error


def _alone(templates: Sequence[Template], names: Mapping[int, str], order: Precedence) -> Iterator[tuple[int, str]]:
    """Yield nodes whose drops, with one different index, do not wait for each other."""
    for row, name in names.items():
        shape = templates[row].shape
        first = (0,) * len(shape)
        for at, axis in enumerate(templates[row].axes):
            second = tuple(int(other == at) for other in range(len(shape)))
            if axis.size > 1 and not order.holds(row, first, row, second):
                yield row, f"{axis.size} drops of {templates[row].name!r} write one file, {name}"
                break


def _in_pairs(templates: Sequence[Template], names: Mapping[int, str], order: Precedence) -> Iterator[tuple[int, str]]:
    """Yield pairs of nodes that do not wait for each other."""
    by_name: dict[str, list[int]] = {}
    for row, name in names.items():
        by_name.setdefault(name, []).append(row)
    for name, rows in by_name.items():
        for one, other in combinations(rows, 2):
            first, second = ((0,) * len(templates[row].axes) for row in (one, other))
            if not (order.holds(one, first, other, second) or order.holds(other, second, one, first)):
                yield other, f"{templates[one].name!r} and {templates[other].name!r} write one file, {name}"


# Findings about the components of a graph: what `dropflow run` would refuse here, with its codes and
# texts.
#
# `dropflow.apps.needs.findings` makes them. Nothing of the graph is run or imported.


@dataclass(frozen=True)
class ComponentFindings:
    """The problems of the components of a graph.

    Attributes
    ----------
    problems : tuple of Problem
        One for each node that cannot run.
    fields : tuple of frozenset
        (key of the template, name of the field) of every field in each of the problems.
    """

    problems: tuple[Problem, ...] = ()
    fields: tuple[frozenset[tuple[str, str]], ...] = ()

    def once(self, problems: Sequence[Problem], graph: LogicalGraph) -> Iterator[Problem]:
        """Yield `problems`, then those of this check; the value of a field is in one of them.

        An error of another stage has priority, such as that about the copies of a construct, which its application
        has as a parameter, too. A finding that a value does not fit the type of its field has none.
        """
        named = frozenset[tuple[str, str]]().union(*self.fields)
        places: dict[tuple[str, str], set[str]] = {}
        for node in graph.nodes:
            for field in node.fields:
                if (node.key, field.name) in named:
                    places.setdefault((node.key, field.name), set()).add(field.pointer)
        known = {
            one.where
            for one in problems
            if one.severity is Severity.ERROR and one.code not in VALUE_CODES and one.where
        }
        own: list[Problem] = []
        refused: set[str] = set()
        for found, fields in zip(self.problems, self.fields, strict=True):
            if not fields or not all(known & places.get(field, set()) for field in fields):
                own.append(found)
            refused.update(*(places.get(field, ()) for field in fields))
        yield from (found for found in problems if not (found.code in VALUE_CODES and found.where in refused))
        yield from own


def check_components(
    templates: Iterable[Template], links: Sequence[Link], options: ComponentOptions | None
) -> ComponentFindings:
    """Check the components of a graph; without options nothing is checked.

    Parameters
    ----------
    templates : iterable of Template
        The nodes of the graph.
    links : sequence of Link
        The links between them, with rows of the nodes.
    options : ComponentOptions or None
        How to report what cannot run on this host.
    """
    if options is None:
        return ComponentFindings()
    problems: list[Problem] = []
    fields: list[frozenset[tuple[str, str]]] = []
    severity = Severity.ERROR if options.here else Severity.WARNING
    for template, error in findings(templates, links):
        problems.append(finding(template, error, severity))
        named = error.fields if isinstance(error, BadParameterError) else ()
        fields.append(frozenset((template.key, name) for name in named))
    return ComponentFindings(tuple(problems), tuple(fields))


# Where EAGLE drew the nodes of a logical graph, by the keys of their drops.
#
# An application of a construct has no place of its own: EAGLE draws it in the construct. It gets one
# at the left of what is in the construct if it is the input application, and at the right if it is
# the output application.

_BESIDE = 120.0
"""About the distance of two nodes that are joined, in units of EAGLE."""


def drawn_places(graph: LogicalGraph) -> dict[str, Place]:
    """Return the place of each node that has drops, by its key; empty if the file has no places.

    Nodes that are all in one place, as in files that programs wrote, have not been drawn.
    """
    shown = [node for node in graph.nodes if node.kind in (NodeKind.DATA, NodeKind.APP)]
    found = {node.key or node.id: node.position for node in shown if node.position is not None}
    if len(set(found.values())) < min(len(found), 2):
        return {}
    inside: dict[str, list[Place]] = {}
    for node in shown:
        if node.position is None:
            continue
        around, seen = node.parent, set[str]()
        while around is not None and around not in seen:
            seen.add(around)
            inside.setdefault(around, []).append(node.position)
            owner = graph.by_id.get(around)
            around = None if owner is None else owner.parent
    for node in shown:
        owner = graph.by_id.get(node.embedded_in or "")
        place = None if owner is None else _beside(node, owner, inside.get(owner.id, []))
        if place is not None:
            found[node.key or node.id] = place
    return found


def _beside(app: LogicalNode, construct: LogicalNode, inside: list[Place]) -> Place | None:
    """Return a place left or right of what is in a construct; of an empty one, its own."""
    if not inside:
        if construct.position is None:
            return None
        x, y = construct.position
        return (x + _BESIDE, y) if app.role is Role.OUTPUT else (x, y)
    xs, ys = zip(*inside, strict=True)
    middle = (min(ys) + max(ys)) / 2
    return (max(xs) + _BESIDE, middle) if app.role is Role.OUTPUT else (min(xs) - _BESIDE, middle)


_BOM = b"\xef\xbb\xbf"
_HEAD = 4096


@dataclass(frozen=True)
class Translation:
    """The result of `translate`.

    Attributes
    ----------
    graph : PhysicalGraph
        The unrolled graph; partitioned and placed if the options ask for it.
    logical : LogicalGraph or None
        The logical graph with its values filled in; None if the file is a physical graph.
    problems : tuple of Problem
        Warnings and notes.
    family : str
        Family of the file (`translator.formats.Family`).
    """

    graph: PhysicalGraph
    logical: LogicalGraph | None
    problems: tuple[Problem, ...]
    family: str


@dataclass(frozen=True)
class Checked:
    """The result of `examine`.

    Attributes
    ----------
    family : str
        Family of the file (`translator.formats.Family`).
    problems : tuple of Problem
        All findings of all stages.
    logical : LogicalGraph or None
        The logical graph with its values filled in; None if the file is a physical graph or cannot be used.
    plan : UnrollPlan or None
        The plan of a logical graph.
    graph : PhysicalGraph or None
        The graph of a file that is a physical graph.
    unfilled : LogicalGraph or None
        The logical graph as it was read, with its parameters.
    """

    family: str
    problems: tuple[Problem, ...]
    logical: LogicalGraph | None = None
    plan: UnrollPlan | None = None
    graph: PhysicalGraph | None = None
    unfilled: LogicalGraph | None = None


def translate(
    source: Path | bytes | RepositoryFile | LogicalGraph | PhysicalGraph,
    *,
    name: str | None = None,
    read_options: ReadOptions | None = None,
    unroll_options: UnrollOptions | None = None,
    partition_options: PartitionOptions | None = None,
    nodes: Sequence[str] = (),
    configuration: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    component_options: ComponentOptions | None = None,
) -> Translation:
    """Translate a logical graph; a physical graph is taken as it is.

    Parameters
    ----------
    source : Path, bytes, LogicalGraph or PhysicalGraph
        A file, or its contents: a logical graph of any family, a list of drops, or a ``.dfg`` container. Or a graph.
    name : str, optional
        Name of the graph; by default the name of the file without its suffix.
    read_options, unroll_options : ReadOptions, UnrollOptions, optional
        Options of these stages.
    partition_options : PartitionOptions, optional
        How to partition the graph. Without it the graph is not partitioned.
    nodes : sequence of str
        Names of the nodes to place the parts on. Without it the graph is not placed.
    configuration, settings
        See `translator.parameters.fill`.
    component_options : ComponentOptions, optional
        How to check the components. Without it they are not checked: a graph can be translated here and run elsewhere.

    Raises
    ------
    BadFileError
        The file cannot be opened, or is a damaged container.
    BadGraphError
        The graph cannot be translated; `problems` holds everything found.
    """
    found = examine(
        source,
        name=name,
        read_options=read_options,
        unroll_options=unroll_options,
        configuration=configuration,
        settings=settings,
        component_options=component_options,
    )
    return finish(found, partition_options=partition_options, nodes=nodes)


def finish(
    found: Checked, *, partition_options: PartitionOptions | None = None, nodes: Sequence[str] = ()
) -> Translation:
    """Unroll, partition and place what `examine` returned: the second half of `translate`.

    Raises
    ------
    BadGraphError
        The graph cannot be translated.
    """
    refuse_errors(found.problems)
    graph = found.graph if found.plan is None else unroll(found.plan)
    graph = None if graph is None else with_estimates(graph)
    if graph is None:
        raise BadGraphError("there is no graph in this file", problems=found.problems)
    if partition_options is not None:
        from translator.plan.registry import partition  # noqa: PLC0415 - ten planners, which runs here do not need

        graph = partition(graph, partition_options)
    if nodes:
        graph = place(graph, nodes)
    return Translation(graph=graph, logical=found.logical, problems=found.problems, family=found.family)


def examine(  # noqa: PLR0911 - one for each kind of source
    source: Path | bytes | RepositoryFile | LogicalGraph | PhysicalGraph,
    *,
    name: str | None = None,
    read_options: ReadOptions | None = None,
    unroll_options: UnrollOptions | None = None,
    configuration: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    component_options: ComponentOptions | None = None,
) -> Checked:
    """Run all stages before unrolling. Returns the problems of all stages, and the plan.

    The parameters are those of `translate`.

    Raises
    ------
    BadFileError
        The file cannot be opened, or is a damaged container.
    """
    if isinstance(source, RepositoryFile):
        found = examine(
            source.content,
            name=name or source.name,
            read_options=read_options,
            unroll_options=unroll_options,
            configuration=configuration,
            settings=settings,
            component_options=component_options,
        )
        return with_repository(found, source.note)
    if isinstance(source, PhysicalGraph):
        return _unrolled(Family.DFG, source, (), unroll_options, component_options)
    if isinstance(source, LogicalGraph):
        filled, problems = _filled(source, configuration, settings)
        found = _planned(filled, source.family, problems, unroll_options, component_options)
        return replace(found, unfilled=source)
    name = name or (source.stem if isinstance(source, Path) else "graph")
    head = _head(source).removeprefix(_BOM).lstrip()
    if codec.is_dfg(head):
        graph = codec.load(source) if isinstance(source, Path) else codec.parse(source, where=name)
        return _unrolled(Family.DFG, graph, (), unroll_options, component_options)
    if head.startswith(b"["):
        return _physical(source, name, read_options or ReadOptions(), unroll_options, component_options)
    document = read_file(source, read_options) if isinstance(source, Path) else source
    reading = read_logical(document, name=name, options=read_options)
    if reading.graph is None:
        return _foreign(reading, unroll_options, component_options)
    filled, problems = _filled(reading.graph, configuration, settings)
    found = _planned(filled, reading.family.value, (*reading.problems, *problems), unroll_options, component_options)
    found = replace(found, unfilled=reading.graph)
    note = read_note(document)
    if note is None and (configuration or settings or parameters_of(reading.graph)):
        note = note_of(reading.graph, document, configuration=configuration, settings=settings)
    notes = {} if note is None else {"template": msgspec.json.encode(note).decode()}
    if copy := note_logical(document, configuration=configuration, settings=settings):
        notes[LOGICAL] = copy
    return _noted(found, notes)


def _filled(
    graph: LogicalGraph, configuration: str | None, settings: Mapping[str, Any] | Sequence[str]
) -> tuple[LogicalGraph, tuple[Problem, ...]]:
    """Return the graph with its values, and problems.

    A parameter without a value is one problem, not one of each field that uses it: the fields get a value in its range.
    """
    missing = tuple(without_number(parameters_of(graph), variables_of(graph, configuration, settings)))
    if missing:
        made = {f"{GLOBAL}.{name}": value for _, name, value in missing}
        if isinstance(settings, Mapping):
            settings = {**settings, **made}
        else:
            settings = (*settings, *(f"{name}={value}" for name, value in made.items()))
    filled, problems = fill(graph, configuration=configuration, settings=settings)
    return filled, (*(found for found, _, _ in missing), *problems)


def with_repository(found: Checked, note: RepositoryNote | None) -> Checked:
    """Return the result with a note of the repository of its graph, which graph files and sessions keep."""
    return found if note is None else _noted(found, {REPOSITORY: msgspec.json.encode(note).decode()})


def _noted(found: Checked, notes: Mapping[str, str]) -> Checked:
    """Return the result with notes about where it comes from, which graph files and sessions keep."""
    plan = found.plan and replace(found.plan, meta={**found.plan.meta, **notes})
    graph = found.graph and replace(found.graph, meta={**found.graph.meta, **notes})
    return replace(found, plan=plan, graph=graph)


def _foreign(
    reading: Reading, unroll_options: UnrollOptions | None, component_options: ComponentOptions | None
) -> Checked:
    """Check a file that is no logical graph: a workflow of WfCommons, or none that can be used."""
    if reading.physical is None:
        return Checked(reading.family.value, reading.problems)
    return _unrolled(reading.family, reading.physical, reading.problems, unroll_options, component_options)


def _planned(
    logical: LogicalGraph,
    family: str,
    found: Iterable[Problem],
    unroll_options: UnrollOptions | None,
    component_options: ComponentOptions | None,
) -> Checked:
    """Validate and plan a logical graph with its values filled in; `found` are the problems so far."""
    logical, expressions = take_estimates(logical)
    planned = plan(logical, unroll_options)
    if drawn := drawn_places(logical):
        planned = replace(planned, meta={**planned.meta, DRAWN: place_note(drawn)})
    if expressions:
        planned = replace(planned, meta={**planned.meta, META: msgspec.json.encode(expressions).decode()})
    notes: tuple[Problem, ...] = ()
    if unroll_options is not None and unroll_options.rehearsal:
        planned, notes = replace(planned, templates=rehearsed(planned.templates)), (REHEARSED,)
    places = {node.key or node.id: node.pointer for node in logical.nodes}
    shared = same_files(planned.templates, planned.links, places)
    problems = _once([*notes, *found, *validate(logical), *planned.problems, *_waiting(planned), *shared])
    problems = tuple(check_components(planned.templates, planned.links, component_options).once(problems, logical))
    return Checked(family, problems, logical, planned)


def _physical(
    source: Path | bytes,
    name: str,
    options: ReadOptions,
    unroll_options: UnrollOptions | None,
    component_options: ComponentOptions | None,
) -> Checked:
    from dropflow.graph.daliuge_read import read_pg_stream  # noqa: PLC0415 - most files are logical graphs

    findings: list[Problem] = []
    try:
        with source.open("rb") if isinstance(source, Path) else BytesIO(source) as stream:
            graph = read_pg_stream(stream, name=name, findings=findings, max_depth=options.max_depth)
    except BadGraphError as error:
        return Checked(Family.PHYSICAL.value, tuple(found for found in error.problems if isinstance(found, Problem)))
    return _unrolled(Family.PHYSICAL, graph, findings, unroll_options, component_options)


def _unrolled(
    family: Family,
    graph: PhysicalGraph,
    findings: Iterable[Problem],
    unroll_options: UnrollOptions | None,
    component_options: ComponentOptions | None,
) -> Checked:
    """Check a graph that was read as a physical graph."""
    notes: tuple[Problem, ...] = ()
    if unroll_options is not None and unroll_options.rehearsal:
        graph, notes = replace(graph, templates=rehearsed(graph.templates)), (REHEARSED,)
    shared = same_files(graph.templates, graph.links)
    problems = (
        *notes,
        *findings,
        *_cycles(graph),
        *shared,
        *check_components(graph.templates, graph.links, component_options).problems,
    )
    return Checked(family.value, problems, graph=graph)


def _head(source: Path | bytes) -> bytes:
    """Return the first bytes of a regular file; nothing for anything else, since a pipe cannot be read twice."""
    if isinstance(source, bytes):
        return source[:_HEAD]
    try:
        if not source.is_file():
            return b""
        with source.open("rb") as file:
            return file.read(_HEAD)
    except (OSError, ValueError):
        return b""  # `read_file` meets the same error and reports it


def _waiting(planned: UnrollPlan) -> tuple[Problem, ...]:
    """Return LG050 if drops of a plan wait for themselves through a carry or a feedback, which only drops show."""
    if planned.is_acyclic or any(found.severity is Severity.ERROR for found in planned.problems):
        return ()
    return _cycles(unroll(planned))


def _cycles(graph: PhysicalGraph) -> tuple[Problem, ...]:
    found = cycle_problem(graph)
    return () if found is None else (found,)


def _once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the findings without duplicates: of two stages that report the same thing, the first counts."""
    found: dict[tuple[str, str, str], Problem] = {}
    for one in problems:
        found.setdefault((one.code, one.where, one.text if one.code in REPEATABLE else ""), one)
    return tuple(found.values())
