"""Server processes: their ready line, addresses, secrets, logs and end."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.api.client import Client
from dropflow.api.error_body import is_loopback
from dropflow.api.records import DropQuery
from dropflow.cli.connection import connect_to
from dropflow.cli.manager_options import ConnectionOptions
from managers.keys import create
from tests.drawn_graphs import data, draw, function
from tests.filling import fill
from tests.processes import Running, gone, listening, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A node manager for all tests that do not change it."""
    with Running(tmp_path_factory.mktemp("node"), "node", "--port", 0, "--links-port", 0, "--name", "n1") as running:
        yield running


def records(home: Path) -> list[Path]:
    """Return the records of running managers."""
    return sorted((home / "state" / "dropflow" / "tokens").glob("*/*"))


def test_the_ready_line_is_one_json_object(node: Running) -> None:
    """It has role, address and token, and the manager answers requests with this token."""
    assert node.ready.keys() == {"ready", "role", "url", "token"}
    assert (node.ready["ready"], node.ready["role"]) == (True, "node")
    with Client(node.ready["url"], token=node.ready["token"]) as client:
        assert client.info().name == "n1"


def test_the_address_for_the_browser_has_the_token_in_its_fragment(node: Running) -> None:
    """Browsers do not send fragments, so the token is in no log of a server."""
    assert node.errors.count(node.ready["token"]) == 1
    assert f"{node.ready['url']}/login#{node.ready['token']}" in node.errors


def test_everything_listens_on_loopback(node: Running) -> None:
    """No socket of REST, links or workers can be reached from other hosts."""
    sockets = listening(node.family())

    assert len(sockets) >= 2
    assert [address for address, _ in sockets if not is_loopback(address)] == []


def test_other_users_do_not_see_the_token_or_the_key(node: Running) -> None:
    """They are in no arguments and no environment of a process, and only the owner can read their files."""
    key = node.home / "config" / "dropflow" / "cluster.key"
    secret = key.read_text().split("secret ")[1].strip()
    seen = [" ".join([*each.cmdline(), *each.environ().values()]) for each in node.family()]

    assert [text for text in seen if node.ready["token"] in text or secret in text] == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in [*records(node.home), key]] == [0o600, 0o600]


def test_commands_on_the_same_host_find_the_manager(node: Running) -> None:
    """They need no address and no token."""
    done = run(node.home, "nodes", "--output", "json")

    assert done.returncode == 0, done.stderr
    assert '"n1"' in done.stdout


def test_commands_on_other_hosts_need_only_the_cluster_key(node: Running, tmp_path: Path) -> None:
    """They sign their requests with it."""
    key = node.home / "config" / "dropflow" / "cluster.key"
    done = run(tmp_path, "nodes", "--to", node.ready["url"], "--key", key)
    without = run(tmp_path, "nodes", "--to", node.ready["url"])

    assert done.returncode == 0, done.stderr
    assert without.returncode == 2
    assert "token" in without.stderr


def test_two_managers_cannot_use_one_directory(node: Running) -> None:
    """The second one does not start."""
    done = run(node.home, "node", "--port", 0, "--links-port", 0, "--name", "n1")

    assert done.returncode == 2
    assert "another manager uses this directory" in done.stderr


def test_a_port_that_is_in_use(node: Running) -> None:
    """The message has the port and the option to choose another one; the exit status is 2."""
    port = node.ready["url"].rpartition(":")[2]
    done = run(node.home, "node", "--port", port, "--links-port", 0, "--name", "n2")

    assert done.returncode == 2
    assert port in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize("role", ["node", "island", "master", "translator", "daemon"])
def test_listening_beyond_loopback_needs_a_key(role: str, tmp_path: Path) -> None:
    """Without a cluster key the process does not start, and the message says how to make one."""
    done = run(tmp_path, role, "--host", "0.0.0.0", "--port", 0)  # noqa: S104 - it is refused

    assert done.returncode == 2
    assert "cluster key" in done.stderr
    assert "dropflow keys create" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("role", ["node", "island", "master", "translator", "daemon"])
