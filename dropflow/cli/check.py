"""``dropflow check``: all problems of a graph, without unrolling or running it."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import elsewhere_option, graph_argument, output_options, setting_options
from dropflow.cli.output import CommandOutput
from dropflow.formatting import plural
from dropflow.problems import Problem, Severity

__all__ = ["command"]


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """All problems of a graph."""

    ok: bool
    format: str
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """All problems, then whether the graph is usable."""
        yield from problem_lines(self.problems)
        counts = {severity: sum(found.severity is severity for found in self.problems) for severity in Severity}
        errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        found = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
        family = f" ({self.format})" if self.format else ""
        yield f"{'usable' if self.ok else 'not usable'}{family}: {found}"


@click.command("check")
@output_options
@graph_argument
@setting_options
@elsewhere_option
def command(
    output: CommandOutput, *, graph: str, configuration: str | None, settings: tuple[str, ...], elsewhere: bool
) -> Exit:
    """Report all problems of GRAPH.

    These are the problems for which run would refuse it, as far as they can be found without running or importing
    anything that the graph names. Exit status 0 if the graph can be used (there may be warnings), 2 if not.
    """
    from dropflow.cli.graph_files import as_problems, component_options, examine_graph
    from dropflow.errors import UsageError

    try:
        found = examine_graph(
            graph, configuration=configuration, settings=settings, components=component_options(elsewhere=elsewhere)
        )
        family, problems = found.family, found.problems
    except UsageError as error:
        family, problems = "", as_problems(error)
    ok = not any(found.severity is Severity.ERROR for found in problems)
    output.answer(CheckReply(ok=ok, format=family, problems=problems))
    return Exit.FINISHED if ok else Exit.BAD_INPUT
