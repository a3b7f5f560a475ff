"""Connections of waitress that check the head of each request before they receive its body.

waitress receives a whole body before it calls the application. This channel calls
`dropflow.rest.server.bottle_app.RestApp.check_head` as soon as the head is there. A refused request is answered and its
body is not read; the body of another one is read up to its limit. Small bodies are always read, so that the connection
is kept.

waitress copies each piece of an answer into a buffer, from which its loop sends. Large pieces are sent here by the
thread that has them, and are not copied.
"""

import contextlib
import select
import socket
from functools import partial
from typing import Any

from waitress.buffers import OverflowableBuffer
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import WSGITask

from dropflow.errors import DropflowError, HttpError
from dropflow.rest.server.auth import Proof
from dropflow.rest.server.connection_limits import ConnectionState
from dropflow.rest.server.request_body import too_large
from dropflow.rest.server.request_head import HAS_CREDENTIAL, HEAD_CHECK, HeadCheck

__all__ = ["WaitressChannel"]

_SMALL = 64 * 1024
_LONGEST_CHUNK_LINE = 1024
_LONGEST_TRAILER = 8 * 1024
_LARGE = 64 * 1024
"""Bytes of a piece of an answer from which on it is sent without a copy."""
_DRAINED = 1024 * 1024
"""Bytes that have arrived already and are dropped when a refused request is closed: unread ones would reset it."""


class _Request(HTTPRequestParser):  # type: ignore[misc] # waitress has no types
    """One request while it is received."""

    completed: bool
    error: Any
    path = ""  # waitress logs it, also if it could not parse the head

    def __init__(self, adj: Any, channel: "WaitressChannel") -> None:
        super().__init__(adj)
        self._channel = channel
        self.began = channel.server.clock.monotonic()
        self.check: HeadCheck | None = None

    @property
    def is_known(self) -> bool:
        """Whether its head had a credential; False until it is checked."""
        return self.check is not None and self.check.admission.proof is not Proof.NONE

    def received(self, data: bytes) -> int:
        """Receive bytes; return how many of them belong to this request."""
        consumed: int = super().received(data)
        if self.completed and self.body_rcv is None:
            self.expect_continue = False  # there is no body to wait for
        elif self.headers_finished and not self.error:
            try:
                self._check()
            except DropflowError as error:
                return self._refuse(error, data)
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the head; its target may not be a URL."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError("Bad URI") from error

    def close(self) -> None:
        """Free the memory that its body took from the budget."""
        super().close()
        if self.check is not None and self.check.account is not None:
            self.check.account.close()

    def _check(self) -> None:
        """Check the head when it is complete, then count the bytes of the body."""
        if self.check is None:
            if not (self.chunked or self.expect_continue or self.content_length > _SMALL):
                return
            self.check = self._channel.server.check_head(_head(self))
            if self.check.refused is not None:
                raise self.check.refused
        size = len(self.body_rcv)
        if size > self.check.limit:
            raise too_large(self.check.limit)
        if self.check.account is not None:
            self.check.account.take(size - self.check.account.taken)
        if self.chunked and (
            len(self.body_rcv.control_line) > _LONGEST_CHUNK_LINE or len(self.body_rcv.trailer) > _LONGEST_TRAILER
        ):
            raise HttpError(400, "a line between the chunks of the body is too long")

    def _refuse(self, error: DropflowError, data: bytes) -> int:
        self.close()
        self.check = HeadCheck(refused=error)
        self.expect_continue = False
        self.headers["CONNECTION"] = "close"
        self.completed = self._channel.ignores_input = True
        return len(data)  # the rest is the body, not another request


class _Task(WSGITask):  # type: ignore[misc] # waitress has no types
    """One request that is answered."""

    def get_environment(self) -> dict[str, Any]:
        """Return the WSGI environment, with the result of the check if there is one."""
        environ: dict[str, Any] = super().get_environment()
        if self.request.check is not None:
            environ[HEAD_CHECK] = self.request.check
        return environ

    def write(self, data: bytes) -> None:
        """Write a piece of the answer; a large one without a copy of it."""
        if len(data) < _LARGE:
            super().write(data)
            return
        if not self.wrote_header:
            super().write(b"")
        if not self.chunked_response:
            super().write(data)
        else:
            self.channel.write_soon(b"%X\r\n" % len(data))
            self.channel.write_soon(data)
            self.channel.write_soon(b"\r\n")

    def finish(self) -> None:
        """End the answer; note whether the request had a credential."""
        super().finish()
        self.channel.is_known |= self.environ is not None and self.environ.get(HAS_CREDENTIAL, False)


