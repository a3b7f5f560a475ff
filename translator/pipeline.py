"""The whole walk: a file becomes a physical graph, or a list of everything that is wrong with it.

``bytes -> read_logical -> fill -> validate -> plan -> judge -> unroll -> partition -> place``; physical graphs, as JSON
lists or ``.dfg`` containers, enter before `judge`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from dropflow.errors import BadGraphError
from dropflow.graph import codec
from dropflow.graph.interchange import read_pg_stream
from dropflow.graph.names import oids
from dropflow.graph.order import find_cycle
from dropflow.graph.physical import PhysicalGraph
from dropflow.problems import Problem, refuse_errors
from translator.components import judge
from translator.formats import Family, read_file, read_logical
from translator.logical import LogicalGraph
from translator.options import ComponentOptions, PartitionOptions, ReadOptions, UnrollOptions
from translator.parameters import fill
from translator.partition.registry import partition as cut
from translator.placement import place
from translator.problems import problem
from translator.rehearsal import REHEARSED, rehearsed
from translator.same_files import same_files
from translator.unroll import Plan, plan
from translator.unroll import unroll as carry_out
from translator.validate import validate

__all__ = ["Checked", "Translation", "check", "examine", "finish", "translate"]

_BOM = b"\xef\xbb\xbf"
_HEAD = 4096
_LONGEST = 8


@dataclass(frozen=True)
class Translation:
    """What became of a file.

    Attributes
    ----------
    graph : PhysicalGraph
        The graph, unrolled, and partitioned and placed where that was asked for.
    logical : LogicalGraph or None
        The graph it was unrolled from, with its values filled in; None where the file held a physical graph.
    problems : tuple of Problem
        Warnings and notes.
    family : str
        What the file is (`translator.formats.Family`).
    """

    graph: PhysicalGraph
    logical: LogicalGraph | None
    problems: tuple[Problem, ...]
    family: str


@dataclass(frozen=True)
class Checked:
    """What can be said about a file without unrolling it: one of `plan` and `graph` is there, unless it is unusable."""

    family: str
    problems: tuple[Problem, ...]
    logical: LogicalGraph | None = None
    plan: Plan | None = None
    graph: PhysicalGraph | None = None


def translate(
    source: Path | bytes,
    *,
    name: str | None = None,
    read: ReadOptions | None = None,
    unroll: UnrollOptions | None = None,
    partition: PartitionOptions | None = None,
    nodes: Sequence[str] = (),
    configuration: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    components: ComponentOptions | None = None,
) -> Translation:
    """Translate a logical graph, or take a physical graph as it is.

    Parameters
    ----------
    source : Path or bytes
        A file, or its contents: a logical graph of any family, a list of drops, or a ``.dfg`` container.
    name : str, optional
        Name of the graph; by default that of the file without its ending.
    read, unroll : options, optional
        Of these stages.
    partition : PartitionOptions, optional
        The graph is partitioned only where they are given.
    nodes : sequence of str
        Names of the nodes its parts are placed on; without them it is not placed.
    configuration, settings
        See `translator.parameters.fill`.
    components : ComponentOptions, optional
        The components are judged only where they are given: a graph may be translated that dropflow cannot run.

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
        read=read,
        unroll=unroll,
        configuration=configuration,
        settings=settings,
        components=components,
    )
    return finish(found, partition=partition, nodes=nodes)


def finish(found: Checked, *, partition: PartitionOptions | None = None, nodes: Sequence[str] = ()) -> Translation:
    """The second half of `translate`, for those who want to see the findings first.

    Raises
    ------
    BadGraphError
        The graph cannot be translated.
    """
    refuse_errors(found.problems)
    graph = found.graph if found.plan is None else carry_out(found.plan)
    if graph is None:
        raise BadGraphError("there is no graph in this file", problems=found.problems)
    if partition is not None:
        graph = cut(graph, partition)
    if nodes:
        graph = place(graph, nodes)
    return Translation(graph=graph, logical=found.logical, problems=found.problems, family=found.family)


def check(
    source: Path | bytes,
    *,
    name: str | None = None,
    read: ReadOptions | None = None,
    unroll: UnrollOptions | None = None,
    configuration: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
) -> tuple[str, tuple[Problem, ...]]:
    """The family of a file and everything that is wrong with it; see `examine`."""
    found = examine(source, name=name, read=read, unroll=unroll, configuration=configuration, settings=settings)
    return found.family, found.problems


