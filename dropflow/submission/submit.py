"""A graph submitted to a manager: placed on the nodes that are alive, and once, also if the manager answers late."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import msgspec
import numpy as np

from dropflow.api.client import Client
from dropflow.api.patience import PatientClient
from dropflow.api.requests import SubmitQuery
from dropflow.api.session_records import SessionInfo
from dropflow.clock import SystemClock
from dropflow.errors import (
    BadGraphError,
    ConflictError,
    DropflowError,
    HttpError,
    LinkError,
    NotFoundError,
    StorageError,
    UsageError,
)
from dropflow.formatting import few
from dropflow.graph.notes import note_processors
from dropflow.graph.physical import FloatColumn, PhysicalGraph
from dropflow.ids import dated_session_name
from dropflow.states import SessionState
from translator.options import PartitionOptions
from translator.plan.judge import with_schedule
from translator.plan.machines import LiveMachines, live_machines
from translator.plan.planner import place
from translator.plan.registry import machines_for, partition

_FITS = 3
"""Most tries to place a graph while nodes are lost."""
_NAMES = 10
"""Most names that are tried, if none was given."""
_AWAY = (502, 503, 504)
"""Status that a proxy answers with while a manager is away, or late."""
_NOT_YET = (SessionState.PRISTINE.name, SessionState.BUILDING.name, SessionState.DEPLOYING.name)


class PlacementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to partition and place a graph.

    Attributes
    ----------
    parts : int, optional
        One for each node unless given.
    planning : PartitionOptions, optional
        How to plan, apart from the number of parts. Without it a graph that has parts or places keeps them.
    random : int, optional
        The seed of random parts, which no plan makes.
    anew : bool
        Whether a graph that names nodes is placed again.
    """

    parts: int | None = None
    planning: PartitionOptions | None = None
    random: int | None = None
    anew: bool = False

    @property
    def is_given(self) -> bool:
        """Whether an option requests a partition."""
        return self.parts is not None or self.random is not None or self.planning is not None


def usable_nodes(client: Client, note: Callable[[str], object]) -> LiveMachines:
    """Return the nodes that a manager knows, as they are now; `note` gets a text for each that is left out.

    Raises
    ------
    UsageError
        No node is alive there.
    """
    machines = live_machines(client.nodes())
    for text in machines.left_out:
        note(f"{text}: nothing is planned for it")
    if not machines.nodes:
        hint = "start one; 'dropflow nodes' and 'dropflow doctor' show the nodes that the manager knows"
        raise UsageError("no node is alive at this manager", where=client.url, hint=hint)
    return machines


def submit_fitted(
    patient_manager: PatientClient,
    graph: PhysicalGraph,
    query: SubmitQuery,
    options: PlacementOptions,
    *,
    weight: FloatColumn | None,
    note: Callable[[str], object],
) -> tuple[SessionInfo, PhysicalGraph]:
    """Fit `graph` to the nodes of a manager, and submit it with `weight`; return the session and what was submitted.

    Nodes may be lost while the graph is fitted and sent. If the manager refuses it, the graph is fitted to the nodes
    that are left. If none is missing any more, or in the last turn, the manager chooses the nodes: it may have refused
    one whose last answer, from before its end, came late. Nodes that the user has chosen stay.
    """
    nodes = usable_nodes(patient_manager.client, note)
    for turn in count(1):
        fitted = fit(graph, nodes, options)
        parted = replace(fitted, weight=weight)
        try:
            # The plan does not count with what nodes can run: the manager moves what they cannot.
            return submit_once(
                patient_manager, parted, msgspec.structs.replace(query, movable=fitted is not graph)
            ), parted
        except BadGraphError as error:
            # One with problems is about the graph, and so is one after which the manager chose the nodes.
            if fitted is graph or error.problems or query.anew or turn == _FITS:
                raise
            nodes = usable_nodes(patient_manager.client, note)
            lost = sorted(set(fitted.places) - {node.name for node in nodes.nodes})
            if not lost or turn + 1 == _FITS:
                query = msgspec.structs.replace(query, anew=True)
            why = f"without {few(lost)}" if lost else f"on nodes that the manager chooses: {error.text}"
            note(f"the graph is placed again, {why}")
    raise AssertionError  # the last turn returns or raises


