"""waitress with a loop that its caller runs step by step, and with threads that start when they are needed.

waitress itself starts all threads in advance and ends its loop only when every connection is closed. Hundreds of our
servers live in one test run, and a server must close while clients are connected. waitress also stops accepting when
there are many connections, even idle ones; here the surplus and the slow ones are closed.
"""

import contextlib
import resource
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any, Self

import msgspec
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.buffers import OverflowableBuffer
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher, WSGITask

from dropflow.api.auth import HAS_CREDENTIAL, HEAD_CHECK, HeadCheck, Proof
from dropflow.api.request_bodies import too_large
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, HttpError

_READ_BYTES = 64 * 1024
"""Bytes that are read at once to be dropped."""
_UNCHECKED_BYTES = 64 * 1024
"""Bytes of a body up to which a request is checked only when it is complete."""
_LONGEST_CHUNK_LINE_BYTES = 1024
"""Bytes of the line with the size of a chunk."""
_LONGEST_TRAILER_BYTES = 8 * 1024
"""Bytes of the headers after the last chunk."""
_LARGE = 64 * 1024
"""Bytes of a piece of an answer from which on it is sent without a copy."""
_DRAINED = 1024 * 1024
"""Bytes that have arrived already and are dropped when a refused request is closed: unread ones would reset it."""
_ACCEPTED_AT_ONCE = 64
"""Connections that are accepted in one turn of the loop."""
_TIDY_SECONDS = 1.0
"""Shortest seconds between two checks of all connections, and after a connection that cannot be accepted."""
_LOOK = 5.0
"""Longest seconds that the loop waits while there are connections."""
_LONGEST_HEAD_BYTES = 64 * 1024
"""Bytes of the head of a request."""
_AHEAD = 4 << 20
"""Bytes of an answer that may wait to be sent. waitress has them in memory, and not in a temporary file, up to four
times as many."""
_NO_LIMIT = 2**62
"""Value for limits of waitress that other code enforces."""


# Decides which connections a server closes because they take too long, or because there are too many.
#
# Works on records, without sockets and clocks. A connection is idle while no request of it runs and no answer is being
# sent: it waits for a request, or has sent part of one.


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the number of connections and on their time.

    Attributes
    ----------
    most, per_address : int
        Connections at a time, in all and from one address.
    head : float
        Seconds for the head of a request; for the first one counted from the start of the connection.
    body : float
        Seconds for the whole body of a request without a credential.
    still : float
        Seconds without a byte while a body is received or an answer is sent.
    kept : float
        Seconds until a connection is closed after an answer.
    """

    most: int = 1000
    per_address: int = 750
    head: float = 15.0
    body: float = 300.0
    still: float = 60.0
    kept: float = 120.0


class ConnectionState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one connection.

    Attributes
    ----------
    address : str
        Address of the other end.
    is_known : bool
        Whether a request of it had a credential.
    is_running : bool
        Whether a request runs.
    has_output : bool
        Whether part of an answer is still to be sent.
    stage : str
        What it waits for: ``first`` or ``next`` request, ``head`` or ``body`` of one that has begun.
    since : float
        When that began.
    moved : float
        When bytes were last received or sent.
    """

    address: str
    is_known: bool = False
    is_running: bool = False
    has_output: bool = False
    stage: str = "first"
    since: float = 0.0
    moved: float = 0.0


def is_overdue(connection: ConnectionState, now: float, limits: ConnectionLimits) -> bool:
    """Return whether a connection takes too long."""
    if connection.has_output:
        return now - connection.moved > limits.still
    if connection.is_running:
        return False
    if connection.stage == "next":
        return now - connection.since > limits.kept
    if connection.stage == "body":
        return now - connection.moved > limits.still or (
            not connection.is_known and now - connection.since > limits.body
        )
    return now - connection.since > limits.head


