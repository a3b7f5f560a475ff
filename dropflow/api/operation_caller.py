"""Calls operations (`dropflow.api.operations`) of one server: builds the request and decodes the answer."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dropflow.api.content_disposition import file_name
from dropflow.api.contents import Download, read_content_range
from dropflow.api.error_body import read_events
from dropflow.api.http_client import ClientRequest, HttpTransport
from dropflow.api.operations import Operation
from dropflow.api.records import SessionDetail, apply_change
from dropflow.api.state_records import DropStates
from dropflow.errors import DropflowError, LinkError, ProtocolError

__all__ = [
    "OperationCaller",
    "session_events",
]


_Answer = TypeVar("_Answer")
_Body = Sequence[bytes | memoryview]


class OperationCaller:
    """Calls operations over one transport. May be used from any thread.

    Parameters
    ----------
    transport : HttpTransport
        The server.
    """

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._transport.url

    def call(
        self,
        operation: Operation[_Answer],
        *names: str,
        query: msgspec.Struct | None = None,
        body: msgspec.Struct | _Body | None = None,
        seconds: float = 0.0,
    ) -> _Answer:
        """Return the answer of an operation whose answer is JSON.

        Parameters
        ----------
        operation : Operation
            What to call.
        *names
            Values of the variables in its path.
        query : struct, optional
            Its query.
        body : struct or sequence of buffers, optional
            Its body: JSON, or bytes of the media type that it takes.
        seconds : float
            How long the answer may take to begin, beyond the timeout and the operation's own patience.

        Raises
        ------
        LinkError
            The server cannot be reached, or does not answer in time.
        ProtocolError
            The answer is not one of this operation.
        DropflowError
            The error of the server, as its own class.
        """
        request = _request(operation, names, query, body, operation.patience + seconds)
        _, data = self._transport.ask(request)
        try:
            return msgspec.json.decode(data, type=operation.answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unexpected_answer(self.url, error) from error

    def download(
        self,
        operation: Operation[Download],
        *names: str,
        query: msgspec.Struct | None = None,
        body: msgspec.Struct | None = None,
    ) -> Download:
        """Return the answer of an operation that is not JSON, as it arrives. Raises as `call`."""
        request = _request(operation, names, query, body, 0.0)
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


def session_events(chunks: Iterator[bytes], url: str) -> Iterator[SessionDetail]:
    """Yield a session each time that it changes, from the bytes of its event stream.

    Raises
    ------
    LinkError
        The stream ended before the session did.
    ProtocolError
        The bytes are not such a stream.
    """
    detail: SessionDetail | None = None
    try:
        for event in read_events(chunks):
            if event.name == "end":
                return
            if event.name == "session":
                detail = msgspec.json.decode(event.data, type=SessionDetail)
            elif event.name == "change" and detail is not None:
                detail = apply_change(detail, msgspec.json.decode(event.data))
            else:
                continue
            yield detail
    except (msgspec.DecodeError, ValueError) as error:
        raise unexpected_answer(url, error) from error
    finally:
        close: Any = getattr(chunks, "close", None)
        if close is not None:
            close()
    raise LinkError("the event stream ended early", where=url, hint="is the manager still running?")


def state_events(chunks: Iterator[bytes], url: str) -> Iterator[DropStates]:
    """Yield the states of the drops of a session and their changes, from the bytes of its event stream.

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
            if event.name in ("whole", "change"):
                yield msgspec.structs.replace(msgspec.json.decode(event.data, type=DropStates), cursor=event.id)
    except (msgspec.DecodeError, ValueError) as error:
        raise unexpected_answer(url, error) from error
    finally:
        close: Any = getattr(chunks, "close", None)
        if close is not None:
            close()
    raise LinkError("the event stream ended early", where=url, hint="is the manager still running?")


def unexpected_answer(url: str, error: Exception) -> DropflowError:
    """Return the error for an answer that cannot be decoded."""
    hint = "is it a dropflow manager of the same version?"
    return ProtocolError(f"the answer cannot be decoded: {error}", where=url, hint=hint)


def _request(
    operation: Operation[object],
    names: Sequence[str],
    query: msgspec.Struct | None,
    body: msgspec.Struct | _Body | None,
    seconds: float,
) -> ClientRequest:
    path = operation.path
    for variable, name in zip(operation.variables, names, strict=True):
        path = path.replace(f"{{{variable}}}", _segment(name))
    fields = {} if query is None else _query_fields(query)
    return ClientRequest(
        operation.method,
        f"{path}?{urlencode(fields)}" if fields else path,
        body=[msgspec.json.encode(body)] if isinstance(body, msgspec.Struct) else body or (),
        content_type=operation.takes or "application/json",
        seconds=seconds,
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
