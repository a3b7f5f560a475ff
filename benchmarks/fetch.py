"""Results brought from two nodes through an island by ``dropflow fetch``. Prints one JSON object.

The graph is a scatter of applications that each write one small array, half of them on each node of ``dropflow up``.
The results are 928 bytes each. For each number of files:

* ``fetch``: files per second of the first ``dropflow fetch`` into a new directory, start of the command included;
* ``again``: the same with everything there already: the client compares the checksums of all files, nothing is sent;
* ``copy``: files per second of ``shutil.copyfile``, one after the other, of the files that were fetched: the reference;
* ``tar``: files per second of ``tar c | tar x`` of the same files.

Then the same with a few large arrays (``--large``, in millions of bytes altogether), in bytes per second: ``fetch``,
``again``, ``archive`` (all results as one tar file, ``-o all.tar``), ``copy``, and ``link``: bytes through one TCP
connection of this host, from a process that sends zeros to one that reads them. With ``--into`` a directory in memory,
such as ``/dev/shm``, the disk does not limit them.

Nothing is deleted before the end: ext4 searches long for an inode when many were freed in the last seconds.

Run: ``python benchmarks/fetch.py [--sizes 1000,10000,100000] [--large 2000] [--into DIR]``.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dropflow.api.client import Client
from dropflow.api.requests import SubmitQuery
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template

_LARGE = 16_000_000
"""Numbers of 8 bytes in a large array."""


def _arrays(copies: int, size: int = 100) -> PhysicalGraph:
    """So many pairs of an application and the array of 8-byte numbers that it writes, on two nodes by turns."""
    axes = (Axis("many", "many", "scatter", copies),)
    numbers = tuple(
        Argument(name=name, value=value, type="Integer") for name, value in (("size", size), ("seed", 1), ("high", 99))
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
    (place / f"copies{files}").mkdir()
    began = time.perf_counter()
    for path in paths:
        shutil.copyfile(path, place / f"copies{files}" / path.name)
    copied = time.perf_counter() - began
    (place / f"unpacked{files}").mkdir()
    began = time.perf_counter()
    pack = subprocess.Popen(["tar", "c", "-C", str(into), "."], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", str(place / f"unpacked{files}")], stdin=pack.stdout, check=True)
    pack.wait()
    unpacked = time.perf_counter() - began
    return {
        "files": files,
        "fetch": round(files / first),
        "again": round(files / again),
        "copy": round(files / copied),
        "tar": round(files / unpacked),
        "ratio": round(first / copied, 2),
    }


def _measure_large(ready: dict[str, Any], size: int, place: Path) -> dict[str, float]:
    """Fetch so many bytes in files of 128 MB."""
    files = max(size // (_LARGE * 8), 2)
    session, into = f"large{size}", place / "large"
    with Client(ready["island"], token=ready["token"], timeout=120.0) as island:
        island.submit(_arrays(files, _LARGE), SubmitQuery(session=session, anew=True))
        detail = island.session(session)
        while not detail.finished:
            detail = island.watch(session, version=detail.version, seconds=30.0)
    first, answer = _fetch(ready, session, into)
    again, _ = _fetch(ready, session, into)
    paths = sorted((into / "results").iterdir())
    began = time.perf_counter()
    for path in paths:
        shutil.copyfile(path, place / "copy")
    copied = time.perf_counter() - began
    (place / "copy").unlink()
    shutil.rmtree(into)
    packed, archive = _fetch(ready, session, place / "all.tar")
    (place / "all.tar").unlink()
    sent, linked = answer["bytes"], _link(answer["bytes"])
    return {
        "bytes": sent,
        "fetch": round(sent / first / 1e6),
        "again": round(sent / again / 1e6),
        "archive": round(archive["bytes"] / packed / 1e6),
        "copy": round(sent / copied / 1e6),
        "link": round(sent / linked / 1e6),
        "of_link": round(linked / first, 2),
    }


def _link(size: int) -> float:
    """Seconds that so many bytes take through one TCP connection between two processes of this host."""
    sender = "import socket,sys\ns=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\nb=bytes(1<<20)\n"
    sender += "n=int(sys.argv[2])\nwhile n>0:\n s.sendall(b[:n])\n n-=len(b)\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = subprocess.Popen([sys.executable, "-c", sender, str(port), str(size)])
        connection, _ = server.accept()
        buffer, left, began = bytearray(1 << 20), size, time.perf_counter()
        with connection:
            while left > 0:
                left -= connection.recv_into(buffer)
        process.wait()
        return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of files")
    parser.add_argument("--large", type=int, default=2000, help="millions of bytes of large files; 0 for none")
    parser.add_argument("--into", help="an existing directory for the files; a temporary one by default")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",") if size]
    with _up() as ready, tempfile.TemporaryDirectory(dir=given.into) as place:
        rows = [_measure(ready, files, Path(place)) for files in sizes]
        large = [_measure_large(ready, given.large * 1_000_000, Path(place))] if given.large else []
    print(
        json.dumps(
            {"python": platform.python_version(), "cores": os.cpu_count(), "fetch": rows, "large": large}, indent=2
        )
    )


if __name__ == "__main__":
    main()
