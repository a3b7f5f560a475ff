"""What ``--durable`` costs: runs of small files with and without fsync, in pairs, and the cost of one fsync here.

Usage: ``python benchmarks/durable.py [FILES ...]``; prints JSON. The directory for the runs is the current one, because
the file system of temporary files is often in memory.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run

SIZES = (100, 1_000)
_PAIRS = 3


def files(count: int) -> PhysicalGraph:
    """Applications that each write a file."""
    drawing = GraphBuilder("files")
    for number in range(count):
        path = Argument(name="filepath", value=f"{number}.txt")
        drawing.app(f"A{number}", component="dlg.apps.simple.HelloWorldApp")
        drawing.data(f"d{number}", component="dlg.data.drops.file.FileDROP", arguments=(path,))
        drawing.connect(f"A{number}", f"d{number}")
    return drawing.build()


def seconds(graph: PhysicalGraph, root: Path, *, durable: bool) -> float:
    """Run a graph once; return how long it took."""
    directory = root / "run"
    started = time.perf_counter()
    result = local_run.run(graph, directory, RunOptions(runner="processes", workers=2, durable=durable))
    found = time.perf_counter() - started
    if result.failures:
        raise SystemExit(result.failures[0].text)
    shutil.rmtree(directory)
    return found


def one_fsync(root: Path) -> float:
    """Return the seconds of an fsync of a small file, the median of a hundred."""
    times = []
    for number in range(100):
        with (root / f"{number}").open("wb") as file:
            file.write(bytes(100))
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return sorted(times)[50]


def main() -> None:
    """Measure all sizes and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILES", nargs="*", type=int, default=SIZES, help="numbers of files")
    rows = []
    with tempfile.TemporaryDirectory(dir=".") as name:
        root = Path(name).absolute()
        for count in parser.parse_args().files:
            graph = files(count)
            pairs = [(seconds(graph, root, durable=False), seconds(graph, root, durable=True)) for _ in range(_PAIRS)]
            plain, durable = (min(times) for times in zip(*pairs, strict=True))
            rows.append(
                {
                    "files": count,
                    "plain_s": round(plain, 3),
                    "durable_s": round(durable, 3),
                    "ratio": round(durable / plain, 2),
                    "extra_ms_per_file": round((durable - plain) / count * 1e3, 3),
                }
            )
        fsync = round(one_fsync(root) * 1e3, 3)
    print(json.dumps({"benchmark": "durable", "fsync_ms": fsync, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
