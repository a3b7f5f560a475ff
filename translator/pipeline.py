"""Translation of a file into a physical graph, with all its problems.

``bytes -> read_logical -> fill -> validate -> outline -> check_components -> unroll -> partition -> place``. A physical
graph (a JSON list or a ``.dfg`` container) skips all stages before `check_components`, and `unroll`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace as structs_replace

from dropflow.errors import BadGraphError
from dropflow.failure import Problem, Severity, refuse_errors
from dropflow.graph import codec
from dropflow.graph.notes import DRAWN, LOGICAL, REPOSITORY, RepositoryNote, note_logical, position_note
from dropflow.graph.order import cycle_problem
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template
from translator.component_findings import check_components
from translator.drawn_positions import drawn_positions
from translator.expressions import META, take_estimates, with_estimates
from translator.fill_document import note_of, read_note
from translator.formats import Family, Reading, read_file, read_logical
from translator.logical import LogicalGraph
from translator.options import ComponentOptions, PartitionOptions, ReadOptions, UnrollOptions
from translator.parameters import GLOBAL, fill, variables_of
from translator.plan.planner import place
from translator.problem_codes import REPEATABLE, problem
from translator.repository import RepositoryFile
from translator.same_files import same_files
from translator.template import parameters_of, without_number
from translator.unroll import GraphOutline, outline_of, unroll
from translator.unroll.node_template import MEMORY, SLEEP
from translator.validate import validate

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 4096
"""Bytes at the beginning of a file from which its format is recognised."""
_REHEARSED: Problem = problem(
    "LG095",
    "this is a test run: no application of the graph is run, and no data are read or written",
    hint="translate the graph without 'test' to run it",
)


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
    outline : GraphOutline or None
        The outline of a logical graph.
    graph : PhysicalGraph or None
        The graph of a file that is a physical graph.
    unfilled : LogicalGraph or None
        The logical graph as it was read, with its parameters.
    """

    family: str
    problems: tuple[Problem, ...]
    logical: LogicalGraph | None = None
    outline: GraphOutline | None = None
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
    checked = examine(
        source,
        name=name,
        read_options=read_options,
        unroll_options=unroll_options,
        configuration=configuration,
        settings=settings,
        component_options=component_options,
    )
    return finish(checked, partition_options=partition_options, nodes=nodes)


def finish(
    checked: Checked, *, partition_options: PartitionOptions | None = None, nodes: Sequence[str] = ()
) -> Translation:
    """Unroll, partition and place what `examine` returned: the second half of `translate`.

    Raises
    ------
    BadGraphError
        The graph cannot be translated.
    """
    refuse_errors(checked.problems)
    graph = checked.graph if checked.outline is None else unroll(checked.outline)
    graph = None if graph is None else with_estimates(graph)
    if graph is None:
        raise BadGraphError("there is no graph in this file", problems=checked.problems)
    if partition_options is not None:
        from translator.plan.registry import partition  # noqa: PLC0415 - ten planners, which runs here do not need

        graph = partition(graph, partition_options)
    if nodes:
        graph = place(graph, nodes)
    return Translation(graph=graph, logical=checked.logical, problems=checked.problems, family=checked.family)


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
    """Run all stages before unrolling. Returns the problems of all stages, and the outline.

    The parameters are those of `translate`.

    Raises
    ------
    BadFileError
        The file cannot be opened, or is a damaged container.
    """
    if isinstance(source, RepositoryFile):
        checked = examine(
            source.content,
            name=name or source.name,
            read_options=read_options,
            unroll_options=unroll_options,
            configuration=configuration,
            settings=settings,
            component_options=component_options,
        )
        return with_repository(checked, source.note)
    if isinstance(source, PhysicalGraph):
        return _unrolled(Family.DFG, source, (), unroll_options, component_options)
    if isinstance(source, LogicalGraph):
        filled, problems = _filled(source, configuration, settings)
        checked = _planned(filled, source.family, problems, unroll_options, component_options)
        return replace(checked, unfilled=source)
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
    checked = _planned(filled, reading.family.value, (*reading.problems, *problems), unroll_options, component_options)
    checked = replace(checked, unfilled=reading.graph)
    note = read_note(document)
    if note is None and (configuration or settings or parameters_of(reading.graph)):
        note = note_of(reading.graph, document, configuration=configuration, settings=settings)
    notes = {} if note is None else {"template": msgspec.json.encode(note).decode()}
    if copy := note_logical(document, configuration=configuration, settings=settings):
        notes[LOGICAL] = copy
    return _noted(checked, notes)


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
    return filled, (*(finding for finding, _, _ in missing), *problems)