def examine(
    source: Path | bytes,
    *,
    name: str | None = None,
    read: ReadOptions | None = None,
    unroll: UnrollOptions | None = None,
    configuration: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    components: ComponentOptions | None = None,
) -> Checked:
    """Everything short of unrolling: all problems of all stages, and the plan.

    The parameters are those of `translate`.

    Raises
    ------
    BadFileError
        The file cannot be opened, or is a damaged container.
    """
    name = name or (source.stem if isinstance(source, Path) else "graph")
    head = _head(source).removeprefix(_BOM).lstrip()
    if codec.is_dfg(head):
        graph = codec.load(source) if isinstance(source, Path) else codec.parse(source, where=name)
        return _unrolled(Family.DFG, graph, (), unroll, components)
    if head.startswith(b"["):
        return _physical(source, name, read or ReadOptions(), unroll, components)
    reading = read_logical(read_file(source, read) if isinstance(source, Path) else source, name=name, options=read)
    if reading.graph is None:
        return Checked(reading.family.value, reading.problems)
    logical, filled = fill(reading.graph, configuration=configuration, settings=settings)
    planned = plan(logical, unroll)
    notes: tuple[Problem, ...] = ()
    if unroll is not None and unroll.rehearsal:
        planned, notes = replace(planned, templates=rehearsed(planned.templates)), (REHEARSED,)
    places = {node.key or node.id: node.pointer for node in logical.nodes}
    shared = same_files(planned.templates, planned.links, places)
    problems = _once([*notes, *reading.problems, *filled, *validate(logical), *planned.problems, *shared])
    problems = tuple(judge(planned.templates, planned.links, components).once(problems, logical))
    return Checked(reading.family.value, problems, logical, planned)


def _physical(
    source: Path | bytes,
    name: str,
    options: ReadOptions,
    unroll: UnrollOptions | None,
    components: ComponentOptions | None,
) -> Checked:
    findings: list[Problem] = []
    try:
        with source.open("rb") if isinstance(source, Path) else BytesIO(source) as stream:
            graph = read_pg_stream(stream, name=name, findings=findings, max_depth=options.max_depth)
    except BadGraphError as error:
        return Checked(Family.PHYSICAL.value, tuple(found for found in error.problems if isinstance(found, Problem)))
    return _unrolled(Family.PHYSICAL, graph, findings, unroll, components)


def _unrolled(
    family: Family,
    graph: PhysicalGraph,
    findings: Iterable[Problem],
    unroll: UnrollOptions | None,
    components: ComponentOptions | None,
) -> Checked:
    """What can be said about a graph that came unrolled."""
    notes: tuple[Problem, ...] = ()
    if unroll is not None and unroll.rehearsal:
        graph, notes = replace(graph, templates=rehearsed(graph.templates)), (REHEARSED,)
    shared = same_files(graph.templates, graph.links)
    problems = (*notes, *findings, *_cyclic(graph), *shared, *judge(graph.templates, graph.links, components).problems)
    return Checked(family.value, problems, graph=graph)


def _head(source: Path | bytes) -> bytes:
    """The first bytes; none of what is no regular file, because a pipe could not be read twice."""
    if isinstance(source, bytes):
        return source[:_HEAD]
    try:
        if not source.is_file():
            return b""
        with source.open("rb") as file:
            return file.read(_HEAD)
    except (OSError, ValueError):
        return b""  # `read_file` meets the same obstacle, and says what it is.


def _cyclic(graph: PhysicalGraph) -> tuple[Problem, ...]:
    """LG050 for a physical graph: nothing on a cycle, or behind it, would ever run."""
    cycle = find_cycle(graph)
    if not cycle:
        return ()
    names = " -> ".join(oids(graph, cycle[:_LONGEST]))
    more = f" and {len(cycle) - _LONGEST} more" if len(cycle) > _LONGEST else ""
    return (problem("LG050", f"the drops form a cycle: {names}{more}", hint="remove an edge of the cycle"),)


def _once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Findings that two stages made of one thing, once: the first that was made."""
    found: dict[tuple[str, str, str], Problem] = {}
    for finding in problems:
        found.setdefault((finding.code, finding.where, finding.text if finding.code in _SEVERAL else ""), finding)
    return tuple(found.values())


_SEVERAL = frozenset({"LG010", "LG032", "LG041", "LG080", "LG083", "LG094", "LG120"})
"""Codes that one place of a file may rightly have more than once, with different texts."""
