"""The GRAPH of a command line: a file or standard input, translated or refused."""

import sys
from pathlib import Path

from dropflow.cli.output import Output
from dropflow.cli.refusal import problem_lines
from dropflow.cli.tables import plural
from dropflow.problems import Problem, Severity
from translator.options import ComponentOptions, ReadOptions, UnrollOptions
from translator.pipeline import Checked, Translation, examine, finish

__all__ = ["component_options", "examine_source", "note_problems", "translate_source"]

_NOTED = 8


def examine_source(
    source: str,
    *,
    configuration: str | None = None,
    settings: tuple[str, ...] = (),
    prefix: str = "",
    components: ComponentOptions | None = None,
) -> Checked:
    """What is in the file called `source`, or in standard input if it is ``-``, and all that is wrong with it.

    Its components are judged as for a graph that runs on this host, unless `components` says otherwise.

    Raises
    ------
    BadFileError
        It cannot be read, or is damaged.
    """
    given, name = _given(source)
    return examine(
        given,
        name=name,
        unroll_options=UnrollOptions(prefix=prefix),
        configuration=configuration,
        settings=settings,
        component_options=components or ComponentOptions(),
    )


def translate_source(
    source: str,
    *,
    configuration: str | None = None,
    settings: tuple[str, ...] = (),
    prefix: str = "",
    components: ComponentOptions | None = None,
) -> Translation:
    """The physical graph of the file called `source`, or of standard input if it is ``-``; see `examine_source`.

    Raises
    ------
    BadFileError
        It cannot be read, or is damaged.
    BadGraphError
        It cannot be translated; carries all findings.
    """
    found = examine_source(source, configuration=configuration, settings=settings, prefix=prefix, components=components)
    return finish(found)


def component_options(*, elsewhere: bool) -> ComponentOptions:
    """How to judge the components of a graph that runs on this host, or on others."""
    return ComponentOptions(missing_here="warning" if elsewhere else "error")


def note_problems(output: Output, problems: tuple[Problem, ...]) -> None:
    """Mention the warnings of a graph that is used all the same."""
    warnings = [found for found in problems if found.severity is Severity.WARNING]
    for line in problem_lines(warnings[:_NOTED]):
        output.note(line)
    if len(warnings) > _NOTED:
        output.note(f"... and {plural(len(warnings) - _NOTED, 'more warning')}: see dropflow check")


def _given(source: str) -> tuple[Path | bytes, str | None]:
    if source != "-":
        return Path(source), None
    # One byte beyond the limit is enough for the reader to refuse it.
    return sys.stdin.buffer.read(ReadOptions().max_bytes + 1), "stdin"
