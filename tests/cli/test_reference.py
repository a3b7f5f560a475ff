"""The reference of the command line is what the commands say of themselves."""

from pathlib import Path

import click
import pytest

from dropflow.cli.main import commands
from dropflow.cli.reference import cli_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_of_commands_is_fresh() -> None:
    """Run ``python -m dropflow.cli.reference > docs/reference/cli.md`` after changing a help text."""
    assert PAGE.read_text(encoding="utf-8") == cli_page()


@pytest.mark.parametrize("command", commands.commands.values(), ids=lambda command: command.name)
def test_every_command_and_option_has_help(command: click.Command) -> None:
    """No command and no option goes without a word about what it does."""
    options = [option for option in command.params if isinstance(option, click.Option)]

    assert command.help
    assert [option.name for option in options if not option.help] == []
