"""``dropflow check``, ``fill``, ``info`` and ``diff``: what is in graphs, and what is wrong with them."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dropflow.cli.candidates import graphs, runs
from dropflow.cli.common_options import connection_options, graph_argument, output_options, setting_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns, output_file, problem_lines
from dropflow.errors import UsageError
from dropflow.failure import Problem, Severity
from dropflow.formatting import format_size, plural
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.graph.templates import Template
    from translator.differences import LogicalDifference
    from translator.fill_document import FilledGraph
    from translator.graph_sizes import GraphSizes, ParallelPhase
    from translator.logical import LogicalGraph
    from translator.template import TemplateParameter
    from translator.unroll import GraphOutline
    from translator.validate import Fix
_TIME_BARS = 20
"""Bars of the histogram of running applications."""
_BAR_CHARACTERS = 40
"""Characters of the longest bar."""


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """All problems of a graph; with ``--fix`` those that remain, the corrections, and their difference as text."""

    ok: bool
    format: str
    problems: tuple[Problem, ...] = ()
    fixed: tuple["Fix", ...] = ()
    diff: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the corrections and their difference, all problems, then whether the graph is usable."""
        yield from self.diff.splitlines()
        yield from (f"fixed {fix.code} {fix.where}: {fix.text}" for fix in self.fixed)
        yield from problem_lines(self.problems)
        counts = {severity: sum(problem.severity is severity for problem in self.problems) for severity in Severity}
        errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        counted = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
        family = f" ({self.format})" if self.format else ""
        yield f"{'usable' if self.ok else 'not usable'}{family}: {counted}"


@click.command("check")
@output_options
@graph_argument
@setting_options
@click.option("--here", is_flag=True, help="GRAPH is to run on this host: nodes that cannot run here are errors.")
@click.option("--fix", is_flag=True, help="Correct mistakes that need no decision, and show the difference.")
@click.option("-o", "target", metavar="FILE", help="With --fix: write the result to FILE, not to GRAPH.")
def check_command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    here: bool,
    fix: bool,
    target: str | None,
) -> Exit:
    """Report all problems of GRAPH.

    Nothing that the graph names is run or imported. What is wrong with its structure is an error. What cannot run on
    this host, such as a class that is not installed, is a warning, as the graph may run on other hosts; with --here it
    is an error, as for run. Exit status 0 if the graph can be used (there may be warnings), 2 if not.

    With --fix, findings with one possible correction are corrected in the file: old categories, numbers as text,
    repeated edges, and marks of edges. The problems are then those that remain.
    """
    from dropflow.cli.graphs.graph_files import as_problems, examine_graph
    from translator.options import ComponentOptions

    made: tuple[Fix, ...] = ()
    difference = ""
    if fix:
        graph, made, difference = _fix(graph, target)
    try:
        examined = examine_graph(
            graph, configuration=configuration, settings=settings, components=ComponentOptions(here=here)
        )
        family, problems = examined.family, examined.problems
    except UsageError as error:
        family, problems = "", as_problems(error)
    ok = not any(problem.severity is Severity.ERROR for problem in problems)
    output.answer(CheckReply(ok=ok, format=family, problems=problems, fixed=made, diff=difference))
    return Exit.FINISHED if ok else Exit.BAD_INPUT


def _fix(graph: str, target: str | None) -> tuple[str, tuple["Fix", ...], str]:
    """Correct a file; return the file to check, the corrections, and their difference."""
    from difflib import unified_diff

    from translator.formats.json_document import parse, read_file
    from translator.formats.load import read_logical
    from translator.options import ReadOptions
    from translator.pipeline import examine
    from translator.repository import is_repository_address
    from translator.validate import fixed

    if graph == "-":
        raise UsageError("standard input cannot be corrected", hint="give the graph as a file")
    if is_repository_address(graph):
        raise UsageError("a graph in a repository cannot be corrected there", where=graph, hint="clone the repository")
    data = read_file(Path(graph))
    reading = read_logical(data, name=Path(graph).stem)
    if reading.graph is None:
        return graph, (), ""
    before = parse(data, ReadOptions()).value
    after, fixes = fixed(before, reading.graph, examine(data, name=Path(graph).stem).problems)
    file = target or graph
    old, new = (msgspec.json.format(msgspec.json.encode(document), indent=4) for document in (before, after))
    if fixes or target:
        with output_file(Path(file)) as stream:
            stream.write(new + b"\n")
    lines = unified_diff(old.decode().splitlines(), new.decode().splitlines(), graph, file, lineterm="", n=2)
    return file, fixes, "\n".join(lines)


