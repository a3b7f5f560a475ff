"""Computation of dask graphs as sessions of managers: a node, an island or a master.

The physical graph is submitted as any other one, with the same authority. Pickles of its tasks are loaded by the worker
processes of the nodes, and those of values and exceptions by the client; managers forward bytes.

Persisted collections stay at the nodes: each chunk until nothing refers to it any more, and the session as long as one
of its chunks.
"""

import os
import secrets
import sys
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from time import gmtime, strftime
from typing import Any, TypeVar

from dropflow.api.client import Client
from dropflow.api.contents_answer import MAX_CONTENTS
from dropflow.api.patience import PATIENCE, PatientClient
from dropflow.api.session_records import FailureInfo, SessionDetail
from dropflow.builder.results import SubmittedGraph, submit
from dropflow.clock import SystemClock
from dropflow.dask.chunk_sources import ManagerChunks, fetched, located
from dropflow.dask.lost_chunks import LostChunksError, ask_sessions, chunk_inputs, compute_again, persisted_chunks
from dropflow.dask.persist import (
    PERSIST_AGAIN,
    ChunkPlace,
    LostContentsError,
    PersistedChunk,
    PersistedSession,
    close_all,
)
from dropflow.dask.portable import portable
from dropflow.dask.processes import task_error
from dropflow.dask.translate import BREADTH_FIRST, TranslatedGraph, with_drops_on, with_parts
from dropflow.dask_tasks.logged_exceptions import exception_in_log
from dropflow.errors import AppError, DropflowError, GoneError, LinkError
from dropflow.failure import Failure
from dropflow.formatting import plural
from dropflow.graph.notebook import notebook_display
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import SessionState
from dropflow.submission.progress import session_progress, statistics_of

_Result = TypeVar("_Result")
_ENDED = "the scheduler that had it has ended"
_TRIES = 2
"""Most submissions of a session in which persisted chunks were not where they had been."""


# The progress of a computation on managers: live in a notebook, as bars on a terminal.


