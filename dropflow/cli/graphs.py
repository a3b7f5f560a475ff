"""``dropflow check``, ``convert``, ``preview`` and ``fill``: logical graphs before they are unrolled."""

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import graph_argument, graphs, output_options, setting_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.progress import columns
from dropflow.formatting import plural
from dropflow.problems import Problem, Severity

__all__ = [
    "check_command",
    "convert_command",
    "fill_command",
    "preview_command",
]


class FixReply(msgspec.Struct, frozen=True, kw_only=True):
    """One correction: the code of the finding, the place in the file, and what was changed."""

    code: str
    where: str
    text: str


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """All problems of a graph; with ``--fix`` those that remain, the corrections, and their difference as text."""

    ok: bool
    format: str
    problems: tuple[Problem, ...] = ()
    fixed: tuple[FixReply, ...] = ()
    diff: str = ""

    def lines(self) -> Iterator[str]:
        """The corrections and their difference, all problems, then whether the graph is usable."""
        yield from self.diff.splitlines()
        yield from (f"fixed {one.code} {one.where}: {one.text}" for one in self.fixed)
        yield from problem_lines(self.problems)
        counts = {severity: sum(found.severity is severity for found in self.problems) for severity in Severity}
        errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        found = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
        family = f" ({self.format})" if self.format else ""
        yield f"{'usable' if self.ok else 'not usable'}{family}: {found}"


@click.command("check")
@output_options
@graph_argument
@setting_options
@click.option("--here", is_flag=True, help="GRAPH is to run on this host: what cannot run here is an error.")
@click.option("--fix", is_flag=True, help="Correct what needs no decision in the file, and show the difference.")
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
    from dropflow.cli.graph_files import as_problems, examine_graph
    from dropflow.errors import UsageError
    from translator.options import ComponentOptions

    made: tuple[FixReply, ...] = ()
    difference = ""
    if fix:
        graph, made, difference = _fix(graph, target)
    try:
        found = examine_graph(
            graph, configuration=configuration, settings=settings, components=ComponentOptions(here=here)
        )
        family, problems = found.family, found.problems
    except UsageError as error:
        family, problems = "", as_problems(error)
    ok = not any(found.severity is Severity.ERROR for found in problems)
    output.answer(CheckReply(ok=ok, format=family, problems=problems, fixed=made, diff=difference))
    return Exit.FINISHED if ok else Exit.BAD_INPUT


def _fix(graph: str, target: str | None) -> tuple[str, tuple[FixReply, ...], str]:
    """Correct a file; return the file to check, the corrections, and their difference."""
    from difflib import unified_diff
    from pathlib import Path

    from dropflow.cli.graph_files import replace_file
    from dropflow.errors import UsageError
    from translator.formats.json_document import parse
    from translator.formats.load import read_logical
    from translator.formats.read_file import read_file
    from translator.options import ReadOptions
    from translator.pipeline import examine
    from translator.validate import fixed

    if graph == "-":
        raise UsageError("standard input cannot be corrected", hint="give the graph as a file")
    data = read_file(Path(graph))
    reading = read_logical(data, name=Path(graph).stem)
    if reading.graph is None:
        return graph, (), ""
    before = parse(data, ReadOptions()).value
    after, fixes = fixed(before, reading.graph, examine(data, name=Path(graph).stem).problems)
    file = target or graph
    old, new = (msgspec.json.format(msgspec.json.encode(one), indent=4) for one in (before, after))
    if fixes or target:
        replace_file(Path(file), new + b"\n")
    lines = unified_diff(old.decode().splitlines(), new.decode().splitlines(), graph, file, lineterm="", n=2)
    return file, tuple(FixReply(code=one.code, where=one.where, text=one.text) for one in fixes), "\n".join(lines)


# ``dropflow convert``: write a logical graph in the family of files that EAGLE uses today.


class ConvertReply(msgspec.Struct, frozen=True, kw_only=True):
    """The families of a graph before and after, and its file."""

    ok: bool
    format: str
    to: str
    file: str = ""
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """What was written, or why nothing was."""
        yield from problem_lines(self.problems, least=Severity.WARNING)
        yield f"wrote {self.file}: {self.format} became {self.to}" if self.ok else "cannot be converted"


