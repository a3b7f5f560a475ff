"""Traces of the JSON format of Chrome, which Perfetto (https://ui.perfetto.dev) opens.

Nodes are processes, and each lane is a thread of its own: Perfetto cannot draw what overlaps on one thread.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

__all__ = ["chrome_trace", "note", "span"]

_MICROSECONDS = 1e6


def chrome_trace(
    nodes: Sequence[str], spans: Iterable[dict[str, object]], lanes: Iterable[tuple[int, int, str]] = ()
) -> Iterator[bytes]:
    """Yield a trace in pieces.

    Parameters
    ----------
    nodes : sequence of str
        Names of the processes.
    spans : iterable of dict
        What `span` and `note` returned, perhaps with ``cat`` and ``args``.
    lanes : iterable of (int, int, str)
        Index of a node, number of a lane, and name of the lane.
    """
    encode = msgspec.json.encode
    yield b'{"displayTimeUnit":"ms","traceEvents":['
    separator = b""
    for number, name in enumerate(nodes):
        yield separator + encode({"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}})
        separator = b",\n"
    for node, lane, name in lanes:
        yield separator + encode(
            {"ph": "M", "name": "thread_name", "pid": node, "tid": lane + 2, "args": {"name": name}}
        )
    for one in spans:
        yield separator + encode(one)
    yield b"]}\n"


def span(name: str, start: float, end: float, node: int, lane: int) -> dict[str, object]:
    """Return what happened from `start` to `end`, in seconds, on a lane of a node."""
    duration = max(float(end) - float(start), 0.0) * _MICROSECONDS
    return {"ph": "X", "name": name, "ts": float(start) * _MICROSECONDS, "dur": duration, "pid": node, "tid": lane + 2}


def note(text: str, node: int) -> dict[str, object]:
    """Return a mark at the beginning of a node on which nothing happened."""
    return {"ph": "i", "s": "p", "name": text, "ts": 0.0, "pid": node, "tid": 2}
