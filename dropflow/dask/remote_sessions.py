"""Computation of dask graphs as sessions of managers: a node, an island or a master.

The physical graph is submitted as any other one, with the same authority. Pickles of its tasks are loaded by the worker
processes of the nodes, and those of values and exceptions by the client; managers forward bytes.
"""

import os
import secrets
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from time import gmtime, strftime
from typing import Any

import msgspec

from dropflow.builder.results import SubmittedGraph, connected, submit
from dropflow.clock import SystemClock
from dropflow.dask.initial_placement import BREADTH_FIRST, with_parts
from dropflow.dask.portable_graph import portable
from dropflow.dask.session_progress import shown
from dropflow.dask.task_app import exception_in_log
from dropflow.dask.task_failure import task_error
from dropflow.dask.translate import TranslatedGraph
from dropflow.dask.value_encoding import decode_value
from dropflow.errors import AppError, DropflowError
from dropflow.failure import Failure
from dropflow.graph.physical import PhysicalGraph
from dropflow.rest.client import Client
from dropflow.rest.content_records import (
    MAX_CONTENTS,
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRequest,
    ContentsRequest,
    read_records,
)
from dropflow.rest.error_body import from_body
from dropflow.rest.schema import FailureInfo, SessionDetail
from dropflow.states import SessionState

__all__ = ["RemoteSessions"]


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
    ) -> None:
        self._url, self._token, self._key = url, token, key
        self._algorithm = algorithm
        self._keep = keep
        self._progress = progress
        self.last: str = ""
        """Name of the last session."""

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
            The manager does not answer. The session goes on.
        BaseException
            What a task has raised.
        """
        if not tasks.results:
            return {}
        graph = portable(tasks)
        # Named here, so that an interrupt in the middle of the submission can end it, too.
        self.last = name = f"dask-{strftime('%Y%m%d-%H%M%S', gmtime(SystemClock().now()))}-{secrets.token_hex(3)}"
        with (
            closing(connected(url=self._url, token=self._token, key=self._key)) as client,
            self._deleted_at_the_end(client, name),
        ):
            session = self._submitted(client, graph, name)
            detail = _end(session, progress=self._progress)
            failure = next((one for one in detail.failures), None)
            if detail.status != SessionState.FINISHED.name:
                raise _error(session, detail, failure, tasks)
            return _values(session, tasks)

    def _submitted(self, client: Client, graph: PhysicalGraph, name: str) -> SubmittedGraph:
        is_ours = self._algorithm == BREADTH_FIRST
        return submit(
            client,
            graph,
            session=name,
            algorithm="" if is_ours else self._algorithm,
            with_parts=with_parts if is_ours else None,
        )

    @contextmanager
    def _deleted_at_the_end(self, client: Client, name: str) -> Iterator[None]:
        """Delete a session at the end, or cancel it if it is to stay."""
        try:
            yield
        except BaseException:
            with suppress(DropflowError):
                client.cancel(name)
            raise
        finally:
            if not self._keep:
                with suppress(DropflowError):  # the manager may be away; what was computed is here
                    client.delete(name)


def _end(session: SubmittedGraph, *, progress: bool) -> SessionDetail:
    """Wait until a session is over, or a drop of it has failed."""
    with shown(session, is_shown=progress) as show:
        for detail in session.details():
            show(detail)
            # The loss of a node is no failure of a drop: its work is repeated.
            if detail.is_over or any(one.drop for one in detail.failures):
                break
    return detail


def _error(
    session: SubmittedGraph, detail: SessionDetail, failure: FailureInfo | None, tasks: TranslatedGraph
) -> BaseException:
    """Return why a session has no values."""
    if failure is None:
        text = f"the session {session.session} is {detail.status}{f': {detail.text}' if detail.text else ''}"
        return AppError(text, hint="it was cancelled or deleted by another client")
    found = Failure(code=failure.code, kind=failure.kind, text=failure.text, hint=failure.hint, detail=failure.detail)
    log = _log(session, failure)
    if failure.drop and exception_in_log(log) is None and not detail.is_over:
        # The node may not be able to answer at this moment. When the session is over, it does.
        session.cancel()
        session.wait()
        log = _log(session, failure)
    key = f", task {tasks.keys[failure.row]!r} of dask" if 0 <= failure.row < tasks.tasks else ""
    return task_error(found, log, f"{failure.drop or failure.name}{key}", failure.node)


def _log(session: SubmittedGraph, failure: FailureInfo) -> bytes:
    """Return the log of a drop, as far as it can be got."""
    log = b""
    if failure.drop:
        with suppress(DropflowError):
            log = b"".join(session.client.log(session.session, failure.drop).chunks)
    return log


def _values(session: SubmittedGraph, tasks: TranslatedGraph) -> Mapping[Hashable, Any]:
    """Return the values of a session that FINISHED, by key."""
    where: dict[str, list[int]] = {}
    wanted = {*tasks.results.values()}
    for one in session.client.results(session.session).results:
        if one.drop in wanted:
            where.setdefault(one.node, []).append(one.drop)
    values: dict[int, Any] = {}
    for node, rows in where.items():
        for start in range(0, len(rows), MAX_CONTENTS):
            values |= _fetched(session.client, session.session, node, rows[start : start + MAX_CONTENTS])
    missing = [key for key, drop in tasks.results.items() if drop not in values]
    if missing:
        raise AppError(
            f"{len(missing)} values of the session {session.session} are not there, such as that of {missing[0]!r}",
            hint="a node may have been lost after it computed them",
        )
    return {key: values[drop] for key, drop in tasks.results.items()}


def _fetched(client: Client, session: str, node: str, rows: Sequence[int]) -> dict[int, Any]:
    """Return the values of drops on one node, by row."""
    request = ContentsRequest(node=node, wanted=tuple(ContentRequest(row=row) for row in rows))
    download = client.contents(session, request)
    values: dict[int, Any] = {}
    content, index = bytearray(), 0
    try:
        for record in read_records(download.chunks):
            if isinstance(record, ContentBegin):
                content, index = bytearray(), record.index
            elif isinstance(record, ContentPiece):
                content += record.data
            elif isinstance(record, ContentEnd):
                values[rows[index]] = decode_value(content)
            elif isinstance(record, ContentError):
                raise from_body(500, {"error": msgspec.to_builtins(record.error)})
    finally:
        download.close()
    return values
