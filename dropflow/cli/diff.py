"""``dropflow diff``: the differences of two logical graphs in meaning."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from dropflow.cli.candidates import graphs
from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.formatting import plural
from dropflow.problems import Problem, Severity

__all__ = ["command"]


class DifferenceReply(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: in words, and as values."""

    change: str
    what: str
    where: str
    old: Any = None
    new: Any = None
    text: str


class DiffReply(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two graphs; `same` if there are none."""

    ok: bool
    same: bool
    differences: tuple[DifferenceReply, ...] = ()
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line for each difference."""
        yield from problem_lines(self.problems, least=Severity.ERROR)
        if not self.ok:
            yield "cannot be compared"
        elif self.same:
            yield "the graphs mean the same"
        else:
            signs = {"added": "+", "removed": "-", "changed": "~"}
            yield from (f"{signs[one.change]} {one.text}" for one in self.differences)
            yield plural(len(self.differences), "difference")


@click.command("diff")
@output_options
@click.argument("old", metavar="A", shell_complete=graphs)
@click.argument("new", metavar="B", shell_complete=graphs)
def command(output: CommandOutput, *, old: str, new: str) -> Exit:
    """Show the differences of two logical graphs A and B in meaning.

    Layout, the order of nodes, and old and new spellings of a file make no difference. Exit status 0 if the graphs mean
    the same, 1 if not, 2 if one of them cannot be read.
    """
    from translator.differences import differences
    from translator.formats.load import read_logical
    from translator.formats.read_file import read_file

    readings = []
    for name in (old, new):
        data = sys.stdin.buffer.read() if name == "-" else read_file(Path(name))
        readings.append(read_logical(data, name="stdin" if name == "-" else Path(name).stem))
    problems = tuple(one for reading in readings for one in reading.problems)
    before, after = readings[0].graph, readings[1].graph
    if before is None or after is None:
        output.error(DiffReply(ok=False, same=False, problems=problems))
        return Exit.BAD_INPUT
    found = differences(before, after)
    replies = tuple(msgspec.convert(msgspec.to_builtins(one), DifferenceReply) for one in found)
    output.answer(DiffReply(ok=True, same=not found, differences=replies))
    return Exit.FINISHED if not found else Exit.FAILED
