"""Reuse of results: keys of all drops before a run, and runs of no-op applications that are taken from the store.

The keys are those of a scatter of N drops, found without reading contents. The runs are those of `run.py`: one memory
drop, then as many no-op applications with a memory drop each, in two worker processes: without a store, the first run
with one, which fills it, and the second, which takes everything. References in the same run: the digest of one small
content for each drop, and the run without a store. Usage: ``python benchmarks/reuse.py [SIZE ...]``; prints JSON.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

from dropflow.reuse.code import CodeReader
from dropflow.reuse.keys import deep_keys, node_keys
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from tests.regular_graphs import fan

SIZES = (10_000, 100_000, 1_000_000)
RUNS = 20_000
WORKERS = 2


def keys(drops: int) -> dict[str, float]:
    """Seconds for the keys of all drops, and for plain digests."""
    graph = fan(drops)
    started = time.perf_counter()
    found = deep_keys(graph, node_keys(graph, CodeReader()), lambda _: None)
    seconds = time.perf_counter() - started
    if not found.any(axis=1).all():
        raise SystemExit("a drop has no key")
    started = time.perf_counter()
    for number in range(drops):
        hashlib.blake2b(str(number).encode(), digest_size=16).digest()
    reference = time.perf_counter() - started
    return {"drops": drops, "seconds": round(seconds, 3), "ratio": round(seconds / reference, 2)}


def runs(drops: int) -> dict[str, float]:
    """Seconds of a run without a store, of one that fills it, and of one that takes all from it."""
    graph, found = fan(drops), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        for name, reuse in (("without", False), ("filling", True), ("taking", True)):
            started = time.perf_counter()
            place, store = Path(folder, name), str(Path(folder, "store"))
            result = local_run.run(
                graph, place, RunOptions(runner="processes", workers=WORKERS, reuse=reuse, store=store)
            )
            found[name] = round(time.perf_counter() - started, 3)
            if result.states["COMPLETED"] != graph.drops or (name == "taking" and result.computed):
                raise SystemExit(f"the run failed: {result}")
    return {"drops": drops, **found, "ratio": round(found["taking"] / found["without"], 2)}


def main() -> None:
    """Measure all sizes, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", metavar="SIZE", nargs="*", type=int, default=SIZES, help="numbers of drops")
    sizes = parser.parse_args().sizes
    rows = {"keys": [keys(size) for size in sizes], "runs": [runs(min(RUNS, *sizes))]}
    print(json.dumps({"benchmark": "reuse", **rows}, indent=2))


if __name__ == "__main__":
    main()
