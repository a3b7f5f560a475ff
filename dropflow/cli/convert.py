"""``dropflow convert``: write a logical graph in the family of files that EAGLE uses today."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from dropflow.cli.candidates import graphs
from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import output_options
from dropflow.cli.output import CommandOutput
from dropflow.problems import Problem, Severity

__all__ = ["command"]


class ConvertReply(msgspec.Struct, frozen=True, kw_only=True):
    """The families of a graph before and after, and its file."""

    ok: bool
    format: str
    to: str
    file: str = ""
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """What was written, or why nothing was."""
        yield from problem_lines(self.problems, least=Severity.WARNING)
        yield f"wrote {self.file}: {self.format} became {self.to}" if self.ok else "cannot be converted"


@click.command("convert")
@output_options
@click.argument("graph", metavar="GRAPH", shell_complete=graphs)
@click.option(
    "--to", "family", type=click.Choice(["OJS-id", "V4"]), default="OJS-id", show_default=True, help="The family."
)
@click.option("-o", "target", metavar="FILE", help="Write the graph to FILE; by default to standard output.")
def command(output: CommandOutput, *, graph: str, family: str, target: str | None) -> Exit:
    """Write GRAPH, a logical graph of any family, in a current one.

    The result is the same graph: nodes, fields, edges and configurations. Layout, colours and provenance are not kept.
    """
    from dropflow.cli.graph_files import replace_file
    from translator.formats.detect import Family
    from translator.formats.dump import dump
    from translator.formats.load import read_logical
    from translator.formats.read_file import read_file

    data = sys.stdin.buffer.read() if graph == "-" else read_file(Path(graph))
    reading = read_logical(data, name="stdin" if graph == "-" else Path(graph).stem)
    fatal = any(one.severity is Severity.ERROR for one in reading.problems)
    if reading.graph is None or fatal:
        output.error(ConvertReply(ok=False, format=reading.family.value, to=family, problems=reading.problems))
        return Exit.BAD_INPUT
    text = msgspec.json.format(msgspec.json.encode(dump(reading.graph, Family(family))), indent=4) + b"\n"
    if target in (None, "-"):
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return Exit.FINISHED
    replace_file(Path(str(target)), text)
    output.answer(
        ConvertReply(ok=True, format=reading.family.value, to=family, file=str(target), problems=reading.problems)
    )
    return Exit.FINISHED
