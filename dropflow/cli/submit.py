"""``dropflow submit``: graphs on the nodes of a manager."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import click
import msgspec

from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionInfo
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
from dropflow.cli.graph_options import PlanningChoice, planning_options, seconds_by, usable_nodes
from dropflow.cli.output import CommandOutput
from dropflow.errors import BadGraphError, UsageError
from dropflow.formatting import few
from dropflow.ids import SESSION_NAME_HINT, is_session_name
from dropflow.session_options import SubmitOptions
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.api.patience import PatientClient
    from dropflow.cli.run import ForecastReply
    from dropflow.graph.physical import FloatColumn, PhysicalGraph
    from dropflow.times.measured_run import MeasuredSeconds
    from translator.plan.machines import LiveMachines


_FITS = 3
"""How often a graph is placed while nodes are lost."""


class PlacementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that say how to partition and place a graph; see their help."""

    parts: int | None = None
    choice: PlanningChoice = PlanningChoice()
    random: int | None = None
    anew: bool = False

    @property
    def is_given(self) -> bool:
        """Whether an option requests a partition."""
        return self.parts is not None or self.random is not None or self.choice.is_given


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
    help="Submit nothing: show what --reuse would take on nodes that share the store, what would run, why, and what "
    "it costs.",
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
    that it names. Without --wait the answer is the session's name; with
    it, the exit status is 0 if the session FINISHED, 1 if not, 3 if its end is not known because the manager or nodes
    do not answer (see --patience), and 130 if you stopped waiting: the session continues. If the answer to the
    submission is lost, the manager is asked again, and not for a second session.

    With --until nothing is started, on any node, that cannot end by then. When the rest has ended, the session is
    CANCELLED, and the exit status is 4 with --wait; 'dropflow resume SESSION' goes on with it.

    With --dry-run, the store is that of this host (DROPFLOW_STORE), and code is read here: on nodes with another store,
    or other code, more runs. The price is by the times of --profile, else by those that the store has.

    With --like there is no GRAPH: the logical graph of SESSION is translated again, so that numbers of copies can
    change, and placed on the nodes that are there now. Values that --set and --config do not give stay as they were
    there, and so do options, how the graph is planned (apart from the number of parts) and how the session runs; a
    walltime that has passed is left out. The session of a physical graph can be run again without other values.
    SESSION itself does not change.
    """
    from dropflow.cli.graph_files import read_for_nodes
    from dropflow.cli.watch import answer_started
    from dropflow.graph.notes import planning_of
    from dropflow.graph.physical import with_fusion, without_fusion
    from dropflow.submission.connection import patient

    if (graph is None) == (like is None):
        raise UsageError("no graph is given", hint="give either GRAPH or --like SESSION")
    if name and not is_session_name(name):
        raise UsageError(f"--name {name!r} is not a name of a session", hint=SESSION_NAME_HINT)
    read = None if graph is None else read_for_nodes(output, graph, configuration, settings)
    with manager.connect() as client, closing(patient(client, manager, patience)) as asked:
        chosen, whole = options.options, read
        if whole is None:
            original = client.graph(str(like))
            chosen = _options_like(output, original, str(like), options)
            whole = with_fusion(_translated(output, original, str(like), configuration, settings))
            choice = choice.over(planning_of(original))
        whole = whole if chosen.fuse else without_fusion(whole)
        placement = PlacementOptions(parts=parts, choice=choice, random=random, anew=anew or graph is None)
        if dry_run:
            output.answer(_foreseen(whole, chosen, seconds_by(output, whole, choice.profiles, manager)))
            return Exit.FINISHED
        weighted = choice.measured(output, whole, manager)
        query = SubmitQuery.of(chosen, session=name, anew=anew)
        info, parted = submit_fitted(asked, weighted, query, placement, weight=whole.weight, note=output.note)
        if whole.places and not wait:  # the manager may have chosen other nodes, and reports that in a note
            info = asked.client.session(info.session)
        seconds = patience if wait else None
        return answer_started(output, manager, client.url, info, patience=seconds, parts=parted.parts)


def _foreseen(graph: "PhysicalGraph", chosen: SubmitOptions, measured: "MeasuredSeconds | None") -> "ForecastReply":
    """Return what a session of a graph would run on nodes that have the store of this host."""
    from dropflow.cli.run import ForecastReply
    from dropflow.session_options import RunOptions
    from dropflow.sessions.local_run import foresee

    options = RunOptions(trust_times=chosen.trust_times)
    return ForecastReply.of(foresee(graph, options, is_here=False, measured=measured))


def _options_like(
    output: CommandOutput, original: "PhysicalGraph", session: str, given: GivenOptions[SubmitOptions]
) -> SubmitOptions:
    """Return the options of an earlier submission, but for those that are given, and a walltime that has passed."""
    from dropflow.api.submission import submission_options, without_past_walltime
    from dropflow.clock import SystemClock

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

    from dropflow.cli.graph_files import note_warnings
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
    found = translate(
        note.document,
        name=graph.name,
        configuration=configuration or note.configuration or None,
        settings=with_more_settings(note.settings, settings),
    )
    note_warnings(output, found.problems)
    return found.graph


def submit_fitted(
    asked: "PatientClient",
    graph: "PhysicalGraph",
    query: SubmitQuery,
    options: PlacementOptions,
    *,
    weight: "FloatColumn | None",
    note: Callable[[str], object],
) -> tuple[SessionInfo, "PhysicalGraph"]:
    """Fit `graph` to the nodes of a manager, and submit it with `weight`; return the session and what was submitted.

    Nodes may be lost while the graph is fitted and sent. If the manager refuses it, the graph is fitted to the nodes
    that are left. If none is missing any more, or in the last turn, the manager chooses the nodes: it may have refused
    one whose last answer, from before its end, came late. Nodes that the user has chosen stay.
    """
    from dropflow.api.submission import submit_once

    nodes = usable_nodes(asked.client, note)
    for turn in count(1):
        fitted = fit(graph, nodes, options)
        parted = replace(fitted, weight=weight)
        try:
            # The plan does not count with what nodes can run: the manager moves what they cannot.
            return submit_once(asked, parted, msgspec.structs.replace(query, movable=fitted is not graph)), parted
        except BadGraphError as error:
            # One with problems is about the graph, and so is one after which the manager chose the nodes.
            if fitted is graph or error.problems or query.anew or turn == _FITS:
                raise
            nodes = usable_nodes(asked.client, note)
            lost = sorted(set(fitted.places) - {node.name for node in nodes.nodes})
            if not lost or turn + 1 == _FITS:
                query = msgspec.structs.replace(query, anew=True)
            why = f"without {few(lost)}" if lost else f"on nodes that the manager chooses: {error.text}"
            note(f"the graph is placed again, {why}")
    raise AssertionError  # the last turn returns or raises


def fit(graph: "PhysicalGraph", nodes: "LiveMachines", options: PlacementOptions) -> "PhysicalGraph":
    """Return `graph` in parts, placed on nodes if there is one for each part.

    A placed graph stays on its nodes and a partitioned graph keeps its parts unless the options ask for something else.
    If there are more parts than nodes, the manager places them, part k on the k-th node, round robin. Otherwise the
    graph gets its schedule on these nodes, which its timeline compares with what is executed.
    """
    from translator.plan.judge import with_schedule
    from translator.plan.planner import place
    from translator.plan.registry import machines_for, partition

    if graph.places and not (options.is_given or options.anew):
        return graph
    wanted = options.parts or len(nodes.nodes)
    machines = nodes.machines(wanted, graph.templates)
    if options.random is not None:
        if options.choice.is_given:
            raise UsageError("--random makes no plan: options of plans have no effect", hint="leave out one of them")
        parted = _at_random(graph, wanted, options.random)
    elif options.is_given or graph.parts == 1:
        where = machines if wanted <= len(nodes.nodes) else None
        planning = options.choice.for_parts(wanted)
        parted = partition(graph, planning, where)
        machines = machines_for(graph, planning, machines)
    else:
        parted, machines = replace(graph, places=()), nodes.machines(graph.parts, graph.templates)
    names = [node.name for node in machines.nodes]
    placed = place(parted, names) if parted.parts <= len(names) else parted
    return with_schedule(placed, machines)


def _at_random(graph: "PhysicalGraph", parts: int, seed: int) -> "PhysicalGraph":
    """Return `graph` with random parts: nearly all edges cross between parts, which tests the links."""
    import numpy as np

    from dropflow.graph.notes import note_processors

    part = np.random.default_rng(abs(seed)).integers(parts, size=graph.drops, dtype=np.int32)
    part.flags.writeable = False
    return replace(note_processors(graph, ()), part=part, places=())
