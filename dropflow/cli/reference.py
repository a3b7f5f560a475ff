"""The reference page of the command line, made from the help texts.

``python -m dropflow.cli.reference > docs/reference/cli.md`` writes it again.
"""

import sys
from collections.abc import Iterator
from typing import Any

import click

from dropflow.cli.main import commands, load_command

__all__ = ["cli_page"]


def cli_page() -> str:
    """Return the help of every command as Markdown."""
    lines = [
        "# Commands",
        "",
        "The output of `--help` for every command. Written by `python -m dropflow.cli.reference`.",
        "",
    ]
    for context in _contexts():
        lines += [f"## {context.command_path}", "", "```", context.get_help(), "```", ""]
    return "\n".join(lines)


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
