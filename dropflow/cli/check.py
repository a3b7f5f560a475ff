"""``dropflow check``: everything that can be said against a graph, without unrolling or running it."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import elsewhere_option, graph_argument, setting_options, speaks

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["check"]


@click.command("check")
@speaks
@graph_argument
@setting_options
@elsewhere_option
def check(
    output: "Output", *, graph: str, configuration: str | None, settings: tuple[str, ...], elsewhere: bool
) -> Exit:
    """Say everything that is wrong with GRAPH, all at once.

    Everything for which run would refuse it is found, as far as that is known without running or importing anything
    that the graph names. Exit status 0 if it can be used (there may be warnings), 2 if not.
    """
    from dropflow.cli.replies import CheckReply, as_problems
    from dropflow.cli.source import component_options, examine_source
    from dropflow.errors import UsageError
    from dropflow.problems import Severity

    try:
        found = examine_source(
            graph, configuration=configuration, settings=settings, components=component_options(elsewhere=elsewhere)
        )
        family, problems = found.family, found.problems
    except UsageError as error:
        family, problems = "", as_problems(error)
    ok = not any(found.severity is Severity.ERROR for found in problems)
    output.answer(CheckReply(ok=ok, format=family, problems=problems))
    return Exit.FINISHED if ok else Exit.BAD_INPUT