def with_repository(checked: Checked, note: RepositoryNote | None) -> Checked:
    """Return the result with a note of the repository of its graph, which graph files and sessions keep."""
    return checked if note is None else _noted(checked, {REPOSITORY: msgspec.json.encode(note).decode()})


def _noted(checked: Checked, notes: Mapping[str, str]) -> Checked:
    """Return the result with notes about where it comes from, which graph files and sessions keep."""
    outline = checked.outline and replace(checked.outline, meta={**checked.outline.meta, **notes})
    graph = checked.graph and replace(checked.graph, meta={**checked.graph.meta, **notes})
    return replace(checked, outline=outline, graph=graph)


def _foreign(
    reading: Reading, unroll_options: UnrollOptions | None, component_options: ComponentOptions | None
) -> Checked:
    """Check a file that is not a logical graph: a workflow of WfCommons, or none that can be used."""
    if reading.physical is None:
        return Checked(reading.family.value, reading.problems)
    return _unrolled(reading.family, reading.physical, reading.problems, unroll_options, component_options)


def _planned(
    logical: LogicalGraph,
    family: str,
    earlier: Iterable[Problem],
    unroll_options: UnrollOptions | None,
    component_options: ComponentOptions | None,
) -> Checked:
    """Validate and outline a logical graph with its values filled in; `earlier` are the problems so far."""
    logical, expressions = take_estimates(logical)
    outline = outline_of(logical, unroll_options)
    if drawn := drawn_positions(logical):
        outline = replace(outline, meta={**outline.meta, DRAWN: position_note(drawn)})
    if expressions:
        outline = replace(outline, meta={**outline.meta, META: msgspec.json.encode(expressions).decode()})
    notes: tuple[Problem, ...] = ()
    if unroll_options is not None and unroll_options.rehearsal:
        outline, notes = replace(outline, templates=_rehearsed(outline.templates)), (_REHEARSED,)
    places = {node.key or node.id: node.pointer for node in logical.nodes}
    shared = same_files(outline.templates, outline.links, places)
    problems = _once([*notes, *earlier, *validate(logical), *outline.problems, *_waiting(outline), *shared])
    problems = tuple(check_components(outline.templates, outline.links, component_options).once(problems, logical))
    return Checked(family, problems, logical, outline)


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
        return Checked(
            Family.PHYSICAL.value, tuple(finding for finding in error.problems if isinstance(finding, Problem))
        )
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
        graph, notes = replace(graph, templates=_rehearsed(graph.templates)), (_REHEARSED,)
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
        return source[:_HEAD_BYTES]
    try:
        if not source.is_file():
            return b""
        with source.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""  # `read_file` meets the same error and reports it


def _waiting(outline: GraphOutline) -> tuple[Problem, ...]:
    """Return LG050 if drops of an outline wait for themselves through a carry or a feedback, which only drops show."""
    if outline.is_acyclic or any(finding.severity is Severity.ERROR for finding in outline.problems):
        return ()
    return _cycles(unroll(outline))


def _cycles(graph: PhysicalGraph) -> tuple[Problem, ...]:
    finding = cycle_problem(graph)
    return () if finding is None else (finding,)


def _once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the findings without duplicates: of two stages that report the same thing, the first counts."""
    findings = list(problems)
    unresolved = {finding.where for finding in findings if finding.code == "LG090"}
    distinct: dict[tuple[str, str, str], Problem] = {}
    for finding in findings:
        if finding.code == "LG020" and finding.where in unresolved:
            continue
        distinct.setdefault((finding.code, finding.where, finding.text if finding.code in REPEATABLE else ""), finding)
    return tuple(distinct.values())


# Test runs of a graph: placeholders replace its applications and data, so that only its structure is run.


def _rehearsed(templates: Iterable[Template]) -> tuple[Template, ...]:
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
