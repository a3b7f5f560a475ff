"""Processes that stay: what they say when they are ready, where they listen, who sees their secrets, how they end."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.cli.connection import ConnectionOptions, connect_to
from dropflow.rest.auth import is_loopback
from dropflow.rest.client import Client
from dropflow.rest.schema import DropQuery
from managers.keys import create
from tests.drawn_graphs import data, draw, function
from tests.filling import fill
from tests.processes import Running, gone, listening, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One node manager for all tests of this module that only look."""
    with Running(tmp_path_factory.mktemp("node"), "node", "--port", 0, "--links-port", 0, "--name", "n1") as running:
        yield running


def records(home: Path) -> list[Path]:
    """The records of running managers."""
    return sorted((home / "state" / "dropflow" / "tokens").glob("*/*"))


def test_the_ready_line_is_one_json_object(node: Running) -> None:
    """Role, address and token; the address answers who has the token."""
    assert node.ready.keys() == {"ready", "role", "url", "token"}
    assert (node.ready["ready"], node.ready["role"]) == (True, "node")
    with Client(node.ready["url"], token=node.ready["token"]) as client:
        assert client.info().name == "n1"


def test_people_get_the_address_with_the_token_in_its_fragment_once(node: Running) -> None:
    """A fragment is not sent by browsers, so it ends in no log of a server."""
    assert node.errors.count(node.ready["token"]) == 1
    assert f"{node.ready['url']}/login#{node.ready['token']}" in node.errors


def test_everything_listens_on_loopback(node: Running) -> None:
    """REST, links and workers: no socket of the family can be reached from other hosts."""
    sockets = listening(node.family())

    assert len(sockets) >= 2
    assert [address for address, _ in sockets if not is_loopback(address)] == []


def test_nobody_else_sees_the_token_or_the_key(node: Running) -> None:
    """Neither stands in the arguments or the environment of any process; their files are for the owner only."""
    key = node.home / "config" / "dropflow" / "cluster.key"
    secret = key.read_text().split("secret ")[1].strip()
    told = [" ".join([*each.cmdline(), *each.environ().values()]) for each in node.family()]

    assert [text for text in told if node.ready["token"] in text or secret in text] == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in [*records(node.home), key]] == [0o600, 0o600]


def test_commands_on_the_same_host_find_the_manager(node: Running) -> None:
    """No address and no token need be given."""
    done = run(node.home, "nodes", "--output", "json")

    assert done.returncode == 0, done.stderr
    assert '"n1"' in done.stdout


def test_the_cluster_key_lets_in_where_no_token_is_known(node: Running, tmp_path: Path) -> None:
    """Another host has only the key: its commands sign."""
    key = node.home / "config" / "dropflow" / "cluster.key"
    done = run(tmp_path, "nodes", "--to", node.ready["url"], "--key", key)
    without = run(tmp_path, "nodes", "--to", node.ready["url"])

    assert done.returncode == 0, done.stderr
    assert without.returncode == 2
    assert "token" in without.stderr


def test_a_second_manager_in_the_same_directory_is_refused(node: Running) -> None:
    """It would spoil the sessions of the first one."""
    done = run(node.home, "node", "--port", 0, "--links-port", 0, "--name", "n1")

    assert done.returncode == 2
    assert "another manager uses this directory" in done.stderr


def test_a_port_that_is_taken_is_told(node: Running) -> None:
    """The address is named, with what to do, and the status is 1."""
    port = node.ready["url"].rpartition(":")[2]
    done = run(node.home, "node", "--port", port, "--links-port", 0, "--name", "n2")

    assert done.returncode == 1
    assert port in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize("role", ["node", "island", "master", "translator", "daemon"])
def test_beyond_loopback_a_key_is_demanded(role: str, tmp_path: Path) -> None:
    """Without a cluster key nothing listens where others could reach it, and the message says how to get one."""
    done = run(tmp_path, role, "--host", "0.0.0.0", "--port", 0)  # noqa: S104 - it is refused

    assert done.returncode == 2
    assert "cluster key" in done.stderr
    assert "dropflow keys create" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("role", ["node", "island", "master", "translator", "daemon"])
def test_no_auth_is_for_loopback_only(role: str, tmp_path: Path) -> None:
    """With a key, too: a server without a token is refused on every address that others can reach."""
    create(tmp_path / "config" / "dropflow" / "cluster.key")
    done = run(tmp_path, role, "--host", "0.0.0.0", "--port", 0, "--no-auth")  # noqa: S104 - it is refused

    assert done.returncode == 2
    assert "--no-auth is for loopback only" in done.stderr


