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


def executed_trace(found: Analysis) -> Iterator[bytes]:
    """Return a trace for Perfetto in pieces: the attempts of each lane, and what they waited for.

    A node without attempts has an instant instead, which is named after the reason.
    """
    lanes = found.lanes
    names = (
        (int(lanes.node[lane]), int(lanes.number[lane]), lane_name(int(lanes.worker[lane]), int(lanes.number[lane])))
        for lane in range(len(lanes))
    )
    nodes = _nodes(found)
    notes = (note(found.attempts.idle[name], node) for node, name in enumerate(nodes) if name in found.attempts.idle)
    return chrome_trace(nodes, chain(_spans(found), notes), names)


def _nodes(found: Analysis) -> list[str]:
    """Return the names of the nodes, those that did not answer last."""
    answered = found.attempts.nodes
    return [*answered, *(name for name in found.attempts.idle if name not in answered)]


def _spans(found: Analysis) -> Iterator[dict[str, object]]:
    attempts, waits, graph = found.attempts, found.waits, found.graph
    ids = oids(graph, attempts.drop.tolist())
    critical = np.zeros(len(attempts), np.bool_)
    critical[waits.path] = True
    # Times have rounding errors, and attempts of a lane must not overlap.
    previous = waits.previous
    free = np.where(previous >= 0, attempts.ended[previous], -np.inf)
    began = np.maximum(attempts.began, free) - attempts.start
    ended = np.maximum(attempts.ended - attempts.start, began)
    for one in range(len(attempts)):
        drop, lane = int(attempts.drop[one]), int(found.lanes.lane[one])
        event = span(
            graph.templates[int(graph.template[drop])].name,
            float(began[one]),
            float(ended[one]),
            int(attempts.node[one]),
            int(found.lanes.number[lane]),
        )
        arguments = {
            "drop": ids[one],
            "attempt": int(attempts.attempt[one]),
            "waited_for": WAITED_FOR[int(waits.kind[one])],
            "ready_s": float(attempts.given[one] - attempts.ready[one]),
            "queued_s": float(attempts.began[one] - attempts.given[one]),
            "processor_s": float(attempts.records["processor"][one]),
            "slack_s": float(waits.slack[one]),
            "critical": bool(critical[one]),
        }
        yield event | {"cat": "failed" if attempts.failed[one] else "attempt", "args": arguments}


_INTERNAL, _OK, _ERROR = 1, 1, 2
"""The kind of a span, and its statuses, by their numbers in OpenTelemetry's ``trace.proto``."""


def opentelemetry_trace(found: Analysis) -> Iterator[bytes]:
    """Return a trace for OpenTelemetry in pieces: an ``ExportTraceServiceRequest``, as OTLP/HTTP has it in JSON.

    Each node is a resource. Its attempts are spans below one of the session, with a link to the attempt that they
    waited for. The same attempts always give the same ids.
    """
    attempts, graph = found.attempts, found.graph
    ids = oids(graph, attempts.drop.tolist())
    trace = hashlib.sha256(f"{graph.name}\n{attempts.start!r}".encode()).hexdigest()[:32]
    session = _id_of(trace)
    spans = [_id_of(trace, *one) for one in zip(ids, attempts.attempt.tolist(), strict=True)]

    def attempt(one: int) -> dict[str, object]:
        before, records = int(found.waits.before[one]), attempts.records
        name = graph.templates[int(graph.template[attempts.drop[one]])].name
        values: dict[str, str | float] = {
            "drop": ids[one],
            "attempt": int(attempts.attempt[one]),
            "worker": int(attempts.worker[one]),
            "queued_s": float(attempts.began[one] - attempts.given[one]),
            "processor_s": float(records["processor"][one]),
            "memory_bytes": int(records["memory"][one]),
            "read_bytes": int(records["read"][one]),
            "written_bytes": int(records["written"][one]),
        }
        links = {"links": [{"traceId": trace, "spanId": spans[before]}]} if before >= 0 else {}
        begun, ended = float(attempts.began[one]), float(attempts.ended[one])
        place = {"traceId": trace, "spanId": spans[one], "parentSpanId": session}
        return place | links | _span_of(name, begun, ended, values, failed=bool(attempts.failed[one]))

    encode = msgspec.json.encode
    yield b'{"resourceSpans":['
    totals: dict[str, str | float] = {"graph": graph.name, "attempts": len(attempts)}
    whole = {"traceId": trace, "spanId": session} | _span_of(graph.name, attempts.start, attempts.end, totals)
    for number, node in enumerate(attempts.nodes):
        resource = _attributes({"service.name": "dropflow", "service.instance.id": node})
        yield b"," * (number > 0) + b'{"resource":' + encode({"attributes": resource})
        yield b',"scopeSpans":[{"scope":{"name":"dropflow"},"spans":['
        here = np.flatnonzero(attempts.node == number).tolist()
        first = [whole] if number == 0 else []
        for at, one in enumerate(chain(first, map(attempt, here))):
            yield b",\n" * (at > 0) + encode(one)
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


def executed_picture(found: Analysis) -> TimelinePicture:
    """Return a picture: a row for each lane, and a box for each attempt; of very many, how many run on each node.

    A node without attempts has the reason in its place.
    """
    attempts, lanes = found.attempts, found.lanes
    nodes = _nodes(found)
    counts = np.bincount(lanes.node, minlength=len(nodes)).tolist()
    length = attempts.end - attempts.start
    bars = Bars(
        node=attempts.node,
        lane=lanes.number[lanes.lane],
        template=found.graph.template[attempts.drop],
        start=attempts.began - attempts.start,
        end=attempts.ended - attempts.start,
        need=np.ones(len(attempts), np.int64),
    )
    title = f"{found.graph.name}: {len(attempts)} attempts in {length:.6g} s on {len(attempts.nodes)} nodes"
    rows = [(node, count, attempts.idle.get(node, "")) for node, count in zip(nodes, counts, strict=True)]
    names = [template.name for template in found.graph.templates]
    return picture_of(title, rows, bars, names, length)
