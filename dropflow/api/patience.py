"""Seconds during which a manager that does not answer is asked again."""

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from dropflow.clock import Clock, SystemClock
from dropflow.errors import AppError, DropflowError, HttpError, LinkError, ProtocolError
from dropflow.states import UNKNOWN

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.session_records import SessionDetail


PATIENCE = 60.0
"""Seconds for which a manager is asked again, unless the user chose another number."""
PAUSE = 0.2
"""Seconds between two requests."""
_WATCH_SECONDS = 20.0
"""Seconds that one request waits at the manager for a change."""
_Answer = TypeVar("_Answer")


def may_recover(error: DropflowError) -> bool:
    """Return whether a manager that answered before may answer again after this error.

    A manager that was started again has another token, and a proxy may answer while it is away.
    """
    return (error.retryable and not isinstance(error, AppError)) or isinstance(error, HttpError | ProtocolError)


class Patience:
    """Measures for how long there has been no answer.

    Parameters
    ----------
    seconds : float
        After this time it is over.
    clock : Clock
        Which measures it.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds = seconds
        self._clock = clock
        self._began: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether there has been no answer for that time."""
        return self._began is not None and self._clock.monotonic() - self._began >= self.seconds

    def begin(self) -> None:
        """Note that there was no answer; only the first time counts."""
        if self._began is None:
            self._began = self._clock.monotonic()

    def end(self) -> None:
        """Note an answer."""
        self._began = None


class PatientClient:
    """Repeats requests to a manager that is away, or whose nodes are, over new connections.

    Parameters
    ----------
    connect : callable
        Returns a connection. It looks the credentials up again, because a manager that was started again has another
        token.
    seconds : float
        For how long one request is repeated; with 0, it is not.
    clock : Clock, optional
        Which measures that time.
    pause : float
        Seconds between two requests.

    Attributes
    ----------
    client : Client
        The present connection.
    """

    def __init__(
        self, connect: "Callable[[], Client]", *, seconds: float, clock: Clock | None = None, pause: float = PAUSE
    ) -> None:
        self.client = connect()
        self._connect = connect
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._pause = pause

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def ask(self, request: "Callable[[Client], _Answer]") -> _Answer:
        """Return the answer to a request; it may be sent several times.

        Raises
        ------
        LinkError
            There was no answer for the given time.
        DropflowError
            The manager refused it.
        """
        patience = Patience(self._seconds, self._clock)
        pause = threading.Event()
        while True:
            try:
                return request(self.client)
            except DropflowError as error:
                if not (self._seconds and may_recover(error)):
                    raise
                patience.begin()
                if patience.is_over:
                    raise LinkError(
                        f"no answer for {self._seconds:g} s: {error.text}", where=self.client.url, hint=error.hint
                    ) from error
            pause.wait(self._pause)
            self.client.close()
            self.client = self._connect()

    def details(self, session: str) -> "Iterator[SessionDetail]":
        """Yield a session as it is now, and after each change, until it is over.

        Raises
        ------
        As `ask`, for each request.
        LinkError
            The session has been UNKNOWN for the given time: nodes that have parts of it do not answer.
        """
        patience = Patience(self._seconds, self._clock)
        detail = self.ask(lambda client: client.session(session))
        yield detail
        while not detail.is_over:
            if detail.status == UNKNOWN:
                patience.begin()
            else:
                patience.end()
            if patience.is_over:
                why = f": {detail.text}" if detail.text else ""
                raise LinkError(
                    f"the session {session} has been {UNKNOWN} for {self._seconds:g} s{why}",
                    where=self.client.url,
                    hint="start the nodes that do not answer again, or compute without them",
                )
            detail = self._changed(session, detail.version)
            yield detail

    def _changed(self, session: str, version: int) -> "SessionDetail":
        return self.ask(lambda client: client.watch(session, version=version, seconds=_WATCH_SECONDS))