def test_no_auth_is_for_loopback_only(role: str, tmp_path: Path) -> None:
    """A server without a token cannot listen beyond loopback, not even with a cluster key."""
    create(tmp_path / "config" / "dropflow" / "cluster.key")
    done = run(tmp_path, role, "--host", "0.0.0.0", "--port", 0, "--no-auth")  # noqa: S104 - it is refused

    assert done.returncode == 2
    assert "--no-auth is for loopback only" in done.stderr


def test_listening_beyond_loopback_needs_a_token(tmp_path: Path) -> None:
    """With a cluster key the process starts; requests need the token or a signature."""
    create(tmp_path / "config" / "dropflow" / "cluster.key")
    host = "0.0.0.0"  # noqa: S104 - for the length of this test
    with Running(tmp_path, "island", "--host", host, "--port", 0, "--advertise", "127.0.0.1") as island:
        done = run(tmp_path, "sessions")
        stranger = run(tmp_path, "sessions", DROPFLOW_TOKEN="guessed", DROPFLOW_URL=island.ready["url"])  # noqa: S106

    assert (done.returncode, stranger.returncode) == (0, 2)


def test_no_auth_needs_no_token(tmp_path: Path) -> None:
    """The ready line has no token, and requests need none."""
    with Running(tmp_path, "island", "--port", 0, "--no-auth") as island:
        assert island.ready["token"] is None
        with connect_to(island.ready["url"], ConnectionOptions(key=None)) as client:
            assert client.sessions() == ()


def test_the_token_survives_a_restart(tmp_path: Path) -> None:
    """Browsers stay signed in when a manager is started again, unless it makes a new token."""
    found = []
    for more in ((), (), ("--new-token",)):
        with Running(tmp_path, "island", "--port", 0, *more) as island:
            found.append(island.ready["token"])

    assert (found[0] == found[1], found[1] == found[2]) == (True, False)


def test_a_token_can_be_given_by_file(tmp_path: Path) -> None:
    """Only its owner may be able to read the file."""
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
def test_a_signal_ends_the_process_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    """The exit status is 0, and no record, process or socket is left."""
    with Running(tmp_path, "node", "--port", 0, "--links-port", 0) as running:
        family = running.family()
        before = records(tmp_path)
        status = running.stop(number)

    assert (status, len(before)) == (0, 1)
    assert records(tmp_path) == []
    assert gone(family)
    assert "Traceback" not in running.errors


def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """It ends cleanly when the other end of the watched pipe is closed."""
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
    """Its directory, its key and the records of managers are on the full disk."""
    home = small_disk / "home"
    links = {name: tmp_path / name for name in ("state", "config")}
    home.mkdir()
    for name, link in links.items():
        (home / name).mkdir()
        link.symlink_to(home / name)
    command = ("node", "--port", 0, "--links-port", 0, "--name", "full", "--workers", 1)
    graph = draw(tmp_path / "g.graph", [function("F", "def F():\n    return 'kept'"), data("leaf")], "F > leaf")
    with Running(tmp_path, *command) as first:
        done = run(tmp_path, "submit", graph, "--name", "s", "--wait", "--to", first.ready["url"])
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
    """With --log-file, standard error has only messages for people."""
    with Running(
        tmp_path, "island", "--port", 0, "--log-file", "my.log", "--log-json", "--log-level", "debug"
    ) as island:
        run(tmp_path, "sessions")
        token = island.ready["token"]

    assert token not in (tmp_path / "my.log").read_text()
    assert [line for line in island.errors.splitlines() if not line.startswith("open in a browser")] == []


def test_keys_are_made_once_and_shown_by_their_fingerprint(tmp_path: Path) -> None:
    """An existing key is not overwritten, and no command prints a key."""
    made, again, shown = (run(tmp_path, "keys", command) for command in ("create", "create", "show"))
    secret = (tmp_path / "config" / "dropflow" / "cluster.key").read_text().split("secret ")[1].strip()

    assert (made.returncode, again.returncode, shown.returncode) == (0, 2, 0)
    assert made.stdout.split()[2] == shown.stdout.split()[2]
    assert secret not in made.stdout + made.stderr + again.stderr + shown.stdout
