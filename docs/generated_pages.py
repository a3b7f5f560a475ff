"""Pages of the site that are made from the program: the help of all commands, and the definitions of all components."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from typing import Any

import click

from dropflow.apps.parameters import COMMON_APP, SURROUNDING
from dropflow.cli.main import commands, load_command
from dropflow.graph.components import Component, Parameter
from dropflow.graph.templates import Kind
from palettes.build import components

_MANY = 4
"""An option that so many commands have, with the same help, is described once."""


def cli_page() -> str:
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


def component_page() -> str:
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
        *_table(SURROUNDING),
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


PAGES = {"docs/reference/cli": cli_page, "docs/reference/components": component_page}
"""What makes each, by its name in the site."""
