"""Pages of the site that are made from the program: commands, components, problem codes, and operations over REST.

Each function gets the text of the page in the repository, which stands for the page where there is no site.
"""

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from typing import Any

import click
import msgspec

from dropflow import errors
from dropflow.api.contents_answer import Download
from dropflow.api.error_body import status_of_class
from dropflow.api.operations import OPERATIONS, Operation
from dropflow.apps.parameters import COMMON_APP, ENVIRONMENT_PARAMETERS
from dropflow.cli.main import commands, load_command
from dropflow.dask.lost_chunks import LostChunksError
from dropflow.dask.persist import LostContentsError
from dropflow.graph.components import Component, Parameter
from dropflow.graph.templates import Kind
from dropflow.web.tickets import TICKET
from palettes.build import components
from translator.problem_codes import CODES

_MANY = 4
"""An option that so many commands have, with the same help, is described once."""


def cli_page(_stored: str) -> str:
    """Return the help of every command as Markdown."""
    contexts = list(_contexts())
    counts = Counter(record for context in contexts for record in _options(context).values())
    common = [record for record, number in counts.most_common() if number >= _MANY]
    shared = contexts[0].make_formatter()
    shared.write_dl(common)
    lines = [
        "# Commands",
        "",
        "The help of every command. Options that many commands have are described here; *and* below a command names",
        "those that it takes.",
        "",
        *("```", shared.getvalue().rstrip(), "```", ""),
    ]
    for context in contexts:
        options = _options(context)
        taken = [record[0].split(" ")[0].rstrip(",") for record in options.values() if record in common]
        command = copy(context.command)
        command.params = [param for param in command.get_params(context) if options.get(param) not in common]
        command.add_help_option = False
        lines += [f"## {context.command_path}", "", "```", command.get_help(context), "```"]
        lines += [f"and {', '.join(f'`{name}`' for name in taken)}", ""]
    return "\n".join(lines)


def _options(context: click.Context) -> dict[click.Parameter, tuple[str, str]]:
    """Return the options of a command with their help, as its help shows them."""
    found = {
        param: param.get_help_record(context)
        for param in context.command.get_params(context)
        if isinstance(param, click.Option)
    }
    return {param: record for param, record in found.items() if record is not None}


def _contexts() -> Iterator[click.Context]:
    """Yield the context of each command and of each command of a group."""
    root = _context(commands, None, "dropflow")
    yield root
    for name in commands.commands:
        command = load_command(name)
        context = _context(command, root, name)
        yield context
        if isinstance(command, click.Group):
            for child_name, child in command.commands.items():
                yield _context(child, context, child_name)


def _context(command: click.Command, parent: click.Context | None, name: str) -> click.Context:
    """Return a context below that of the group, from which settings such as ``-h`` come."""
    own: dict[str, Any] = {**command.context_settings, "max_content_width": 100, "terminal_width": 100}
    return click.Context(command, parent=parent, info_name=name, **own)


def component_page(_stored: str) -> str:
    """Return the reference of all components as Markdown."""
    lines = [
        "# Components",
        "",
        "Every built-in application and data class. The palettes for EAGLE have the same:",
        "`palettes/builtin.palette` and `palettes/template.palette`.",
        "",
        "Every application takes these parameters, beside its own:",
        "",
        *_table(COMMON_APP),
        "",
        "Python functions and commands also take [these](../howto/environments.md):",
        "",
        *_table(ENVIRONMENT_PARAMETERS),
    ]
    data = [component for component in components() if component.kind is Kind.DATA]
    common = [one for one in data[0].parameters if all(one in component.parameters for component in data)]
    lines += ["", "## Applications"]
    for component in components():
        if component.kind is Kind.APP:
            lines += ["", *_section(component, ())]
    lines += ["", "## Data", "", "Every data class takes these parameters, beside its own:", "", *_table(common)]
    for component in data:
        lines += ["", *_section(component, common)]
    return "\n".join(lines) + "\n"


def _section(component: Component, common: Collection[Parameter]) -> Iterator[str]:
    parameters = [parameter for parameter in component.parameters if parameter not in common]
    yield f"### {component.name}"
    yield ""
    aliases = f"; also known as {', '.join(f'`{alias}`' for alias in component.aliases)}" if component.aliases else ""
    yield f"`{component.dropclass}`, category `{component.category}`{aliases}"
    yield ""
    yield component.description
    if parameters:
        yield ""
        yield from _table(parameters)
    if component.ports:
        yield ""
        yield "| port | direction | encoding | |"
        yield "|---|---|---|---|"
        for port in component.ports:
            direction = {"InputPort": "in", "OutputPort": "out"}.get(port.usage, "in and out")
            yield f"| `{port.name}` | {direction} | {port.encoding} | {port.description} |"


def _table(parameters: Iterable[Parameter]) -> Iterator[str]:
    yield "| parameter | type | default | |"
    yield "|---|---|---|---|"
    for parameter in parameters:
        default = "" if parameter.default in ("", None) else f"`{parameter.default}`"
        options = f" One of {', '.join(parameter.options)}." if parameter.options else ""
        yield f"| `{parameter.name}` | {parameter.type} | {default} | {parameter.description}{options} |"


