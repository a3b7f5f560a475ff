"""What is done with physical graphs, in microseconds per drop, at three sizes; prints one JSON object.

Each operation has a reference that is measured in the same run on the same machine, and their ratio: below 1 dropflow
is faster. References are what a program would write without these columns:

* ``levels``, ``partition``, ``slice``: the same answer from one dictionary per drop, in plain Python loops (for the
  partition: consecutive blocks of Kahn's order, the cheapest answer there is);
* ``save``, ``load``, ``write_pg``, ``read_pg``: the standard library's `json` on the list of dictionaries that DALiuGE
  exchanges, from memory to memory; files are written without forcing them to disk on either side.

    python benchmarks/graph.py [--sizes 1000 10000 100000] [--repeat 3]
"""

import argparse
import gc
import io
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dropflow.graph.build import from_columns
from dropflow.graph.codec import digest, dump, load, parse
from dropflow.graph.daliuge_read import read_pg_stream
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.order import critical_path, levels
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_for
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template
from dropflow.graph.text_ids import oids
from translator.options import PartitionOptions
from translator.plan.quality import quality_of
from translator.plan.registry import partition

SIZES = (1_000, 10_000, 100_000)
PARTS = 16

Drops = dict[str, dict[str, Any]]


def scatter(drops: int) -> PhysicalGraph:
    """Copies of data -> app -> data; one application gathers eight of them. Nodes have five fields."""
    copies = max(drops * 8 // 25, 8)
    gathers = -(-copies // 8)
    fields = ("dropclass", "execution_time", "data_volume", "group_start", "filepath")
    arguments = tuple(Argument(name=name, value=1, id=f"{name}-id", description="a field of a node") for name in fields)
    row = np.arange(copies, dtype=np.int32)
    join = np.arange(gathers, dtype=np.int32)

    def node(name: str, kind: Kind, count: int) -> Template:
        axes = (Axis(name, name, "scatter", count),)
        return Template(key=name, name=name, kind=kind, axes=axes, arguments=arguments, component="dlg.Some")

    return from_columns(
        name="benchmark",
        prefix="benchmark",
        templates=[
            node("part", Kind.DATA, copies),
            node("work", Kind.APP, copies),
            node("done", Kind.DATA, copies),
            node("join", Kind.APP, gathers),
        ],
        links=[Link(source=0, target=1), Link(source=1, target=2), Link(source=2, target=3)],
        template=np.repeat(np.arange(4, dtype=np.int32), [copies, copies, copies, gathers]),
        instance=np.concatenate([row, row, row, join]),
        source=np.concatenate([row, row + copies, row + 2 * copies]),
        target=np.concatenate([row + copies, row + 2 * copies, 3 * copies + row // 8]),
        link=np.repeat(np.arange(3, dtype=np.int32), copies),
    )


def as_dictionaries(graph: PhysicalGraph) -> Drops:
    """One dictionary a drop, as DALiuGE holds them."""
    stream = io.BytesIO()
    write_pg(graph, stream)
    return {drop["oid"]: drop for drop in json.loads(stream.getvalue())[:-1]}


def _after(drop: dict[str, Any]) -> list[str]:
    entries = drop.get("outputs", []) + drop.get("consumers", [])
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries]


def kahn(drops: Drops) -> dict[str, int]:
    """Level of every drop, in topological order: the reference for levels."""
    waiting = dict.fromkeys(drops, 0)
    for drop in drops.values():
        for oid in _after(drop):
            waiting[oid] += 1
    level = {oid: 0 for oid, count in waiting.items() if not count}
    queue = deque(level)
    while queue:
        here = queue.popleft()
        for oid in _after(drops[here]):
            waiting[oid] -= 1
            level[oid] = max(level.get(oid, 0), level[here] + 1)
            if not waiting[oid]:
                queue.append(oid)
    return level


def blocks_of(drops: Drops) -> dict[str, int]:
    """Part of every drop by consecutive blocks of Kahn's order: the reference for partitioning."""
    size = -(-len(drops) // PARTS)
    return {oid: at // size for at, oid in enumerate(kahn(drops))}


def sliced(drops: Drops, part: dict[str, int]) -> list[tuple[list[dict[str, Any]], list[tuple[str, str]]]]:
    """Drops of each part, and the edges that were cut: the reference for slicing."""
    found: list[tuple[list[dict[str, Any]], list[tuple[str, str]]]] = [([], []) for _ in range(PARTS)]
    for oid, drop in drops.items():
        here = found[part[oid]]
        here[0].append(drop)
        here[1].extend((oid, other) for other in _after(drop) if part[other] != part[oid])
    return found


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Wall-clock seconds of the best of several calls, each on a clean slate."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def operations(graph: PhysicalGraph, folder: Path) -> dict[str, tuple[Callable[[], object], str]]:
    """What is measured, each with the name of its reference (empty for none)."""
    cut = partition(graph, PartitionOptions(algorithm="blocks", parts=PARTS))
    cut = replace(cut, places=tuple(f"node-{number}" for number in range(PARTS)))
    path = folder / "graph.dfg"
    packed = b"".join(dump(graph))
    path.write_bytes(packed)
    stream = io.BytesIO()
    write_pg(graph, stream)
    text = stream.getvalue()
    return {
        "levels": (lambda: levels(graph), "levels"),
        "critical_path": (lambda: critical_path(replace(graph)), "levels"),
        "oids": (lambda: oids(graph, range(graph.drops)), ""),
        "digest": (lambda: digest(graph), "save"),
        "partition_blocks": (lambda: partition(graph, PartitionOptions(algorithm="blocks", parts=PARTS)), "partition"),
        "partition_metis": (lambda: partition(replace(graph), PartitionOptions(parts=PARTS)), "partition"),
        "judge": (lambda: quality_of(cut), ""),
        "slice": (lambda: [slice_for(cut, place) for place in cut.places], "slice"),
        "save": (lambda: path.write_bytes(b"".join(dump(graph))), "save"),
        "load": (lambda: load(path), "load"),
        "load_mmap": (lambda: load(path, mmap=True), "load"),
        "parse": (lambda: parse(packed), "load"),
        "write_pg": (lambda: write_pg(replace(graph), io.BytesIO()), "save"),
        "read_pg": (lambda: read_pg_stream(io.BytesIO(text), name="x"), "load"),
    }


def references(drops: Drops, folder: Path) -> dict[str, Callable[[], object]]:
    """The same answers from a dictionary per drop."""
    document = [*drops.values(), {}]
    path = folder / "graph.json"
    text = json.dumps(document)
    path.write_text(text)
    part = blocks_of(drops)
    return {
        "levels": lambda: kahn(drops),
        "partition": lambda: blocks_of(drops),
        "slice": lambda: sliced(drops, part),
        "save": lambda: path.write_text(json.dumps(document)),
        "load": lambda: json.loads(path.read_text()),
    }


def measure(size: int, repeat: int, folder: Path) -> dict[str, Any]:
    """All operations on one graph."""
    graph = scatter(size)
    drops = as_dictionaries(graph)
    reference = {name: 1e6 * seconds(work, repeat) / graph.drops for name, work in references(drops, folder).items()}
    del drops
    found: dict[str, Any] = {}
    for name, (work, against) in operations(graph, folder).items():
        cost = 1e6 * seconds(work, repeat) / graph.drops
        found[name] = {"us_per_drop": round(cost, 4)}
        if against:
            found[name] |= {"reference": against, "ratio": round(cost / reference[against], 4)}
    sizes = {name: (folder / f"graph.{name}").stat().st_size / graph.drops for name in ("dfg", "json")}
    cuts = {}
    for algorithm in ("blocks", "metis"):
        quality = quality_of(partition(graph, PartitionOptions(algorithm=algorithm, parts=PARTS)))
        cuts[algorithm] = {"cut_edges": quality.cut_edges, "imbalance_percent": round(quality.imbalance, 2)}
    return {
        "drops": graph.drops,
        "edges": graph.edges,
        "bytes_per_drop": {name: round(value, 1) for name, value in sizes.items()},
        "partition_quality": cuts,
        "operations": found,
        "reference_us_per_drop": {name: round(value, 4) for name, value in reference.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="physical graphs: microseconds per drop")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(size, given.repeat, Path(folder)) for size in given.sizes]
    print(json.dumps({"benchmark": "graph", "parts": PARTS, "results": results}, indent=1))


if __name__ == "__main__":
    main()
