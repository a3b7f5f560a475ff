"""``dropflow unroll``: make a physical graph from a logical graph."""

from collections.abc import Iterator

import click
import msgspec

from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    GraphFormat,
    form_option,
    fuse_option,
    graph_argument,
    output_options,
    prefix_option,
    setting_options,
    target_option,
)
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.tables import columns
from dropflow.problems import Problem, Severity

__all__ = ["command"]


class UnrollReply(msgspec.Struct, frozen=True, kw_only=True):
    """The size of an unrolled graph, or why it cannot be unrolled.

    `edges` counts pairs of drops that are joined, `connections` counts their ports too: two drops that are joined at
    two ports are one edge and two connections. `graph` is the graph itself, unless it went elsewhere.
    """

    ok: bool
    format: str
    drops: int = 0
    data_drops: int = 0
    app_drops: int = 0
    edges: int = 0
    connections: int = 0
    problems: tuple[Problem, ...] = ()
    graph: msgspec.Raw | str | msgspec.UnsetType = msgspec.UNSET

    def lines(self) -> Iterator[str]:
        """The counts, after warnings; or the problems."""
        if not self.ok:
            yield from problem_lines(self.problems)
            yield "cannot be translated"
            return
        yield from problem_lines(self.problems, least=Severity.WARNING)
        yield f"{self.format} graph"
        yield from columns(
            [
                ("drops", self.drops),
                ("data drops", self.data_drops),
                ("app drops", self.app_drops),
                ("edges", self.edges),
            ]
        )


@click.command("unroll")
@output_options
@graph_argument
@setting_options
@prefix_option
@target_option
@form_option
@fuse_option
@click.option("--summary", is_flag=True, help="Answer with the counts of drops and edges instead of the graph.")
def command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
    target: str | None,
    form: GraphFormat | None,
    no_fuse: bool,
    summary: bool,
) -> Exit:
    """Unroll GRAPH into a physical graph.

    The physical graph goes to FILE, or to standard output where no file is named. With --summary, or with a file, the
    answer is how many drops and edges it has. With --output json and without -o, the answer has the counts and the
    graph; -o - prints the graph alone. What cannot run on this host is a warning, as for check.
    """
    from dropflow.cli.graph_files import (
        as_problems,
        count_drops,
        examine_graph,
        graph_for_answer,
        graph_target,
        note_warnings,
    )
    from dropflow.errors import UsageError
    from dropflow.graph.chains import without_fusion
    from translator.pipeline import finish

    inside = target is None and not summary and output.kind is OutputKind.JSON
    if target is None and not summary:
        target = "-"
    written = None if target is None else graph_target(target, form)
    if no_fuse and written is not None and written.form != "dfg":
        raise UsageError(
            f"{written.form} files have no place for --no-fuse",
            hint="write a .dfg file, or use --no-fuse of run or submit",
        )
    family = ""
    try:
        found = examine_graph(
            graph,
            configuration=configuration,
            settings=settings,
            prefix=prefix,
        )
        family = found.family
        done = finish(found)
    except UsageError as error:
        output.error(UnrollReply(ok=False, format=family, problems=as_problems(error)))
        return Exit.BAD_INPUT
    made = without_fusion(done.graph) if no_fuse else done.graph
    if written is not None and not inside:
        written.write(made)
        if written.is_standard_output:
            note_warnings(output, done.problems)
            return Exit.FINISHED
    shown = graph_for_answer(made, form) if inside else msgspec.UNSET
    counts = count_drops(done.graph)
    output.answer(UnrollReply(ok=True, format=done.family, problems=done.problems, graph=shown, **counts))
    return Exit.FINISHED
