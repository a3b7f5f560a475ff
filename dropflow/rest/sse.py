"""Server-sent events as bytes: written by servers, read by clients (HTML standard, 9.2)."""

from collections.abc import Iterable, Iterator

import msgspec

__all__ = ["ServerSentEvent", "format_event", "heartbeat", "read_events"]

_LONGEST = 64 * 1024 * 1024


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event: its name, its id (empty for none) and its data."""

    name: str
    id: str
    data: bytes


def format_event(event: ServerSentEvent) -> bytes:
    """The event as it goes over the wire. Its data has no line ends, as JSON has none."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event.name.encode(), event.id.encode(), event.data)


def heartbeat() -> bytes:
    """A comment, by which both ends see that the other is there."""
    return b": still here\n\n"


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """The events in a stream; one that is not complete at its end is none.

    Raises
    ------
    ValueError
        A line is longer than any of ours.
    """
    name, number, rest = "", "", b""
    data: list[bytes] = []
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:
            raise ValueError("a line of the event stream has no end")
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