class WaitressChannel(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """One connection."""

    task_class = _Task
    is_known = False
    """Whether a request of it had a credential."""
    ignores_input = False
    """Whether the bytes that arrive are the body of a refused request."""
    outbufs: list[Any]
    _was_asked = False
    _sender: socket.socket | None = None
    """The socket a second time, for the thread that sends large pieces: another one may close the first meanwhile."""

    def __init__(self, server: Any, *given: Any, **more: Any) -> None:
        self.server = server  # the parent's __init__ sets last_activity, which needs its clock
        super().__init__(server, *given, **more)
        self.parser_class = partial(_Request, channel=self)

    @property
    def last_activity(self) -> float:
        """When bytes were last received or sent, by a monotonic clock."""
        return self._moved

    @last_activity.setter
    def last_activity(self, _wall_clock: float) -> None:
        self._moved: float = self.server.clock.monotonic()

    @property
    def connection(self) -> ConnectionState:
        """The state of the connection now."""
        request = self.request
        if request is not None:
            stage, since = ("body" if request.headers_finished else "head"), request.began
        else:
            stage, since = ("next" if self._was_asked else "first"), self._moved
        return ConnectionState(
            address=self.addr[0],
            is_known=self.is_known or (request is not None and request.is_known),
            is_running=bool(self.requests),
            has_output=bool(self.total_outbufs_len) or self._sender is not None,
            stage=stage,
            since=since,
            moved=self._moved,
        )

    def readable(self) -> bool:
        """Return whether to read: nothing of the body of a refused request."""
        return not self.ignores_input and super().readable()

    def service(self) -> None:
        """Answer one request, in a thread."""
        self._was_asked = True
        super().service()

    def write_soon(self, data: bytes) -> int:
        """Send a large piece of an answer, and what waits before it; return its size. Queue a small one."""
        if len(data) < _LARGE:
            queued: int = super().write_soon(data)
            return queued
        with self.outbuf_lock:
            if not self.connected:
                raise ClientDisconnected
            before = [buffer.get(len(buffer)) for buffer in self.outbufs]
            self.outbufs = [OverflowableBuffer(self.adj.outbuf_overflow)]
            self.total_outbufs_len = self.current_outbuf_count = 0
            self._sender = sender = self.socket.dup()
        try:
            for piece in (b"".join(before), data):
                self._send_all(sender, memoryview(piece))
        finally:
            with self.outbuf_lock:
                self._sender = None
                sender.close()
        return len(data)

    def _send_all(self, sender: socket.socket, left: memoryview) -> None:
        """Send bytes; wait while the other end does not take them."""
        can_send = select.poll()
        can_send.register(sender, select.POLLOUT)
        while left:
            try:
                left = left[sender.send(left) :]
                self.last_activity = 0
            except BlockingIOError:
                can_send.poll()  # ends also when the connection is closed at either end
            except OSError as error:
                self.server.pull_trigger()
                raise ClientDisconnected from error

    def handle_close(self) -> None:
        """Close the connection, and free the memory of requests that will not be answered."""
        with self.outbuf_lock:
            if self._sender is not None:
                with contextlib.suppress(OSError):
                    self._sender.shutdown(socket.SHUT_RDWR)
        if self.ignores_input and self.connected:
            self._drain()
        for request in (self.request, *self.requests[1:]):
            if request is not None:
                request.close()
        super().handle_close()

    def _drain(self) -> None:
        """Drop bytes that have arrived: closing with unread bytes sends a reset, which could discard the answer."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            left = _DRAINED
            while left > 0 and (data := self.socket.recv(_SMALL)):
                left -= len(data)


def _head(request: _Request) -> dict[str, Any]:
    """Return the part of the WSGI environment that `check_head` needs, before the body is received."""
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
