"""HTTP requests to one server: kept connections, a time limit on every wait, errors as their class (ADR 0010)."""

import http.client
import socket
import ssl
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from dropflow.api.addresses import DEFAULT_PORTS, http_parts, is_loopback
from dropflow.api.error_body import from_body
from dropflow.api.signing import Signer, UserKey, digest
from dropflow.clock import Clock, SystemClock
from dropflow.errors import DropflowError, HttpError, LinkError, ProtocolError, UsageError

_CHUNK_BYTES = 1024 * 1024
"""Bytes of an answer that are read at once."""
_PACKED_BYTES = 64 * 1024
"""Bytes above which the body of a request to another host is compressed."""
_IDLE_SECONDS = 30.0
"""Seconds without a request, after which a connection is not used again: the server may close it."""
_KEPT_CONNECTIONS = 8
"""Connections without a request that are kept for the next ones."""
_FOREIGN = "is it a dropflow manager of the same version?"
_Buffers = Sequence[bytes | memoryview]


@dataclass(frozen=True)
class ClientRequest:
    """One request.

    Attributes
    ----------
    method, target : str
        Method, and path with query, quoted.
    body : sequence of buffers
        The body in pieces, sent one after the other.
    content_type : str
        Media type of the body.
    seconds : float
        How long the answer may take to begin, beyond the timeout.
    again : bool
        Whether it may be sent again if a kept connection turns out to be closed.
    accept : str
        Media type of the answer.
    last_event : str
        ``Last-Event-ID`` of a stream of events that continues; empty for none.
    """

    method: str
    target: str
    body: _Buffers = ()
    content_type: str = "application/json"
    seconds: float = 0.0
    again: bool = True
    accept: str = "application/json"
    last_event: str = ""