@click.command("convert")
@output_options
@click.argument("graph", metavar="GRAPH", shell_complete=graphs)
@click.option(
    "--to", "family", type=click.Choice(["OJS-id", "V4"]), default="OJS-id", show_default=True, help="The family."
)
@click.option("-o", "target", metavar="FILE", help="Write the graph to FILE; by default to standard output.")
def convert_command(output: CommandOutput, *, graph: str, family: str, target: str | None) -> Exit:
    """Write GRAPH, a logical graph of any family, in a current one.

    The result is the same graph: nodes, fields, edges and configurations. Layout, colours and provenance are not kept.
    """
    from dropflow.cli.graph_files import replace_file
    from translator.formats.detect import Family
    from translator.formats.dump import dump
    from translator.formats.load import read_logical
    from translator.formats.read_file import read_file

    data = sys.stdin.buffer.read() if graph == "-" else read_file(Path(graph))
    reading = read_logical(data, name="stdin" if graph == "-" else Path(graph).stem)
    fatal = any(one.severity is Severity.ERROR for one in reading.problems)
    if reading.graph is None or fatal:
        output.error(ConvertReply(ok=False, format=reading.family.value, to=family, problems=reading.problems))
        return Exit.BAD_INPUT
    text = msgspec.json.format(msgspec.json.encode(dump(reading.graph, Family(family))), indent=4) + b"\n"
    if target in (None, "-"):
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return Exit.FINISHED
    replace_file(Path(str(target)), text)
    output.answer(
        ConvertReply(ok=True, format=reading.family.value, to=family, file=str(target), problems=reading.problems)
    )
    return Exit.FINISHED


# ``dropflow fill``: make a logical graph from a template.


