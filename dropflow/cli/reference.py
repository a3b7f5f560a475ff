"""The reference page of the command line, made from the help texts.

``python -m dropflow.cli.reference > docs/reference/cli.md`` writes it again.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import Any

import click

from dropflow.cli.main import commands, load_command

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
        "The help of every command. Written by `python -m dropflow.cli.reference`. Options that many commands have are",
        "described here; *and* below a command names those that it takes.",
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


if __name__ == "__main__":
    sys.stdout.write(cli_page())