class HttpTransport:
    """Requests to one server.

    Parameters
    ----------
    url : str
        ``http://host:port``, optionally with a prefix of all paths.
    token : str, optional
        Sent with each request.
    secret : bytes or UserKey, optional
        Secret half of the cluster key, or the key of a user, which signs requests if there is no token.
    timeout : float
        Seconds to connect, and for each wait for bytes.
    clock : Clock, optional
        By which requests are signed; the system's unless given.
    most : int, optional
        Bytes of the largest answer that is read whole; any unless given.

    Raises
    ------
    UsageError
        The URL or the token cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        secret: bytes | UserKey | None,
        timeout: float,
        clock: Clock | None = None,
        most: int | None = None,
    ) -> None:
        parts = http_parts(url)
        if parts is None or parts.query or parts.username:
            raise UsageError("not a manager URL", where=url, hint="give http://HOST:PORT")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise UsageError(
                "the token has a line break, or a character that is not ASCII", where=url, hint="copy it again"
            )
        self.url = url.rstrip("/")
        self._host = parts.hostname or ""
        self._port = parts.port or DEFAULT_PORTS[parts.scheme]
        self._authority = parts.netloc
        self._prefix = parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token
        self._signer = Signer(secret, clock=clock) if secret is not None and token is None else None
        self._timeout = timeout
        self._most = most
        self._clock = clock or SystemClock()
        # Guards the list of free connections, which several threads take from and give back to. A queue would not do:
        # `close` and an idle timeout empty it.
        self._lock = threading.Lock()
        self._free: list[tuple[http.client.HTTPConnection, float]] = []

    def ask(self, request: ClientRequest) -> tuple[int, bytes]:
        """Send a request and read its whole answer.

        Raises
        ------
        LinkError
            The server cannot be reached, or does not answer in time.
        ProtocolError
            The answer is larger than it may be.
        DropflowError
            The error of the server, as its own class.
        """
        connection, kept = self._taken()
        try:
            response = self._exchange(connection, request, kept=kept)
            data = self._whole(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        if response.status >= http.client.MULTIPLE_CHOICES:
            raise self._refused(response, data)
        return response.status, data

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        if self._most is None:
            return response.read()
        data = response.read(self._most + 1)
        if len(data) > self._most:
            raise ProtocolError(f"the answer is larger than {self._most:,} bytes", where=self.url, hint=_FOREIGN)
        if response.length:  # with a number of bytes, `read` does not raise it
            raise http.client.IncompleteRead(data, response.length)
        return data

    def stream(self, request: ClientRequest) -> tuple[http.client.HTTPResponse, Iterator[bytes]]:
        """Send a request over a connection of its own, and return the answer as it arrives.

        Returns
        -------
        response : http.client.HTTPResponse
            Its status and headers.
        chunks : iterator of bytes
            The body; the connection is closed at its end, or when the iterator is closed.

        Raises
        ------
        LinkError, DropflowError
            See `ask`; the iterator raises `LinkError` when the answer is cut off.
        """
        connection = self._connection()
        try:
            response = self._exchange(connection, request, kept=False)
            refused = response.read() if response.status >= http.client.MULTIPLE_CHOICES else None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        if refused is not None:
            connection.close()
            raise self._refused(response, refused)
        return response, self._chunks(connection, response)

    def close(self) -> None:
        """Close the connections that are not in use. Idempotent."""
        with self._lock:
            free = [*self._free]
            self._free.clear()
        for connection, _ in free:
            connection.close()

    def within(self, timeout: float) -> "HttpTransport":
        """Return a transport with another time limit that shares the connections of this one."""
        other = copy(self)
        other._timeout = timeout  # noqa: SLF001 - a copy of this object
        return other

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _taken(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection for one request, the one used last, and whether it was used before."""
        with self._lock:
            connection, used = self._free.pop() if self._free else (None, 0.0)
        if connection is None:
            return self._connection(), False
        if self._clock.monotonic() - used < _IDLE_SECONDS:
            return connection, True
        # The server has closed it, and all others, which are idle for longer. A new connection avoids a second attempt.
        connection.close()
        self.close()
        return self._connection(), False

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._free) < _KEPT_CONNECTIONS:
                self._free.append((connection, self._clock.monotonic()))
                return
        connection.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, request: ClientRequest, *, kept: bool
    ) -> http.client.HTTPResponse:
        try:
            return self._attempt(connection, request)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not (kept and request.again):
                raise
            connection.close()
            return self._attempt(connection, request)

    def _attempt(self, connection: http.client.HTTPConnection, request: ClientRequest) -> http.client.HTTPResponse:
        """Send a request, and again if the server has answered for which manager and by which time to sign it."""
        authorization, response = self._sent(connection, request)
        challenge = response.getheader("WWW-Authenticate", "")
        if response.status != HTTPStatus.UNAUTHORIZED or self._signer is None:
            return response
        if not self._signer.learn(challenge, authorization):
            return response
        response.close()
        connection.close()  # a server that refused the head may not have read the body
        return self._sent(connection, request)[1]

    def _sent(
        self, connection: http.client.HTTPConnection, request: ClientRequest
    ) -> tuple[str, http.client.HTTPResponse]:
        """Send a request; return its ``Authorization`` and the answer."""
        body, headers = self._packed(request)
        target = self._prefix + request.target
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        elif self._signer is not None:
            headers["Authorization"] = self._signer.sign(
                request.method,
                self._authority,
                target,
                digest(body),
                content_type=headers.get("Content-Type", ""),
                content_encoding=headers.get("Content-Encoding", ""),
            )
        if connection.sock is None:
            connection.timeout = self._timeout
            connection.connect()
        wire: socket.socket = connection.sock
        wire.settimeout(self._timeout + request.seconds)
        # The buffers are sent one by one, without a copy of the whole body.
        authorization = headers.get("Authorization", "")
        try:
            connection.request(request.method, target, body=iter(body) if body else None, headers=headers)
        except (BrokenPipeError, ConnectionResetError) as error:
            return authorization, _early(connection, error)
        return authorization, connection.getresponse()

    def _packed(self, request: ClientRequest) -> tuple[_Buffers, dict[str, str]]:
        headers = {"Host": self._authority, "Accept": request.accept}
        if request.last_event:
            headers["Last-Event-ID"] = request.last_event
        body = request.body
        if request.method in ("POST", "PUT"):
            # Compression costs more than it saves within one machine.
            if _size(body) > _PACKED_BYTES and not is_loopback(self._host):
                pack = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
                body = [*(pack.compress(buffer) for buffer in body), pack.flush()]
                headers["Content-Encoding"] = "gzip"
            headers["Content-Type"] = request.content_type
            headers["Content-Length"] = str(_size(body))
        return body, headers

    def _chunks(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while True:
                chunk = response.read1(_CHUNK_BYTES)
                if not chunk:
                    break
                yield chunk
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            response.close()
            connection.close()

    def _refused(self, response: http.client.HTTPResponse, data: bytes) -> DropflowError:
        status = response.status
        body: Any = None
        if status < http.client.BAD_REQUEST:
            text = f"it redirects to {response.getheader('Location', '')[:200]!r}"
            hint = "managers do not: give the address of the manager itself, or one for which a proxy asks no sign-in"
            return ProtocolError(text, where=self.url, hint=hint)
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            body = msgspec.json.decode(data)
        error = from_body(status, body)
        error.where = error.where or self.url
        return error

    def _unreachable(self, error: Exception) -> DropflowError:
        if isinstance(error, UnicodeError):
            return HttpError(400, "the address or the request is not ASCII", where=self.url)
        if isinstance(error, TimeoutError):
            text, hint = "it does not answer in time", "is it busy, or does a firewall drop the packets?"
        elif isinstance(error, ConnectionRefusedError):
            text, hint = "nothing listens there", "is the manager running, and is this its port?"
        elif isinstance(error, socket.gaierror):
            text, hint = "there is no host of that name", "check the spelling, or give its address"
        elif isinstance(error, http.client.HTTPException | ConnectionError):
            text, hint = f"the connection broke: {type(error).__name__}", "is it a manager, and still running?"
        else:
            text, hint = f"it cannot be reached: {error}", "check the network between the hosts"
        return LinkError(text, where=self.url, hint=hint)


def _early(connection: http.client.HTTPConnection, broken: OSError) -> http.client.HTTPResponse:
    """Return the answer of a server that refused a request before it had read the whole body.

    Raises
    ------
    OSError
        `broken`, if there is none.
    """
    try:
        response = connection.getresponse()
    except (OSError, http.client.HTTPException):
        raise broken from None
    if response.status < http.client.BAD_REQUEST:
        raise broken
    return response


def _size(body: _Buffers) -> int:
    return sum(memoryview(buffer).nbytes for buffer in body)


def joined(chunks: Iterable[bytes]) -> bytes:
    """Return all chunks as one."""
    return b"".join(chunks)
