"""What hosted sessions need of the process that they are in: links, threads, and a place where applications run."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dropflow.apps.runner_factory import make_runner
from dropflow.apps.streaming_links import streaming_links
from dropflow.clock import Clock
from dropflow.data.repository import LocalRepository
from dropflow.data.workspace import Workspace
from dropflow.engine.instruments import Instrument
from dropflow.engine.reports import SessionResult
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.session import Session
from dropflow.engine.statistics import Statistics
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.session_factory import make_session
from managers.deployment import Deployment
from managers.links import Links
from managers.node.exchange import NodeExchange
from managers.node.fetch_pool import FetchPool, JobThreads
from managers.node.file_watcher import FileWatcher

__all__ = ["OnSessionEnd", "ProcessResources", "SessionResources"]

OnSessionEnd = Callable[[SessionResult | Exception], None]
"""Takes the result of a session, or what its engine raised, in the thread that executed it."""


class SessionResources(Protocol):
    """Makes the parts of hosted sessions, and executes them."""

    def make_exchange(self, piece: Slice, deployment: Deployment, workspace: Workspace) -> NodeExchange:
        """Return the exchange of a session with the other nodes that hold drops of it."""
        ...

    def make_session(
        self,
        graph: PhysicalGraph,
        repository: LocalRepository,
        exchange: NodeExchange,
        deployment: Deployment,
        *,
        instruments: Sequence[Instrument],
        on_statistics: Callable[[Statistics], None],
    ) -> Session:
        """Return a session that has not begun."""
        ...

    def execute(self, session: Session, name: str, on_end: OnSessionEnd) -> None:
        """Begin to execute a session. Does not wait.

        Raises
        ------
        RuntimeError
            The system cannot start another thread.
        """
        ...


@dataclass(frozen=True)
class ProcessResources:
    """Sessions in threads of this process, linked to other nodes over ZeroMQ.

    Attributes
    ----------
    links : Links
        Links of this process.
    fetch_pool : FetchPool
        Threads that fetch contents from other nodes.
    file_watcher : FileWatcher
        Watches files that grow while other nodes read them.
    clock : Clock
        Time.
    runner : str
        Where applications run, one of `dropflow.apps.runner_factory.RUNNERS`.
    pool : WorkerPool
        Worker processes, shared by the sessions of this node; with threads, their number for each session.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
    """

    links: Links
    fetch_pool: FetchPool
    file_watcher: FileWatcher
    clock: Clock
    runner: str
    pool: WorkerPool
    in_place: bool

    def make_exchange(self, piece: Slice, deployment: Deployment, workspace: Workspace) -> NodeExchange:
        """Return the exchange of a session with the other nodes that hold drops of it."""
        return NodeExchange(
            piece,
            session=deployment.session,
            epoch=deployment.epoch,
            links=self.links,
            fetch_pool=self.fetch_pool,
            stream_pool=JobThreads(self.links),
            file_watcher=self.file_watcher,
            workspace=workspace,
            clock=self.clock,
            streams=streaming_links(piece.graph),
            in_place=self.in_place,
        )

    def make_session(
        self,
        graph: PhysicalGraph,
        repository: LocalRepository,
        exchange: NodeExchange,
        deployment: Deployment,
        *,
        instruments: Sequence[Instrument],
        on_statistics: Callable[[Statistics], None],
    ) -> Session:
        """Return a session that has not begun."""
        directory, name = Path(repository.workspace.directory), deployment.session
        return make_session(
            graph,
            repository,
            make_runner(graph, directory, self.runner, self.pool.size, session=name, pool=self.pool),
            clock=self.clock,
            exchange=exchange,
            epoch=deployment.epoch,
            instruments=instruments,
            on_statistics=on_statistics,
            infrastructure_retries=deployment.infrastructure_retries,
            check_invariants=deployment.check,
        )

    def execute(self, session: Session, name: str, on_end: OnSessionEnd) -> None:
        """Execute a session in its own thread."""

        def run() -> None:
            try:
                outcome: SessionResult | Exception = session.run()
            except Exception as error:  # noqa: BLE001 - the node must learn that the session is over
                outcome = error
            on_end(outcome)

        threading.Thread(target=run, name=f"session-{name}", daemon=True).start()
