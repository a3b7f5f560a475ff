"""``dropflow diff``: the differences of two logical graphs in meaning, or of two runs or sessions."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.candidates import runs
from dropflow.cli.common_options import connection_options, output_options
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput, problem_lines
from dropflow.errors import UsageError
from dropflow.failure import Problem, Severity
from dropflow.formatting import plural
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from translator.differences import LogicalDifference


class DiffReply(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of two graphs; `same` if there are none."""

    ok: bool
    same: bool
    differences: tuple["LogicalDifference", ...] = ()
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
            yield from (f"{signs[difference.change]} {difference.text}" for difference in self.differences)
            yield plural(len(self.differences), "difference")


@click.command("diff")
@output_options
@click.argument("first", metavar="A", shell_complete=runs)
@click.argument("second", metavar="B", shell_complete=runs)
@click.option("--other-to", "other_url", metavar="URL", help="The manager of session B, if it is not that of A.")
@connection_options
def diff_command(
    output: CommandOutput, *, manager: ConnectionOptions, first: str, second: str, other_url: str | None
) -> Exit:
    """Show what differs between A and B: two logical graphs, or two runs or sessions.

    Files are logical graphs, which are compared in meaning: layout, the order of nodes, and old and new spellings make
    no difference.

    Directories of runs and sessions of a manager, which may be running, are compared by graph, parameters, versions,
    plan, drops, times and failures. Ratios are B divided by A. 'same' at a level means the same components and links
    (graph), also the same parameters, the same versions of dropflow and Python (software), and the same results by
    size and checksum (contents).

    Exit status 0 if the graphs mean the same, or the sessions ran the same graph with the same parameters; 1 if not; 2
    if one of them cannot be read.
    """
    are_files = [name == "-" or Path(name).is_file() for name in (first, second)]
    if not any(are_files):
        from dropflow.cli.graphs.compare import compare

        return compare(output, manager, first, second, other_url)
    if not all(are_files):
        raise UsageError(
            f"{second if are_files[0] else first} is not a file, and cannot be compared with a logical graph",
            hint="give two files, or two directories or sessions",
        )
    from dropflow.cli.graphs.graph_files import read_document
    from translator.differences import differences
    from translator.formats.load import read_logical

    before, after = (read_logical(data, name=name) for name, data in map(read_document, (first, second)))
    if before.graph is None or after.graph is None:
        output.error(DiffReply(ok=False, same=False, problems=(*before.problems, *after.problems)))
        return Exit.BAD_INPUT
    changes = differences(before.graph, after.graph)
    output.answer(DiffReply(ok=True, same=not changes, differences=changes))
    return Exit.FINISHED if not changes else Exit.FAILED
