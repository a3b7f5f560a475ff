"""The same graphs on DALiuGE: node managers and an island in a separate virtual environment, controlled by REST.

Needs a package index that has ``daliuge-engine``, ``daliuge-common`` and ``daliuge-translator``, or ``--python`` of an
environment that has them already. The report lists what is missing; the script does not raise for it.

Run: ``python benchmarks/cluster_daliuge.py [--python PYTHON] [SIZE ...]``, or through ``cluster.py --daliuge``.
"""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oids
from tests.regular_graphs import triples

PACKAGES = ("daliuge-engine", "daliuge-common", "daliuge-translator")
_ENDED = {4: "FINISHED", 5: "CANCELLED", 6: "FAILED"}
_START_SECONDS = 60.0
_RUN_SECONDS = 120.0
_POLL_SECONDS = 0.05


class _NotMeasured(Exception):  # noqa: N818 - a report, not an error
    """The reason why something could not be measured."""


def measure(graphs: Sequence[PhysicalGraph], python: str | None = None) -> dict[str, Any]:
    """Measure submission and run of each graph, on as many node managers as it has parts.

    Parameters
    ----------
    graphs : sequence of PhysicalGraph
        Their components have the same names in DALiuGE.
    python : str, optional
        Interpreter of an environment with DALiuGE; by default one is installed for this measurement.
    """
    with tempfile.TemporaryDirectory() as directory:
        try:
            interpreter = python or _install(Path(directory) / "venv")
        except (_NotMeasured, OSError) as error:
            return {"available": False, "why": str(error)}
        rows = [_measured(interpreter, Path(directory) / str(number), graph) for number, graph in enumerate(graphs)]
        return {"available": True, "version": _version(interpreter), "rows": rows}


def _measured(interpreter: str, root: Path, graph: PhysicalGraph) -> dict[str, Any]:
    """Measure one graph on new managers, so that earlier graphs do not affect it."""
    parts = int(graph.part.max()) + 1
    row = {"nodes": parts, "drops": graph.drops}
    try:
        with _cluster(interpreter, root, parts) as (url, nodes):
            return {**row, **_run(url, nodes, graph)}
    except (_NotMeasured, OSError, ValueError) as error:
        return {**row, "ended": [f"unknown: {error}"]}


def _install(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    # DALiuGE imports pkg_resources, which later versions of setuptools do not have.
    command = [python, "-m", "pip", "install", "--quiet", "setuptools<81", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _NotMeasured(f"DALiuGE could not be installed: {done.stderr.strip()[-300:]}")
    return python


def _version(python: str) -> str:
    code = "import importlib.metadata as m; print(m.version('daliuge-engine'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def _cluster(python: str, root: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """Run an island with `count` node managers; yield its address and the names of the nodes."""
    root.mkdir()
    ports = _free_ports(3 * count + 1)
    nodes = [":".join(map(str, ["127.0.0.1", *ports[3 * number : 3 * number + 3]])) for number in range(count)]
    commands = []
    for number, node in enumerate(nodes):
        _, port, events, rpc = node.split(":")
        logs = root / f"node{number}"
        logs.mkdir()
        commands.append(["nm", "-H", "127.0.0.1", "-P", port, "--event_port", events, "--rpc_port", rpc, "-l", logs])
    (root / "island").mkdir()
    commands.append(["dim", "-H", "127.0.0.1", "-P", ports[-1], "-N", ",".join(nodes), "-l", root / "island"])
    environment = {**os.environ, "HOME": str(root), "DLG_ROOT": str(root / "dlg")}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            processes.append(
                subprocess.Popen(
                    [str(Path(python).parent / "dlg"), *map(str, command)],
                    env=environment,
                    cwd=root,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
            )
            _wait_for(f"http://127.0.0.1:{command[4]}", processes[-1])
        yield f"http://127.0.0.1:{ports[-1]}", nodes
    finally:
        for process in reversed(processes):
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in found]


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise _NotMeasured(f"a manager of DALiuGE ended with status {process.returncode} during its start")
        try:
            _request(url, "GET", "/api/sessions")
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        else:
            return
    raise _NotMeasured("a manager of DALiuGE did not answer in time")


def _request(url: str, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
    request = urllib.request.Request(url + path, body, {"Content-Type": kind}, method=method)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=_RUN_SECONDS) as answer:  # noqa: S310 - loopback
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise _NotMeasured(f"{method} {path}: {error.code} {error.read()[:300].decode(errors='replace')}") from error


def _run(url: str, nodes: list[str], graph: PhysicalGraph) -> dict[str, Any]:
    session, text = "bench", io.BytesIO()
    write_pg(graph, text, places=nodes)
    roots = np.flatnonzero(np.diff(graph.predecessors.ptr) == 0)
    nothing = threading.Event()
    started = time.perf_counter()
    _request(url, "POST", "/api/sessions", json.dumps({"sessionId": session}).encode())
    _request(url, "POST", f"/api/sessions/{session}/graph/append", text.getvalue())
    appended = time.perf_counter()
    form = "completed=" + ",".join(oids(graph, roots.astype(np.int32)))
    _request(url, "POST", f"/api/sessions/{session}/deploy", form.encode(), "application/x-www-form-urlencoded")
    while not (states := _states(url, session)) <= set(_ENDED):
        if time.perf_counter() - appended > _RUN_SECONDS:
            break
        nothing.wait(_POLL_SECONDS)
    ended = time.perf_counter()
    return {
        "ended": sorted(_ENDED.get(state, "not finished in time") for state in states),
        "append_s": round(appended - started, 3),
        # The graph starts to run during deployment, so the two cannot be measured separately.
        "deploy_and_run_s": round(ended - appended, 3),
        "drops_per_s": round(graph.drops / (ended - appended)),
    }


def _states(url: str, session: str) -> set[int]:
    answer = _request(url, "GET", f"/api/sessions/{session}/status")
    return set(answer.values()) if isinstance(answer, dict) else {answer}


def main() -> None:
    """Measure graphs of the given sizes, on one node and on two."""
    arguments = sys.argv[1:]
    python = None
    if arguments[:1] == ["--python"]:
        python, arguments = arguments[1], arguments[2:]
    graphs = [triples(size, nodes) for size in map(int, arguments or ("300", "3000")) for nodes in (1, 2)]
    print(json.dumps(measure(graphs, python), indent=2))


if __name__ == "__main__":
    main()
