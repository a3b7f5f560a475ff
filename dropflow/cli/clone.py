"""``dropflow clone``: run the graph of a session again, with other values and options."""

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    ConnectionOptions,
    connection_options,
    output_options,
    patience_option,
    session_argument,
    setting_options,
)
from dropflow.cli.output import CommandOutput
from dropflow.cli.planning_options import PlanningChoice, planning_options
from dropflow.cli.run_or_session import continue_session
from dropflow.cli.submission_options import GivenOptions, submission_options
from dropflow.cli.submit import PlacementOptions, submit_fitted
from dropflow.errors import UsageError
from dropflow.ids import SESSION_NAME_HINT, is_session_name
from dropflow.rest.session_records import SubmitQuery

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.rest.client import Client
    from dropflow.rest.session_records import SessionInfo
    from dropflow.rest.submit_options import SubmitOptions

__all__ = ["command"]


@click.command("clone")
@output_options
@session_argument
@connection_options
@setting_options
@click.option("--name", default="", metavar="NAME", help="Name of the new session; made from the graph's by default.")
@click.option(
    "-n",
    "--parts",
    type=click.IntRange(min=1),
    help="Partition the graph into this many parts; one per node by default.",
)
@planning_options
@submission_options
@click.option("--wait", is_flag=True, help="Follow the new session to its end; status and answer are those of run.")
@patience_option
def command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    session: str,
    configuration: str | None,
    settings: tuple[str, ...],
    name: str,
    parts: int | None,
    choice: PlanningChoice,
    submission: GivenOptions,
    wait: bool,
    patience: float,
) -> Exit:
    """Run the graph of SESSION again, in a new session, with other values and options.

    The session has a copy of its logical graph, with the configuration and the settings of its submission. Values that
    --set and --config do not give stay as they were there. The graph is translated again, so that numbers of copies
    can change, and placed on the nodes that are there now. Without values any session can be cloned, also one of a
    physical graph. The session itself does not change.

    Options that are not given are those of the submission, not the defaults below: how the graph is planned, apart from
    the number of parts, and how the session runs. A walltime that has passed is left out.
    """
    if name and not is_session_name(name):
        raise UsageError(f"--name {name!r} is not a name of a session", hint=SESSION_NAME_HINT)

    def submit(client: "Client") -> "SessionInfo":
        from dropflow.cli.connection import patient
        from dropflow.graph.chains import with_fusion, without_fusion
        from dropflow.graph.planning_note import planning_of
        from dropflow.rest.submission_note import options_of

        original = client.graph(session)
        options = _options(output, options_of(original), submission, session)
        made = _translated(output, original, session, configuration, settings)
        graph = with_fusion(made) if options.fuse else without_fusion(made)
        planned = choice.over(planning_of(original))
        weighted = planned.measured(output, graph, manager)
        placement = PlacementOptions(parts=parts, choice=planned, anew=True)
        query = SubmitQuery.of(options, session=name)
        with closing(patient(client, manager, patience)) as asked:
            return submit_fitted(output, asked, weighted, query, placement, weight=graph.weight)[0]

    return continue_session(output, manager, submit, wait=wait, patience=patience)


def _options(output: CommandOutput, known: "SubmitOptions", submission: GivenOptions, session: str) -> "SubmitOptions":
    """Return the options of the new session."""
    from dropflow.clock import SystemClock
    from dropflow.rest.submission_note import without_past_walltime

    options = without_past_walltime(known, SystemClock().now())
    if known.until and not options.until and "until" not in submission.given:
        output.note(f"the walltime of session {session} has passed: the new session has none")
    return submission.over(options)


def _translated(
    output: CommandOutput, graph: "PhysicalGraph", session: str, configuration: str | None, settings: tuple[str, ...]
) -> "PhysicalGraph":
    """Return the graph with other values, without parts and nodes."""
    import numpy as np

    from dropflow.cli.graph_files import note_warnings
    from dropflow.graph.logical_note import logical_of, with_more_settings
    from translator.pipeline import translate

    note = logical_of(graph)
    if note is None:
        if configuration or settings:
            raise UsageError(
                f"session {session!r} has no copy of a logical graph, so its values cannot change",
                where="--set" if settings else "--config",
                hint="it was submitted as a physical graph; 'dropflow submit' takes the logical graph and --set",
            )
        part = np.zeros(graph.drops, dtype=np.int32)
        part.flags.writeable = False
        return replace(graph, part=part, places=(), planned=None)
    found = translate(
        note.document,
        name=graph.name,
        configuration=configuration or note.configuration or None,
        settings=with_more_settings(note.settings, settings),
    )
    note_warnings(output, found.problems)
    return found.graph