# ``dropflow fill``: make a logical graph from a template.


class WrittenGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written, and the values in it."""

    file: str
    values: dict[str, Any]


class FillReply(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a template, and the graphs that were made from it.

    `template` is whether a parameter has no value, so that the graph has to be filled in.
    """

    ok: bool
    template: bool
    parameters: tuple["TemplateParameter", ...] = ()
    written: tuple[WrittenGraph, ...] = ()
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the parameters, the files, and the problems."""
        yield from problem_lines(self.problems, least=Severity.WARNING)
        for graph in self.written:
            values = ", ".join(f"{name}={value}" for name, value in graph.values.items())
            yield f"wrote {graph.file}: {values or 'no values'}"
        if self.written:
            return
        if not self.ok:
            yield "cannot be filled"
        if self.parameters:
            rows = [
                (parameter.name, parameter.type, _value(parameter), _range(parameter), parameter.description)
                for parameter in self.parameters
            ]
            yield from columns(rows, header=("parameter", "type", "value", "range", "description"))
        else:
            yield "the graph has no parameters"


def _value(parameter: "TemplateParameter") -> str:
    return "(to be given)" if parameter.value is None else str(parameter.value)


def _range(parameter: "TemplateParameter") -> str:
    if parameter.options:
        return ", ".join(parameter.options)
    low, high = ("" if end is None else f"{end:g}" for end in (parameter.minimum, parameter.maximum))
    return f"{low}..{high}" if low or high else ""


@click.command("fill")
@output_options
@click.argument("template", metavar="TEMPLATE", shell_complete=graphs)
@setting_options
@click.option(
    "--sweep",
    "sweep",
    multiple=True,
    metavar="NAME=VALUE,VALUE...",
    help="Make one graph for each value; repeated, for each combination. Needs -o.",
)
@click.option(
    "--family",
    type=click.Choice(["OJS-id", "V4"]),
    help="Write this family of files; without values, a template stays one. By default the family of TEMPLATE.",
)
@click.option(
    "-o",
    "target",
    metavar="FILE",
    help="Write the graph to FILE; - is standard output. In a sweep, {NAME} in it becomes the value.",
)
@click.option("--list", "listed", is_flag=True, help="List the parameters instead of filling them.")
def fill_command(
    output: CommandOutput,
    *,
    template: str,
    configuration: str | None,
    settings: tuple[str, ...],
    sweep: tuple[str, ...],
    family: str | None,
    target: str | None,
    listed: bool,
) -> Exit:
    """Fill the parameters of TEMPLATE, a logical graph, and write it.

    Parameters are the fields of GlobalVariables nodes, and placeholders such as {n} in numbers of nodes. The result is
    a logical graph without placeholders, which notes its template and values. Exit status 2 if a parameter has no
    value.

    With --family and without values, TEMPLATE is written as another family of files, and means the same: nodes, fields,
    edges and configurations. Layout, colours and provenance are not kept.
    """
    from translator.fill_document import fill_document, sweeps
    from translator.template import is_template

    name, data = _read(template)
    try:
        runs = list(sweeps(sweep))
    except ValueError as error:
        raise UsageError(f"the sweep is not usable: {error}", hint="write for example --sweep n=1,2,4") from None
    if sweep and target in (None, "-") and not listed:
        raise UsageError(
            "a sweep makes several graphs", hint="name their files with -o, for example -o 'run-{n}.graph'"
        )
    files = [_name(str(target), values) for values in runs]
    if len(set(files)) < len(files) and not listed:
        twice = next(file for file in files if files.count(file) > 1)
        hint = "give each value once, and all names of the sweep in -o, for example -o 'run-{n}-{m}.graph'"
        raise UsageError("several graphs of the sweep would be written to one file", where=twice, hint=hint)
    given = _settings(settings)
    is_filled = bool(given or configuration or sweep or not family)
    written: list[WrittenGraph] = []
    problems: list[Problem] = []
    filled = fill_document(data, name=name, configuration=configuration, settings=given)
    parameters = filled.parameters
    if listed:
        fatal = not filled.parameters and any(problem.severity is Severity.ERROR for problem in filled.problems)
        reply = FillReply(ok=not fatal, template=is_template(filled.parameters), parameters=parameters)
        output.answer(reply if not fatal else msgspec.structs.replace(reply, problems=filled.problems))
        return Exit.BAD_INPUT if fatal else Exit.FINISHED
    for file, values in zip(files, runs, strict=True):
        if values:
            filled = fill_document(data, name=name, configuration=configuration, settings={**given, **values})
        if family:
            filled = _in_family(filled, data, name, family, is_filled=is_filled)
        problems += [problem for problem in filled.problems if problem not in problems]
        if not filled.document:
            break
        if target in (None, "-"):
            sys.stdout.buffer.write(filled.document)
            sys.stdout.buffer.flush()
            return Exit.FINISHED
        with output_file(Path(file)) as stream:
            stream.write(filled.document)
        written.append(WrittenGraph(file=file, values=filled.note.values if is_filled else {}))
    ok = bool(filled.document)
    reply = FillReply(
        ok=ok,
        template=is_template(filled.parameters),
        parameters=parameters,
        written=tuple(written),
        problems=tuple(problems),
    )
    (output.answer if ok else output.error)(reply)
    return Exit.FINISHED if ok else Exit.BAD_INPUT


def _read(file: str) -> tuple[str, bytes]:
    """Return the name of a graph, and what is in its file."""
    from dropflow.cli.graphs.graph_files import read_standard_input
    from translator.formats.json_document import read_file
    from translator.repository import fetch_file, is_repository_address

    if is_repository_address(file):
        fetched = fetch_file(file)
        return fetched.name, fetched.content
    return ("stdin", read_standard_input()) if file == "-" else (Path(file).stem, read_file(Path(file)))


def _in_family(filled: "FilledGraph", data: bytes, name: str, family: str, *, is_filled: bool) -> "FilledGraph":
    """Return a filled graph, or TEMPLATE as it is, as a file of another family."""
    from translator.formats.dump import dump
    from translator.formats.json_document import Family
    from translator.formats.load import read_logical

    if is_filled and not filled.document:
        return filled
    reading = read_logical(filled.document if is_filled else data, name=name)
    if reading.graph is None or any(problem.severity is Severity.ERROR for problem in reading.problems):
        return msgspec.structs.replace(filled, document=b"", problems=reading.problems)
    document = msgspec.json.format(msgspec.json.encode(dump(reading.graph, Family(family))), indent=4) + b"\n"
    return msgspec.structs.replace(
        filled, document=document, problems=filled.problems if is_filled else reading.problems
    )


def _settings(texts: tuple[str, ...]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"the setting {text!r} has no value", hint="write NAME=VALUE or NODE.PARAM=VALUE")
        given[name.strip()] = value
    return given


def _name(target: str, values: dict[str, str]) -> str:
    """Return the file for the values of a sweep: with them in place of placeholders, else before the suffix."""
    if not values:
        return target
    named = target
    for name, value in values.items():
        named = named.replace(f"{{{name}}}", value.replace("/", "_"))
    if named != target:
        return named
    path = Path(target)
    added = "".join(f"-{name}={value}" for name, value in values.items()).replace("/", "_")
    return str(path.with_name(f"{path.stem}{added}{path.suffix}"))


# ``dropflow info``: what is in a physical graph, and what a logical graph will become.


class NodeCount(msgspec.Struct, frozen=True, kw_only=True):
    """A logical node and the number of its drops."""

    name: str
    category: str
    component: str
    shape: tuple[int, ...]
    drops: int

    @classmethod
    def of(cls, template: "Template", drops: int) -> "NodeCount":
        """Return the record of a logical node."""
        return cls(
            name=template.name,
            category=template.category,
            component=template.component,
            shape=template.shape,
            drops=drops,
        )


class PhysicalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that only a physical graph has: `edges` counts pairs of drops, and `connections` pairs of their ports."""

    prefix: str
    edges: int
    parts: int
    places: tuple[str, ...]
    levels: int
    critical_path: float
    bytes: int
    digest: str


