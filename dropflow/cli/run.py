"""``dropflow run``: run a graph on this machine."""

from pathlib import Path

import click

from dropflow.cli.cancel_on_signal import CancelOnSignal
from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    fuse_option,
    grace_option,
    graph_argument,
    output_options,
    runner_options,
    setting_options,
)
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.cli.run_reply import RunReply, exit_of_run
from dropflow.cli.walltime import until_option

__all__ = ["command"]


@click.command("run")
@output_options
@graph_argument
@setting_options
@click.option("-n", "--parts", type=click.IntRange(min=1), help="Partition the graph into this many parts first.")
@runner_options
@fuse_option
@grace_option
@until_option
@click.option(
    "--keep",
    metavar="DIR",
    help="Put the results into DIR instead of dropflow-runs/<graph>-<time>; a run there is not replaced.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier run in --keep DIR, with all of its results.")
def command(
    output: CommandOutput,
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    parts: int | None,
    runner: str,
    workers: int | None,
    infrastructure_retries: int,
    durable: bool,
    no_fuse: bool,
    keep: str | None,
    overwrite: bool,
    grace: float,
    until: float,
) -> Exit:
    """Run GRAPH on this machine.

    Shows the progress of each logical node, then where the results are; after a failure, its root causes and what to
    do. Ctrl-C cancels the session: running applications clean up, as with 'dropflow cancel'. A second Ctrl-C ends the
    command immediately. With --debug all state of the engine is checked after every step, which is slow. A run that was
    killed or cancelled is continued by 'dropflow resume'; 'dropflow retry' tries failed drops again.

    With --until, for batch jobs, nothing is started that cannot end by then. If drops are left when the rest has ended,
    the session is PAUSED and the exit status is 4; 'dropflow resume' goes on with them.
    """
    from dropflow import local
    from dropflow.cli.graph_files import note_warnings, read_graph
    from dropflow.cli.progress import session_progress
    from dropflow.graph.chains import without_fusion
    from translator.partition.registry import partition
    from translator.stage_options import ComponentOptions, PartitionOptions

    translation = read_graph(
        graph, configuration=configuration, settings=settings, components=ComponentOptions(here=True)
    )
    note_warnings(output, translation.problems)
    physical = translation.graph
    if parts is not None:
        physical = partition(physical, PartitionOptions(parts=parts))
    if no_fuse:
        physical = without_fusion(physical)
    local.refuse_unusable(physical, runner)  # before an earlier run in the same directory is removed
    for note in local.placement_notes(physical, runner):
        output.note(note)
    directory = local.prepare_directory(Path(keep), overwrite=overwrite) if keep else local.new_directory(physical)
    with CancelOnSignal(grace) as signals, session_progress(quiet=output.kind is OutputKind.QUIET) as show:
        result = local.run(
            physical,
            directory=directory,
            runner=runner,
            workers=workers,
            durable=durable,
            until=until,
            on_session=signals.watch,
            on_statistics=show,
            infrastructure_retries=infrastructure_retries,
            check_invariants=bool(click.get_current_context().params.get("debug")),
        )
    output.answer(RunReply.of(result))
    return exit_of_run(result.status, signals.last)
