"""Managers that are started one by one, as on several hosts, and find each other."""

import json
import shlex
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from dropflow.api.client import Client
from dropflow.api.http_client import ClientRequest, HttpTransport
from dropflow.errors import ConflictError
from tests.e2e.cluster import finished, underway, until
from tests.processes import Running, gone, run, words

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


# The tutorial "Three machines", on one machine: what it says about a node that is switched off.


def _commands(section: str) -> list[list[str]]:
    """Return the commands of a section of the tutorial as words, without the prompt and the name of the program."""
    text = (ROOT / "docs" / "tutorial" / "three-machines.md").read_text(encoding="utf-8")
    lines = text.split(f"## {section}\n")[1].split("\n## ")[0].replace("\\\n", " ").splitlines()
    return [shlex.split(line.partition("$ ")[2])[1:] for line in lines if "$ dropflow " in line]


@pytest.mark.exhaustive  # eight seconds of processor time; the losses of tests/e2e/test_losses.py stay in the CI
def test_a_session_goes_on_when_one_of_three_machines_is_switched_off(tmp_path: Path) -> None:
    """The commands of the page run as it says; its measurements sleep for a shorter time here."""
    submit, status, *_ = _commands("Now switch one off")
    submit = [word.replace("time.sleep(10)", "time.sleep(1)") for word in submit]
    submit[1] = str(ROOT / submit[1])
    more = ("--port", 0, "--workers", 1, "--lost-after", 3)
    with Running(tmp_path, "up", "--nodes", 3, *more) as up:
        submitted = run(tmp_path, *submit)
        with Client(up.ready["master"], token=up.ready["token"]) as client:
            assert underway(client, "second", 8)
            node = [one for one in up.family() if {"--name", "node-3"} <= set(words(one))]
            node[0].kill()
            detail = finished(client, "second", 60.0)
        shown = run(tmp_path, *status)

    assert (submitted.returncode, shown.returncode) == (0, 0), submitted.stderr
    assert (detail.status, detail.states, detail.members) == ("FINISHED", {"COMPLETED": 37}, ("node-1", "node-2"))
    assert "note: node node-3 is lost" in shown.stdout
    assert "FINISHED  37 drops" in shown.stdout
