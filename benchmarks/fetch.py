"""Results brought from two nodes through an island by ``dropflow fetch``. Prints one JSON object.

The graph is a scatter of applications that each write one small array, half of them on each node of ``dropflow up``.
The results are 928 bytes each. For each number of files:

* ``fetch``: files per second of the first ``dropflow fetch`` into an empty directory, start of the command included;
* ``again``: the same with everything there already: both ends compute the digests of all contents, none is sent;
* ``copy``: files per second of ``shutil.copyfile``, one after the other, of the files that were fetched: the reference.

Run: ``python benchmarks/fetch.py [--sizes 1000,5000,20000]``.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dropflow.graph.builder import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template
from dropflow.rest.client import Client
from dropflow.rest.schema import SubmitQuery


def _arrays(copies: int) -> PhysicalGraph:
    """So many pairs of an application and the array that it writes, on two nodes by turns."""
    axes = (Axis("many", "many", "scatter", copies),)
    numbers = tuple(
        Argument(name=name, value=value, type="Integer") for name, value in (("size", 100), ("seed", 1), ("high", 99))
    )
    each = np.arange(copies, dtype=np.int32)
    return from_columns(
        name="arrays",
        prefix="arrays",
        templates=(
            Template(
                key="w",
                name="write",
                kind=Kind.APP,
                component="dlg.apps.simple.RandomArrayApp",
                axes=axes,
                arguments=numbers,
            ),
            Template(key="r", name="result", kind=Kind.DATA, component="dlg.data.drops.memory.InMemoryDROP", axes=axes),
        ),
        links=(Link(source=0, target=1),),
        template=np.repeat(np.arange(2, dtype=np.int32), copies),
        instance=np.tile(each, 2),
        source=each,
        target=copies + each,
        link=np.zeros(copies, dtype=np.int32),
        part=np.tile(each % 2, 2),
    )


@contextmanager
def _up() -> Iterator[dict[str, Any]]:
    """The ready line of ``dropflow up`` with two nodes."""
    with tempfile.TemporaryDirectory() as root:
        command = [sys.executable, "-m", "dropflow", "up", "--nodes", "2", "--port", "0", "--root", f"{root}/up"]
        process = subprocess.Popen([*command, "--log-level", "warning"], stdout=subprocess.PIPE)
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise SystemExit("dropflow up did not start; why is said above")
            yield json.loads(line)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _fetch(ready: dict[str, Any], session: str, into: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of one ``dropflow fetch`` from the island, and its answer."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dropflow", "fetch", session, "-o", str(into), "--output", "json"],
        env=os.environ | {"DROPFLOW_URL": ready["island"], "DROPFLOW_TOKEN": ready["token"]},
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - began, json.loads(done.stdout)


def _measure(ready: dict[str, Any], files: int, place: Path) -> dict[str, float]:
    session, into = f"s{files}", place / str(files)
    with Client(ready["island"], token=ready["token"], timeout=120.0) as island:
        island.submit(_arrays(files), SubmitQuery(session=session, anew=True))
        detail = island.session(session)
        while not detail.finished:
            detail = island.watch(session, version=detail.version, seconds=30.0)
    first, answer = _fetch(ready, session, into)
    again, same = _fetch(ready, session, into)
    if (answer["fetched"], same["were_there"]) != (files, files):
        raise SystemExit(f"{answer['fetched']} and {same['were_there']} of {files} files came")
    paths = sorted((into / "results").iterdir())
    (place / "copies").mkdir()
    began = time.perf_counter()
    for path in paths:
        shutil.copyfile(path, place / "copies" / path.name)
    copied = time.perf_counter() - began
    shutil.rmtree(place / "copies")
    return {
        "files": files,
        "fetch": round(files / first),
        "again": round(files / again),
        "copy": round(files / copied),
        "ratio": round(first / copied, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,5000,20000", help="numbers of files")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    with _up() as ready, tempfile.TemporaryDirectory() as place:
        rows = [_measure(ready, files, Path(place)) for files in sizes]
    print(json.dumps({"python": platform.python_version(), "cores": os.cpu_count(), "fetch": rows}, indent=2))


if __name__ == "__main__":
    main()
