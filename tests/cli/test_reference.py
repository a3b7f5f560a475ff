"""The reference page of the command line is generated from the help texts."""

from pathlib import Path

import click
import pytest

from dropflow.cli.main import commands, load_command
from dropflow.cli.reference import cli_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_of_commands_is_up_to_date() -> None:
    """Run ``python -m dropflow.cli.reference > docs/reference/cli.md`` after changing a help text."""
    assert PAGE.read_text(encoding="utf-8") == cli_page()


@pytest.mark.parametrize("name", commands.commands)
def test_every_command_and_option_has_help(name: str) -> None:
    """Each command and each of its options has a help text."""
    command = load_command(name)
    options = [option for option in command.params if isinstance(option, click.Option)]

    assert command.help
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", commands.commands)
def test_the_list_of_commands_has_the_first_sentence_of_their_help(name: str) -> None:
    """`dropflow --help` lists the commands without importing them; the summaries in its table must be right."""
    command = load_command(name)

    assert command.name == name
    assert command.get_short_help_str(200) == commands.commands[name].get_short_help_str(200)
