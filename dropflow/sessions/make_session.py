"""The session of a graph on this machine: with a runner, a journal, and the repository of its contents."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from dropflow.apps.registry import fusible_templates, streaming_links
from dropflow.clock import Clock
from dropflow.data.file_owners import RemoveOutdated
from dropflow.data.repository import LocalRepository
from dropflow.execution.attempt_times import AttemptTimes
from dropflow.execution.decisions.continuation import Continuation
from dropflow.execution.decisions.drop_rules import INFRASTRUCTURE_RETRIES
from dropflow.execution.inbox import Inbox
from dropflow.execution.interfaces import Exchange, Runner
from dropflow.execution.journal import Journal, JournalHeader
from dropflow.execution.session import Execution, Resources, Session, Watch
from dropflow.execution.session_inputs import SessionInput
from dropflow.files import JOURNAL
from dropflow.graph.codec import digest
from dropflow.graph.physical import IntColumn, PhysicalGraph, follower_column
from dropflow.times.octets import TIMES_FILE

_UNWATCHED = Watch()


def make_session(
    graph: PhysicalGraph,
    repository: LocalRepository,
    runner: Runner,
    *,
    clock: Clock,
    exchange: Exchange | None = None,
    epoch: int = 0,
    view: int = 0,
    inbox: Inbox[SessionInput] | None = None,
    infrastructure_retries: int = INFRASTRUCTURE_RETRIES,
    continuation: Continuation | None = None,
    until: float = 0.0,
    retry_memory: float = 0.0,
    watch: Watch = _UNWATCHED,
) -> Session:
    """Return a session that has not started, in the directory of its repository.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed: a whole graph, or the slice of one node.
    repository : LocalRepository
        Owner of the contents; its workspace has the name and the directory of the session.
    runner : Runner
        Runs attempts.
    clock : Clock
        Tells the time.
    exchange : Exchange, optional
        The connection to the other nodes of the session; by default there are none.
    epoch : int
        Deployment of the session, where managers deployed it.
    view : int
        View of the session, where managers deployed it.
    inbox : Inbox, optional
        Queue of the events of runner, exchange and other threads; a new one by default.
    infrastructure_retries : int
        How many infrastructure faults each drop may have.
    continuation : Continuation, optional
        The known states and contents of a session that continues. Its journal is replaced.
    until, retry_memory : float
        See `dropflow.execution.session.Execution`.
    watch : Watch
        Observers and callbacks.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    StorageError
        The journal cannot be written.
    """
    directory, name = Path(repository.workspace.directory), repository.workspace.session
    streams = streaming_links(graph)
    if continuation is not None and continuation.outdated:
        remove = RemoveOutdated(repository.workspace, continuation.outdated, continuation.contents.values())
        watch = replace(watch, instruments=(*watch.instruments, remove))
    header = JournalHeader(name, digest(graph), clock.now(), streams, epoch, infrastructure_retries, view)
    with ExitStack() as undo:
        journal = Journal(
            directory / JOURNAL,
            header,
            replaces=continuation is not None,
            durable=repository.workspace.durable,
        )
        undo.callback(journal.close)
        times = AttemptTimes(directory / TIMES_FILE, graph.drops, clock, None if exchange is None else exchange.rows)
        undo.callback(times.close)
        work = Execution(
            graph=graph,
            session=name,
            directory=str(directory),
            streams=streams,
            chains=_chains(graph, exchange),
            infrastructure_retries=infrastructure_retries,
            until=until,
            retry_memory=retry_memory,
        )
        resources = Resources(
            repository=repository,
            runner=runner,
            clock=clock,
            inbox=inbox,
            exchange=exchange,
            journal=journal,
            times=times,
        )
        session = Session(work, resources, watch=watch, continuation=continuation)
        repository.notes = session.notes
        undo.pop_all()
    return session


def _chains(graph: PhysicalGraph, exchange: Exchange | None) -> IntColumn | None:
    """Return the application that follows each application in a chain, among the drops that live here."""
    remote = np.zeros(graph.drops, dtype=np.bool_)
    if exchange is not None:
        remote[exchange.remote] = True
    return follower_column(graph, fusible_templates(graph), remote)