def test_beyond_loopback_a_token_is_asked_for(tmp_path: Path) -> None:
    """With a key, a server on all addresses begins, and lets in only who has the token or the key."""
    create(tmp_path / "config" / "dropflow" / "cluster.key")
    host = "0.0.0.0"  # noqa: S104 - for the length of this test
    with Running(tmp_path, "island", "--host", host, "--port", 0, "--advertise", "127.0.0.1") as island:
        done = run(tmp_path, "sessions")
        stranger = run(tmp_path, "sessions", DROPFLOW_TOKEN="guessed", DROPFLOW_URL=island.ready["url"])  # noqa: S106

    assert (done.returncode, stranger.returncode) == (0, 2)


def test_no_auth_lets_every_user_of_the_host_in(tmp_path: Path) -> None:
    """The ready line has no token, and none is asked for."""
    with Running(tmp_path, "island", "--port", 0, "--no-auth") as island:
        assert island.ready["token"] is None
        with connect_to(island.ready["url"], ConnectionOptions(key=None)) as client:
            assert client.sessions() == ()


def test_a_token_can_be_given_by_file(tmp_path: Path) -> None:
    """The file must be its owner's only."""
    path = tmp_path / "token"
    path.write_text("given-token\n")
    path.chmod(0o644)
    refused = run(tmp_path, "island", "--port", 0, "--token-file", path)
    path.chmod(0o600)
    with Running(tmp_path, "island", "--port", 0, "--token-file", path) as island:
        assert island.ready["token"] == "given-token"  # noqa: S105

    assert refused.returncode == 2
    assert "other users can read" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    """Status 0, no record, no process, no socket."""
    with Running(tmp_path, "node", "--port", 0, "--links-port", 0) as running:
        family = running.family()
        before = records(tmp_path)
        status = running.stop(number)

    assert (status, len(before)) == (0, 1)
    assert records(tmp_path) == []
    assert gone(family)
    assert "Traceback" not in running.errors


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """When the other end of the watched pipe is closed, however that came, it ends cleanly."""
    reader, writer = os.pipe()
    with Running(
        tmp_path, "node", "--port", 0, "--links-port", 0, "--watch-parent", reader, pass_fds=[reader]
    ) as running:
        os.close(reader)
        family = running.family()
        os.close(writer)

        assert running.process.wait(30) == 0
    assert gone(family)
    assert records(tmp_path) == []


def test_a_node_starts_again_on_a_full_disk_and_serves_its_results(small_disk: Path, tmp_path: Path) -> None:
    """Its root, its key and the records of managers are on the full disk, and what it wrote to before it was killed."""
    home = small_disk / "home"
    links = {name: tmp_path / name for name in ("state", "config")}
    home.mkdir()
    for name, link in links.items():
        (home / name).mkdir()
        link.symlink_to(home / name)
    command = ("node", "--port", 0, "--links-port", 0, "--name", "full", "--workers", 1)
    graph = draw(tmp_path / "g.graph", [function("F", "def F():\n    return 'kept'"), data("leaf")], "F > leaf")
    with Running(tmp_path, *command) as first:
        done = run(tmp_path, "submit", graph, "--session", "s", "--wait", "--to", first.ready["url"])
        first.stop(signal.SIGKILL)
    fill(small_disk / "filler")
    with Running(tmp_path, *command) as again, Client(again.ready["url"], token=again.ready["token"]) as client:
        status = client.session("s").status
        leaf = next(drop.oid for drop in client.drops("s", DropQuery()).drops if "leaf" in drop.oid)
        content = b"".join(client.data("s", leaf).chunks)
        fetched = run(tmp_path, "fetch", "s", "--to", again.ready["url"])
        errors = again.errors
        ended = again.stop()

    assert done.returncode == 0, done.stderr
    assert (status, b"kept" in content, fetched.returncode, ended) == ("FINISHED", True, 0, 0)
    assert f"commands on this host need --to {again.ready['url']}" in errors


def test_the_log_can_be_a_file_of_json(tmp_path: Path) -> None:
    """With --log-file, standard error has only what is for people."""
    with Running(
        tmp_path, "island", "--port", 0, "--log-file", "my.log", "--log-json", "--log-level", "debug"
    ) as island:
        run(tmp_path, "sessions")
        token = island.ready["token"]

    assert token not in (tmp_path / "my.log").read_text()
    assert [line for line in island.errors.splitlines() if not line.startswith("open in a browser")] == []


def test_keys_are_made_once_and_shown_by_their_fingerprint(tmp_path: Path) -> None:
    """A key is never overwritten, and no command prints its secret."""
    made, again, shown = (run(tmp_path, "keys", command) for command in ("create", "create", "show"))
    secret = (tmp_path / "config" / "dropflow" / "cluster.key").read_text().split("secret ")[1].strip()

    assert (made.returncode, again.returncode, shown.returncode) == (0, 2, 0)
    assert made.stdout.split()[2] == shown.stdout.split()[2]
    assert secret not in made.stdout + made.stderr + again.stderr + shown.stdout
