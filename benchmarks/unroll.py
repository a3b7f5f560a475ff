"""Unrolls ``scatter(N){data-app-data} + gather`` at 1k, 10k, 100k and 1M drops; prints one JSON object.

Every size runs in a fresh process, so that its peak of resident memory above the interpreter (numpy and dropflow
imported, nothing unrolled) is its own. The reference, run in the same way up to 100k drops, is the same unrolling with
a dictionary for every drop in plain Python, which is what translators of this kind usually do. Times are of unrolling
alone: planning, columns and CSR; without reading JSON.

    python benchmarks/unroll.py [--sizes 1000 10000] [--repeat 3]
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from typing import Any

from translator.logical import Field, LogicalGraph, LogicalLink, LogicalNode, NodeKind
from translator.unroll import outline_of, unroll

SIZES = (1_000, 10_000, 100_000, 1_000_000)
REFERENCE_LIMIT = 100_000
_WIDTH = 16
_AROUND = 3


def drawn(drops: int) -> LogicalGraph:
    """The logical graph that becomes about `drops` drops: three in each copy, and one gather for every 16 copies."""
    copies = max((drops - _AROUND) * _WIDTH // (3 * _WIDTH + 2), 1)

    def node(name: str, category: str, kind: NodeKind, parent: str | None = None, **values: Any) -> LogicalNode:
        fields = tuple(Field(id=f"{name}.{key}", name=key, value=value) for key, value in values.items())
        return LogicalNode(id=name, name=name, category=category, kind=kind, parent=parent, key=name, fields=fields)

    app = {"dropclass": "dlg.apps.simple.SleepApp"}
    nodes = (
        node("start", "Memory", NodeKind.DATA),
        node("split", "DALiuGEApp", NodeKind.APP, **app),
        node("scatter", "Scatter", NodeKind.CONSTRUCT, num_of_copies=copies),
        node("part", "Memory", NodeKind.DATA, "scatter"),
        node("work", "DALiuGEApp", NodeKind.APP, "scatter", **app),
        node("done", "Memory", NodeKind.DATA, "scatter"),
        node("gather", "Gather", NodeKind.CONSTRUCT, num_of_inputs=_WIDTH),
        node("collect", "DALiuGEApp", NodeKind.APP, "gather", **app, group_start=True),
        node("sum", "Memory", NodeKind.DATA, "gather"),
    )
    chain = ("start", "split", "part", "work", "done", "gather")
    links = [LogicalLink(source=one, target=other) for one, other in itertools.pairwise(chain)]
    links.append(LogicalLink(source="collect", target="sum"))
    return LogicalGraph(name="benchmark", family="drawn", nodes=nodes, links=tuple(links))


def columns(graph: LogicalGraph) -> tuple[int, int]:
    """Unroll with dropflow. Returns the numbers of drops and edges."""
    made = unroll(outline_of(graph))
    return made.drops, made.edges


def dictionaries(graph: LogicalGraph) -> tuple[int, int]:
    """The reference: one dictionary a drop, with its ids and the ids of its neighbours."""
    copies = int(graph.by_id["scatter"].value("num_of_copies"))
    chunks = -(-copies // _WIDTH)
    drops: dict[str, dict[str, Any]] = {}

    def add(name: str, *index: int) -> dict[str, Any]:
        node = graph.by_id[name]
        iid = "-".join(map(str, (0, *index)))
        oid = f"benchmark_{name}_{iid}"
        drop = {"oid": oid, "iid": iid, "lg_key": name, "name": node.name, "category": node.category, "weight": 1}
        drop |= {field.name: field.value for field in node.fields}
        drop |= {"inputs": [], "outputs": [], "producers": [], "consumers": []}
        drops[oid] = drop
        return drop

    def join(source: dict[str, Any], target: dict[str, Any]) -> None:
        forth, back = ("outputs", "producers") if "dropclass" in source else ("consumers", "inputs")
        source[forth].append(target["oid"])
        target[back].append(source["oid"])

    start, split = add("start"), add("split")
    join(start, split)
    gathers = [add("collect", chunk) for chunk in range(chunks)]
    for chunk, gather in enumerate(gathers):
        join(gather, add("sum", chunk))
    for copy in range(copies):
        part, work, done = add("part", copy), add("work", copy), add("done", copy)
        join(split, part)
        join(part, work)
        join(work, done)
        join(done, gathers[copy // _WIDTH])
    return len(drops), sum(len(drop["outputs"]) + len(drop["consumers"]) for drop in drops.values())


def measured(method: str, size: int, repeat: int) -> dict[str, Any]:
    """Best time of some runs in this process, and its peak of memory above what imports took."""
    work = {"columns": columns, "dictionaries": dictionaries}[method]
    work(drawn(REFERENCE_LIMIT // 1000))  # First use of numpy and of caches is no part of unrolling.
    before = _peak()
    graph = drawn(size)
    seconds = []
    drops = edges = 0
    for _ in range(repeat):
        begin = time.perf_counter()
        drops, edges = work(graph)
        seconds.append(time.perf_counter() - begin)
    return {
        "method": method,
        "drops": drops,
        "edges": edges,
        "seconds": round(min(seconds), 6),
        "us_per_drop": round(min(seconds) / drops * 1e6, 4),
        "peak_mb_above_interpreter": round((_peak() - before) / 1024, 2),
    }


def _peak() -> int:
    """Peak of resident memory so far, in KiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def main() -> None:
    """Run all sizes and print their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one[0], int(given.one[1]), given.repeat)))
        return
    results = []
    for size in given.sizes:
        for method in ("columns", "dictionaries") if size <= REFERENCE_LIMIT else ("columns",):
            command = [sys.executable, __file__, "--one", method, str(size), "--repeat", str(given.repeat)]
            results.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    times = {(result["method"], result["drops"]): result["us_per_drop"] for result in results}
    ratios = {
        str(drops): round(times["dictionaries", drops] / times["columns", drops], 1)
        for method, drops in times
        if method == "dictionaries"
    }
    print(json.dumps({"benchmark": "unroll", "results": results, "times_faster_than_dictionaries": ratios}, indent=1))


if __name__ == "__main__":
    main()
