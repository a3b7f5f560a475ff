"""Follow a session from afar, and keep asking while its manager is away."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from dropflow.cli.connection import Target, connect_to
from dropflow.cli.output import Output, OutputKind
from dropflow.cli.progress import progress_for
from dropflow.cli.suggestion import suggestion
from dropflow.clock import Clock, SystemClock
from dropflow.engine.statistics import Attempts, NodeStatistics, Statistics
from dropflow.errors import DropflowError, HttpError, LinkError, NotFoundError, ProtocolError
from dropflow.rest.client import Client
from dropflow.rest.schema import SessionDetail, SessionInfo
from dropflow.rest.status import UNKNOWN
from dropflow.states import DropState, SessionState

__all__ = ["follow", "statistics_of"]

_POLL = 2.0
"""Seconds that one question waits for news at the manager."""
_LATE = 5.0
"""Seconds without an answer after which people are told."""
_TIMEOUT = 20.0
"""Seconds after which a question is given up, and asked again over another connection."""
_PAUSE = 0.2
"""Seconds between two questions."""


def follow(
    target: Target, url: str, session: str, output: Output, *, patience: float, known: SessionInfo | None = None
) -> SessionDetail:
    """Show the progress of a session until it is over, and return how it ended.

    The session does not depend on this. While the manager is away, or does not know how the session is, standard error
    says so and the manager is asked again.

    Parameters
    ----------
    target : Target
        How to prove that this caller may ask. Read again for each connection: a manager that was started again has
        another token.
    url : str
        Address of the manager.
    patience : float
        Seconds for which to keep asking.
    known : SessionInfo, optional
        What the manager told already. Until it has told something, an error that an address or a token that is wrong
        may have caused is raised at once.

    Returns
    -------
    SessionDetail
        Over; or with the status UNKNOWN, if the manager has not known more for `patience` seconds.

    Raises
    ------
    NotFoundError
        There is no such session.
    LinkError
        The manager has been away for `patience` seconds, or the session was deleted meanwhile.
    DropflowError
        The manager refused the first question, or there is no such manager.
    """
    trouble = _Trouble(output, patience, SystemClock())
    pause = threading.Event()
    detail: SessionDetail | None = None
    progress: AbstractContextManager[Callable[[Statistics], None]] = progress_for(quiet=output.kind is OutputKind.QUIET)
    with progress as show:
        while True:
            try:
                with connect_to(url, target, timeout=_TIMEOUT) as client:
                    for told in _pictures(client, session, detail, trouble):
                        known = detail = told
                        show(statistics_of(detail))
                        if detail.is_over or trouble.is_too_long:
                            return detail
            except NotFoundError as error:
                if known is None:
                    raise
                text = f"session {session} was deleted, or {url} is another manager now; how it ended is not known"
                raise LinkError(text, where=url) from error
            except DropflowError as error:
                if not (_may_pass(error) if known is not None else _is_away(error)):
                    raise
                trouble.begin(f"the manager at {url}: {error.text}")
                if trouble.is_too_long:
                    raise LinkError(
                        f"the manager has been away for {patience:g} s: {error.text}",
                        where=url,
                        hint=f"session {session} does not depend on it; {suggestion('watch', session)} asks again",
                    ) from error
            pause.wait(_PAUSE)


class _Trouble:
    """Tells people that the state of the session is not known now, and that it is known again."""

    def __init__(self, output: Output, patience: float, clock: Clock) -> None:
        self._output = output
        self._patience = patience
        self._clock = clock
        self._text = ""
        self._began = 0.0

    @property
    def is_too_long(self) -> bool:
        """Whether it has lasted longer than people want to wait."""
        return bool(self._text) and self._clock.monotonic() - self._began >= self._patience

    def begin(self, text: str) -> None:
        """Note a reason; people are told of each once."""
        if not self._text:
            self._began = self._clock.monotonic()
        if text != self._text:
            self._text = text
            self._output.note(f"{text}; asking again for up to {self._patience:g} s")

    def end(self) -> None:
        """Note that all is well."""
        if self._text:
            self._text = ""
            self._output.note("the state of the session is known again")

    @contextmanager
    def watching(self, url: str) -> Iterator[None]:
        """Tell people when what is done in this context takes long."""
        timer = threading.Timer(_LATE, self.begin, [f"the manager at {url} has not answered for {_LATE:g} s"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _pictures(client: Client, session: str, last: SessionDetail | None, trouble: _Trouble) -> Iterator[SessionDetail]:
    """The session again and again: at once, then whenever it changed or some seconds have passed."""
    pause = threading.Event()
    while True:
        with trouble.watching(client.url):
            if last is None:
                last = client.session(session)
            else:
                last = client.watch(session, version=last.version, seconds=_POLL)
        if last.status == UNKNOWN:
            trouble.begin(f"the state of session {session} is not known: {last.text or 'nodes do not answer'}")
        else:
            trouble.end()
        yield last
        pause.wait(_PAUSE)


def _is_away(error: DropflowError) -> bool:
    """Whether this error of a manager that never answered means that it is away now.

    A host name that is not known or a certificate that is not trusted is more likely a mistake in the address.
    """
    return error.retryable and not isinstance(error.__cause__, socket.gaierror | ssl.SSLError)


def _may_pass(error: DropflowError) -> bool:
    """Whether a manager that answered before may answer again after this error.

    One that was started again may take another token, and a proxy before it may answer in its place.
    """
    return error.retryable or isinstance(error, HttpError | ProtocolError)


def statistics_of(detail: SessionDetail) -> Statistics:
    """The same picture in the form that the progress display takes."""
    return Statistics(
        status=SessionState.RUNNING if detail.status == UNKNOWN else SessionState[detail.status],
        seconds=detail.seconds,
        drops=detail.drops,
        settled=detail.settled,
        attempts=Attempts(running=detail.running, queued=detail.queued, ready=detail.ready),
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