@contextmanager
def shown(session: SubmittedGraph, *, is_shown: bool) -> Iterator[Callable[[SessionDetail], None]]:
    """Yield a function that shows a session: in a notebook, on a terminal, or nowhere else."""
    if is_shown and _is_notebook():
        display = notebook_display()
        views: list[Any] = []

        def show_view(detail: SessionDetail) -> None:
            if views:
                views[0].update(session.view(detail))
            else:
                views.append(display(session.view(detail), display_id=True))

        yield show_view
    elif is_shown and sys.stderr.isatty():
        with session_progress(quiet=False) as show:
            yield lambda detail: show(statistics_of(detail))
    else:
        yield lambda _: None


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook. Imports nothing."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class RemoteSessions:
    """Sessions of a manager, one for each computation.

    Parameters
    ----------
    url : str
        Address of the manager.
    token : str, optional
        Its token; by default that of ``DROPFLOW_TOKEN``, or what this host knows of the manager.
    key : path, optional
        The cluster key, where there is no token.
    algorithm : str
        The algorithm that places the graph, as in ``dropflow submit --algorithm``.
    keep : bool
        Whether sessions stay at the manager. Otherwise they are deleted when the values are here.
    progress : bool
        Whether a notebook or a terminal shows the progress.
    replicas : int
        On how many nodes persisted chunks are to be.
    recompute : bool
        Whether persisted chunks that are lost are computed again.
    memory_limit : int
        Bytes of values of a session that a node may hold in memory; 0 for no limit of the session.
    patience : float
        Seconds for which a manager or node that does not answer is asked again.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        key: str | os.PathLike[str] | None,
        algorithm: str,
        keep: bool,
        progress: bool,
        replicas: int = 1,
        recompute: bool = True,
        memory_limit: int = 0,
        patience: float = PATIENCE,
    ) -> None:
        self.chunks = ManagerChunks(url, token=token, key=key, patience=patience)
        """The sessions with chunks of persisted collections."""
        self._algorithm = algorithm
        self._replicas = replicas
        self._recompute = recompute
        self._memory_limit = memory_limit
        self._keep = keep
        self._progress = progress
        self._patience = patience
        self._is_known = False
        """Whether the manager has answered: before that, a late answer may be a wrong address."""
        self.last: str = ""
        """Name of the last session."""
        self._remover = _ManagerRemover(self.chunks)
        self._persisted: weakref.WeakSet[PersistedSession] = weakref.WeakSet()

    def compute(self, tasks: TranslatedGraph) -> Mapping[Hashable, Any]:
        """Return the values of the results of a graph, by key.

        Parameters
        ----------
        tasks : TranslatedGraph
            A graph without constants (``runs_constants``).

        Raises
        ------
        AppError
            A task cannot be pickled, or the session ended without a value.
        LinkError
            The manager or a node has not answered for a while. The session is cancelled, if the manager takes that.
        BaseException
            The exception of a task.
        """
        if not tasks.results:
            return {}
        return self._run(tasks, lambda manager, name: read_values(manager, name, tasks))

    def persist(self, tasks: TranslatedGraph) -> Mapping[Hashable, PersistedChunk]:
        """Compute the results of a graph, leave them on the nodes, and return references to them, by key.

        Raises
        ------
        As `compute`.
        """
        if not tasks.results:
            return {}
        return persisted_chunks(tasks, self._leave(tasks), self._leave if self._recompute else None)

    def _leave(self, tasks: TranslatedGraph) -> PersistedSession:
        """Compute the results of a graph, and leave them on the nodes."""
        name, places = self._run(
            tasks, lambda manager, session: (session, _places(manager, session, tasks)), is_persisted=True
        )
        made = PersistedSession(self.chunks, name, places, None if self._keep else self._remover)
        self._persisted.add(made)
        return made

    def close(self) -> None:
        """Delete the sessions of persisted collections, also of those that are still referred to; idempotent."""
        close_all(self._persisted, _ENDED)

    def _run(
        self,
        tasks: TranslatedGraph,
        result: Callable[[PatientClient, str], _Result],
        *,
        is_persisted: bool = False,
    ) -> _Result:
        """Return the result of a session that has computed a graph."""
        used = chunk_inputs(tasks)
        doubted: dict[tuple[PersistedSession, str], str] = {}
        for number in range(1, _TRIES + 1):
            # Named here, so that an interrupt in the middle of the submission can end it, too.
            self.last = name = f"dask-{strftime('%Y%m%d-%H%M%S', gmtime(SystemClock().now()))}-{secrets.token_hex(3)}"
            with (
                closing(PatientClient(self.chunks.connect, seconds=self._patience)) as manager,
                ExitStack() as deletion,
                _cancelled_on_error(manager, name),
            ):
                if not self._keep:
                    deletion.callback(_delete, manager, name)
                if used:
                    _find(manager, used.values(), doubted)
                session = self._submitted(manager, portable(tasks), name, used, self._replicas if is_persisted else 1)
                self._is_known = True
                detail = await_end(manager, session, progress=self._progress)
                if detail.status == SessionState.FINISHED.name:
                    value = result(manager, name)
                    if is_persisted:
                        deletion.pop_all()
                    return value
                failure = next((failed for failed in detail.failures), None)
                gone = [(used[failed.row], failed.text) for failed in detail.failures if _is_lost_chunk(failed, used)]
                if not gone or number == _TRIES:
                    raise _error(manager, name, detail, failure, tasks)
                doubted = {(chunk.session, chunk.place.node): text for chunk, text in gone}
                manager.ask(lambda client: client.cancel(name))  # noqa: B023
        raise AssertionError  # the last try returns or raises

    def _submitted(
        self, manager: PatientClient, graph: PhysicalGraph, name: str, used: Mapping[int, PersistedChunk], replicas: int
    ) -> SubmittedGraph:
        is_ours = self._algorithm == BREADTH_FIRST
        fixed = {drop: chunk.place.node for drop, chunk in used.items()}
        return submit(
            manager,
            graph,
            session=name,
            algorithm="" if is_ours else self._algorithm,
            with_parts=partial(with_parts, fixed=fixed) if is_ours else None,
            with_places=partial(with_drops_on, fixed=fixed),
            replicas=replicas,
            memory_limit=self._memory_limit,
            is_known=self._is_known,
        )


@contextmanager
def _cancelled_on_error(manager: PatientClient, name: str) -> Iterator[None]:
    """Cancel a session if this block raises."""
    try:
        yield
    except BaseException:
        with suppress(DropflowError):
            manager.client.cancel(name)
        raise


def _delete(manager: PatientClient, name: str) -> None:
    """Delete a session, if the manager answers."""
    with suppress(DropflowError):  # what was computed is here
        manager.client.delete(name)


class _ManagerRemover:
    """Removes contents of sessions at a manager, and the sessions."""

    def __init__(self, chunks: ManagerChunks) -> None:
        self._chunks = chunks

    def remove_contents(self, session: str, paths: Mapping[int, str]) -> None:
        """Release contents of a session on the nodes that have them."""
        rows = sorted(paths)
        with closing(self._chunks.connect()) as client:
            for start in range(0, len(rows), MAX_CONTENTS):
                with suppress(LinkError):  # a node may be away: its contents go with the session
                    client.release(session, rows[start : start + MAX_CONTENTS])

    def remove_sessions(self, names: Sequence[str]) -> None:
        """Delete sessions of a manager."""
        with closing(self._chunks.connect()) as client:
            for name in names:
                with suppress(DropflowError):  # it may be deleted already, and the manager may be away
                    client.delete(name)


def _is_lost_chunk(failure: FailureInfo, used: Mapping[int, PersistedChunk]) -> bool:
    return failure.code == GoneError.code and failure.row in used


def _find(
    manager: PatientClient, chunks: Collection[PersistedChunk], doubted: Mapping[tuple[PersistedSession, str], str]
) -> None:
    """Find out where chunks are that are not in their places any more, and compute those again that are lost.

    Parameters
    ----------
    chunks : collection of PersistedChunk
        All chunks that a session is to read.
    doubted : mapping of (PersistedSession, str) to str
        Sessions and nodes where a chunk was not in its place, and what the node has answered: then the places of all
        chunks are asked for, and those that are listed there are lost.

    Raises
    ------
    GoneError
        One is lost, and cannot be computed again.
    LinkError
        The manager, or a node that is not lost, does not answer.
    """
    try:
        manager.ask(lambda client: locate_chunks(client, chunks, doubted))
    except LostChunksError as error:
        compute_again(error)


def locate_chunks(
    client: Client, chunks: Collection[PersistedChunk], doubted: Mapping[tuple[PersistedSession, str], str]
) -> None:
    """Find out where chunks are; see `_find`.

    Raises
    ------
    LostChunksError
        Some are not there any more.
    """
    alive = {node.name for node in client.nodes() if node.state == "alive"}

    def locate(session: PersistedSession, rows: Collection[int]) -> None:
        session.places.update(located(client, session.name, {row: session.places[row] for row in rows}))
        missing = [row for row in rows if (session, session.places[row].node) in doubted]
        if missing:
            node = session.places[missing[0]].node
            raise LostContentsError(f"on node {node}: {doubted[session, node]}", rows=missing, hint=PERSIST_AGAIN)

    wanted = [
        (chunk, (session, row))
        for chunk in chunks
        for session, row in [chunk.where]
        if doubted or session.places[row].node not in alive
    ]
    ask_sessions(wanted, locate)


def await_end(manager: PatientClient, session: SubmittedGraph, *, progress: bool) -> SessionDetail:
    """Wait until a session is over, or a drop of it has failed."""
    with shown(session, is_shown=progress) as show:
        for detail in manager.details(session.session):
            session.client = manager.client  # the display has a link, and reads logs
            show(detail)
            # The loss of a node is not a failure of a drop: its work is repeated.
            if detail.is_over or any(failure.drop for failure in detail.failures):
                break
    return detail


def _error(
    manager: PatientClient, session: str, detail: SessionDetail, failure: FailureInfo | None, tasks: TranslatedGraph
) -> BaseException:
    """Return why a session has no values."""
    if failure is None:
        text = f"the session {session} is {detail.status}{f': {detail.text}' if detail.text else ''}"
        return AppError(text, hint="it was cancelled or deleted by another client")
    reported = Failure(
        code=failure.code, kind=failure.kind, text=failure.text, hint=failure.hint, detail=failure.detail
    )
    log = _log(manager, session, failure)
    if failure.drop and exception_in_log(log) is None and not detail.is_over:
        # The node may not be able to answer at this moment. When the session is over, it does.
        manager.ask(lambda client: client.cancel(session))
        for _ in manager.details(session):
            pass
        log = _log(manager, session, failure)
    key = f", task {tasks.keys[failure.row]!r} of dask" if 0 <= failure.row < tasks.tasks else ""
    return task_error(reported, log, f"{failure.drop or failure.name}{key}", failure.node)


def _log(manager: PatientClient, session: str, failure: FailureInfo) -> bytes:
    """Return the log of a drop, as far as it can be got."""
    log = b""
    if failure.drop:
        with suppress(DropflowError):
            log = b"".join(manager.client.log(session, failure.drop).chunks)
    return log


def read_values(manager: PatientClient, session: str, tasks: TranslatedGraph) -> Mapping[Hashable, Any]:
    """Return the values of a session that FINISHED, by key."""

    def request(client: Client) -> Mapping[int, Any]:
        # Asked for each time: if a node is lost meanwhile, copies may be on others.
        places = _listed(client, session, tasks)
        return fetched(client, session, {drop: place.node for drop, place in places.items()})

    values = manager.ask(request)
    _check(session, tasks, values)
    return {key: values[drop] for key, drop in tasks.results.items()}


def _places(manager: PatientClient, session: str, tasks: TranslatedGraph) -> Mapping[int, ChunkPlace]:
    """Return where the results of a session that FINISHED are, by drop."""
    places = manager.ask(lambda client: _listed(client, session, tasks))
    _check(session, tasks, places)
    return places


def _listed(client: Client, session: str, tasks: TranslatedGraph) -> Mapping[int, ChunkPlace]:
    """Return where the results of a session are, by drop, as far as the manager knows.

    Raises
    ------
    LinkError
        Some are not known, because nodes have not answered.
    """
    wanted = {*tasks.results.values()}
    listed = client.results(session)
    places = {
        result.drop: ChunkPlace(result.oid, result.node, result.path, result.size, result.checksum or 0)
        for result in listed.results
        if result.drop in wanted
    }
    if listed.missing and len(places) < len(wanted):
        values = plural(len(wanted) - len(places), "value")
        text = f"the session {session} has {values} on nodes that do not answer"
        raise LinkError(f"{text}: {', '.join(listed.missing)}", where=client.url)
    return places


def _check(session: str, tasks: TranslatedGraph, places: Mapping[int, object]) -> None:
    """Check that every result was found.

    Raises
    ------
    AppError
        A value is not there.
    """
    missing = [key for key, drop in tasks.results.items() if drop not in places]
    if missing:
        raise AppError(
            f"the session {session} lacks {plural(len(missing), 'value')}, such as that of {missing[0]!r}",
            hint="a node may have been lost after it computed them",
        )
