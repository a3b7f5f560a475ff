"""Errors as JSON: a status and a body when they are sent, an error of the same class when they are received."""

import errno
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dropflow import errors
from dropflow.errors import ConflictError, DropflowError, HttpError
from dropflow.failure import Problem

# Server-sent events: formats and parses them (HTML standard, 9.2).

_LONGEST = 64 * 1024 * 1024


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event: its name, its id (empty for none) and its data."""

    name: str
    id: str
    data: bytes


def format_event(event: ServerSentEvent) -> bytes:
    """Return the bytes of an event, whose data must have no line ends; JSON has none."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event.name.encode(), event.id.encode(), event.data)


def heartbeat() -> bytes:
    """Return a comment, which shows both ends that the connection is open."""
    return b": still here\n\n"


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Yield the events in a stream, without an incomplete one at its end.

    Raises
    ------
    ValueError
        A line is longer than 64 MiB.
    """
    name, number, rest = "", "", b""
    data: list[bytes] = []
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:
            raise ValueError("a line of the event stream is too long")
        for line in lines:
            if not line:
                if data:
                    yield ServerSentEvent(name or "message", number, b"\n".join(data))
                name, data = "", []
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            match field:
                case b"event":
                    name = value.decode(errors="replace")
                case b"id":
                    number = value.decode(errors="replace")
                case b"data":
                    data.append(value)


class ErrorBody(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """An error in an answer, under the key ``error``.

    Attributes
    ----------
    code : str
        Stable code of the error's class.
    kind : str
        Its name.
    text, where, hint : str
        What is wrong, where, and what to do.
    retryable : bool
        Whether the same request may succeed later.
    problems : tuple of Problem
        All findings about a graph that cannot be used.
    size : int
        Bytes of the content, if the requested part begins after its end.
    """

    code: str
    kind: str
    text: str
    where: str = ""
    hint: str = ""
    retryable: bool = False
    problems: tuple[Problem, ...] = ()
    size: int = 0


# Looked up along the method resolution order, so that every class has a status.
_STATUS: dict[type[DropflowError], int] = {
    errors.UsageError: 400,
    errors.BadGraphError: 422,
    errors.UnknownComponentError: 422,
    errors.MissingDependencyError: 422,
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.AmbiguousError: 409,
    errors.ClockSkewError: 401,
    errors.NotOwnerError: 403,
    errors.QuotaError: 429,
    errors.GoneError: 410,
    errors.RangeError: 416,
    errors.PreviewError: 422,
    errors.WorldError: 503,
    errors.StorageError: 507,
    errors.InternalError: 500,
    errors.DropflowError: 500,
}

_KINDS: dict[str, type[DropflowError]] = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DropflowError)
}
"""What the codes in answers mean. Errors that other modules define stay in their process."""


def status_of(error: DropflowError) -> int:
    """Return the HTTP status of an error."""
    return error.status if isinstance(error, HttpError) else status_of_class(type(error))


def status_of_class(kind: type[DropflowError]) -> int:
    """Return the HTTP status of the errors of a class."""
    return next(_STATUS[parent] for parent in kind.__mro__ if parent in _STATUS)


def to_body(error: DropflowError) -> ErrorBody:
    """Return the body of an error."""
    found = getattr(error, "problems", ())
    return ErrorBody(
        code=error.code,
        kind=type(error).__name__,
        text=error.text,
        where=error.where,
        hint=error.hint,
        retryable=error.retryable,
        problems=tuple(finding for finding in found if isinstance(finding, Problem)),
        size=error.size if isinstance(error, errors.RangeError) else 0,
    )


def from_body(status: int, body: Any) -> DropflowError:
    """Return the error in an answer, as its own class.

    An answer of another form, for example of a proxy, becomes an `HttpError` with its status.
    """
    try:
        wire = msgspec.convert(body["error"], ErrorBody)
    except (KeyError, TypeError, msgspec.ValidationError):
        return HttpError(status, f"the server answered with status {status} in a form that is not dropflow's")
    if wire.code == HttpError.code:
        return HttpError(status, wire.text, where=wire.where, hint=wire.hint)
    if wire.code == errors.BadGraphError.code:
        return errors.BadGraphError(wire.text, problems=wire.problems, where=wire.where, hint=wire.hint)
    if wire.code == errors.RangeError.code:
        return errors.RangeError(wire.text, size=wire.size, where=wire.where, hint=wire.hint)
    return _KINDS.get(wire.code, DropflowError)(wire.text, where=wire.where, hint=wire.hint)


# The loopback interface, which only processes on this host reach, and all interfaces.


EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - to recognise them, not to bind them
"""What a server listens on to be reached by all addresses of its host."""


def is_loopback(host: str) -> bool:
    """Return whether `host` is the loopback interface, by name or by address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_error(text: str, error: OSError, *, option: str) -> ConflictError:
    """Return the error for an address that this process cannot have, whose port is that of an option."""
    is_elsewhere = error.errno == errno.EADDRNOTAVAIL
    hint = (
        "give an address of this host, or 0.0.0.0 for all" if is_elsewhere else f"choose another {option}, or 0 for any"
    )
    return ConflictError(f"{text}: {error.strerror}", hint=hint)
