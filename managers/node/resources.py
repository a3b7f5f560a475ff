"""What hosted sessions need of the process that they are in: links, threads, and a place where applications run."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dropflow.apps.template_cache import streaming_links
from dropflow.clock import Clock
from dropflow.data import shm_directory
from dropflow.data.repository import LocalRepository
from dropflow.data.workspace import Workspace
from dropflow.engine.continuation import Continuation
from dropflow.engine.session import Session, Watch
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.runners.choice import capacity_notes, make_runner
from dropflow.runners.pool import WorkerPool
from dropflow.sessions.factory import make_session
from managers.deployment import Deployment
from managers.links import Links
from managers.node.contents import ContentExchange
from managers.node.exchange import NodeExchange
from managers.node.fetch_pool import FetchPool, JobThreads
from managers.node.receive import Unavailable
from managers.node.streams import FileWatcher

__all__ = [
    "OnStop",
    "ProcessResources",
    "SessionResources",
]


OnStop = Callable[[Exception | None], None]
"""Takes what the engine of a session raised, or None, when the session is over or frozen, in its thread."""


class SessionResources(Protocol):
    """Makes the parts of hosted sessions, and executes them."""

    @property
    def workers(self) -> int:
        """How many attempts of a session run at a time."""
        ...

    @property
    def shared_memory(self) -> Path:
        """Where sessions get their directories in shared memory."""
        ...

    def make_exchange(
        self,
        piece: Slice,
        deployment: Deployment,
        workspace: Workspace,
        *,
        view: int,
        contents: ContentExchange | None,
        on_unavailable: Unavailable,
    ) -> NodeExchange:
        """Return the exchange of a session with the other nodes that hold drops of it."""
        ...

    def make_session(
        self,
        graph: PhysicalGraph,
        repository: LocalRepository,
        exchange: NodeExchange,
        deployment: Deployment,
        *,
        watch: Watch,
        continuation: Continuation | None,
        before: Session | None,
    ) -> Session:
        """Return a session that has not begun.

        Parameters
        ----------
        before : Session or None
            The session in the view before, which is frozen: its runner and inbox are used further.
        """
        ...

    def execute(self, session: Session, name: str, on_stop: OnStop) -> None:
        """Execute a session until it is over or frozen. Does not wait.

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
        Where applications run, one of `dropflow.runners.choice.RUNNERS`.
    pool : WorkerPool
        Worker processes, shared by the sessions of this node; with threads, their number for each session.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
    shared_memory : Path
        Where sessions get their directories in shared memory.
    """

    links: Links
    fetch_pool: FetchPool
    file_watcher: FileWatcher
    clock: Clock
    runner: str
    pool: WorkerPool
    in_place: bool
    shared_memory: Path = shm_directory.ROOT

    @property
    def workers(self) -> int:
        """How many attempts of a session run at a time."""
        return self.pool.size

    def make_exchange(
        self,
        piece: Slice,
        deployment: Deployment,
        workspace: Workspace,
        *,
        view: int,
        contents: ContentExchange | None,
        on_unavailable: Unavailable,
    ) -> NodeExchange:
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
            view=view,
            contents=contents,
            on_unavailable=on_unavailable,
        )

    def make_session(
        self,
        graph: PhysicalGraph,
        repository: LocalRepository,
        exchange: NodeExchange,
        deployment: Deployment,
        *,
        watch: Watch,
        continuation: Continuation | None,
        before: Session | None,
    ) -> Session:
        """Return a session that has not begun."""
        if before is None:
            runner = make_runner(
                graph,
                repository.workspace,
                self.runner,
                self.pool.size,
                pool=self.pool,
                until=deployment.until,
                parts=len(np.unique(np.delete(graph.part, exchange.remote))),
            )
        else:
            runner = before.runner
        session = make_session(
            graph,
            repository,
            runner,
            clock=self.clock,
            exchange=exchange,
            epoch=deployment.epoch,
            view=exchange.view,
            watch=watch,
            infrastructure_retries=deployment.infrastructure_retries,
            inbox=None if before is None else before.inbox,
            continuation=continuation,
            until=deployment.until,
        )
        if before is None:
            session.notes += capacity_notes(graph, self.runner, self.pool.size)
        return session

    def execute(self, session: Session, name: str, on_stop: OnStop) -> None:
        """Execute a session in a thread of its own, until it is over or frozen."""

        def run() -> None:
            try:
                session.advance()
            except Exception as error:  # noqa: BLE001 - the node must learn that the session is over
                on_stop(error)
            else:
                on_stop(None)

        threading.Thread(target=run, name=f"session-{name}", daemon=True).start()
