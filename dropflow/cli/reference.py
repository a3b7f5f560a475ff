"""The reference page of the command line, from the help texts themselves.

``python -m dropflow.cli.reference > docs/reference/cli.md`` writes it again.
"""

import sys
from collections.abc import Iterator
from typing import Any

import click

__all__ = ["cli_page"]


def cli_page() -> str:
    """The help of every command, as Markdown."""
    from dropflow.cli.main import commands

    lines = [
        "# Commands",
        "",
        "What `--help` says, for every command. Made by `python -m dropflow.cli.reference`.",
        "",
    ]
    for context in _walk(commands, None, "dropflow"):
        lines += [f"## {context.command_path}", "", "```", context.get_help(), "```", ""]
    return "\n".join(lines)


def _walk(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    """A context for each command, below that of its group: settings such as ``-h`` come from there."""
    own: dict[str, Any] = {**command.context_settings, "max_content_width": 100, "terminal_width": 100}
    context = click.Context(command, parent=parent, info_name=name, **own)
    yield context
    if isinstance(command, click.Group):
        for child_name, child in command.commands.items():
            yield from _walk(child, context, child_name)


if __name__ == "__main__":
    sys.stdout.write(cli_page())
