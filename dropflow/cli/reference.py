"""The reference page of the command line, from the help texts themselves.

``python -m dropflow.cli.reference > docs/reference/cli.md`` writes it again.
"""

import sys
from collections.abc import Iterator

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
    for path, command in _walk(commands, ("dropflow",)):
        context = click.Context(command, info_name=" ".join(path), max_content_width=100, terminal_width=100)
        lines += [f"## {' '.join(path)}", "", "```", command.get_help(context), "```", ""]
    return "\n".join(lines)


def _walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _walk(child, (*path, name))


if __name__ == "__main__":
    sys.stdout.write(cli_page())
