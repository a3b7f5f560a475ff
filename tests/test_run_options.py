"""The records of options of a session."""

from typing import Any, get_type_hints

import click
import msgspec
import pytest

from dropflow.cli.main import load_command
from dropflow.sessions.options import RunKeywords, RunOptions, SubmitOptions, meta_of


def test_keywords_of_functions_are_the_fields_of_the_record() -> None:
    """A field that is added to the record is a keyword of `dropflow.run`, too, of the same type."""
    assert get_type_hints(RunKeywords) == get_type_hints(RunOptions)


def test_each_option_has_a_flag_with_its_bounds_and_default() -> None:
    """`run` has those of a run on this machine, and `submit` those of a session of a manager."""
    records: tuple[tuple[str, type[msgspec.Struct]], ...] = (("run", RunOptions), ("submit", SubmitOptions))
    for command, record in records:
        known: dict[str, Any] = {option.name or "": option for option in load_command(command).params}
        for name, field in meta_of(record).items():
            option = known[name]
            assert (option.help, option.default) == (field.meta.description, field.default), name
            if isinstance(option.type, click.IntRange | click.FloatRange):
                assert (option.type.min, option.type.max) == (field.meta.ge, field.meta.le), name


def test_no_option_takes_nan_for_a_number() -> None:
    """NaN compares with no bound: a peer that is silent for this long would never be lost."""
    checked = 0
    for command in ("run", "submit", "watch", "node", "island", "up", "doctor"):
        for option in load_command(command).params:
            if isinstance(option.type, click.FloatRange):
                checked += 1
                with pytest.raises(click.BadParameter, match="is not a number"):
                    option.type.convert("nan", option, None)
    assert checked > 10


def test_each_option_of_a_submission_has_a_title_for_the_form() -> None:
    """All that have a flag, so that the page has no option less than the command."""
    assert [name for name, field in meta_of(SubmitOptions).items() if not field.meta.title] == []
