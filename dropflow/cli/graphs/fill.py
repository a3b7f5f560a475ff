"""``dropflow fill``: a logical graph from a template and values of its parameters."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dropflow.cli.candidates import graphs
from dropflow.cli.common_options import output_options, setting_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, columns, output_file, problem_lines
from dropflow.errors import UsageError
from dropflow.failure import Problem, Severity

if TYPE_CHECKING:
    from translator.fill_document import FilledGraph
    from translator.template import TemplateParameter


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
    from dropflow.cli.graphs.graph_files import read_document
    from translator.fill_document import fill_document, sweeps
    from translator.template import is_template

    name, data = read_document(template)
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
