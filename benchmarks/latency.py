"""From the completion of a data drop to the start of its consumer, on this node and on another. Prints one JSON object.

The graph is a chain of applications with a data drop between each two, in turns on the nodes; an application is the
Python function ``time.monotonic_ns``, so that what it writes is the moment at which it starts. All nodes are processes
of this host and share its monotonic clock. Wrappers around methods of each process (`watch`) note the time when a hop
passes them; each takes a fraction of a microsecond. The spans of a hop:

* ``send``: from the moment when the core settles the data drop until the links have the message about it;
* ``wire``: from there until the links of the other node have it;
* ``receive``: until the core of that node has processed it and starts the consumer;
* ``submit``: until the runner has the task;
* ``start``: until the function is called: in a worker process, in a thread, or directly in the thread of the session;
* ``completion_to_start``: the sum of these;
* ``start_to_start``: the same, with the return of the application, its result and the commit of what it wrote.

On one node there are no ``send`` and ``wire``. In the same run: round trips of one message of a link and of bare
pyzmq between two processes (see ``links.py``); ``ratio`` is that of ``completion_to_start`` to half of the latter.

Run: ``python benchmarks/latency.py [--hops 200,1000,2000] [--runners processes,threads,inline] [--quick]``.
"""

import argparse
import functools
import json
import os
import pickle
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import zmq
from cluster_nodes import Nodes, Run, nodes
from links import latency as round_trips

from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Action, Event, Finished
from dropflow.execution.decisions.events import Run as RunAttempt
from dropflow.runners.in_process import InlineRunner, ThreadRunner
from dropflow.runners.worker_pool import PooledRunner
from managers.keys import ClusterKey, create
from managers.links import Links
from managers.messages import Events, Message
from managers.node.exchange import NodeExchange
from tests.regular_graphs import relay

Marks = dict[str, list[int]]
"""Moments in nanoseconds, by what happened."""

_LOCAL = ("settled", "ready", "submitted", "started")
_ACROSS = ("settled", "sent", "received", "ready", "submitted", "started")
_NAMES = {
    ("settled", "sent"): "send",
    ("sent", "received"): "wire",
    ("received", "ready"): "receive",
    ("settled", "ready"): "receive",
    ("ready", "submitted"): "submit",
    ("submitted", "started"): "start",
}
_WARM = 300

# In the processes of the nodes ----------------------------------------------------------------------------------------


def watch() -> Callable[[], Marks]:
    """Start to note when events pass. Returns a function that returns the notes and clears them."""
    marks: Marks = {}

    def note(name: str, *_: object) -> None:
        marks.setdefault(name, []).append(time.monotonic_ns())

    def decided(actions: Sequence[Action], _core: Core, events: Sequence[Event]) -> None:
        if any(isinstance(event, Finished) for event in events):
            note("settled")
        if any(isinstance(action, RunAttempt) for action in actions):
            note("ready")

    def sent(_links: Links, _peer: str, message: Message) -> None:
        if isinstance(message, Events):
            note("sent")

    _tap(Core, "handle", after=decided)
    _tap(Links, "send", before=sent)
    _tap(NodeExchange, "receive", before=functools.partial(note, "received"))
    for runner in (PooledRunner, ThreadRunner, InlineRunner):
        _tap(runner, "submit", before=functools.partial(note, "submitted"))

    def seen() -> Marks:
        found = dict(marks)
        marks.clear()
        return found

    return seen


def _tap(
    place: type,
    method: str,
    *,
    before: Callable[..., None] = lambda *_: None,
    after: Callable[..., None] = lambda *_: None,
) -> None:
    """Wrap a method: call `before` with the arguments of each call, and `after` with its result and the arguments."""
    original = getattr(place, method)

    @functools.wraps(original)
    def tapped(*args: Any, **options: Any) -> Any:
        before(*args)
        answer = original(*args, **options)
        after(answer, *args)
        return answer

    setattr(place, method, tapped)


# What is measured -----------------------------------------------------------------------------------------------------


