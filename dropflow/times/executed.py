"""The timeline of a session as it was executed, as a trace and as a picture."""

from collections.abc import Iterator
from itertools import chain

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
