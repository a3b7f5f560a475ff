"""Following a session from afar: the pictures that a manager sends, shown like those of a run on this machine."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http import HTTPStatus

from dropflow.cli.output import Output, OutputKind
from dropflow.cli.progress import progress_for
from dropflow.clock import SystemClock
from dropflow.engine.statistics import NodeStatistics, Statistics
from dropflow.errors import HttpError, LinkError
from dropflow.rest.client import Client
from dropflow.rest.schema import SessionDetail
from dropflow.states import DropState, SessionState

__all__ = ["follow", "statistics_of"]

_PATIENCE = 60.0
"""Seconds for which a manager may be gone: sessions go on without it, and it may be started again."""

_PAUSE = 1.0


def follow(client: Client, session: str, output: Output) -> SessionDetail:
    """Show the progress of a session until it is over, and answer how it ended.

    The session does not depend on who follows it. A manager that goes away later is asked again for a minute.

    Raises
    ------
    NotFoundError
        There is no such session.
    LinkError
        The manager stays away.
    """
    pause = threading.Event()
    clock = SystemClock()
    detail: SessionDetail | None = None
    heard = clock.monotonic()
    progress: AbstractContextManager[Callable[[Statistics], None]] = progress_for(quiet=output.kind is OutputKind.QUIET)
    with progress as show:
        while detail is None or not SessionState[detail.status].is_terminal:
            try:
                for told in _pictures(client, session):
                    heard = clock.monotonic()
                    detail = told
                    show(statistics_of(told))
            except LinkError as error:
                if detail is None or clock.monotonic() - heard > _PATIENCE:
                    raise
                output.note(f"{error.text}; trying again")
                pause.wait(_PAUSE)
    return detail


def _pictures(client: Client, session: str) -> Iterator[SessionDetail]:
    """The session whenever it changed, by server-sent events; by asking again where no stream is free."""
    try:
        yield from client.events(session)
    except HttpError as error:
        if error.status != HTTPStatus.SERVICE_UNAVAILABLE:
            raise
    detail = client.session(session)
    yield detail
    while not SessionState[detail.status].is_terminal:
        detail = client.watch(session, version=detail.version, seconds=_PATIENCE / 4)
        yield detail


def statistics_of(detail: SessionDetail) -> Statistics:
    """The same picture in the form that the progress display takes."""
    return Statistics(
        status=SessionState[detail.status],
        seconds=detail.seconds,
        drops=detail.drops,
        settled=detail.settled,
        running=detail.running,
        nodes=tuple(
            NodeStatistics(
                key=node.key,
                name=node.name,
                category=node.category,
                is_app=node.is_app,
                artificial=node.artificial,
                counts=tuple(node.states.get(state.name, 0) for state in DropState),
            )
            for node in detail.logical
        ),
    )
