"""Managers that are started one by one, as on several hosts, and find each other."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from dropflow.api.client import Client
from dropflow.api.http_client import ClientRequest, HttpTransport
from dropflow.errors import ConflictError
from tests.e2e.cluster import finished, underway, until
from tests.processes import Running, default_ports, gone, run

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[2]
ANY = ("--port", 0)
NODE = ("node", *ANY, "--links-port", 0)
_LOST_LATE = ("--suspect-after", 100, "--lost-after", 300)
"""On a busy machine the node without the key would be lost before the end: another finding of the doctor."""


def client(running: Running) -> Client:
    """Return a client of a manager that was started here."""
    return Client(running.ready["url"], token=running.ready["token"])


@pytest.mark.exhaustive
def test_managers_named_by_address_become_one_cluster(tmp_path: Path) -> None:
    """A graph submitted to a master runs on the nodes of its island; all are connected by address."""
    with (
        Running(tmp_path, *NODE, "--name", "a") as one,
        Running(tmp_path, *NODE, "--name", "b") as two,
        Running(tmp_path, "island", *ANY, "--nodes", f"{one.ready['url']},{two.ready['url']}") as island,
        Running(tmp_path, "master", *ANY, "--islands", island.ready["url"]) as master,
    ):
        graph = ROOT / "examples" / "nested-scatter-gather.graph"
        done = run(tmp_path, "submit", graph, "--to", master.ready["url"], "--wait", "--name", "s", "--random", 1)
        with client(one) as first, client(two) as second:
            parts = [manager.session("s").drops for manager in (first, second)]

    assert done.returncode == 0, done.stdout + done.stderr
    assert min(parts) > 0


@pytest.mark.exhaustive
def test_an_island_and_a_master_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    """After a restart they show all sessions, because they ask the nodes."""
    with Running(tmp_path, *NODE, "--name", "a") as node:
        with Running(tmp_path, "island", *ANY, "--name", "i", "--nodes", node.ready["url"]) as island:
            run(
                tmp_path,
                "submit",
                ROOT / "examples" / "hello.graph",
                "--to",
                island.ready["url"],
                "--name",
                "s",
                "--wait",
            )
            island.process.kill()
            island.process.wait()
        with Running(tmp_path, "island", *ANY, "--name", "i", "--nodes", node.ready["url"]) as again:
            done = run(tmp_path, "sessions", "--to", again.ready["url"])

    assert done.returncode == 0, done.stderr
    assert "FINISHED" in done.stdout


@pytest.mark.exhaustive
def test_hosts_only_have_the_key_in_common(tmp_path: Path) -> None:
    """Three homes and addresses: hosts with a copy of the key form the cluster, and doctor names a host without it."""
    homes = [tmp_path / name for name in "abc"]
    for home in homes:
        home.mkdir()
        run(home, "keys", "create")
    key = Path("config", "dropflow", "cluster.key")
    (homes[1] / key).write_bytes((homes[0] / key).read_bytes())
    graph = ROOT / "examples" / "nested-scatter-gather.graph"
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(Running(home, *NODE, "--host", f"127.0.0.{at + 1}", "--name", home.name))
            for at, home in enumerate(homes)
        ]
        urls = ",".join(node.ready["url"] for node in nodes)
        island = stack.enter_context(Running(homes[0], "island", *ANY, "--nodes", urls, *_LOST_LATE))
        to = ("--to", island.ready["url"])
        done = run(homes[1], "submit", graph, *to, "--random", 1, "--wait", "--output", "json")
        stranger = run(homes[2], "sessions", *to)
        doctor = run(homes[1], "doctor", *to)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (stranger.returncode, doctor.returncode) == (2, 1)
    for output in (stranger.stderr, doctor.stdout):
        assert "dropflow keys show" in output
    assert f"wrong: {nodes[2].ready['url']}" in doctor.stdout
    assert "1 finding" in doctor.stdout


def test_managers_find_each_other_by_zeroconf(tmp_path: Path) -> None:
    """With --discover, an island adds exactly the nodes that have its key."""
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    with (
        Running(tmp_path, "island", *ANY, "--discover") as island,
        Running(stranger, *NODE, "--name", "stranger", "--discover"),
        Running(tmp_path, *NODE, "--name", "found", "--discover"),
        client(island) as asked,
    ):
        assert until(lambda: [node.name for node in asked.nodes()] == ["found"]), island.errors


def test_a_daemon_starts_and_stops_managers(tmp_path: Path) -> None:
    """A daemon starts a node immediately, and its managers end with it."""
    with Running(tmp_path, "daemon", *ANY, "--start", "node", "--start", "island") as daemon:
        family = daemon.family()
        done = run(tmp_path, "sessions")
        status = daemon.stop()

    assert (done.returncode, status) == (0, 0), done.stderr + daemon.errors
    assert len(family) >= 3
    assert gone(family)


def test_a_master_starts_and_stops_managers_through_a_daemon(tmp_path: Path) -> None:
    """At DALiuGE's paths: a node, an island of it that is the master's child then, and their ends."""
    run(tmp_path, "keys", "create")
    with Running(tmp_path, "master", *ANY) as master, Running(tmp_path, "daemon", *ANY) as daemon:
        there = f"/api/managers/{daemon.ready['url'].partition('//')[2]}"

        def ask(method: str, path: str, body: bytes = b"") -> Any:
            with closing(
                HttpTransport(master.ready["url"], token=master.ready["token"], secret=None, timeout=60)
            ) as http:
                return json.loads(http.ask(ClientRequest(method, f"{there}{path}", body=[body]))[1])

        before = ask("GET", "/node")
        started = ask("POST", "/node/start")
        found = ask("GET", "/node")
        islands = ask("POST", "/island", b'{"nodes": []}')
        with client(master) as asked:
            children = [child.role for child in asked.children()]
        with pytest.raises(ConflictError, match="runs already"):
            ask("POST", "/node/start")
        stopped = ask("POST", "/node/stop")
        after = ask("GET", "/node")

    assert before == after == {"pid": None}
    assert (started == found, stopped, children) == (True, {"Status": "Success"}, ["island"])
    assert len(islands["islands"]) == 1


def test_a_manager_that_cannot_start_ends_the_daemon_with_the_reason(tmp_path: Path) -> None:
    """With a port in use the daemon ends with status 2 and the reason, and leaves nothing behind."""
    with Running(tmp_path, "island", "--port", 0) as island:
        port = int(island.ready["url"].rpartition(":")[2])
        done = run(tmp_path, "daemon", "--port", port)

    assert done.returncode == 2
    assert str(port) in done.stderr


# The tutorial "Three machines", on one machine.


_SSH = """#!/bin/sh
[ "$1" = -L ] && exit
cd "{homes}/$1" && shift && HOME=$PWD exec sh -c "$*"
"""
_SCP = """#!/bin/sh
exec cp -p "$2" "{homes}/$(echo "$3" | tr : /)"
"""


@pytest.mark.exhaustive  # half a minute of processor time; the losses of tests/e2e/test_losses.py stay in the CI
def test_the_tutorial_of_three_machines_is_as_it_says(tmp_path: Path) -> None:
    """Its commands run one after another, on three addresses of this machine; a node is killed before the last one.

    Its measurements sleep for a shorter time here.
    """
    text = (ROOT / "docs" / "tutorial" / "three-machines.md").read_text(encoding="utf-8").replace("\\\n", " ")
    text = text.replace("10.0.0.", "127.0.0.").replace("time.sleep(10)", "time.sleep(1)")
    steps = re.findall(r"^(alpha|beta|gamma|laptop)\$ +(.*)", text, re.MULTILINE)
    programs = tmp_path / "bin"
    for home in (programs, *(tmp_path / host for host in ("alpha", "beta", "gamma", "laptop"))):
        home.mkdir()
    for name, script in (("ssh", _SSH), ("scp", _SCP)):
        (programs / name).write_text(script.format(homes=tmp_path))
        (programs / name).chmod(0o755)
    shutil.copytree(ROOT / "examples", tmp_path / "beta" / "examples")
    variables = {"PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    with ExitStack() as stack:
        stack.enter_context(default_ports())
        running: dict[str, tuple[subprocess.Popen[bytes], dict[str, str]]] = {}
        for host, command in steps:
            home: dict[str, Any] = {"cwd": tmp_path / host, "env": variables | {"HOME": str(tmp_path / host)}}
            if re.match("dropflow (node|island|translator) ", command):
                process = subprocess.Popen(
                    ["/bin/bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **home
                )
                stack.enter_context(process)  # waits for it, and closes the pipe
                stack.callback(process.terminate)
                assert process.stdout is not None
                running[f"{host} {command.split()[1]}"] = process, json.loads(process.stdout.readline())
                continue
            if command == "dropflow watch second --once":
                ready = running["alpha island"][1]
                island = stack.enter_context(Client(ready["url"], token=ready["token"]))
                assert underway(island, "second", 8)
                running["gamma node"][0].kill()
            if command.startswith("export "):
                variables |= dict([command.removeprefix("export ").split("=", 1)])
                continue
            done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False, **home)

            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        detail = finished(island, "second", 120.0)

    assert (detail.status, detail.states, detail.members) == ("FINISHED", {"COMPLETED": 37}, ("alpha", "beta"))
    assert any("node gamma is lost" in note for note in detail.notes)
    assert list((tmp_path / "beta" / "picture").rglob("*"))