class InfoReply(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a graph: `physical` of a physical one, `preview` of a logical one.

    The critical path of a logical graph is the least time of a session, and its phases are the degree of parallelism
    over time, both with as many processors as can be used. They are empty if loops make the graph too large.
    """

    ok: bool = True
    format: str
    name: str
    drops: int
    data_drops: int
    app_drops: int
    connections: int
    nodes: tuple[NodeCount, ...]
    physical: PhysicalInfo | None = None
    preview: "GraphSizes | None" = None

    def lines(self) -> Iterator[str]:
        """Totals, one line per logical node, and of a logical graph a bar for each part of the time."""
        yield f"{self.name} ({self.format})"
        counts = f"{plural(self.drops, 'drop')} ({self.data_drops:,} data, {plural(self.app_drops, 'application')})"
        if self.physical is not None:
            shape = self.physical
            yield f"  {counts}, {plural(shape.edges, 'edge')}, {plural(shape.levels, 'level')}"
            where = f" on {', '.join(shape.places)}" if shape.places else ""
            yield f"  {plural(shape.parts, 'part')}{where}, critical path {shape.critical_path:,.6g}"
            yield f"  {format_size(shape.bytes)} in memory, digest {shape.digest[:16]}"
        else:
            yield f"  {counts}, {plural(self.connections, 'edge')}"
        made = self.preview
        if made is not None:
            yield f"  data volume {made.volume:,.6g}, work {made.work:,.6g} core seconds"
        if made is not None and made.critical_path is not None:
            cores = f"at most {plural(made.most_cores, 'core')}, {made.mean_cores:,.4g} on average"
            yield f"  critical path {made.critical_path:,.6g} s, {cores}"
        rows = [
            (node.name, node.category, " x ".join(map(str, node.shape)) or "1", node.drops, node.component)
            for node in self.nodes
        ]
        yield from columns(rows, header=("node", "category", "shape", "drops", "component"))
        if made is not None and made.critical_path and made.phases:
            yield "applications that run, by time in seconds"
            yield from _bars(made.phases, made.critical_path)


def _bars(phases: "Sequence[ParallelPhase]", end: float) -> Iterator[str]:
    """Yield a bar for each part of the time: the mean number of applications that run in it."""
    step = end / _TIME_BARS
    means = [
        sum(max(min(phase.end, at + step) - max(phase.start, at), 0.0) * phase.running for phase in phases) / step
        for at in (number * step for number in range(_TIME_BARS))
    ]
    most = max(means) or 1.0
    for number, mean in enumerate(means):
        yield f"  {number * step:>12,.6g}  {'#' * round(mean / most * _BAR_CHARACTERS):<{_BAR_CHARACTERS}}  {mean:,.4g}"


@click.command("info")
@output_options
@graph_argument
@setting_options
def info_command(output: CommandOutput, *, graph: str, configuration: str | None, settings: tuple[str, ...]) -> Exit:
    """Show what is in GRAPH: totals, and one line per logical node with the shape of its index space.

    Of a logical graph it shows what it will become: drops, edges, volumes, critical path and parallelism over time.
    Graphs that are too large to be unrolled can be shown, too. Times come from the execution times in the graph, with
    as many processors as can be used.
    """
    from dropflow.cli.graphs.graph_files import examine_graph, note_warnings
    from translator.pipeline import finish
    from translator.problem_codes import TOO_LARGE

    examined = examine_graph(graph, configuration=configuration, settings=settings)
    errors = [problem for problem in examined.problems if problem.severity is Severity.ERROR]
    if examined.logical is None or examined.outline is None or any(error.code != TOO_LARGE for error in errors):
        finish(examined)  # raises if there are errors
    note_warnings(output, examined.problems)
    if examined.logical is None or examined.outline is None:
        output.answer(_physical_info(examined.family, finish(examined).graph))
    else:
        output.answer(_logical_info(examined.family, examined.logical, examined.outline))
    return Exit.FINISHED


def _logical_info(family: str, graph: "LogicalGraph", outline: "GraphOutline") -> InfoReply:
    from translator.graph_sizes import graph_sizes

    made = graph_sizes(graph, outline)
    return InfoReply(
        format=family,
        name=graph.name,
        drops=made.drops,
        data_drops=made.data_drops,
        app_drops=made.app_drops,
        connections=made.edges,
        nodes=tuple(
            NodeCount.of(template, size) for template, size in zip(outline.templates, outline.sizes, strict=True)
        ),
        preview=made,
    )


def _physical_info(family: str, graph: "PhysicalGraph") -> InfoReply:
    import numpy as np

    from dropflow.cli.graphs.graph_files import count_drops
    from dropflow.graph.codec import digest
    from dropflow.graph.order import critical_path, levels

    sizes = np.bincount(graph.template, minlength=len(graph.templates))
    out = graph.successors
    arrays = (graph.template, graph.instance, graph.part, out.ptr, out.neighbour, out.link)
    counts = count_drops(graph)
    return InfoReply(
        format=family,
        name=graph.name,
        nodes=tuple(NodeCount.of(template, int(size)) for template, size in zip(graph.templates, sizes, strict=True)),
        physical=PhysicalInfo(
            prefix=graph.prefix,
            edges=counts["edges"],
            parts=graph.parts,
            places=graph.places,
            levels=int(levels(graph).max(initial=-1)) + 1,
            critical_path=critical_path(graph).length,
            bytes=sum(array.nbytes for array in arrays),
            digest=digest(graph),
        ),
        drops=counts["drops"],
        data_drops=counts["data_drops"],
        app_drops=counts["app_drops"],
        connections=counts["connections"],
    )


# ``dropflow diff``: the differences of two logical graphs in meaning, and of two runs or sessions.


class DiffReply(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two graphs; `same` if there are none."""

    ok: bool
    same: bool
    differences: tuple["LogicalDifference", ...] = ()
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line for each difference."""
        yield from problem_lines(self.problems, least=Severity.ERROR)
        if not self.ok:
            yield "cannot be compared"
        elif self.same:
            yield "the graphs mean the same"
        else:
            signs = {"added": "+", "removed": "-", "changed": "~"}
            yield from (f"{signs[difference.change]} {difference.text}" for difference in self.differences)
            yield plural(len(self.differences), "difference")


@click.command("diff")
@output_options
@click.argument("first", metavar="A", shell_complete=runs)
@click.argument("second", metavar="B", shell_complete=runs)
@click.option("--other-to", "other_url", metavar="URL", help="The manager of session B, if it is not that of A.")
@connection_options
def diff_command(
    output: CommandOutput, *, manager: ConnectionOptions, first: str, second: str, other_url: str | None
) -> Exit:
    """Show what differs between A and B: two logical graphs, or two runs or sessions.

    Files are logical graphs, which are compared in meaning: layout, the order of nodes, and old and new spellings make
    no difference.

    Directories of runs and sessions of a manager, which may be running, are compared by graph, parameters, versions,
    plan, drops, times and failures. Ratios are B divided by A. 'same' at a level means the same components and links
    (graph), also the same parameters, the same versions of dropflow and Python (software), and the same results by
    size and checksum (contents).

    Exit status 0 if the graphs mean the same, or the sessions ran the same graph with the same parameters; 1 if not; 2
    if one of them cannot be read.
    """
    are_files = [name == "-" or Path(name).is_file() for name in (first, second)]
    if not any(are_files):
        from dropflow.cli.graphs.compare import compare

        return compare(output, manager, first, second, other_url)
    if not all(are_files):
        raise UsageError(
            f"{second if are_files[0] else first} is not a file, and cannot be compared with a logical graph",
            hint="give two files, or two directories or sessions",
        )
    from translator.differences import differences
    from translator.formats.load import read_logical

    before, after = (read_logical(data, name=name) for name, data in map(_read, (first, second)))
    if before.graph is None or after.graph is None:
        output.error(DiffReply(ok=False, same=False, problems=(*before.problems, *after.problems)))
        return Exit.BAD_INPUT
    changes = differences(before.graph, after.graph)
    output.answer(DiffReply(ok=True, same=not changes, differences=changes))
    return Exit.FINISHED if not changes else Exit.FAILED