def hops(run: Run, count: int, parts: int) -> dict[str, list[float]]:
    """Return the microseconds of each span of each hop along a chain of `count` applications.

    A chain runs one application after the other, so the moments of all nodes, in order, belong to the hops in order.
    This is checked: each moment was noted once for each hop, and the moments of a hop are in order.
    """
    moments = {name: sorted(moment for seen in run.seen for moment in seen.get(name, ())) for name in _ACROSS[:-1]}
    moments["started"] = sorted(pickle.loads(body) for body in run.results.values())  # noqa: S301 - written by this very program
    order = _ACROSS if parts > 1 else _LOCAL
    # The first application has no producer, and the last has no consumer.
    last = {name: moments[name][1:] if name in _LOCAL[1:] else moments[name][: count - 1] for name in order}
    wrong = {name: len(found) for name, found in last.items() if len(found) != count - 1}
    if wrong:
        raise SystemExit(f"{count - 1} hops, but {wrong}")
    for hop in zip(*(last[name] for name in order), strict=True):
        if list(hop) != sorted(hop):
            raise SystemExit(f"the moments of a hop are not in order: {dict(zip(order, hop, strict=True))}")
    spans = {_NAMES[pair]: [last[pair[0]], last[pair[1]]] for pair in pairwise(order)}
    spans["completion_to_start"] = [last["settled"], last["started"]]
    spans["start_to_start"] = [moments["started"][:-1], moments["started"][1:]]
    return {
        name: [(end - start) / 1e3 for start, end in zip(starts, ends, strict=True)]
        for name, (starts, ends) in spans.items()
    }


def _summary(micros: list[float]) -> dict[str, float]:
    ordered = sorted(micros)
    return {
        "median_us": round(statistics.median(ordered)),
        "p99_us": round(ordered[int(len(ordered) * 0.99)]),
        "mean_us": round(statistics.fmean(ordered)),
    }


def _chain(found: Nodes, count: int, parts: int) -> dict[str, Any]:
    spans = hops(found.run(relay(count, parts)), count, parts)
    return {"hops": count - 1, **{name: _summary(micros) for name, micros in spans.items()}}


def measure(sizes: Sequence[int], runner: str, key: ClusterKey | None, rounds: int) -> dict[str, Any]:
    """Measure chains of all `sizes` on one node (without links, so without a key) and on two, and bare pyzmq."""
    report: dict[str, Any] = {"runner": runner, "encrypted": key is not None}
    messages = round_trips(key, rounds)
    bare = messages["bare"]["one_way_median_us"]
    report["bare_one_way_us"] = bare
    report["link_one_way_us"] = messages["links"]["one_way_median_us"]
    for name, parts in (("one_node", 1), ("two_nodes", 2)):
        if parts == 1 and key is not None:
            continue
        with nodes(parts, key, runner=runner, watcher=watch) as found:
            found.run(relay(_WARM, parts))
            report[name] = [_chain(found, size, parts) for size in sizes]
    for chain in report["two_nodes"]:
        chain["ratio"] = round(chain["completion_to_start"]["median_us"] / bare, 1)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hops", default="200,1000,2000", help="applications in a chain, with commas between")
    parser.add_argument("--runners", default="processes,threads,inline", help="where applications run")
    parser.add_argument("--rounds", type=int, default=3000, help="round trips of messages")
    parser.add_argument("--quick", action="store_true", help="one short chain in worker processes, without a key")
    options = parser.parse_args()
    sizes = [50] if options.quick else [int(size) for size in options.hops.split(",")]
    report: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "load": os.getloadavg(),
        "zmq": zmq.zmq_version(),
        "latency": [],
    }
    with tempfile.TemporaryDirectory() as directory:
        cluster = create(Path(directory) / "keys" / "cluster.key")
        for runner in ["processes"] if options.quick else options.runners.split(","):
            for key in [None] if options.quick else [None, cluster]:
                report["latency"].append(measure(sizes, runner, key, 300 if options.quick else options.rounds))
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
