"""``dropflow check``: all problems of a graph, without unrolling or running it."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import graph_argument, output_options, setting_options
from dropflow.cli.output import CommandOutput
from dropflow.formatting import plural
from dropflow.problems import Problem, Severity

__all__ = ["command"]


class FixReply(msgspec.Struct, frozen=True, kw_only=True):
    """One correction: the code of the finding, the place in the file, and what was changed."""

    code: str
    where: str
    text: str


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """All problems of a graph; with ``--fix`` those that remain, the corrections, and their difference as text."""

    ok: bool
    format: str
    problems: tuple[Problem, ...] = ()
    fixed: tuple[FixReply, ...] = ()
    diff: str = ""

    def lines(self) -> Iterator[str]:
        """The corrections and their difference, all problems, then whether the graph is usable."""
        yield from self.diff.splitlines()
        yield from (f"fixed {one.code} {one.where}: {one.text}" for one in self.fixed)
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
@click.option("--here", is_flag=True, help="GRAPH is to run on this host: what cannot run here is an error.")
@click.option("--fix", is_flag=True, help="Correct what needs no decision in the file, and show the difference.")
@click.option("-o", "target", metavar="FILE", help="With --fix: write the result to FILE, not to GRAPH.")
def command(
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
    from dropflow.cli.graph_files import as_problems, examine_graph
    from dropflow.errors import UsageError
    from translator.stage_options import ComponentOptions

    made: tuple[FixReply, ...] = ()
    difference = ""
    if fix:
        graph, made, difference = _fix(graph, target)
    try:
        found = examine_graph(
            graph, configuration=configuration, settings=settings, components=ComponentOptions(here=here)
        )
        family, problems = found.family, found.problems
    except UsageError as error:
        family, problems = "", as_problems(error)
    ok = not any(found.severity is Severity.ERROR for found in problems)
    output.answer(CheckReply(ok=ok, format=family, problems=problems, fixed=made, diff=difference))
    return Exit.FINISHED if ok else Exit.BAD_INPUT


def _fix(graph: str, target: str | None) -> tuple[str, tuple[FixReply, ...], str]:
    """Correct a file; return the file to check, the corrections, and their difference."""
    from difflib import unified_diff
    from pathlib import Path

    from dropflow.cli.graph_files import replace_file
    from dropflow.errors import UsageError
    from translator.fixes import fixed
    from translator.formats.json_document import parse
    from translator.formats.load import read_logical
    from translator.formats.read_file import read_file
    from translator.pipeline import examine
    from translator.stage_options import ReadOptions

    if graph == "-":
        raise UsageError("standard input cannot be corrected", hint="give the graph as a file")
    data = read_file(Path(graph))
    reading = read_logical(data, name=Path(graph).stem)
    if reading.graph is None:
        return graph, (), ""
    before = parse(data, ReadOptions()).value
    after, fixes = fixed(before, reading.graph, examine(data, name=Path(graph).stem).problems)
    file = target or graph
    old, new = (msgspec.json.format(msgspec.json.encode(one), indent=4) for one in (before, after))
    if fixes or target:
        replace_file(Path(file), new + b"\n")
    lines = unified_diff(old.decode().splitlines(), new.decode().splitlines(), graph, file, lineterm="", n=2)
    return file, tuple(FixReply(code=one.code, where=one.where, text=one.text) for one in fixes), "\n".join(lines)