def surplus(connections: Sequence[ConnectionState], limits: ConnectionLimits) -> Collection[int]:
    """Return the indices of the connections to close because there are too many; the last connection is the newest.

    Idle connections are closed first: those without a credential, then those that have waited longest. If no connection
    of an address is idle, its newest one is closed.
    """
    chosen: set[int] = set()
    counts = Counter(connection.address for connection in connections)
    crowded = {address for address, count in counts.items() if count > limits.per_address}
    for address in crowded:
        places = [place for place, connection in enumerate(connections) if connection.address == address]
        chosen.update(_first(connections, places, counts[address] - limits.per_address))
    rest = [place for place in range(len(connections)) if place not in chosen]
    chosen.update(_first(connections, rest, len(rest) - limits.most))
    return chosen


def _first(connections: Sequence[ConnectionState], places: Sequence[int], number: int) -> Sequence[int]:
    """Return the `number` of `places` to close first."""
    newest = len(connections) - 1

    def rank(place: int) -> tuple[bool, bool, float]:
        connection = connections[place]
        if (
            connection.is_running or connection.has_output or place == newest
        ):  # the newest had no time to send a request
            return True, False, -place
        return False, connection.is_known, connection.since

    return sorted(places, key=rank)[: max(number, 0)]


# Connections of waitress that check the head of each request before they receive its body.
#
# waitress receives a whole body before it calls the application. This channel calls
# `dropflow.api.bottle_app.RestApp.check_head` as soon as the head is there. A refused request is answered and its body
# is not read; the body of another one is read up to its limit. Small bodies are always read, so that the connection is
# kept.
#
# waitress copies each piece of an answer into a buffer, from which its loop sends. Large pieces are sent here by the
# thread that has them, and are not copied.


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
            if not (self.chunked or self.expect_continue or self.content_length > _UNCHECKED_BYTES):
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
            len(self.body_rcv.control_line) > _LONGEST_CHUNK_LINE_BYTES
            or len(self.body_rcv.trailer) > _LONGEST_TRAILER_BYTES
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
        """Monotonic time at which bytes were last received or sent."""
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
            while left > 0 and (data := self.socket.recv(_READ_BYTES)):
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


