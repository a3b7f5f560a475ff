"""The body of ``dropflow submit``: translate, cut, place, deploy, and follow."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from dropflow.cli.connection import Target, connect
from dropflow.cli.exits import Exit, exit_for_status
from dropflow.cli.following import follow
from dropflow.cli.manager_replies import SubmitReply
from dropflow.cli.output import Output
from dropflow.cli.source import note_problems, translate_source
from dropflow.cli.suggestion import suggestion
from dropflow.errors import UsageError
from dropflow.graph.physical import PhysicalGraph
from dropflow.ids import SESSION_NAME_HINT, is_session_name
from dropflow.rest.schema import SubmitQuery
from translator.options import ComponentOptions, PartitionOptions
from translator.partition.registry import partition
from translator.placement import place

__all__ = ["SubmitOptions", "fit", "submit_graph"]


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of ``dropflow submit`` say; see their help."""

    graph: str
    configuration: str | None = None
    settings: tuple[str, ...] = ()
    session: str = ""
    parts: int | None = None
    algorithm: str | None = None
    seed: int | None = None
    anew: bool = False
    wait: bool = False
    patience: float = 60.0
    check: bool = False


def submit_graph(output: Output, target: Target, options: SubmitOptions) -> Exit:
    """Deploy the graph in the file that `options` names, and wait for the end of its session if that is wanted."""
    translation = translate_source(
        options.graph,
        configuration=options.configuration,
        settings=options.settings,
        components=ComponentOptions(missing_here="ignored"),  # the nodes say what they lack
    )
    note_problems(output, translation.problems)
    query = _query(options)
    with connect(target) as client:
        alive = [node.name for node in client.nodes() if node.state == "alive"]
        if not alive:
            hint = "start one; 'dropflow nodes' and 'dropflow doctor' say what there is"
            raise UsageError("no node is alive at this manager", where=client.url, hint=hint)
        graph = fit(translation.graph, alive, options)
        info = client.submit(graph, query)
        if not options.wait:
            if translation.graph.places:  # the manager may have had to choose other nodes, and says so in a note
                info = client.session(info.session)
            output.answer(SubmitReply.of(info, manager=client.url, parts=graph.parts, waited=False))
            return Exit.FINISHED
        try:
            detail = follow(target, client.url, info.session, output, patience=options.patience, known=info)
        except KeyboardInterrupt:
            output.note(
                f"stopped waiting; session {info.session} goes on. Watch it with {suggestion('watch', info.session)}, "
                f"stop it with {suggestion('cancel', info.session)}"
            )
            return Exit.INTERRUPTED
        output.answer(SubmitReply.of(detail, manager=client.url, parts=graph.parts, waited=True))
    return exit_for_status(detail.status)


def _query(options: SubmitOptions) -> SubmitQuery:
    if options.session and not is_session_name(options.session):
        raise UsageError(f"--session {options.session!r} is no name of a session", hint=SESSION_NAME_HINT)
    return SubmitQuery(session=options.session, anew=options.anew, check=options.check)


def fit(graph: PhysicalGraph, nodes: Sequence[str], options: SubmitOptions) -> PhysicalGraph:
    """`graph` in parts, and on `nodes` where each of its parts can have one of its own.

    What is placed already stays where it is, and what is cut already stays cut, unless the options ask for something
    else. More parts than nodes are left to the manager, which puts part k on the k-th node and begins again.
    """
    wanted = options.parts is not None or options.algorithm is not None or options.seed is not None
    if graph.places and not (wanted or options.anew):
        return graph
    count = options.parts or len(nodes)
    if options.seed is not None:
        if options.algorithm is not None:
            raise UsageError("--random and --algorithm exclude each other", hint="leave out one of them")
        cut = _at_random(graph, count, options.seed)
    elif wanted or graph.parts == 1:
        cut = partition(graph, PartitionOptions(algorithm=options.algorithm or "metis", parts=count))
    else:
        cut = replace(graph, places=())
    return place(cut, nodes) if cut.parts <= len(nodes) else cut


def _at_random(graph: PhysicalGraph, parts: int, seed: int) -> PhysicalGraph:
    """Parts drawn at random: nearly all edges cross, which is what links are to be tried with."""
    part = np.random.default_rng(abs(seed)).integers(parts, size=graph.drops, dtype=np.int32)
    part.flags.writeable = False
    return replace(graph, part=part, places=())
