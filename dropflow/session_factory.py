"""The session of a graph on this machine: with a runner, a journal, and the repository of its contents."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dropflow.apps.runner_factory import make_runner
from dropflow.apps.streaming_links import streaming_links
from dropflow.clock import Clock
from dropflow.data.repository import LocalRepository
from dropflow.engine.api import Exchange
from dropflow.engine.inbox import Inbox
from dropflow.engine.instruments import Instrument
from dropflow.engine.journal import Journal, JournalHeader
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.session import Session
from dropflow.engine.session_inputs import SessionInput
from dropflow.engine.statistics import Statistics
from dropflow.graph.digest import digest
from dropflow.graph.physical import PhysicalGraph

__all__ = ["make_session"]


def make_session(
    graph: PhysicalGraph,
    repository: LocalRepository,
    *,
    clock: Clock,
    runner: str = "processes",
    workers: int | None = None,
    pool: WorkerPool | None = None,
    exchange: Exchange | None = None,
    epoch: int = 0,
    instruments: Sequence[Instrument] = (),
    on_statistics: Callable[[Statistics], None] | None = None,
    inbox: Inbox[SessionInput] | None = None,
    check_invariants: bool = False,
) -> Session:
    """Return a session that has not begun, in the directory of its repository.

    Parameters
    ----------
    graph : PhysicalGraph
        What is executed: a whole graph, or what one node holds of it.
    repository : LocalRepository
        Owner of the contents; its workspace has the name and the directory of the session.
    clock : Clock
        Time.
    runner : str
        One of `dropflow.apps.runner_factory.RUNNERS`.
    workers : int, optional
        Threads or processes; by default one per core that this process may use.
    pool : WorkerPool, optional
        Worker processes that are shared with other sessions.
    exchange : Exchange, optional
        Where the other nodes of the session are.
    epoch : int
        Deployment of the session, where managers deployed it.
    instruments : sequence of Instrument
        Observers.
    on_statistics : callable, optional
        Called with fresh statistics now and then.
    inbox : Inbox, optional
        Where runner, exchange and other threads put what happened; by default one of its own.
    check_invariants : bool
        Walk the whole state of the core after each step; slow.

    Raises
    ------
    BadGraphError
        There is no such runner, or the graph has a cycle.
    StorageError
        The journal cannot be written.
    """
    directory, name = Path(repository.workspace.directory), repository.workspace.session
    streams = streaming_links(graph)
    attempts = make_runner(graph, directory, runner, workers, session=name, pool=pool)
    header = JournalHeader(name, digest(graph), clock.now(), streams, epoch)
    return Session(
        graph,
        repository,
        attempts,
        session=name,
        directory=str(directory),
        clock=clock,
        streams=streams,
        exchange=exchange,
        journal=Journal(directory / "journal.dfj", header),
        instruments=instruments,
        on_statistics=on_statistics,
        inbox=inbox,
        check_invariants=check_invariants,
    )