class _Threads(ThreadedTaskDispatcher):  # type: ignore[misc] # waitress has no types
    """Starts a thread for a request if none is idle, up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def add_task(self, task: Any) -> None:
        """Queue a request."""
        with self.lock:
            self.queue.append(task)
            self.queue_cv.notify()
            idle = len(self.threads) - self.stop_count - self.active_count
            if len(self.queue) > idle and len(self.threads) < self._most:
                number = next(number for number in count() if number not in self.threads)
                self.threads.add(number)
                self.active_count += 1
                try:
                    self.start_new_thread(self.handler_thread, number)
                except RuntimeError:  # the system has no more threads: one of those that run takes it, or a later one
                    self.threads.discard(number)
                    self.active_count -= 1


class WaitressServer(TcpWSGIServer):  # type: ignore[misc] # waitress has no types
    """A server whose loop is run by its caller, in one thread."""

    channel_class = WaitressChannel

    def __init__(
        self,
        *given: Any,
        check_head: Callable[[dict[str, Any]], HeadCheck],
        limits: ConnectionLimits,
        clock: Clock,
        **settings: Any,
    ) -> None:
        self.check_head = check_head
        self.clock = clock
        self._limits = limits
        self._tidy_at = self._accept_at = 0.0
        # Guards the pipe that wakes the loop: a request thread must not write to it after `abandon` closed it, because
        # its file descriptor may then belong to another file.
        self._waking = threading.Lock()
        self._silent = False
        super().__init__(*given, **settings)

    @classmethod
    def on(
        cls,
        listening: socket.socket,
        app: Callable[..., Any],
        *,
        check_head: Callable[[dict[str, Any]], HeadCheck],
        most: int,
        limits: ConnectionLimits | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Return a server on a socket that listens already.

        Parameters
        ----------
        listening : socket.socket
            Closed by `stop_listening`.
        app : WSGI application
        check_head : callable
            Decides about a request from its head (`dropflow.api.bottle_app.RestApp.check_head`).
        most : int
            Threads that may run requests.
        limits : ConnectionLimits, optional
            How many connections there may be, and how long they may take; by default as many as this process has file
            descriptors for, up to `ConnectionLimits.most`.
        clock : Clock, optional
            For the times of connections; the system's unless given.
        """
        settings = Adjustments(
            sockets=[listening],
            connection_limit=_NO_LIMIT,
            backlog=1024,
            channel_request_lookahead=1,  # so that a closed connection is noticed while its request runs
            ident="dropflow",
            clear_untrusted_proxy_headers=True,
            max_request_header_size=_LONGEST_HEAD_BYTES,
            max_request_body_size=_NO_LIMIT,
            outbuf_high_watermark=_AHEAD,
            outbuf_overflow=4 * _AHEAD,
        )
        where = (listening.family, listening.type, listening.proto, listening.getsockname())
        more: dict[str, Any] = {"dispatcher": _Threads(most), "adj": settings, "bind_socket": False, "sockinfo": where}
        limits, clock = limits or _default_limits(), clock or SystemClock()
        return cls(app, {}, True, listening, check_head=check_head, limits=limits, clock=clock, **more)

    def step(self, *, timeout: float) -> None:
        """Wait at most `timeout` seconds for input, and handle it."""
        timeout = min(timeout, _LOOK) if self.active_channels else timeout
        if self._accept_at > self.clock.monotonic():
            timeout = min(timeout, _TIDY_SECONDS)
        self.asyncore.loop(timeout=timeout, map=self._map, use_poll=True, count=1)

    def readable(self) -> bool:
        """Return whether to accept connections. Called in each step, so slow ones are closed here."""
        now = self.clock.monotonic()
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY_SECONDS
            self._end(
                channel
                for channel in self.active_channels.values()
                if is_overdue(channel.connection, now, self._limits)
            )
        return bool(self.accepting) and now >= self._accept_at

    def accept(self) -> Any:
        """Accept a connection. If that fails, as without a free descriptor, wait: each try is a record in the log."""
        try:
            return super().accept()
        except OSError:
            self._accept_at = self.clock.monotonic() + _TIDY_SECONDS
            raise

    def handle_accept(self) -> None:
        """Accept the connections that wait, and close others if there are too many."""
        before = len(self.active_channels)
        for _ in range(_ACCEPTED_AT_ONCE):
            known = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == known:
                break
        if len(self.active_channels) > max(before, min(self._limits.per_address, self._limits.most)):
            channels = list(self.active_channels.values())
            self._end(channels[place] for place in surplus([channel.connection for channel in channels], self._limits))

    def _end(self, channels: Iterable[WaitressChannel]) -> None:
        for channel in list(channels):
            channel.handle_close()

    def stop_listening(self) -> None:
        """Free the port. Must be called by the thread that runs the loop."""
        self.accepting = False
        wasyncore.dispatcher.close(self)

    def is_busy(self) -> bool:
        """Return whether requests run or answers are being sent."""
        channels = list(self.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)

    def abandon(self) -> None:
        """Close all connections and idle threads. Must be called by the thread that runs the loop."""
        for channel in list(self.active_channels.values()):
            channel.handle_close()
        self.task_dispatcher.set_thread_count(0)
        with self._waking:
            self._silent = True
            self.trigger.close()

    def pull_trigger(self) -> None:
        """Wake the loop, unless the server is closed already."""
        with self._waking:
            # The descriptor of a closed pipe may belong to another file by now.
            if not self._silent:
                super().pull_trigger()


def _default_limits() -> ConnectionLimits:
    """Return limits of half of the file descriptors, so that some are left for files and other sockets."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = ConnectionLimits()
    most = usual.most if descriptors == resource.RLIM_INFINITY else min(usual.most, max(descriptors // 2, 8))
    return msgspec.structs.replace(usual, most=most, per_address=most * 3 // 4)