class ParameterReply(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a template: all that a form needs."""

    name: str
    type: str
    value: Any = None
    description: str = ""
    minimum: float | None = None
    maximum: float | None = None
    options: tuple[str, ...] = ()
    used_in: tuple[str, ...] = ()


class WrittenGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written, and the values in it."""

    file: str
    values: dict[str, Any]


class FillReply(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a template, and the graphs that were made from it.

    `template` tells whether a parameter has no value, so that the graph has to be filled in.
    """

    ok: bool
    template: bool
    parameters: tuple[ParameterReply, ...] = ()
    written: tuple[WrittenGraph, ...] = ()
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """The parameters, the files, and the problems."""
        yield from problem_lines(self.problems, least=Severity.WARNING)
        for one in self.written:
            values = ", ".join(f"{name}={value}" for name, value in one.values.items())
            yield f"wrote {one.file}: {values or 'no values'}"
        if self.written:
            return
        if not self.ok:
            yield "cannot be filled"
        if self.parameters:
            rows = [(one.name, one.type, _value(one), _range(one), one.description) for one in self.parameters]
            yield from columns(rows, header=("parameter", "type", "value", "range", "description"))
        else:
            yield "the graph has no parameters"


def _value(one: ParameterReply) -> str:
    return "(to be given)" if one.value is None else str(one.value)


def _range(one: ParameterReply) -> str:
    if one.options:
        return ", ".join(one.options)
    low, high = ("" if end is None else f"{end:g}" for end in (one.minimum, one.maximum))
    return f"{low}..{high}" if low or high else ""


@click.command("fill")
@output_options
@click.argument("template", metavar="TEMPLATE", shell_complete=graphs)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter, or a field of a node (NODE.PARAM=VALUE). May be repeated.",
)
@click.option("--params", metavar="FILE", help="Values in a file: TOML or JSON. --set has priority.")
@click.option("--config", "configuration", metavar="NAME", help="Use the graph's configuration with this name or id.")
@click.option(
    "--sweep",
    "sweep",
    multiple=True,
    metavar="NAME=VALUE,VALUE...",
    help="Make one graph for each value; repeated, for each combination. Needs -o.",
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
    settings: tuple[str, ...],
    params: str | None,
    configuration: str | None,
    sweep: tuple[str, ...],
    target: str | None,
    listed: bool,
) -> Exit:
    """Fill the parameters of TEMPLATE, a logical graph, and write it.

    Parameters are the fields of GlobalVariables nodes, and placeholders such as {n} in numbers of nodes. The result is
    a logical graph without placeholders, which notes its template and values. Exit status 2 if a parameter has no
    value.
    """
    from dropflow.cli.graph_files import replace_file
    from dropflow.errors import UsageError
    from translator.fill_document import fill_document, sweeps
    from translator.formats.read_file import read_file
    from translator.template import is_template

    data = sys.stdin.buffer.read() if template == "-" else read_file(Path(template))
    name = "stdin" if template == "-" else Path(template).stem
    try:
        runs = list(sweeps(sweep))
    except ValueError as error:
        raise UsageError(f"the sweep is not usable: {error}", hint="write for example --sweep n=1,2,4") from None
    if sweep and target in (None, "-") and not listed:
        raise UsageError(
            "a sweep makes several graphs", hint="name their files with -o, for example -o 'run-{n}.graph'"
        )
    given = _settings(settings, _read_params(params))
    written: list[WrittenGraph] = []
    problems: list[Problem] = []
    found = fill_document(data, name=name, configuration=configuration, settings=given)
    parameters = tuple(msgspec.convert(msgspec.to_builtins(one), ParameterReply) for one in found.parameters)
    if listed:
        fatal = not found.parameters and any(one.severity is Severity.ERROR for one in found.problems)
        reply = FillReply(ok=not fatal, template=is_template(found.parameters), parameters=parameters)
        output.answer(reply if not fatal else msgspec.structs.replace(reply, problems=found.problems))
        return Exit.BAD_INPUT if fatal else Exit.FINISHED
    for values in runs:
        if values:
            found = fill_document(data, name=name, configuration=configuration, settings={**given, **values})
        problems += [one for one in found.problems if one not in problems]
        if not found.document:
            break
        if target in (None, "-"):
            sys.stdout.buffer.write(found.document)
            sys.stdout.buffer.flush()
            return Exit.FINISHED
        file = _name(str(target), values)
        replace_file(Path(file), found.document)
        written.append(WrittenGraph(file=file, values=found.note.values))
    ok = bool(found.document)
    reply = FillReply(
        ok=ok,
        template=is_template(found.parameters),
        parameters=parameters,
        written=tuple(written),
        problems=tuple(problems),
    )
    (output.answer if ok else output.error)(reply)
    return Exit.FINISHED if ok else Exit.BAD_INPUT


def _settings(texts: tuple[str, ...], params: Mapping[str, Any]) -> dict[str, Any]:
    from dropflow.errors import UsageError

    given = dict(params)
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"the setting {text!r} has no value", hint="write NAME=VALUE or NODE.PARAM=VALUE")
        given[name.strip()] = value
    return given


def _read_params(file: str | None) -> dict[str, Any]:
    """Return the values in a TOML or JSON file; names in tables are joined by dots."""
    from dropflow.errors import BadFileError

    if file is None:
        return {}
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise BadFileError(f"the parameters cannot be read: {error}", where=file) from error
    except ValueError as error:
        hint = "write TOML such as n = 4, or JSON with the suffix .json"
        raise BadFileError(f"the parameters cannot be read: {error}", where=file, hint=hint) from error
    if not isinstance(found, dict):
        raise BadFileError("the parameters are not an object", where=file, hint='write for example {"n": 4}')
    return dict(_flat(found, ""))


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _name(target: str, values: Mapping[str, str]) -> str:
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


# ``dropflow preview``: what a logical graph will become, before it is unrolled.

_BARS = 20
_WIDTH = 40
_LARGEST = 8


class PhaseReply(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the same number of applications runs."""

    start_s: float
    end_s: float
    running: int
    cores: int


class NodeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A logical node with its number of drops."""

    name: str
    category: str
    drops: int


class PreviewReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a graph will become, or why it cannot be translated.

    `critical_path_s` is the least time of a session, and `phases` the degree of parallelism over time, both with as
    many processors as can be used. They are empty if loops make the graph too large.
    """

    ok: bool
    format: str
    drops: int = 0
    data_drops: int = 0
    app_drops: int = 0
    edges: int = 0
    volume: float = 0.0
    work_core_s: float = 0.0
    critical_path_s: float | None = None
    most_running: int = 0
    most_cores: int = 0
    mean_cores: float = 0.0
    largest: tuple[NodeReply, ...] = ()
    phases: tuple[PhaseReply, ...] = ()
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """The sizes, the largest nodes, and a bar for each part of the time."""
        yield from problem_lines(self.problems, least=Severity.WARNING if self.ok else Severity.ERROR)
        if not self.ok:
            yield "cannot be translated"
            return
        yield f"{self.format} graph"
        rows: list[tuple[str, object]] = [
            ("drops", self.drops),
            ("data drops", self.data_drops),
            ("app drops", self.app_drops),
            ("edges", self.edges),
            ("data volume", self.volume),
            ("work (core seconds)", self.work_core_s),
        ]
        if self.critical_path_s is not None:
            rows += [
                ("critical path (seconds)", self.critical_path_s),
                ("most applications at a time", self.most_running),
                ("most cores at a time", self.most_cores),
                ("cores on average", self.mean_cores),
            ]
        yield from columns(rows)
        yield "most drops"
        yield from columns([(one.name, one.category, one.drops) for one in self.largest])
        if self.critical_path_s and self.phases:
            yield "applications that run, by time in seconds"
            yield from _bars(self.phases, self.critical_path_s)


def _bars(phases: Sequence[PhaseReply], end: float) -> Iterator[str]:
    """Yield a bar for each part of the time: the mean number of applications that run in it."""
    step = end / _BARS
    means = [
        sum(max(min(one.end_s, at + step) - max(one.start_s, at), 0.0) * one.running for one in phases) / step
        for at in (number * step for number in range(_BARS))
    ]
    most = max(means) or 1.0
    for number, mean in enumerate(means):
        yield f"  {number * step:>12,.6g}  {'#' * round(mean / most * _WIDTH):<{_WIDTH}}  {mean:,.4g}"


@click.command("preview")
@output_options
@graph_argument
@setting_options
def preview_command(output: CommandOutput, *, graph: str, configuration: str | None, settings: tuple[str, ...]) -> Exit:
    """Show what GRAPH will become: drops, edges, volumes, critical path, parallelism over time.

    Nothing is unrolled, so graphs that are too large for it can be shown, too. Times come from the execution times in
    the graph, with as many processors as can be used.
    """
    from dropflow.cli.graph_files import examine_graph
    from dropflow.errors import UsageError
    from translator.preview import preview

    found = examine_graph(graph, configuration=configuration, settings=settings, components=None)
    errors = [one for one in found.problems if one.severity is Severity.ERROR]
    fatal = [one for one in errors if one.code.startswith(("LG", "PG")) and one.code != "LG120"]
    if found.logical is None and found.graph is not None:
        raise UsageError("this is a physical graph", where=graph, hint="show it with: dropflow info")
    if fatal or found.logical is None or found.plan is None:
        output.error(PreviewReply(ok=False, format=found.family, problems=found.problems))
        return Exit.BAD_INPUT
    made = preview(found.logical, found.plan)
    sizes = sorted(zip(found.plan.sizes, found.plan.templates, strict=True), key=lambda one: -one[0])[:_LARGEST]
    output.answer(
        PreviewReply(
            ok=True,
            format=found.family,
            drops=made.drops,
            data_drops=made.data_drops,
            app_drops=made.app_drops,
            edges=made.edges,
            volume=made.volume,
            work_core_s=made.work,
            critical_path_s=made.critical_path,
            most_running=made.most_running,
            most_cores=made.most_cores,
            mean_cores=made.mean_cores,
            largest=tuple(NodeReply(name=one.name, category=one.category, drops=size) for size, one in sizes),
            phases=tuple(
                PhaseReply(start_s=one.start, end_s=one.end, running=one.running, cores=one.cores)
                for one in made.phases
            ),
            problems=found.problems,
        )
    )
    return Exit.FINISHED
