"""``dropflow submit``: translate a graph here, and run it on the nodes of a manager."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.client_options import asks, patience_option
from dropflow.cli.exits import Exit
from dropflow.cli.options import graph_argument, setting_options, speaks

if TYPE_CHECKING:
    from dropflow.cli.connection import Target
    from dropflow.cli.output import Output

__all__ = ["submit"]


@click.command("submit")
@speaks
@graph_argument
@asks
@setting_options
@click.option("--session", default="", metavar="NAME", help="Name of the session; made from the graph's by default.")
@click.option(
    "-n", "--parts", type=click.IntRange(min=1), help="Cut the graph into this many parts; one per node by default."
)
@click.option(
    "-a", "--algorithm", default=None, metavar="NAME", help="How to cut: metis (the default), blocks or none."
)
@click.option(
    "--random", "seed", type=int, metavar="SEED", help="Give each drop a part at random, instead: for tests of links."
)
@click.option("--anew", is_flag=True, help="Place the graph anew, whatever nodes it names.")
@click.option("--wait", is_flag=True, help="Follow the session to its end; status and answer are those of run.")
@patience_option
@click.option("--check", is_flag=True, help="Let the nodes check their whole state after every step; slow.")
def submit(
    output: "Output",
    *,
    target: "Target",
    graph: str,
    configuration: str | None,
    settings: tuple[str, ...],
    session: str,
    parts: int | None,
    algorithm: str | None,
    seed: int | None,
    anew: bool,
    wait: bool,
    patience: float,
    check: bool,
) -> Exit:
    """Run GRAPH on the nodes of a manager.

    It is translated and cut here, into one part for each node that is alive, and deployed. A graph that is placed
    already (dropflow map) goes to the nodes that it names. Without --wait the answer is the session's name; with it,
    the exit status is 0 if the session FINISHED, 1 if not, 3 if its end is not known because the manager or nodes do
    not answer (see --patience), and 130 if you stopped waiting: the session goes on.
    """
    from dropflow.cli.submitting import SubmitOptions, submit_graph

    return submit_graph(
        output,
        target,
        SubmitOptions(
            graph=graph,
            configuration=configuration,
            settings=settings,
            session=session,
            parts=parts,
            algorithm=algorithm,
            seed=seed,
            anew=anew,
            wait=wait,
            patience=patience,
            check=check,
        ),
    )
