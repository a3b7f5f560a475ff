"""The timeline of a session as it was executed, as traces and as a picture."""

from io import BytesIO
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from dropflow.testing.drawing import fan
from dropflow.times.attempts import attempts_of
from dropflow.times.executed import executed_picture, executed_trace, opentelemetry_trace
from dropflow.times.timeline import analyse
from dropflow.times.timeline_files import LANE, write_svg
from tests.times.made_times import sections_of


def test_nodes_without_attempts_are_shown_with_the_reason() -> None:
    """Each node has a place of its own, in the picture and in the trace; none with attempts has a reason."""
    first, *others = sections_of([[{"drop": 1, "ready": 1e6, "ran": 1.0}], [], [], []])
    fields: tuple[dict[str, Any], ...] = ({"missing": "no answer"}, {"busy_with": ("one", "two")}, {})
    silent = [msgspec.structs.replace(one, **field) for one, field in zip(others, fields, strict=True)]
    found = analyse(fan(4), attempts_of([first, *silent]))
    reasons = {
        "n1": "it does not answer",
        "n2": "its workers are busy with sessions one, two",
        "n3": "no attempt of this session has run there",
    }

    picture, stream = executed_picture(found), BytesIO()
    write_svg(picture, stream)
    rows = sorted(picture.rows, key=lambda row: row.top)
    assert {row.name: row.note for row in rows} == {"n0": "", **reasons}
    assert all(after.top - before.top > LANE for before, after in pairwise(rows))
    assert all(text in stream.getvalue().decode() for text in reasons.values())

    events = msgspec.json.decode(b"".join(executed_trace(found)))["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert {names[one["pid"]]: one["name"] for one in events if one["ph"] == "i"} == reasons
    assert {names[one["pid"]] for one in events if one["ph"] == "X"} == {"n0"}


def test_a_trace_is_one_that_opentelemetry_reads() -> None:
    """It has its own protocol buffers' fields: each attempt is a span of its node below the session's."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    rows = [
        [{"drop": 1, "ready": 1e6, "ran": 1.0, "attempt": -1}, {"drop": 1, "ready": 1e6 + 1, "ran": 2.0, "attempt": 2}],
        [{"drop": 3, "ready": 1e6, "ran": 1.5}],
    ]
    found = analyse(fan(4), attempts_of(sections_of(rows)))

    text = b"".join(opentelemetry_trace(found)).decode()
    read = json_format.Parse(text, service.ExportTraceServiceRequest())  # fails for a field that is not there
    nodes = {one.resource.attributes[1].value.string_value: one.scope_spans[0].spans for one in read.resource_spans}
    (session, failed, repeated), (other,) = nodes["n0"], nodes["n1"]
    seconds = [(one.end_time_unix_nano - one.start_time_unix_nano) / 1e9 for one in (session, failed, repeated, other)]
    assert seconds == pytest.approx([3.0, 1.0, 2.0, 1.5])
    assert [one.status.code for one in (session, failed, repeated, other)] == [1, 2, 1, 1]
    assert {one.parent_span_id for one in (failed, repeated, other)} == {session.span_id}
    assert [link.span_id for link in repeated.links] == [failed.span_id]
    raw = msgspec.json.decode(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [(len(one["traceId"]), len(one["spanId"])) for one in raw] == [(32, 16)] * 3  # hexadecimal, 16 and 8 bytes
