"""A content that goes from one host to another through ``--tunnel``. Prints one JSON object.

Hosts are network namespaces with a server of ssh each; all of them, and this one, let in nothing else. A session writes
a sparse file on one host and reads it on the other; another session has one byte, and the difference of their times is
that of the content. The references are the same bytes by ``ssh one cat FILE | ssh other cat``, which also pass this
host (less the time of one byte), and by the links of managers without a tunnel.

Run as root: ``python benchmarks/tunnel.py [--megabytes 500] [--repeats 3]``.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import save
from tests.e2e.launched import Launched, running_ssh
from tests.e2e.network import Network
from tests.streaming_graphs import bash

HOSTS = ("alpha", "beta")


def _graph(size: int, path: Path) -> Path:
    """Save a graph that makes a file of so many bytes on one host, and counts them on the other."""
    drawing = GraphBuilder("content")
    drawing.app("MAKE", **bash("BashShellApp", f"truncate -s {size} %o0"), part=0)
    drawing.data("made", component="dlg.data.drops.file.FileDROP", part=0)
    drawing.app("COUNT", **bash("BashShellApp", "wc -c <%i0 >%o0"), part=1)
    drawing.data("count", component="dlg.data.drops.file.FileDROP", part=1)
    drawing.connect("MAKE", "made").connect("made", "COUNT").connect("COUNT", "count")
    save(replace(drawing.build(), places=HOSTS), path)
    return path


def _content(ssh: Launched, size: int, repeats: int) -> float:
    """Return the shortest time of a session with so many bytes, in the cluster that runs."""
    graph = _graph(size, ssh.home / f"{size}.dfg")
    command = f"dropflow submit {graph} --wait --output json"
    return min(float(json.loads(ssh.shell(command))["seconds"]) for _ in range(repeats))


def _cluster(ssh: Launched, option: str, size: int, repeats: int) -> float:
    """Return how long a content takes in a cluster with this option."""
    ssh.shell(f"dropflow up --hosts hosts.toml --port 0 {option} >up.json 2>up.txt &")
    ssh.until("cat up.json", '"ready":true')
    seconds = _content(ssh, size, repeats) - _content(ssh, 1, repeats)
    ssh.shell("dropflow down")
    return seconds


def _plain(ssh: Launched, size: int) -> float:
    """Return how long the bytes take through two ssh."""
    ssh.shell(f"truncate -s {size} plain")
    began = time.perf_counter()
    ssh.shell(f"ssh alpha cat {ssh.home}/plain | ssh beta 'cat >/dev/null'")
    return time.perf_counter() - began


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    size = given.megabytes * 1_000_000
    with tempfile.TemporaryDirectory() as home:
        ssh = Launched(Path(home), "ssh")
        del ssh.environment["DROPFLOW_TOKEN"]
        lines = [f'directory = "{home}/nodes"', "workers = 1", *(f"[hosts.{name}]" for name in HOSTS)]
        (ssh.home / "hosts.toml").write_text("\n".join(lines))
        with Network(len(HOSTS) + 1) as network, running_ssh(ssh, network):
            tunnel = _cluster(ssh, "--tunnel", size, given.repeats)
            plain, start = (min(_plain(ssh, each) for _ in range(given.repeats)) for each in (size, 1))
            for host in range(network.hosts):
                network.heal(host)
            links = _cluster(ssh, "", size, given.repeats)
    rates = {
        name: round(given.megabytes / took) for name, took in (("tunnel", tunnel), ("ssh", plain), ("links", links))
    }
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    json.dump(
        {**machine, "megabytes per second": rates, "share of ssh": round((plain - start) / tunnel, 2)},
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
