"""``dropflow submit``: graphs on the nodes of a manager."""

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from dropflow.api.requests import SubmitQuery
from dropflow.cli.candidates import graphs, sessions
from dropflow.cli.common_options import (
    GivenOptions,
    connection_options,
    options_of,
    output_options,
    patience_option,
    setting_options,
)
from dropflow.cli.exit_status import Exit
from dropflow.cli.graphs.plan_options import PlanningChoice, planning_options, seconds_by
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.ids import SESSION_NAME_HINT, is_session_name
from dropflow.session_options import SubmitOptions
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.cli.run import ForecastReply
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.times.measured_run import MeasuredSeconds


@click.command("submit")
@output_options
@click.argument("graph", metavar="[GRAPH]", required=False, shell_complete=graphs)
@connection_options
@setting_options
@click.option(
    "--like",
    metavar="SESSION",
    shell_complete=sessions,
    help="Run the graph of this session again, with its values and options but for those that are given.",
)
@click.option("--name", default="", metavar="NAME", help="Name of the session; made from the graph's by default.")
@click.option(
    "-n",
    "--parts",
    type=click.IntRange(min=1),
    help="Partition the graph into this many parts; one per node by default.",
)
@planning_options
@click.option("--random", metavar="SEED", type=int, help="Assign drops to parts at random instead, to test links.")
@click.option("--anew", is_flag=True, help="Place the graph again, even if it names nodes.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Submit nothing: show what --reuse would take on nodes that share the result store, what would run, why, and "
    "what it costs.",
)
@click.option("--wait", is_flag=True, help="Follow the session to its end; status and answer are those of run.")
@patience_option
@options_of(SubmitOptions)
def submit_command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    graph: str | None,
    configuration: str | None,
    settings: tuple[str, ...],
    like: str | None,
    name: str,
    parts: int | None,
    choice: PlanningChoice,
    random: int | None,
    anew: bool,
    dry_run: bool,
    wait: bool,
    patience: float,
    options: GivenOptions[SubmitOptions],
) -> Exit:
    """Run GRAPH on the nodes of a manager.

    It is translated and planned here, with one part for each node that is alive, and deployed. The plan counts with the
    capacities of the nodes, and with their load now. A graph that is placed already (dropflow map) goes to the nodes
    that it names. Without --wait the answer is the session's name; with it, the exit status is 0 if the session
    FINISHED, 1 if not, 3 if its end is not known because the manager or nodes do not answer (see --patience), and 130
    if you stopped waiting: the session continues. If the answer to the submission is lost, the manager is asked again,
    and not for a second session.

    With --until nothing is started, on any node, that cannot end by then. When the rest has ended, the session is
    CANCELLED, and the exit status is 4 with --wait; 'dropflow resume SESSION' goes on with it.

    With --dry-run, the result store is that of this host (DROPFLOW_STORE), and code is read here: on nodes with another
    one, or other code, more runs. The price is by the times of --profile, else by those in the result store.

    With --like there is no GRAPH: the logical graph of SESSION is translated again, so that numbers of copies can
    change, and placed on the nodes that are there now. Values that --set and --config do not give stay as they were
    there, and so do options, how the graph is planned (apart from the number of parts) and how the session runs; a
    walltime that has passed is left out. The session of a physical graph can be run again without other values.
    SESSION itself does not change.
    """
    from dropflow.cli.graphs.graph_files import read_for_nodes
    from dropflow.cli.sessions.watch import answer_started
    from dropflow.graph.notes import planning_of
    from dropflow.graph.physical import with_fusion, without_fusion
    from dropflow.submission.connection import patient
    from dropflow.submission.submit import PlacementOptions, submit_fitted

    if (graph is None) == (like is None):
        raise UsageError("no graph is given", hint="give either GRAPH or --like SESSION")
    if name and not is_session_name(name):
        raise UsageError(f"--name {name!r} is not a name of a session", hint=SESSION_NAME_HINT)
    read = None if graph is None else read_for_nodes(output, graph, configuration, settings)
    with manager.connect() as client, closing(patient(client, manager, patience)) as patient_manager:
        chosen, whole = options.options, read
        if whole is None:
            original = client.graph(str(like))
            chosen = _options_like(output, original, str(like), options)
            whole = with_fusion(_translated(output, original, str(like), configuration, settings))
            choice = choice.over(planning_of(original))
        whole = whole if chosen.fuse else without_fusion(whole)
        planning = choice.options if choice.is_given else None
        placement = PlacementOptions(parts=parts, planning=planning, random=random, anew=anew or graph is None)
        if dry_run:
            output.answer(_foreseen(whole, chosen, seconds_by(output, whole, choice.profiles, manager)))
            return Exit.FINISHED
        weighted = choice.measured(output, whole, manager)
        query = SubmitQuery.of(chosen, session=name, anew=anew)
        info, parted = submit_fitted(patient_manager, weighted, query, placement, weight=whole.weight, note=output.note)
        if whole.places and not wait:  # the manager may have chosen other nodes, and reports that in a note
            info = patient_manager.client.session(info.session)
        seconds = patience if wait else None
        return answer_started(output, manager, client.url, info, patience=seconds, parts=parted.parts)


def _foreseen(graph: "PhysicalGraph", chosen: SubmitOptions, measured: "MeasuredSeconds | None") -> "ForecastReply":
    """Return what a session of a graph would run on nodes that have the result store of this host."""
    from dropflow.cli.run import ForecastReply
    from dropflow.session_options import RunOptions
    from dropflow.sessions.local_run import foresee

    options = RunOptions(trust_times=chosen.trust_times)
    return ForecastReply.of(foresee(graph, options, is_here=False, measured=measured))


def _options_like(
    output: CommandOutput, original: "PhysicalGraph", session: str, given: GivenOptions[SubmitOptions]
) -> SubmitOptions:
    """Return the options of an earlier submission, but for those that are given, and a walltime that has passed."""
    from dropflow.clock import SystemClock
    from dropflow.graph.notes import submission_options, without_past_walltime

    known = submission_options(original)
    kept = without_past_walltime(known, SystemClock().now())
    if known.until and not kept.until and "until" not in given.given:
        output.note(f"the walltime of session {session} has passed: the new session has none")
    return given.over(kept)


def _translated(
    output: CommandOutput, graph: "PhysicalGraph", session: str, configuration: str | None, settings: tuple[str, ...]
) -> "PhysicalGraph":
    """Return the graph with other values, without parts and nodes."""
    import numpy as np

    from dropflow.cli.graphs.graph_files import note_warnings
    from dropflow.graph.notes import logical_of, with_more_settings
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
    translated = translate(
        note.document,
        name=graph.name,
        configuration=configuration or note.configuration or None,
        settings=with_more_settings(note.settings, settings),
    )
    note_warnings(output, translated.problems)
    return translated.graph
