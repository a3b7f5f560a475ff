"""Connections of waitress that are judged from the head of each request, before its body is received.

waitress receives a whole body before it calls the application. Here the application is asked as soon as the head is
there (`dropflow.rest.kit.App.judge`): a request that it refuses is answered at once and its body is left unread, the
body of another is received up to its limit. Small bodies are received anyway, so that a refusal keeps the connection.
"""

import contextlib
import socket
from functools import partial
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import WSGITask

from dropflow.errors import DropflowError, HttpError
from dropflow.rest.auth import Proof
from dropflow.rest.bodies import too_large
from dropflow.rest.crowd import Guest
from dropflow.rest.heads import KNOWN, VERDICT, Verdict

__all__ = ["Channel"]

_SMALL = 64 * 1024
_LONGEST_CHUNK_LINE = 1024
_LONGEST_TRAILER = 8 * 1024
_DRAINED = 1024 * 1024
"""Bytes that have arrived already and are dropped when a refused request is closed: unread ones would reset it."""


class _Request(HTTPRequestParser):  # type: ignore[misc] # waitress has no types
    """One request while it is received."""

    completed: bool
    error: Any
    path = ""  # waitress logs it, also of a request whose head it could not read

    def __init__(self, adj: Any, channel: "Channel") -> None:
        super().__init__(adj)
        self._channel = channel
        self.began = channel.server.clock.monotonic()
        self.verdict: Verdict | None = None

    @property
    def is_known(self) -> bool:
        """Whether its head showed a credential, as far as that was looked at."""
        return self.verdict is not None and self.verdict.admission.proof is not Proof.NONE

    def received(self, data: bytes) -> int:
        """Take bytes; how many of them belong to this request."""
        consumed: int = super().received(data)
        if self.completed and self.body_rcv is None:
            self.expect_continue = False  # there is no body to go on with
        elif self.headers_finished and not self.error:
            try:
                self._check()
            except DropflowError as error:
                return self._refuse(error, data)
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head, whose target may be no URL."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError("Bad URI") from error

    def close(self) -> None:
        """Give back what its body took."""
        super().close()
        if self.verdict is not None and self.verdict.account is not None:
            self.verdict.account.close()

    def _check(self) -> None:
        """Judge the head when it is there, and count the body after that."""
        if self.verdict is None:
            if not (self.chunked or self.expect_continue or self.content_length > _SMALL):
                return
            self.verdict = self._channel.server.judge(_head(self))
            if self.verdict.refused is not None:
                raise self.verdict.refused
        size = len(self.body_rcv)
        if size > self.verdict.limit:
            raise too_large(self.verdict.limit)
        if self.verdict.account is not None:
            self.verdict.account.take(size - self.verdict.account.taken)
        if self.chunked and (
            len(self.body_rcv.control_line) > _LONGEST_CHUNK_LINE or len(self.body_rcv.trailer) > _LONGEST_TRAILER
        ):
            raise HttpError(400, "a line between the chunks of the body is too long")

    def _refuse(self, error: DropflowError, data: bytes) -> int:
        self.close()
        self.verdict = Verdict(refused=error)
        self.expect_continue = False
        self.headers["CONNECTION"] = "close"
        self.completed = self._channel.is_deaf = True
        return len(data)  # what follows is the body, and no other request


class _Task(WSGITask):  # type: ignore[misc] # waitress has no types
    """One request that is answered."""

    def get_environment(self) -> dict[str, Any]:
        """The WSGI environment, with the verdict where there is one."""
        environ: dict[str, Any] = super().get_environment()
        if self.request.verdict is not None:
            environ[VERDICT] = self.request.verdict
        return environ

    def finish(self) -> None:
        """End the answer, and remember who asked."""
        super().finish()
        self.channel.is_known |= self.environ is not None and self.environ.get(KNOWN, False)


class Channel(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """One connection."""

    task_class = _Task
    is_known = False
    """Whether a request of it showed a credential."""
    is_deaf = False
    """Whether what comes is the body of a request that was refused."""
    _was_asked = False

    def __init__(self, server: Any, *given: Any, **more: Any) -> None:
        self.server = server  # whose clock is needed at once
        super().__init__(server, *given, **more)
        self.parser_class = partial(_Request, channel=self)

    @property
    def last_activity(self) -> float:
        """When bytes came or went last, by a clock that never jumps."""
        return self._moved

    @last_activity.setter
    def last_activity(self, _wall_clock: float) -> None:
        self._moved: float = self.server.clock.monotonic()

    @property
    def guest(self) -> Guest:
        """The connection, as it is now."""
        request = self.request
        if request is not None:
            stage, since = ("body" if request.headers_finished else "head"), request.began
        else:
            stage, since = ("next" if self._was_asked else "first"), self._moved
        return Guest(
            address=self.addr[0],
            is_known=self.is_known or (request is not None and request.is_known),
            is_running=bool(self.requests),
            has_output=bool(self.total_outbufs_len),
            stage=stage,
            since=since,
            moved=self._moved,
        )

    def readable(self) -> bool:
        """Whether to read on: nothing of a body that was refused."""
        return not self.is_deaf and super().readable()

    def service(self) -> None:
        """Answer one request, in a thread."""
        self._was_asked = True
        super().service()

    def handle_close(self) -> None:
        """End the connection, and give back what requests took that will not be answered."""
        if self.is_deaf and self.connected:
            self._drain()
        for request in (self.request, *self.requests[1:]):
            if request is not None:
                request.close()
        super().handle_close()

    def _drain(self) -> None:
        """Drop what has arrived, so that closing sends no reset, which could overtake the answer."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            left = _DRAINED
            while left > 0 and (data := self.socket.recv(_SMALL)):
                left -= len(data)


def _head(request: _Request) -> dict[str, Any]:
    """The WSGI environment of a request whose body is still to come, as far as a verdict needs it."""
    environ = {f"HTTP_{name}": value for name, value in request.headers.items()}
    length = environ.pop("HTTP_CONTENT_LENGTH", "")
    return environ | {
        "REQUEST_METHOD": request.command,
        "REQUEST_URI": request.request_uri,
        "PATH_INFO": request.path,
        "QUERY_STRING": request.query,
        "CONTENT_LENGTH": "" if request.chunked else length,
        "CONTENT_TYPE": environ.pop("HTTP_CONTENT_TYPE", ""),
    }
