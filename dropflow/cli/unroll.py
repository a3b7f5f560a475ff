"""``dropflow unroll``: make a physical graph from a logical graph."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.cli.error_reply import problem_lines
from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import (
    ConnectionOptions,
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
from dropflow.cli.progress import columns
from dropflow.cli.times import are_directories, sections_of_directories, sections_of_session
from dropflow.errors import NotFoundError
from dropflow.problems import Problem, Severity

__all__ = [
    "measured_by",
    "run_of",
    "unroll_command",
]


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
def unroll_command(
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
    from dropflow.graph.physical import without_fusion
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


# Measurements for plans: of the directory of a run, of a session of a manager, or of the file of a
# profile.

if TYPE_CHECKING:
    from dropflow.times.measured_run import MeasuredRun
    from translator.plan.measured import MeasuredNode


def run_of(output: CommandOutput, manager: ConnectionOptions, runs: Sequence[str]) -> "MeasuredRun":
    """Return what the directories of one run, or a session of a manager, have recorded.

    Notes tell which nodes of a session did not answer.

    Raises
    ------
    NotFoundError
        There is no such run or session.
    """
    import numpy as np

    from dropflow.times.measured_run import MeasuredRun

    if are_directories(manager, runs):
        graph, sections = sections_of_directories(runs)
    else:
        graph, sections = sections_of_session(manager, runs[0])
    for section in sections:
        if section.missing:
            output.note(f"node {section.node} did not answer: its attempts are missing ({section.missing})")
    return MeasuredRun(graph, np.concatenate([section.records for section in sections]))


def measured_by(output: CommandOutput, manager: ConnectionOptions, profiles: Sequence[str]) -> "Iterator[MeasuredNode]":
    """Yield what runs, sessions and files of profiles have measured.

    Raises
    ------
    NotFoundError
        There is no such run, session or file, or nothing of it was recorded.
    BadFileError
        A file is not a profile.
    """
    from translator.plan.measured import measured_nodes
    from translator.plan.profile_file import read_profile

    for profile in profiles:
        if Path(profile).is_file():
            yield from read_profile(Path(profile))
            continue
        run = run_of(output, manager, [profile])
        if not len(run.records):
            raise NotFoundError("this run has recorded no attempts", where=profile, hint="run it again")
        yield from measured_nodes(run)
