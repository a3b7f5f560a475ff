"""Results brought over a link of a known rate by ``dropflow fetch``. Prints one JSON object.

The cluster of ``dropflow up`` with two nodes is on this side of the link, with one more island (or, with ``--master``,
a master above its island) that listens at this end. The command runs at the other end, in a network namespace of its
own. ``share`` is the time of one bare TCP connection over the same link divided by that of the fetch, start of the
command included. For each rate:

* ``large``: one result of ``--large`` millions of bytes. It is a sparse file, so that no disk is read;
* ``files``: as many results of 928 bytes as ``--sizes`` says.

Run as root: ``python benchmarks/fetch_link.py [--rates 1,10] [--large 10000] [--sizes 1000,10000] [--into DIR]``.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fetch import _arrays, _up
from shaped_link import ShapedLink

from dropflow.api.client import Client
from dropflow.api.requests import SubmitQuery
from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Link, Template


def _one_file(size: int) -> PhysicalGraph:
    """An application that makes one file of so many bytes."""
    command = Argument(name="command", value=f"truncate -s {size} %o0", type="String")
    component = "dlg.apps.bash_shell_app.BashShellApp"
    return from_columns(
        name="large",
        prefix="large",
        templates=(
            Template(key="w", name="write", kind=Kind.APP, component=component, arguments=(command,)),
            Template(key="r", name="result", kind=Kind.DATA, component="dlg.data.drops.file.FileDROP"),
        ),
        links=(Link(source=0, target=1),),
        template=np.arange(2, dtype=np.int32),
        instance=np.zeros(2, dtype=np.int32),
        source=np.zeros(1, dtype=np.int32),
        target=np.ones(1, dtype=np.int32),
        link=np.zeros(1, dtype=np.int32),
    )


@contextmanager
def _manager(role: str, address: str, children: list[str]) -> Iterator[dict[str, Any]]:
    """The ready line of one more manager, which listens at `address`."""
    names = "--nodes" if role == "island" else "--islands"
    with tempfile.TemporaryDirectory() as root:
        command = [sys.executable, "-m", "dropflow", role, "--host", address, "--port", "0", "--root", f"{root}/top"]
        given = ["--name", f"top-{role}", "--log-level", "warning", "--token-file", f"{root}/token"]
        Path(root, "token").write_text("0123456789abcdef0123456789abcdef")
        Path(root, "token").chmod(0o600)
        process = subprocess.Popen([*command, *given, names, ",".join(children)], stdout=subprocess.PIPE)
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise SystemExit(f"the {role} did not start; why is said above")
            yield json.loads(line) | {"token": "0123456789abcdef0123456789abcdef"}
        finally:
            process.terminate()
            process.wait(60)


def _submit(manager: dict[str, Any], session: str, graph: PhysicalGraph) -> None:
    with Client(manager["url"], token=manager["token"], timeout=120.0) as client:
        client.submit(graph, SubmitQuery(session=session, anew=True))
        detail = client.session(session)
        while not detail.finished:
            detail = client.watch(session, version=detail.version, seconds=30.0)


def _fetch(link: ShapedLink, manager: dict[str, Any], session: str, into: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of one ``dropflow fetch`` at the other end of the link, and its answer."""
    began = time.perf_counter()
    done = subprocess.run(
        [*link.before, sys.executable, "-m", "dropflow", "fetch", session, "-o", str(into), "--output", "json"],
        env=os.environ | {"DROPFLOW_URL": manager["url"], "DROPFLOW_TOKEN": manager["token"]},
        stdout=subprocess.PIPE,
        check=True,
    )
    return time.perf_counter() - began, json.loads(done.stdout)


def _measure(link: ShapedLink, manager: dict[str, Any], given: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Fetch over one link."""
    found: dict[str, Any] = {"gigabits": link.gigabits, "files": []}
    for files in [int(size) for size in given.sizes.split(",") if size]:
        session = f"files{files}"
        _submit(manager, session, _arrays(files))
        took, answer = _fetch(link, manager, session, place / session)
        if answer["fetched"] != files:
            raise SystemExit(f"{answer['fetched']} of {files} files came")
        found["files"].append({"files": files, "fetch": round(files / took)})
    if given.large:
        _submit(manager, "large", _one_file(given.large * 1_000_000))
        times, bare = [], []
        for _ in range(given.repeat):
            took, answer = _fetch(link, manager, "large", place / "large")
            shutil.rmtree(place / "large")
            times.append(took)
            bare.append(link.seconds(answer["bytes"]))
        found["large"] = {
            "bytes": answer["bytes"],
            "fetch": round(answer["bytes"] / min(times) / 1e6),
            "link": round(answer["bytes"] / min(bare) / 1e6),
            "share": round(min(bare) / min(times), 2),
        }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1,10", help="rates of links in gigabits a second; 0 for no limit")
    parser.add_argument("--large", type=int, default=10_000, help="millions of bytes of the large result; 0 for none")
    parser.add_argument("--sizes", default="1000,10000", help="numbers of small files")
    parser.add_argument("--repeat", type=int, default=2, help="fetches of the large result; the best is printed")
    parser.add_argument("--master", action="store_true", help="fetch through a master above the island")
    parser.add_argument("--into", help="an existing directory for the files; a temporary one by default")
    given = parser.parse_args()
    rows = []
    for rate in given.rates.split(","):
        with ShapedLink(float(rate)) as link, _up() as ready, tempfile.TemporaryDirectory(dir=given.into) as place:
            role, below = ("master", [ready["island"]]) if given.master else ("island", ready["nodes"])
            with _manager(role, link.address, below) as manager:
                rows.append(_measure(link, manager, given, Path(place)))
    print(json.dumps({"python": platform.python_version(), "cores": os.cpu_count(), "links": rows}, indent=2))


if __name__ == "__main__":
    main()
