"""``dropflow fill``: make a logical graph from a template."""

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from dropflow.cli.candidates import graphs
from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.cli.tables import columns
from dropflow.problems import Problem, Severity

__all__ = ["command"]


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
def command(
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