def fit(graph: PhysicalGraph, nodes: LiveMachines, options: PlacementOptions) -> PhysicalGraph:
    """Return `graph` in parts, placed on nodes if there is one for each part.

    A placed graph stays on its nodes and a partitioned graph keeps its parts unless the options ask for something else.
    If there are more parts than nodes, the manager places them, part k on the k-th node, round robin. Otherwise the
    graph gets its schedule on these nodes, which its timeline compares with what is executed.
    """
    if graph.places and not (options.is_given or options.anew):
        return graph
    wanted = options.parts or len(nodes.nodes)
    machines = nodes.machines(wanted, graph.templates)
    if options.random is not None:
        if options.planning is not None:
            raise UsageError("--random makes no plan: options of plans have no effect", hint="leave out one of them")
        parted = _at_random(graph, wanted, options.random)
    elif options.is_given or graph.parts == 1:
        where = machines if wanted <= len(nodes.nodes) else None
        planning = msgspec.structs.replace(options.planning or PartitionOptions(), parts=wanted)
        parted = partition(graph, planning, where)
        machines = machines_for(graph, planning, machines)
    else:
        parted, machines = replace(graph, places=()), nodes.machines(graph.parts, graph.templates)
    names = [node.name for node in machines.nodes]
    placed = place(parted, names) if parted.parts <= len(names) else parted
    return with_schedule(placed, machines)


def _at_random(graph: PhysicalGraph, parts: int, seed: int) -> PhysicalGraph:
    """Return `graph` with random parts: nearly all edges cross between parts, which tests the links."""
    part = np.random.default_rng(abs(seed)).integers(parts, size=graph.drops, dtype=np.int32)
    part.flags.writeable = False
    return replace(note_processors(graph, ()), part=part, places=())


# One session is started, also if the answer is lost.


def submit_once(manager: PatientClient, graph: PhysicalGraph, query: SubmitQuery) -> SessionInfo:
    """Deploy a graph and start it. If the manager does not answer, it is asked again, and not for a second session.

    The session is found by its name, which is chosen here if the query has none, and by the id of the request, so that
    it is not mistaken for one of another client.

    Parameters
    ----------
    manager : PatientClient
        A client that has reached the manager before: an error of the credentials, for example, is raised at once.
    graph : PhysicalGraph
        The graph.
    query : SubmitQuery
        How to deploy it.

    Raises
    ------
    ConflictError
        Another session has the name that was given.
    LinkError
        There was no answer for a while. The session may have been started.
    DropflowError
        The manager refused the graph.
    """
    wanted = query.session or dated_session_name(graph.name, SystemClock().now())
    for number in count(1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        request = msgspec.structs.replace(query, session=name, request_id=secrets.token_hex(16))
        try:
            return _Submission(graph, request).run(manager)
        except ConflictError:
            if query.session or number == _NAMES:
                raise
    raise AssertionError  # the last name returns or raises


class _Submission:
    """One submission, under one name."""

    def __init__(self, graph: PhysicalGraph, query: SubmitQuery) -> None:
        self._graph = graph
        self._query = query
        self._was_sent = False

    def run(self, manager: PatientClient) -> SessionInfo:
        """Return the session, or raise why there is none."""
        answer = manager.ask(self._ask)
        if isinstance(answer, DropflowError):
            raise answer
        return answer

    def _ask(self, client: Client) -> SessionInfo | DropflowError:
        """Return the session, or an error that is final; raise one after which it is asked for again.

        Raises
        ------
        LinkError
            The manager does not answer, or the session is being deployed.
        """
        if self._was_sent:
            earlier = self._found(client)
            if earlier is not None:
                return earlier
        was_sent, self._was_sent = self._was_sent, True
        try:
            return client.submit(self._graph, self._query)
        except ConflictError as error:
            if not was_sent:
                return error
            # The session is probably that of an earlier request, or else of another client: the next request shows
            # which.
            raise LinkError(error.text, where=error.where, hint=error.hint) from error
        except StorageError as error:
            return error  # the disk of a node: it answers, and would be full the next time too
        except HttpError as error:
            if error.status in _AWAY:
                raise
            return error

    def _found(self, client: Client) -> SessionInfo | DropflowError | None:
        """Return the session of an earlier request; an error if another client has the name."""
        name = self._query.session
        try:
            session = client.session(name)
        except NotFoundError:
            return None
        if session.request_id != self._query.request_id:
            return ConflictError(f"there is a session {name!r} already", where=client.url, hint="choose another name")
        if session.status in _NOT_YET:
            raise LinkError(f"session {name!r} is {session.status}", where=client.url, hint="look at its status")
        return session
