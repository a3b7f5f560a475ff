"""Server-sent events: formats and parses them (HTML standard, 9.2)."""

from collections.abc import Iterable, Iterator

import msgspec

_LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of a line of an event stream, above which it counts as damaged."""


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
    name = number = ""
    data: list[bytearray] = []
    rest = bytearray()
    for chunk in chunks:
        lines: list[bytearray] = []
        rest += chunk
        if b"\n" in chunk:
            *lines, rest = rest.split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
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
