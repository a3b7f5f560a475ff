"""``dropflow explain``: why a drop is where it is, from the journal of a run here or from the node that holds it."""

from typing import TYPE_CHECKING

import click

from dropflow.cli.client_options import asks
from dropflow.cli.exits import Exit
from dropflow.cli.options import speaks

if TYPE_CHECKING:
    from dropflow.cli.connection import Target
    from dropflow.cli.output import Output
    from dropflow.cli.replies import ExplainReply
    from dropflow.failure import Failure
    from dropflow.rest.schema import FailureInfo

__all__ = ["explain"]


@click.command("explain")
@speaks
@click.argument("run", metavar="RUN")
@click.argument("drop", metavar="DROP")
@asks
def explain(output: "Output", *, target: "Target", run: str, drop: str) -> Exit:
    """Explain the state of DROP in RUN, the directory of a run, or a session of a manager.

    DROP is a text id as reports show it, or the end of one if only one drop ends so. In a directory the journal is
    replayed, so this works for runs that failed, were cancelled, died or still go on. Where there is no directory of a
    run of that name, or with --to, RUN is a session.
    """
    from pathlib import Path

    # 'dropflow fetch' makes a directory of the session's name, which is not that of a run.
    here = target.url is None and (Path(run, "journal.dfj").exists() or "/" in run)
    output.answer(_of_directory(run, drop) if here else _of_session(target, run, drop))
    return Exit.FINISHED


def _of_directory(directory: str, drop: str) -> "ExplainReply":
    from pathlib import Path

    from dropflow.cli.replies import ExplainReply
    from dropflow.engine.explain import explain as explained
    from dropflow.engine.journal import replay
    from dropflow.graph.codec import load
    from dropflow.graph.text_ids import find_drop

    graph = load(Path(directory, "graph.dfg"))
    course = replay(graph, Path(directory, "journal.dfj"))
    found = explained(course.core, find_drop(graph, drop))
    failure = None if found.cause is None else course.failures.get(found.cause)
    reasons = (*found.lines, *_words(failure))
    return ExplainReply(session=course.core.status.name, drop=found.oid, state=found.state.name, reasons=reasons)


def _of_session(target: "Target", session: str, drop: str) -> "ExplainReply":
    from dropflow.cli.connection import connect
    from dropflow.cli.replies import ExplainReply

    with connect(target) as client:
        found = client.drop(session, drop)
        status = client.session(session).status
    reasons = (*found.reasons, *_words(found.failure))
    return ExplainReply(session=status, drop=found.oid, state=found.state, reasons=reasons)


def _words(failure: "Failure | FailureInfo | None") -> tuple[str, ...]:
    """What the failure says that put a drop in ERROR."""
    if failure is None:
        return ()
    return tuple(line for line in (f"{failure.code} {failure.text}".strip(), failure.hint) if line)
