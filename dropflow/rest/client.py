"""A typed client of any manager: the methods of `managers.api.Manager`, over HTTP.

Safe to use from several threads. Errors come back as their own class, and a manager that cannot be reached is a
`LinkError` that names its address.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dropflow.clock import Clock
from dropflow.errors import DropflowError, LinkError, ProtocolError
from dropflow.graph.codec import dump, parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slice_codec import parse_slices
from dropflow.graph.slices import Slice
from dropflow.rest.content_disposition import file_name
from dropflow.rest.content_records import ContentsRequest
from dropflow.rest.list_records import (
    ChildList,
    EpochRequest,
    FailureList,
    NodeList,
    ProbeResultList,
    ResultList,
    SessionList,
)
from dropflow.rest.schema import (
    FIRST_PAGE,
    Child,
    ChildRequest,
    Download,
    DropDetail,
    DropPage,
    DropQuery,
    ManagerInfo,
    NodeInfo,
    PageQuery,
    ProbeRequest,
    ProbeResult,
    SessionDetail,
    SessionInfo,
    SubmitQuery,
)
from dropflow.rest.session_changes import apply_change
from dropflow.rest.sse import read_events
from dropflow.rest.transport import ClientRequest, Transport, joined

__all__ = ["Client", "Packable"]

_DEPLOYMENT = "application/vnd.dropflow.deployment"
_GRAPH = "application/vnd.dropflow.graph"
_PREFIX = "/api/v1"
_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class Packable(Protocol):
    """A deployment: what `managers.deployment.Deployment` is, which this layer does not know."""

    @property
    def session(self) -> str:
        """Its session."""
        ...

    def buffers(self) -> Sequence[bytes | memoryview]:
        """It as bytes, in pieces."""
        ...


class Client:
    """One manager, somewhere else.

    Parameters
    ----------
    url : str
        Its address, ``http://host:port``.
    token : str, optional
        Its token.
    secret : bytes, optional
        Secret half of the cluster key, which signs requests when there is no token.
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
        secret: bytes | None = None,
        timeout: float = 30.0,
        clock: Clock | None = None,
        most: int | None = None,
    ) -> None:
        self._transport = Transport(url, token=token, secret=secret, timeout=timeout, clock=clock, most=most)
        self.url = self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections; the manager goes on. Idempotent."""
        self._transport.close()

    def ready(self) -> bool:
        """Whether a manager answers there; needs no token."""
        try:
            self._transport.ask(ClientRequest("GET", "/ready"))
        except LinkError:
            return False
        return True

    # About managers and nodes.

    def info(self) -> ManagerInfo:
        """About the manager itself."""
        return self._get("/info", ManagerInfo)

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All node managers at or below it."""
        return self._get("/nodes", NodeList).nodes

    def children(self) -> tuple[Child, ...]:
        """Its direct children."""
        return self._get("/children", ChildList).children

    def add_child(self, url: str) -> Child:
        """Let it take the manager at `url` as a child."""
        return self._send("POST", "/children", ChildRequest(url=url), Child)

    def remove_child(self, url: str) -> None:
        """Let it forget a child."""
        self._ask(ClientRequest("DELETE", _path("/children", {"url": url})))

    def probe(self, addresses: Sequence[str], *, seconds: float = 3.0) -> tuple[ProbeResult, ...]:
        """What it reaches of other managers, from where it stands.

        Parameters
        ----------
        addresses : sequence of str
            Of links (``tcp://host:port``) and managers (``http://host:port``); 32 at most.
        seconds : float
            How long all of it may take, 0.1 to 10.

        Raises
        ------
        HttpError
            400 for an address in another form, or too many; 503 while it is trying too much already.
        """
        body = msgspec.json.encode(ProbeRequest(addresses=tuple(addresses), seconds=seconds))
        request = ClientRequest("POST", _path("/probe", {}), body=[body], seconds=seconds)
        return self._decoded(self._ask(request), ProbeResultList).reaches

    # Deployment.

    def submit(self, graph: PhysicalGraph | bytes, options: SubmitQuery | None = None) -> SessionInfo:
        """Deploy a whole graph and start it.

        Parameters
        ----------
        graph : PhysicalGraph or bytes
            A graph, or a file with one: ``.dfg``, DALiuGE's JSON, or one of them compressed.
        options : SubmitQuery, optional
            How to deploy it.
        """
        body: Sequence[bytes | memoryview] = [graph] if isinstance(graph, bytes) else dump(graph)
        target = _path("/sessions", _given(options or SubmitQuery()))
        # Sending it again after a broken connection might deploy it twice.
        request = ClientRequest("POST", target, body=body, content_type=_GRAPH, seconds=120.0, again=False)
        return self._decoded(self._ask(request), SessionInfo)

    def prepare(self, deployment: Packable, *, seconds: float) -> None:
        """First half of a deployment: take the slices, build the sessions, run nothing."""
        target = _path(f"/sessions/{_segment(deployment.session)}/deployment", {"seconds": f"{seconds:.3f}"})
        body = deployment.buffers()
        self._ask(ClientRequest("PUT", target, body=body, content_type=_DEPLOYMENT, seconds=seconds))

    def start(self, session: str, epoch: int) -> None:
        """Second half: run what was prepared."""
        self._post(f"/sessions/{_segment(session)}/start", EpochRequest(epoch=epoch))

    def undo(self, session: str, epoch: int, reason: str) -> None:
        """Take back a `prepare`, started or not."""
        self._post(f"/sessions/{_segment(session)}/undo", EpochRequest(epoch=epoch, reason=reason))

    # Sessions.

    def sessions(self) -> tuple[SessionInfo, ...]:
        """All sessions, the youngest first."""
        return self._get("/sessions", SessionList).sessions

    def session(self, session: str) -> SessionDetail:
        """One session as it is now."""
        return self._get(f"/sessions/{_segment(session)}", SessionDetail)

    def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
        """As `session`, but waits until there is something newer than `version`, for `seconds` at most."""
        target = _path(f"/sessions/{_segment(session)}", {"version": str(version), "seconds": f"{seconds:.3f}"})
        return self._decoded(self._ask(ClientRequest("GET", target, seconds=seconds)), SessionDetail)

    def events(self, session: str) -> Iterator[SessionDetail]:
        """A session each time that it changed, now and until it is over.

        Raises
        ------
        LinkError
            The stream broke off before the session was over.
        """
        target = _path(f"/sessions/{_segment(session)}/events", {})
        _, chunks = self._transport.stream(ClientRequest("GET", target, accept="text/event-stream"))
        return self._pictures(chunks)

    def cancel(self, session: str, reason: str = "") -> SessionInfo:
        """Stop a session."""
        body = msgspec.json.encode({"reason": reason})
        request = ClientRequest("POST", _path(f"/sessions/{_segment(session)}/cancel", {}), body=[body])
        return self._decoded(self._ask(request), SessionInfo)

    def delete(self, session: str) -> None:
        """Forget a session and remove everything it left behind."""
        self._ask(ClientRequest("DELETE", _path(f"/sessions/{_segment(session)}", {})))

    def drops(self, session: str, query: DropQuery | None = None) -> DropPage:
        """A page of the drops that match."""
        return self._get(f"/sessions/{_segment(session)}/drops", DropPage, _given(query or DropQuery()))

    def drop(self, session: str, drop: str, query: PageQuery = FIRST_PAGE) -> DropDetail:
        """Return one drop, by its id or the end of an id that no other drop of the session has."""
        return self._get(f"/sessions/{_segment(session)}/drops/{_segment(drop)}", DropDetail, _given(query))

    def failures(self, session: str, query: PageQuery = FIRST_PAGE) -> FailureList:
        """A page of the root causes, the most harmful first."""
        return self._get(f"/sessions/{_segment(session)}/failures", FailureList, _given(query))

    def log(self, session: str, drop: str) -> Download:
        """What a drop wrote to its log."""
        return self._download(f"/sessions/{_segment(session)}/drops/{_segment(drop)}/log")

    def data(self, session: str, drop: str) -> Download:
        """Content of a data drop."""
        return self._download(f"/sessions/{_segment(session)}/drops/{_segment(drop)}/data")

    def results(self, session: str) -> ResultList:
        """What the session left for people, and the nodes that could not be asked."""
        return self._get(f"/sessions/{_segment(session)}/results", ResultList)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        """Contents of many drops on one node; see `dropflow.rest.content_records.read_records`."""
        target = _path(f"/sessions/{_segment(session)}/contents", {})
        return self._streamed(ClientRequest("POST", target, body=[msgspec.json.encode(request)], accept="*/*"))

    def journal(self, session: str) -> Download:
        """The journal, or a tar file with those of several nodes."""
        return self._download(f"/sessions/{_segment(session)}/journal")

    def graph(self, session: str) -> PhysicalGraph:
        """The whole graph."""
        found = self._download(f"/sessions/{_segment(session)}/graph")
        return parse(joined(found.chunks), where=self.url)

    def slices(self, session: str) -> tuple[Slice, ...]:
        """The slices of the graph at or below the manager."""
        found = self._download(f"/sessions/{_segment(session)}/slices")
        return parse_slices(joined(found.chunks), where=self.url)

    # Inside.

    def _get(self, path: str, kind: type[_Answer], query: dict[str, str] | None = None) -> _Answer:
        return self._decoded(self._ask(ClientRequest("GET", _path(path, query or {}))), kind)

    def _send(self, method: str, path: str, body: msgspec.Struct, kind: type[_Answer]) -> _Answer:
        return self._decoded(self._ask(ClientRequest(method, _path(path, {}), body=[msgspec.json.encode(body)])), kind)

    def _post(self, path: str, body: msgspec.Struct) -> None:
        self._ask(ClientRequest("POST", _path(path, {}), body=[msgspec.json.encode(body)], seconds=30.0))

    def _ask(self, request: ClientRequest) -> bytes:
        return self._transport.ask(request)[1]

    def _decoded(self, data: bytes, kind: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._foreign(error) from error

    def _foreign(self, error: Exception) -> DropflowError:
        hint = "is it a dropflow manager of the same version?"
        return ProtocolError(f"the answer is not understood: {error}", where=self.url, hint=hint)

    def _download(self, path: str) -> Download:
        return self._streamed(ClientRequest("GET", _path(path, {}), accept="*/*"))

    def _streamed(self, request: ClientRequest) -> Download:
        response, chunks = self._transport.stream(request)
        size = response.getheader("Content-Length")
        return Download(
            name=file_name(response.getheader("Content-Disposition", "")),
            content_type=response.getheader("Content-Type", "application/octet-stream"),
            size=int(size) if size is not None and size.isdecimal() else None,
            chunks=chunks,
        )

    def _pictures(self, chunks: Iterator[bytes]) -> Iterator[SessionDetail]:
        picture: SessionDetail | None = None
        try:
            for event in read_events(chunks):
                if event.name == "end":
                    return
                if event.name == "session":
                    picture = msgspec.json.decode(event.data, type=SessionDetail)
                elif event.name == "change" and picture is not None:
                    picture = apply_change(picture, msgspec.json.decode(event.data))
                else:
                    continue
                yield picture
        except (msgspec.DecodeError, ValueError) as error:
            raise self._foreign(error) from error
        finally:
            close: Any = getattr(chunks, "close", None)
            if close is not None:
                close()
        raise LinkError("the stream of events broke off", where=self.url, hint="is the manager still running?")


def _segment(text: str) -> str:
    """`text` as one segment of a path; dots are quoted too where a path would lose them."""
    return quote(text, safe="") if text not in (".", "..") else text.replace(".", "%2E")


def _path(path: str, query: dict[str, str]) -> str:
    return f"{_PREFIX}{path}?{urlencode(query)}" if query else f"{_PREFIX}{path}"


def _given(query: msgspec.Struct) -> dict[str, str]:
    """The fields of a query that are not what they are anyway."""
    fields = msgspec.structs.fields(query)
    given = {field.name: getattr(query, field.name) for field in fields}
    return {
        field.name: str(given[field.name]).lower() if isinstance(given[field.name], bool) else str(given[field.name])
        for field in fields
        if given[field.name] != field.default
    }
