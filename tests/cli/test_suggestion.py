"""Commands that answers suggest."""

import shlex

import pytest

from dropflow.cli.session_replies import failure_lines
from dropflow.cli.tables import shell_command
from dropflow.rest.schema import FailureInfo

_HOSTILE = "a b_$(touch x)_'0'"


@pytest.mark.parametrize("name", ["plain_a_0-1", _HOSTILE, "a;b", "~", "*", "", "a\nb"])
def test_a_name_is_one_word_for_the_shell(name: str) -> None:
    """Whatever an id holds, a shell reads it as that id."""
    assert shlex.split(shell_command("log", "s", name)) == ["dropflow", "log", "s", name]


def test_a_name_is_not_taken_for_an_option() -> None:
    """A name that begins with a dash follows the mark that ends the options."""
    assert shlex.split(shell_command("log", "s", "-o")) == ["dropflow", "log", "--", "s", "-o"]


def test_the_log_of_a_failed_drop_can_be_pasted() -> None:
    """The command under a failure names the drop in quotes."""
    failure = FailureInfo(drop=_HOSTILE, name="x", node="a", code="DF105", kind="", text="broken", has_log=True)
    line = next(line for line in failure_lines([failure], "s") if "log:" in line)

    assert shlex.split(line.partition("log:")[2]) == ["dropflow", "log", "s", _HOSTILE]
