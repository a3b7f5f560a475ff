"""A client of a manager: a `Manager` that sends each operation over HTTP, as defined in `dropflow.api.operations`.

May be used from any thread. Errors of the manager are raised as their own class; a manager that cannot be reached is a
`LinkError` with its address.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from dropflow.api import operations
from dropflow.api.contents_answer import Download, file_name, read_content_range
from dropflow.api.event_stream import ServerSentEvent, read_events
from dropflow.api.http_client import ClientRequest, HttpTransport, joined
from dropflow.api.logs import ALL_LINES, LogTextQuery
from dropflow.api.manager import Manager, Packable
from dropflow.api.node_records import ManagerInfo, ProbeRequest, ProbeResult
from dropflow.api.operations import Operation
from dropflow.api.requests import (
    ALL_RESULTS,
    DEFAULT_SUBMISSION,
    ArchiveQuery,
    DeploymentQuery,
    DropStates,
    SubmitQuery,
)
from dropflow.api.session_records import SessionDetail, SessionInfo, apply_change
from dropflow.api.signing import UserKey
from dropflow.clock import Clock
from dropflow.errors import DropflowError, LinkError, ProtocolError

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph

_Answer = TypeVar("_Answer")
_Value = TypeVar("_Value")


class Client(Manager):
    """One manager in another process.

    Parameters
    ----------
    url : str
        Its address, ``http://host:port``.
    token : str, optional
        Its token.
    secret : bytes or UserKey, optional
        Secret half of the cluster key, or the key of a user, which signs requests when there is no token.
    timeout : float
        Seconds to connect, and to wait for each answer.
    clock : Clock, optional
        By which requests are signed; the system's unless given.
    most : int, optional
        Bytes of the largest answer that is read whole, but for downloads; any unless given.

    Raises
    ------
    UsageError
        The URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        secret: bytes | UserKey | None = None,
        timeout: float = 30.0,
        clock: Clock | None = None,
        most: int | None = None,
    ) -> None:
        self._transport = HttpTransport(url, token=token, secret=secret, timeout=timeout, clock=clock, most=most)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Address of the manager."""
        return self._transport.url

    def within(self, timeout: float) -> "Client":
        """Return a client with another time limit in seconds that shares the connections of this one."""
        other = copy(self)
        other._transport = self._transport.within(timeout)  # noqa: SLF001 - a copy of this object
        return other

    def close(self) -> None:
        """Close the connections; the manager is not affected. Idempotent."""
        self._transport.close()

    def call(self, operation: Operation[_Answer], /, **arguments: Any) -> _Answer:
        """Return the answer of an operation.

        Parameters
        ----------
        operation : Operation
            The operation to call.
        **arguments
            See `Manager.call`; and ``content``, the bytes of a body that is not JSON.

        Raises
        ------
        LinkError
            The manager cannot be reached, or does not answer in time.
        ProtocolError
            The answer is not one of this operation.
        DropflowError
            The error of the manager, as its own class.
        """
        request = _request(operation, arguments)
        if operation.answer is Download:
            return cast(_Answer, self._download(request))
        _, data = self._transport.ask(request)
        try:
            return msgspec.json.decode(data, type=operation.answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unexpected(self.url, error) from error

    def _download(self, request: ClientRequest) -> Download:
        """Return an answer that is not JSON, as it arrives."""
        response, chunks = self._transport.stream(request)
        size = response.getheader("Content-Length")
        return Download(
            name=file_name(response.getheader("Content-Disposition", "")),
            content_type=response.getheader("Content-Type", "application/octet-stream"),
            size=int(size) if size is not None and size.isdecimal() else None,
            chunks=chunks,
            etag=response.getheader("ETag", ""),
            part=read_content_range(response.getheader("Content-Range", "")),
        )

    # Operations whose request or answer is not JSON.

    def submit(self, graph: "PhysicalGraph | bytes", options: SubmitQuery = DEFAULT_SUBMISSION) -> SessionInfo:
        """Deploy a whole graph and start it.

        Parameters
        ----------
        graph : PhysicalGraph or bytes
            A graph, or a file with one: ``.dfg``, DALiuGE's JSON, or one of them compressed.
        options : SubmitQuery
            How to deploy it.
        """
        if isinstance(graph, bytes):
            content: Sequence[bytes | memoryview] = [graph]
        else:
            from dropflow.graph.codec import dump  # noqa: PLC0415 - numpy, which most commands do not need

            content = dump(graph)
        return self.call(operations.SUBMIT, content=content, options=options)

    def prepare(self, deployment: Packable, *, seconds: float) -> None:
        """First half of a deployment: send the graph, run nothing."""
        query = DeploymentQuery(seconds=seconds)
        self.call(operations.PREPARE, session=deployment.session, content=deployment.buffers(), query=query)

    def graph(self, session: str) -> "PhysicalGraph":
        """Return the whole graph."""
        from dropflow.graph.codec import parse  # noqa: PLC0415 - see `submit`

        return parse(joined(self.call(operations.GRAPH, session=session).chunks), where=self.url)

    # Operations of the server of a manager.

    def ready(self) -> bool:
        """Return whether a manager answers at the address; needs no credential."""
        try:
            self._transport.ask(ClientRequest(operations.READY.method, operations.READY.path))
        except LinkError:
            return False
        return True

    def probe(self, addresses: Sequence[str], *, seconds: float = 3.0) -> tuple[ProbeResult, ...]:
        """Return which other managers it can reach.

        Parameters
        ----------
        addresses : sequence of str
            Addresses of links (``tcp://host:port``) and managers (``http://host:port``); 32 at most.
        seconds : float
            How long the whole probe may take, 0.1 to 10.

        Raises
        ------
        HttpError
            400 for an address in another form, or too many; 503 while too many probes run.
        """
        request = ProbeRequest(addresses=tuple(addresses), seconds=seconds)
        return self.call(operations.PROBE, request=request).reaches

    def manager_log_text(self, node: str, query: LogTextQuery = ALL_LINES) -> Download:
        """Download the log of a manager."""
        return self.call(operations.MANAGER_LOG_TEXT, node=node, query=query)

    def session_log_text(self, session: str, query: LogTextQuery = ALL_LINES) -> Download:
        """Download the log of a session."""
        return self.call(operations.SESSION_LOG_TEXT, session=session, query=query)

    def archive(self, session: str, query: ArchiveQuery = ALL_RESULTS) -> Download:
        """Download results as one archive; its chunks raise `LinkError` if something is missing."""
        return self.call(operations.ARCHIVE, session=session, query=query)

    def events(self, session: str) -> Iterator[SessionDetail]:
        """Return an iterator over a session: as it is now, and after each change until it is over.

        Raises
        ------
        LinkError
            The event stream ended before the session was over.
        """
        detail: SessionDetail | None = None

        def read(event: ServerSentEvent) -> SessionDetail | None:
            nonlocal detail
            if event.name == "session":
                detail = msgspec.json.decode(event.data, type=SessionDetail)
            elif event.name == "change" and detail is not None:
                detail = apply_change(detail, msgspec.json.decode(event.data))
            else:
                return None
            return detail

        return _values(self.call(operations.EVENTS, session=session).chunks, self.url, read)

    def state_events(self, session: str) -> Iterator[DropStates]:
        """Return an iterator over the states of the drops of a session: all of them, and each change until it is over.

        Raises
        ------
        LinkError
            The event stream ended before the session was over.
        """

        def read(event: ServerSentEvent) -> DropStates | None:
            if event.name not in ("whole", "change"):
                return None
            return msgspec.structs.replace(msgspec.json.decode(event.data, type=DropStates), cursor=event.id)

        return _values(self.call(operations.STATE_EVENTS, session=session).chunks, self.url, read)


def _values(chunks: Iterator[bytes], url: str, read: Callable[[ServerSentEvent], _Value | None]) -> Iterator[_Value]:
    """Yield what `read` returns for the events of a stream, until its end.

    Raises
    ------
    LinkError
        The stream ended before the session did.
    ProtocolError
        The bytes are not such a stream.
    """
    try:
        for event in read_events(chunks):
            if event.name == "end":
                return
            value = read(event)
            if value is not None:
                yield value
    except (msgspec.DecodeError, ValueError) as error:
        raise _unexpected(url, error) from error
    finally:
        close: Any = getattr(chunks, "close", None)
        if close is not None:
            close()
    raise LinkError("the event stream ended early", where=url, hint="is the manager still running?")


def _unexpected(url: str, error: Exception) -> DropflowError:
    """Return the error for an answer that cannot be decoded."""
    hint = "is it a dropflow manager of the same version?"
    return ProtocolError(f"the answer cannot be decoded: {error}", where=url, hint=hint)


def _request(operation: Operation[object], arguments: dict[str, Any]) -> ClientRequest:
    """Return the request that calls an operation."""
    path = operation.path
    for variable in operation.variables:
        path = path.replace(f"{{{variable}}}", _segment(arguments.pop(variable)))
    body: Sequence[bytes | memoryview] = arguments.pop("content", ())
    given = operation.given(arguments)
    fields = {}
    if given is not None and operation.query is not None:
        fields = _query_fields(given)
    elif given is not None:
        body = [msgspec.json.encode(given)]
    return ClientRequest(
        operation.method,
        f"{path}?{urlencode(fields)}" if fields else path,
        body=body,
        content_type=operation.takes or "application/json",
        seconds=operation.patience + (getattr(given, "seconds", 0.0) if operation.waits else 0.0),
        again=operation.repeatable,
        accept="*/*" if operation.gives else "application/json",
    )


def _segment(text: str) -> str:
    """Return `text` as one segment of a path; a segment of dots only is quoted, because URLs drop those."""
    return quote(text, safe="") if text not in (".", "..") else text.replace(".", "%2E")


def _query_fields(query: msgspec.Struct) -> dict[str, str]:
    """Return the fields of a query that differ from their default."""
    given = {
        field.name: value
        for field in msgspec.structs.fields(query)
        if (value := getattr(query, field.name)) != field.default
    }
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


# Measures how far the clock of a manager is ahead of the clock here.


class ClockSkew(msgspec.Struct, frozen=True, kw_only=True):
    """A manager, and the measurement of its clock.

    Attributes
    ----------
    delay : float
        Seconds until its answer.
    skew : float
        Seconds by which its clock is ahead of the clock here, give or take half of `delay`.
    """

    info: ManagerInfo
    delay: float
    skew: float


def measure_clock_skew(client: Client, clock: Clock) -> ClockSkew:
    """Measure the clock of a manager with two requests: the first opens the connection, the second is timed.

    Raises
    ------
    DropflowError
        It does not answer, or refuses the request.
    """
    client.info()
    before, began = clock.now(), clock.monotonic()
    info = client.info()
    delay = clock.monotonic() - began
    # The manager read its clock at some time during the request: the middle is the best estimate.
    return ClockSkew(info=info, delay=round(delay, 4), skew=round(info.time - (before + delay / 2), 3))
