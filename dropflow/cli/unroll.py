"""``dropflow unroll``: a logical graph becomes a physical graph."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import (
    elsewhere_option,
    form_option,
    graph_argument,
    prefix_option,
    setting_options,
    speaks,
    target_option,
)

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["unroll"]


@click.command("unroll")
@speaks
@graph_argument
@setting_options
@prefix_option
@target_option
@form_option
@elsewhere_option
@click.option("--summary", is_flag=True, help="Answer with the counts of drops and edges instead of the graph.")
def unroll(
    output: "Output",
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    prefix: str,
    target: str | None,
    form: str | None,
    elsewhere: bool,
    summary: bool,
) -> Exit:
    """Unroll GRAPH into a physical graph.

    The physical graph goes to FILE, or to standard output where no file is named. With --summary, or with a file, the
    answer is how many drops and edges it has.
    """
    from dropflow.cli.replies import UnrollReply, as_problems, counts
    from dropflow.cli.sink import format_for, write_graph
    from dropflow.cli.source import component_options, examine_source, note_problems
    from dropflow.errors import UsageError
    from translator.pipeline import finish

    if target is not None:
        form = format_for(target, form)
    family = ""
    try:
        found = examine_source(
            graph,
            configuration=configuration,
            settings=settings,
            prefix=prefix,
            components=component_options(elsewhere=elsewhere),
        )
        family = found.family
        done = finish(found)
    except UsageError as error:
        output.refuse(UnrollReply(ok=False, format=family, problems=as_problems(error)))
        return Exit.BAD_INPUT
    if target is None and not summary:
        target = "-"
    if target is not None:
        write_graph(done.graph, target, form)
    if target == "-":
        note_problems(output, done.problems)
        return Exit.FINISHED
    output.answer(UnrollReply(ok=True, format=done.family, problems=done.problems, **counts(done.graph)))
    return Exit.FINISHED
