"""The timeline of a session as it was executed, as a trace and as a picture."""

from io import BytesIO
from itertools import pairwise
from typing import Any

import msgspec

from dropflow.testing.drawing import fan
from dropflow.times.attempts import attempts_of
from dropflow.times.executed import executed_picture, executed_trace
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