_ADVICE = re.compile(r"^\| code \| what to do \|\n\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)


def problem_page(stored: str) -> str:
    """Return the page of problem codes: its two tables of advice get every code, with its severity and meaning."""
    tables = iter((_graph_codes, _error_codes))
    return _ADVICE.sub(lambda found: "\n".join(next(tables)(dict(_ROW.findall(found[1])))) + "\n", stored)


def _graph_codes(advised: Mapping[str, str]) -> Iterator[str]:
    yield "| code | severity | meaning | what to do |"
    yield "|---|---|---|---|"
    for code, (severity, meaning) in CODES.items():
        yield f"| `{code}` | {severity.value} | {meaning} | {advised.get(code, 'See the hint.')} |"


def _error_codes(advised: Mapping[str, str]) -> Iterator[str]:
    yield "| code | class | meaning | what to do |"
    yield "|---|---|---|---|"
    for kind in _error_classes():
        meaning = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
        yield f"| `{kind.code}` | `{kind.__name__}` | {meaning} | {advised.get(kind.code, 'See the hint.')} |"


def _error_classes() -> list[type[errors.DropflowError]]:
    """Return the classes of errors in the order of their codes."""
    named = [LostChunksError, LostContentsError, *vars(errors).values()]
    kinds = [kind for kind in named if isinstance(kind, type) and issubclass(kind, errors.DropflowError)]
    return sorted((kind for kind in kinds if kind is not errors.DropflowError), key=lambda kind: kind.code)


_REFERENCE = re.compile(r"#/\$defs/(\w+)$")
_FIELD = re.compile(r"^(\w[\w, ]*?)(?: : .*)?\n((?:    .*(?:\n|$))+)", re.MULTILINE)
_USERS = {"none": "no", "all": "yes", "owner": "yes, of the owner of the session"}


def operation_page(_stored: str) -> str:
    """Return the reference of all operations over REST as Markdown."""
    operations = (*OPERATIONS, TICKET)
    given = [kind for one in operations for kind in (one.query, one.body, one.answer) if kind not in (None, Download)]
    kinds = {kind.__name__: kind for kind in given}
    _, records = msgspec.json.schema_components(kinds.values())
    lines = ["# REST operations", "", "What [the REST interface](rest.md) of managers takes and answers.", ""]
    for operation in operations:
        lines += ["", *_operation(operation)]
    lines += ["", "## Records", ""]
    for name, record in records.items():
        lines += ["", *_record(name, record, kinds.get(name))]
    return "\n".join(lines) + "\n"


def _operation(operation: Operation[object]) -> Iterator[str]:
    yield f"## {operation.method} {operation.path}"
    yield ""
    yield f"{operation.summary.rstrip('.')}."
    yield ""
    for title, kind, media in (
        ("query", operation.query, ""),
        ("body", operation.body, operation.takes),
        ("answer", None if operation.answer is Download else operation.answer, operation.gives),
    ):
        if kind is not None or media:
            yield f"* {title}: {f'[{kind.__name__}](#{kind.__name__.lower()})' if kind is not None else f'`{media}`'}"
    if operation.method != "GET":
        yield f"* with the key of a user: {_USERS[operation.users]}"
    found = [f"{status_of_class(error)} `{error.__name__}`" for error in operation.errors]
    if found:
        yield f"* errors: {', '.join(sorted(found))}"


def _record(name: str, schema: Mapping[str, Any], kind: type[msgspec.Struct] | None) -> Iterator[str]:
    text = inspect.cleandoc(schema.get("description", ""))
    texts = [inspect.getdoc(base) or "" for base in reversed(kind.mro())] if kind is not None else [text]
    described = {
        field.strip(): " ".join(meaning.split())
        for one in texts
        for fields, meaning in _FIELD.findall(one.partition("----------\n")[2])
        for field in fields.split(",")
    }
    yield f"### {name}"
    yield ""
    yield text.partition("\n\nAttributes\n")[0]
    if "properties" in schema:
        yield ""
        yield "| field | type | default | |"
        yield "|---|---|---|---|"
        required = schema.get("required", ())
        for field, one in schema["properties"].items():
            default = "" if field in required else f"`{msgspec.json.encode(one.get('default')).decode()}`"
            meaning = one.get("description") or described.get(field, "")
            yield f"| `{field}` | {_type(one)} | {default} | {meaning} |"


def _type(schema: Mapping[str, Any]) -> str:
    """Return a type of JSON in words."""
    if "$ref" in schema:
        name = _REFERENCE.search(schema["$ref"])[1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "items" in schema:
        return f"array of {_type(schema['items'])}" if schema["items"] else "array"
    bounds = (("from", schema.get("minimum")), ("to", schema.get("maximum")))
    return " ".join([schema.get("type", "any"), *(f"{word} {bound:,}" for word, bound in bounds if bound is not None)])


PAGES = {
    "docs/reference/cli": cli_page,
    "docs/reference/components": component_page,
    "docs/reference/problems": problem_page,
    "docs/reference/operations": operation_page,
}
"""What makes each, from its text in the repository, by its name in the site."""
