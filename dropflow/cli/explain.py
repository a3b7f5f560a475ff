"""``dropflow explain``: why a drop of a run is where it is, from the run's graph and journal."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.output import Output

__all__ = ["explain"]


@click.command("explain")
@speaks
@click.argument("directory", metavar="RUN")
@click.argument("drop", metavar="DROP")
def explain(output: "Output", *, directory: str, drop: str) -> Exit:
    """Explain the state of DROP in RUN, the directory of a run.

    DROP is a text id as reports show it, or the end of one if only one drop ends so. The journal is replayed, so this
    works for runs that failed, were cancelled, died or still go on.
    """
    from pathlib import Path

    from dropflow.cli.replies import ExplainReply
    from dropflow.engine.explain import explain as explained
    from dropflow.engine.journal import replay
    from dropflow.graph.codec import load
    from dropflow.graph.names import find_drop

    graph = load(Path(directory, "graph.dfg"))
    core = replay(graph, Path(directory, "journal.dfj"))
    found = explained(core, find_drop(graph, drop))
    output.answer(ExplainReply(session=core.status.name, drop=found.oid, state=found.state.name, reasons=found.lines))
    return Exit.FINISHED
