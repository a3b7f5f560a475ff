"""``dropflow check``: all problems of a graph, and corrections that need no decision."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.common_options import graph_argument, output_options, setting_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, output_file, problem_lines
from dropflow.errors import UsageError
from dropflow.failure import Problem, Severity
from dropflow.formatting import plural

if TYPE_CHECKING:
    from translator.validate import Fix


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """All problems of a graph; with ``--fix`` those that remain, the corrections, and their difference as text."""

    ok: bool
    format: str
    problems: tuple[Problem, ...] = ()
    fixed: tuple["Fix", ...] = ()
    diff: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the corrections and their difference, all problems, then whether the graph is usable."""
        yield from self.diff.splitlines()
        yield from (f"fixed {fix.code} {fix.where}: {fix.text}" for fix in self.fixed)
        yield from problem_lines(self.problems)
        counts = {severity: sum(problem.severity is severity for problem in self.problems) for severity in Severity}
        errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
        counted = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
        family = f" ({self.format})" if self.format else ""
        yield f"{'usable' if self.ok else 'not usable'}{family}: {counted}"


@click.command("check")
@output_options
@graph_argument
@setting_options
@click.option("--here", is_flag=True, help="GRAPH is to run on this host: nodes that cannot run here are errors.")
@click.option("--fix", is_flag=True, help="Correct mistakes that need no decision, and show the difference.")
@click.option("-o", "target", metavar="FILE", help="With --fix: write the result to FILE, not to GRAPH.")
def check_command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    here: bool,
    fix: bool,
    target: str | None,
) -> Exit:
    """Report all problems of GRAPH.

    Nothing that the graph names is run or imported. What is wrong with its structure is an error. What cannot run on
    this host, such as a class that is not installed, is a warning, as the graph may run on other hosts; with --here it
    is an error, as for run. Exit status 0 if the graph can be used (there may be warnings), 2 if not.

    With --fix, findings with one possible correction are corrected in the file: old categories, numbers as text,
    repeated edges, and marks of edges. The problems are then those that remain.
    """
    from dropflow.cli.graphs.graph_files import as_problems, examine_graph
    from translator.options import ComponentOptions

    made: tuple[Fix, ...] = ()
    difference = ""
    if fix:
        graph, made, difference = _fix(graph, target)
    try:
        examined = examine_graph(
            graph, configuration=configuration, settings=settings, components=ComponentOptions(here=here)
        )
        family, problems = examined.family, examined.problems
    except UsageError as error:
        family, problems = "", as_problems(error)
    ok = not any(problem.severity is Severity.ERROR for problem in problems)
    output.answer(CheckReply(ok=ok, format=family, problems=problems, fixed=made, diff=difference))
    return Exit.FINISHED if ok else Exit.BAD_INPUT


def _fix(graph: str, target: str | None) -> tuple[str, tuple["Fix", ...], str]:
    """Correct a file; return the file to check, the corrections, and their difference."""
    from difflib import unified_diff

    from translator.formats.json_document import parse, read_file
    from translator.formats.load import read_logical
    from translator.options import ReadOptions
    from translator.pipeline import examine
    from translator.repository import is_repository_address
    from translator.validate import fixed

    if graph == "-":
        raise UsageError("standard input cannot be corrected", hint="give the graph as a file")
    if is_repository_address(graph):
        raise UsageError("a graph in a repository cannot be corrected there", where=graph, hint="clone the repository")
    data = read_file(Path(graph))
    reading = read_logical(data, name=Path(graph).stem)
    if reading.graph is None:
        return graph, (), ""
    before = parse(data, ReadOptions()).value
    after, fixes = fixed(before, reading.graph, examine(data, name=Path(graph).stem).problems)
    file = target or graph
    old, new = (msgspec.json.format(msgspec.json.encode(document), indent=4) for document in (before, after))
    if fixes or target:
        with output_file(Path(file)) as stream:
            stream.write(new + b"\n")
    lines = unified_diff(old.decode().splitlines(), new.decode().splitlines(), graph, file, lineterm="", n=2)
    return file, fixes, "\n".join(lines)
