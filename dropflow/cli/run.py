"""``dropflow run``: the main job, one graph on this machine from its file to its results."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import graph_argument, setting_options, speaks

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["run"]


@click.command("run")
@speaks
@graph_argument
@setting_options
@click.option("-n", "--parts", type=click.IntRange(min=1), help="Cut the graph into this many parts first.")
@click.option(
    "--runner",
    type=click.Choice(["inline", "threads", "processes"]),
    default="processes",
    show_default=True,
    help="Where applications run: in this process one by one, in its threads, or in worker processes.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Number of threads or processes; one per core by default.")
@click.option(
    "--keep",
    metavar="DIR",
    help="Put the results into DIR instead of dropflow-runs/<graph>-<time>. An earlier run there is replaced.",
)
def run(
    output: "Output",
    *,
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    parts: int | None,
    runner: str,
    workers: int | None,
    keep: str | None,
) -> Exit:
    """Run GRAPH on this machine.

    Shows the progress of each logical node, and ends with where the results are; after a failure, with the drops that
    started it, why, and what to do. Ctrl-C cancels cleanly; a second one leaves at once. With --debug the
    whole state of the engine is checked after every step, which is slow.
    """
    from dropflow.cli.running import run_graph

    return run_graph(
        output,
        graph=graph,
        configuration=configuration,
        settings=settings,
        parts=parts,
        runner=runner,
        workers=workers,
        keep=keep,
        debug=bool(click.get_current_context().params.get("debug")),
    )
