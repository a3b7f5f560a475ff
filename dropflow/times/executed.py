"""The timeline of a session as it was executed: as a trace for Perfetto or OpenTelemetry, and as a picture."""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec
import numpy as np

from dropflow.graph.text_ids import oids
from dropflow.times.measured_run import chrome_trace, note, span
from dropflow.times.timeline import WAITED_FOR, Analysis, lane_name
from dropflow.times.timeline_files import Bars, TimelinePicture, picture_of


def executed_trace(analysis: Analysis) -> Iterator[bytes]:
    """Return a trace for Perfetto in pieces: the attempts of each lane, and what they waited for.

    A node without attempts has an instant instead, which is named after the reason.
    """
    lanes = analysis.lanes
    names = (
        (int(lanes.node[lane]), int(lanes.number[lane]), lane_name(int(lanes.worker[lane]), int(lanes.number[lane])))
        for lane in range(len(lanes))
    )
    nodes = _nodes(analysis)
    notes = (
        note(analysis.attempts.idle[name], node) for node, name in enumerate(nodes) if name in analysis.attempts.idle
    )
    return chrome_trace(nodes, chain(_spans(analysis), notes), names)


def _nodes(analysis: Analysis) -> list[str]:
    """Return the names of the nodes, those that did not answer last."""
    answered = analysis.attempts.nodes
    return [*answered, *(name for name in analysis.attempts.idle if name not in answered)]


def _spans(analysis: Analysis) -> Iterator[dict[str, object]]:
    attempts, waits, graph = analysis.attempts, analysis.waits, analysis.graph
    ids = oids(graph, attempts.drop.tolist())
    critical = np.zeros(len(attempts), np.bool_)
    critical[waits.path] = True
    # Times have rounding errors, and attempts of a lane must not overlap.
    previous = waits.previous
    free = np.where(previous >= 0, attempts.ended[previous], -np.inf)
    began = np.maximum(attempts.began, free) - attempts.start
    ended = np.maximum(attempts.ended - attempts.start, began)
    for row in range(len(attempts)):
        drop, lane = int(attempts.drop[row]), int(analysis.lanes.lane[row])
        event = span(
            graph.templates[int(graph.template[drop])].name,
            float(began[row]),
            float(ended[row]),
            int(attempts.node[row]),
            int(analysis.lanes.number[lane]),
        )
        arguments = {
            "drop": ids[row],
            "attempt": int(attempts.attempt[row]),
            "waited_for": WAITED_FOR[int(waits.kind[row])],
            "ready_s": float(attempts.given[row] - attempts.ready[row]),
            "queued_s": float(attempts.began[row] - attempts.given[row]),
            "processor_s": float(attempts.records["processor"][row]),
            "slack_s": float(waits.slack[row]),
            "critical": bool(critical[row]),
        }
        yield event | {"cat": "failed" if attempts.failed[row] else "attempt", "args": arguments}


_INTERNAL, _OK, _ERROR = 1, 1, 2
"""The kind of a span, and its statuses, by their numbers in OpenTelemetry's ``trace.proto``."""


def opentelemetry_trace(analysis: Analysis) -> Iterator[bytes]:
    """Return a trace for OpenTelemetry in pieces: an ``ExportTraceServiceRequest``, as OTLP/HTTP has it in JSON.

    Each node is a resource. Its attempts are spans below one of the session, with a link to the attempt that they
    waited for. The same attempts always give the same ids.
    """
    attempts, graph = analysis.attempts, analysis.graph
    ids = oids(graph, attempts.drop.tolist())
    trace = hashlib.sha256(f"{graph.name}\n{attempts.start!r}".encode()).hexdigest()[:32]
    session = _id_of(trace)
    spans = [_id_of(trace, *key) for key in zip(ids, attempts.attempt.tolist(), strict=True)]

    def attempt(row: int) -> dict[str, object]:
        before, records = int(analysis.waits.before[row]), attempts.records
        name = graph.templates[int(graph.template[attempts.drop[row]])].name
        values: dict[str, str | float] = {
            "drop": ids[row],
            "attempt": int(attempts.attempt[row]),
            "worker": int(attempts.worker[row]),
            "queued_s": float(attempts.began[row] - attempts.given[row]),
            "processor_s": float(records["processor"][row]),
            "memory_bytes": int(records["memory"][row]),
            "read_bytes": int(records["read"][row]),
            "written_bytes": int(records["written"][row]),
        }
        links = {"links": [{"traceId": trace, "spanId": spans[before]}]} if before >= 0 else {}
        begun, ended = float(attempts.began[row]), float(attempts.ended[row])
        place = {"traceId": trace, "spanId": spans[row], "parentSpanId": session}
        return place | links | _span_of(name, begun, ended, values, failed=bool(attempts.failed[row]))

    encode = msgspec.json.encode
    yield b'{"resourceSpans":['
    totals: dict[str, str | float] = {"graph": graph.name, "attempts": len(attempts)}
    session_span = {"traceId": trace, "spanId": session} | _span_of(graph.name, attempts.start, attempts.end, totals)
    for number, node in enumerate(attempts.nodes):
        resource = _attributes({"service.name": "dropflow", "service.instance.id": node})
        yield b"," * (number > 0) + b'{"resource":' + encode({"attributes": resource})
        yield b',"scopeSpans":[{"scope":{"name":"dropflow"},"spans":['
        here = np.flatnonzero(attempts.node == number).tolist()
        first = [session_span] if number == 0 else []
        for at, entry in enumerate(chain(first, map(attempt, here))):
            yield b",\n" * (at > 0) + encode(entry)
        yield b"]}]}"
    yield b"]}\n"


def _id_of(*parts: object) -> str:
    """Return the id of a span."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _span_of(
    name: str, start: float, end: float, values: Mapping[str, str | float], *, failed: bool = False
) -> dict[str, object]:
    """Return the fields of a span but for its ids. 64-bit numbers are text in this JSON."""
    return {
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(round(start * 1e9)),
        "endTimeUnixNano": str(round(max(start, end) * 1e9)),
        "attributes": _attributes({f"dropflow.{key}": value for key, value in values.items()}),
        "status": {"code": _ERROR if failed else _OK},
    }


def _attributes(values: Mapping[str, str | float]) -> list[dict[str, object]]:
    """Return OpenTelemetry's key-value pairs."""
    return [{"key": key, "value": _any_value(value)} for key, value in values.items()]


def _any_value(value: str | float) -> dict[str, object]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}


def executed_picture(analysis: Analysis) -> TimelinePicture:
    """Return a picture: a row for each lane, and a box for each attempt; of very many, how many run on each node.

    A node without attempts has the reason in its place.
    """
    attempts, lanes = analysis.attempts, analysis.lanes
    nodes = _nodes(analysis)
    counts = np.bincount(lanes.node, minlength=len(nodes)).tolist()
    length = attempts.end - attempts.start
    bars = Bars(
        node=attempts.node,
        lane=lanes.number[lanes.lane],
        template=analysis.graph.template[attempts.drop],
        start=attempts.began - attempts.start,
        end=attempts.ended - attempts.start,
        need=np.ones(len(attempts), np.int64),
    )
    title = f"{analysis.graph.name}: {len(attempts)} attempts in {length:.6g} s on {len(attempts.nodes)} nodes"
    rows = [(node, count, attempts.idle.get(node, "")) for node, count in zip(nodes, counts, strict=True)]
    names = [template.name for template in analysis.graph.templates]
    return picture_of(title, rows, bars, names, length)
