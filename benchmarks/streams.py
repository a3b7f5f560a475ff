"""Streams from one application to another, on one node and across two. Prints one JSON object.

Two applications with a file drop between: the first writes, the second reads and discards. All nodes are processes of
this host and share its monotonic clock; they do not read each other's files.

* ``throughput``: megabytes per second from the first byte written to the last one read. ``stream``: over a streaming
  link; ``whole``: over a link that is not streaming, so that all is written, then fetched, then read; both on one node
  and on two. For comparison, from memory to memory between two processes: ``fetch``, by the data plane of the links,
  and ``bare``, frames of bare pyzmq (see ``links.py``).
* ``latency``: microseconds from the write of 100 bytes until the reader has them: median and 99th percentile, on one
  node and on two; and half of a round trip of bare pyzmq in the same run.

Run: ``python benchmarks/streams.py [--sizes 1,32,1000] [--curve] [--quick]``.
"""

import argparse
import json
import os
import platform
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq
from cluster_nodes import Nodes, nodes
from links import fetch
from links import latency as round_trips

from dropflow.apps.app_interface import App, Context
from dropflow.graph.build import GraphBuilder
from dropflow.graph.components import Component
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind
from managers.keys import ClusterKey, create

__all__ = ["BulkReader", "BulkWriter", "RecordReader", "RecordWriter"]

_STAMP = struct.Struct("<Q")
_BLOCK = 1 << 20
_RECORD = 100
_WARM = 200


def _component(name: str) -> Component:
    return Component(
        name=name, kind=Kind.APP, category="DALiuGEApp", dropclass=f"streams.{name}", description="Of a benchmark."
    )


class _Timed(App):
    """An application of this benchmark."""

    def field(self, name: str) -> float:
        """Return the value of a field."""
        return float(next(each.value for each in self.template.arguments if each.name == name))


class BulkWriter(_Timed):
    """Writes a number of bytes as fast as possible; the first ones are the time of its start."""

    component = _component("BulkWriter")

    def run(self, context: Context) -> None:
        """Write."""
        (output,) = context.outputs
        block, left = bytes(_BLOCK), int(self.field("size")) - _STAMP.size
        output.write(_STAMP.pack(time.monotonic_ns()))
        while left > 0:
            left -= output.write(memoryview(block)[:left]) or len(block)


class BulkReader(_Timed):
    """Reads everything; writes when writing began, when reading ended, and the number of bytes."""

    component = _component("BulkReader")
    streams = True

    def run(self, context: Context) -> None:
        """Read."""
        buffer = bytearray(_BLOCK)
        with context.inputs[0].open() as stream:
            (began,) = _STAMP.unpack(stream.read(_STAMP.size))
            size = _STAMP.size
            while count := stream.readinto(buffer):  # type: ignore[attr-defined]
                size += count
        context.outputs[0].write(json.dumps([began, time.monotonic_ns(), size]))


class RecordWriter(_Timed):
    """Writes records that contain the time at which they were written, with pauses between."""

    component = _component("RecordWriter")

    def run(self, context: Context) -> None:
        """Write."""
        for _ in range(int(self.field("records"))):
            context.wait(self.field("pause"))
            context.outputs[0].write(_STAMP.pack(time.monotonic_ns()).ljust(_RECORD))


class RecordReader(_Timed):
    """Reads records one by one; writes the age of each."""

    component = _component("RecordReader")
    streams = True

    def run(self, context: Context) -> None:
        """Read."""
        ages = []
        with context.inputs[0].open() as stream:
            while record := stream.read(_RECORD):
                ages.append(time.monotonic_ns() - _STAMP.unpack_from(record)[0])
        context.outputs[0].write(json.dumps(ages))


def pair(writer: str, reader: str, place: int, *, streaming: bool = True, **fields: float) -> PhysicalGraph:
    """Return a graph with a writer on the first node, and a reader on node `place`."""
    arguments = tuple(Argument(name=name, value=value) for name, value in fields.items())
    drawing = GraphBuilder("pair")
    drawing.app("A", component=f"streams.{writer}", arguments=arguments).data(
        "data", component="dlg.data.drops.file.FileDROP"
    )
    drawing.app("B", component=f"streams.{reader}", part=place).data("result", part=place)
    return drawing.connect("A", "data").connect("data", "B", streaming=streaming).connect("B", "result").build()


def _result_of(found: Nodes, graph: PhysicalGraph) -> Any:
    (body,) = found.run(graph).results.values()
    return json.loads(body)


def throughput(size: int, repeats: int, key: ClusterKey | None) -> dict[str, float]:
    """Measure megabytes per second, medians of turns."""
    seconds: dict[str, list[float]] = {}
    for place in (0, 1):
        with nodes(place + 1, key, in_place=False) as found:
            _result_of(found, pair("BulkWriter", "BulkReader", place, size=_BLOCK))
            for _ in range(repeats):
                for streaming in (True, False):
                    graph = pair("BulkWriter", "BulkReader", place, streaming=streaming, size=size)
                    began, ended, count = _result_of(found, graph)
                    if count != size:
                        raise SystemExit(f"{count} of {size} bytes were read")
                    name = f"{'stream' if streaming else 'whole'}_{('one_node', 'two_nodes')[place]}"
                    seconds.setdefault(name, []).append((ended - began) / 1e9)
    report: dict[str, float] = {
        f"{name}_MB_s": round(size / statistics.median(times) / 1e6) for name, times in seconds.items()
    }
    memory = fetch(key, size, repeats)
    report |= {"fetch_MB_s": memory["checked_MB_s"], "bare_MB_s": memory["bare_MB_s"]}
    report["ratio_to_bare"] = round(report["stream_two_nodes_MB_s"] / report["bare_MB_s"], 2)
    return report


def latency(records: int, key: ClusterKey | None) -> dict[str, Any]:
    """Measure microseconds from a write to a read."""
    report: dict[str, Any] = {"bare_one_way_us": round_trips(key, 1000)["bare"]["one_way_median_us"]}
    for place in (0, 1):
        with nodes(place + 1, key, in_place=False) as found:
            # The reader begins somewhat later than the writer, and reads the first records late.
            graph = pair("RecordWriter", "RecordReader", place, records=_WARM + records, pause=0.005)
            ages = sorted(_result_of(found, graph)[_WARM:])
        report[("one_node", "two_nodes")[place]] = {
            "records": len(ages),
            "median_us": round(statistics.median(ages) / 1e3),
            "p99_us": round(ages[int(len(ages) * 0.99)] / 1e3),
        }
    report["ratio_to_bare"] = round(report["two_nodes"]["median_us"] / report["bare_one_way_us"], 1)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,32,1000", help="megabytes, with commas between")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--records", type=int, default=1000, help="number of records whose latency is measured")
    parser.add_argument("--curve", action="store_true", help="encrypt links with a cluster key")
    parser.add_argument("--quick", action="store_true", help="one small size, once, and few records")
    options = parser.parse_args()
    here = str(Path(__file__).parent)  # workers find the applications there
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    sizes = [1] if options.quick else [int(size) for size in options.sizes.split(",")]
    repeats, records = (1, 50) if options.quick else (options.repeats, options.records)
    with tempfile.TemporaryDirectory() as directory:
        key = create(Path(directory) / "keys" / "cluster.key") if options.curve else None
        report = {
            "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
            "load": os.getloadavg(),
            "zmq": zmq.zmq_version(),
            "encrypted": key is not None,
            "latency": latency(records, key),
            "throughput": {f"{size}MB": throughput(size * 10**6, repeats, key) for size in sizes},
        }
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
