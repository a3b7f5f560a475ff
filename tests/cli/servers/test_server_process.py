"""Server processes: ready line, addresses, options, logs, systemd and end."""

import errno
import functools
import json
import logging
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dropflow.api.addresses import is_loopback
from dropflow.api.client import Client
from dropflow.api.drop_records import DropQuery
from dropflow.api.signing import UserKey
from dropflow.cli.servers.local_cluster import UpOptions
from dropflow.cli.servers.local_cluster import run as server_options_run
from dropflow.cli.servers.server_process import browser_url, start_logging
from dropflow.cli.servers.service import unit_text
from dropflow.errors import HttpError, NotFoundError, StorageError
from dropflow.submission.connection import connect_to
from dropflow.submission.options import ConnectionOptions
from managers.child_processes import ChildProcesses
from managers.keys import create, load_any
from tests.cli.answers import Answer, Command
from tests.drawn_graphs import data, draw, function
from tests.filling import fill
from tests.nightly import nightly
from tests.processes import Running, environment, gone, listening, run, words


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A node manager for all tests that do not change it."""
    with Running(tmp_path_factory.mktemp("node"), "node", "--port", 0, "--links-port", 0, "--name", "n1") as running:
        yield running


@pytest.fixture
def asked(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``dropflow`` in this process, with the variables that `run` gives it in a home directory."""

    def ask(home: Path, *arguments: object, **more: str) -> Answer:
        with monkeypatch.context() as changed:
            for name in [name for name in os.environ if name.startswith("DROPFLOW_")]:
                changed.delenv(name)
            for name, value in {**environment(home), **more}.items():
                changed.setenv(name, value)
            return command(*arguments)

    return ask


def records(home: Path) -> list[Path]:
    """Return the records of running managers."""
    return sorted((home / "state" / "dropflow" / "tokens").glob("*/*"))


@pytest.mark.slow
def test_the_ready_line_is_one_json_object(node: Running) -> None:
    """It has role, address and token, and the manager answers requests with this token."""
    assert node.ready.keys() == {"ready", "role", "url", "token"}
    assert (node.ready["ready"], node.ready["role"]) == (True, "node")
    with Client(node.ready["url"], token=node.ready["token"]) as client:
        assert client.info().name == "n1"


@pytest.mark.slow
def test_the_address_for_the_browser_has_the_token_in_its_fragment(node: Running) -> None:
    """Browsers do not send fragments, so the token is in no log of a server."""
    assert node.errors.count(node.ready["token"]) == 1
    assert f"{node.ready['url']}/login#{node.ready['token']}" in node.errors


@pytest.mark.slow
def test_everything_listens_on_loopback(node: Running) -> None:
    """No socket of REST, links or workers can be reached from other hosts."""
    sockets = listening(node.family())

    assert len(sockets) >= 2
    assert [address for address, _ in sockets if not is_loopback(address)] == []


@pytest.mark.slow
def test_a_token_of_any_signs_is_whole_in_the_address_for_the_browser() -> None:
    """The script of the login decodes it: one that was chosen for --token-file may have a percent sign."""
    assert browser_url("http://h:1", "50%41 #x=y") == "http://h:1/login#50%2541%20%23x%3Dy"
    assert browser_url("http://h:1", "aZ9-_") == "http://h:1/login#aZ9-_"


@pytest.mark.slow
def test_other_users_do_not_see_the_token_or_the_key(node: Running) -> None:
    """They are in no arguments and no environment of a process, and only the owner can read their files."""
    key = node.home / "config" / "dropflow" / "cluster.key"
    secret = key.read_text().split("secret ")[1].strip()
    seen = [" ".join(words(each)) for each in node.family()]

    assert [text for text in seen if node.ready["token"] in text or secret in text] == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in [*records(node.home), key]] == [0o600, 0o600]


@pytest.mark.slow
def test_commands_on_the_same_host_find_the_manager(asked: Command, node: Running) -> None:
    """They need no address and no token."""
    done = asked(node.home, "nodes", "--output", "json")

    assert done.status == 0, done.err
    assert '"n1"' in done.text


@pytest.mark.slow
def test_commands_on_other_hosts_need_only_the_cluster_key(asked: Command, node: Running, tmp_path: Path) -> None:
    """They sign their requests with it."""
    key = node.home / "config" / "dropflow" / "cluster.key"
    done = asked(tmp_path, "nodes", "--to", node.ready["url"], "--key", key)
    without = asked(tmp_path, "nodes", "--to", node.ready["url"])

    assert done.status == 0, done.err
    assert without.status == 2
    assert "token" in without.err


@pytest.mark.slow
def test_a_user_has_a_key_that_can_be_revoked(asked: Command, node: Running, tmp_path: Path) -> None:
    """A manager accepts it, logs the name with each change, and refuses it once it is revoked, but no later one."""

    def made(name: str) -> UserKey:
        done = asked(node.home, "keys", "user", "alice", "--save", tmp_path / name)
        assert done.status == 0, done.err
        key = load_any(tmp_path / name)
        assert isinstance(key, UserKey)
        assert key.secret.decode() not in done.text + done.err
        return key

    def cancels(key: UserKey) -> None:
        with Client(node.ready["url"], secret=key) as client:
            client.cancel("none")

    first = made("first.key")
    seen = asked(node.home, "nodes", "--key", tmp_path / "first.key")
    assert seen.status == 0, seen.err
    shown = asked(node.home, "keys", "show", DROPFLOW_KEY=str(tmp_path / "first.key"))
    assert shown.text.startswith("key of user alice ")
    with pytest.raises(NotFoundError, match="none"):
        cancels(first)
    assert asked(node.home, "keys", "revoke", "alice").status == 0
    with pytest.raises(HttpError, match="the key of user alice is revoked"):
        cancels(first)
    with pytest.raises(NotFoundError, match="none"):
        cancels(made("second.key"))

    log = (node.home / "state" / "dropflow" / "n1" / "manager.log").read_text()
    rows = [line for line in log.splitlines() if "dropflow.audit: POST /api/v1/sessions/none/cancel" in line]
    assert [(" credential=user-key user=alice " in row, row.rpartition("status=")[2]) for row in rows] == [
        (True, "404"),
        (False, "403"),
        (True, "404"),
    ]
    assert "/cancel: the key of user alice is revoked" in rows[1]


@pytest.mark.slow
def test_two_managers_cannot_use_one_directory(node: Running) -> None:
    """The second one does not start."""
    done = run(node.home, "node", "--port", 0, "--links-port", 0, "--name", "n1")

    assert done.returncode == 2
    assert "another manager uses this directory" in done.stderr


@pytest.mark.slow
def test_a_port_that_is_in_use(node: Running) -> None:
    """The message has the port and the option to choose another one; the exit status is 2."""
    port = node.ready["url"].rpartition(":")[2]
    done = run(node.home, "node", "--port", port, "--links-port", 0, "--name", "n2")

    assert done.returncode == 2
    assert port in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize("role", ["node", "island", "master", "translator", "daemon"])
def test_listening_beyond_loopback_needs_a_key(role: str, dropflow: Command) -> None:
    """Without a cluster key the process does not start, and the message says how to make one."""
    answer = dropflow(role, "--host", "0.0.0.0", "--port", 0)  # noqa: S104 - it is refused

    assert answer.status == 2
    assert "cluster key" in answer.err
    assert "dropflow keys create" in answer.err
    assert answer.out == b""


@pytest.mark.parametrize("role", ["node", "island", "master", "translator", "daemon"])
def test_no_auth_is_for_loopback_only(role: str, dropflow: Command, home: Path) -> None:
    """A server without a token cannot listen beyond loopback, not even with a cluster key."""
    create(home / "XDG_CONFIG_HOME" / "dropflow" / "cluster.key")
    answer = dropflow(role, "--host", "0.0.0.0", "--port", 0, "--no-auth")  # noqa: S104 - it is refused

    assert answer.status == 2
    assert "--no-auth is for loopback only" in answer.err


@pytest.mark.slow
def test_listening_beyond_loopback_needs_a_token(asked: Command, tmp_path: Path) -> None:
    """With a cluster key the process starts; requests need the token or a signature."""
    create(tmp_path / "config" / "dropflow" / "cluster.key")
    host = "0.0.0.0"  # noqa: S104 - for the length of this test
    with Running(tmp_path, "island", "--host", host, "--port", 0, "--advertise", "127.0.0.1") as island:
        done = asked(tmp_path, "sessions")
        stranger = asked(tmp_path, "sessions", DROPFLOW_TOKEN="guessed", DROPFLOW_URL=island.ready["url"])

    assert (done.status, stranger.status) == (0, 2)


@pytest.mark.slow
def test_no_auth_needs_no_token(tmp_path: Path) -> None:
    """The ready line has no token, and requests need none."""
    with Running(tmp_path, "island", "--port", 0, "--no-auth") as island:
        assert island.ready["token"] is None
        with connect_to(island.ready["url"], ConnectionOptions(key=None)) as client:
            assert client.sessions() == ()


@pytest.mark.slow
def test_the_token_survives_a_restart(tmp_path: Path) -> None:
    """Browsers stay signed in when a manager is started again, unless it makes a new token."""
    found = []
    for more in ((), (), ("--new-token",)):
        with Running(tmp_path, "island", "--port", 0, *more) as island:
            found.append(island.ready["token"])

    assert (found[0] == found[1], found[1] == found[2]) == (True, False)


@pytest.mark.slow
def test_a_token_can_be_given_by_file(asked: Command, tmp_path: Path) -> None:
    """Only its owner may be able to read the file."""
    path = tmp_path / "token"
    path.write_text("given-token\n")
    path.chmod(0o644)
    refused = asked(tmp_path, "island", "--port", 0, "--token-file", path)
    path.chmod(0o600)
    with Running(tmp_path, "island", "--port", 0, "--token-file", path) as island:
        assert island.ready["token"] == "given-token"

    assert refused.status == 2
    assert "other users can read" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, *nightly(signal.SIGINT, signal.SIGHUP)])
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


@pytest.mark.slow
def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """It ends cleanly when the other end of the watched pipe is closed."""
    reader, writer = os.pipe()
    with Running(
        tmp_path, "node", "--port", 0, "--links-port", 0, "--watch-parent", reader, pass_fds=[reader]
    ) as running:
        os.close(reader)
        family = running.family()
        os.close(writer)

        assert running.process.wait(120) == 0
    assert gone(family)
    assert records(tmp_path) == []


@pytest.mark.slow
def test_a_node_starts_again_on_a_full_disk_and_serves_its_results(
    asked: Command, small_disk: Path, tmp_path: Path
) -> None:
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
        done = asked(tmp_path, "submit", graph, "--name", "s", "--wait", "--to", first.ready["url"])
        first.stop(signal.SIGKILL)
    fill(small_disk / "filler")
    with Running(tmp_path, *command) as again, Client(again.ready["url"], token=again.ready["token"]) as client:
        status = client.session("s").status
        leaf = next(drop.oid for drop in client.drops("s", DropQuery()).drops if "leaf" in drop.oid)
        content = b"".join(client.data("s", leaf).chunks)
        fetched = run(tmp_path, "fetch", "s", "--to", again.ready["url"])
        errors = again.errors
        ended = again.stop()

    assert done.status == 0, done.err
    assert (status, b"kept" in content, fetched.returncode, ended) == ("FINISHED", True, 0, 0)
    assert f"commands on this host need --to {again.ready['url']}" in errors


@pytest.mark.slow
def test_the_log_can_be_a_file_of_json(asked: Command, tmp_path: Path) -> None:
    """With --log-file, standard error has only messages for people."""
    with Running(
        tmp_path, "island", "--port", 0, "--log-file", "my.log", "--log-json", "--log-level", "debug"
    ) as island:
        asked(tmp_path, "sessions")
        token = island.ready["token"]

    assert token not in (tmp_path / "my.log").read_text()
    assert [line for line in island.errors.splitlines() if not line.startswith("open in a browser")] == []


@pytest.mark.slow
def test_a_log_of_json_has_nothing_else(tmp_path: Path) -> None:
    """With --log-json alone, each line of standard error is a JSON object, and none has the token."""
    with Running(tmp_path, "island", "--port", 0, "--log-json") as island:
        assert island.stop() == 0

    records = [json.loads(line) for line in island.errors.splitlines()]
    assert {"info"} <= {record["level"] for record in records}
    assert island.ready["token"] not in island.errors


def test_keys_are_made_once_and_shown_by_their_fingerprint(dropflow: Command, home: Path) -> None:
    """An existing key is not overwritten, and no command prints a key."""
    made, again, shown = (dropflow("keys", command) for command in ("create", "create", "show"))
    secret = (home / "XDG_CONFIG_HOME" / "dropflow" / "cluster.key").read_text().split("secret ")[1].strip()

    assert (made.status, again.status, shown.status) == (0, 2, 0)
    assert made.text.split()[2] == shown.text.split()[2]
    assert secret not in made.text + made.err + again.err + shown.text


# Options of commands that start servers: what cannot be used is refused before anything is started.


@pytest.mark.parametrize(
    ("role", "address", "reason"),
    [
        ("node", "hub.example.org/{port}", "is not an address"),
        ("node", "https://hub.example.org/a?b=c", "is not an address"),
        ("node", "https://hub-{port}.example.org/", "is not an address"),
        ("node", "https://hub.example.org/; script-src *", "is not an address"),
        ("up", "https://hub.example.org/dropflow/", "needs {port}"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(command: Command, role: str, address: str, reason: str) -> None:
    """The message names the address, and what it lacks."""
    answer = command(role, "--public-url", address)

    assert answer.status == 2
    assert address in answer.err
    assert reason in answer.err


@pytest.mark.parametrize("role", ["island", "master"])
def test_a_word_is_no_address_of_a_node(command: Command, role: str, tmp_path: Path) -> None:
    """A manager does not wait for a child at an address that has neither scheme nor port."""
    answer = command(role, "--port", "0", "--root", tmp_path, "--nodes", "http://a:8000,notaurl")

    assert (answer.status, "'notaurl' is not a manager URL" in answer.err) == (2, True)


@pytest.mark.parametrize("text", ["much", "-1 GB", "0", "inf", "2 GiB/s"])
@pytest.mark.parametrize("role", ["node", "up"])
def test_what_is_no_memory_is_refused(command: Command, role: str, text: str) -> None:
    """The error has the value, and a form that is right; the exit status is 2."""
    answer = command(role, "--memory", text)

    assert answer.status == 2
    assert text in answer.err
    assert "2 GiB" in answer.err


@pytest.mark.usefixtures("home")
def test_the_nodes_of_one_host_share_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``up --nodes 4 --memory '8 GiB'`` gives each node 2 GiB."""
    started = list[list[str]]()

    class Enough(Exception):  # noqa: N818 - ends the command when all nodes are started
        pass

    def launch(_: ChildProcesses, __: str, ___: str, command: Callable[[int], list[str]], ____: object) -> None:
        started.append(command(0))

    def wait_ready(*_: object) -> Any:
        raise Enough("all nodes are started")

    monkeypatch.setattr(ChildProcesses, "launch", launch)
    monkeypatch.setattr(ChildProcesses, "wait_ready", wait_ready)
    options = functools.partial(UpOptions, nodes=4, port=0, no_auth=True, new_token=False, workers=None, key=None)
    with pytest.raises(Enough, match="all nodes"):
        server_options_run(options(root=str(tmp_path / "up"), memory=8 << 30, lost_after=10.0, log_level="info"))

    assert [line[line.index("--memory") + 1] for line in started] == [f"{2 << 30}"] * 4


@pytest.mark.slow
def test_processes_are_started_and_reaped_by_kernels_without_pidfd_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 5.3 do not have the call, and some sandboxes refuse it."""

    def refuse(_: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    program = 'import json; print(json.dumps({"ready": True, "url": "http://a"}))'
    processes = ChildProcesses()
    child = processes.call(
        lambda: processes.launch("node", "a", lambda _: [sys.executable, "-c", program], lambda _: None)
    )

    assert processes.wait_ready(child, 60.0) == "http://a"
    assert child.ended.result(60.0) == 0
    processes.close()


# Logs of server processes.


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Restore the handlers and the level of logging."""
    top = logging.getLogger()
    handlers, level = list(top.handlers), top.level
    top.handlers.clear()
    yield
    for handler in top.handlers:
        handler.close()
    top.handlers[:] = handlers
    top.setLevel(level)


def read(path: Path) -> str:
    """Return the log."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return path.read_text(encoding="utf-8")


def test_a_record_has_session_drop_and_attempt(tmp_path: Path) -> None:
    """They are at the end of a text line, and fields of a JSON object."""
    fields = {"session": "s", "drop": "s_1", "attempt": 2}
    for as_json in (False, True):
        path = tmp_path / f"{as_json}.log"
        start_logging(level="info", file=str(path), as_json=as_json)
        logging.getLogger("dropflow.test").warning("late by %d s", 3, extra=fields)
        line = read(path)
        if as_json:
            assert fields.items() <= json.loads(line).items()
            assert json.loads(line)["text"] == "late by 3 s"
        else:
            assert line.endswith("late by 3 s session=s drop=s_1 attempt=2\n")


def test_secrets_are_replaced(tmp_path: Path) -> None:
    """The token is not written, not even in tracebacks."""
    path = tmp_path / "a.log"
    start_logging(level="info", file=str(path), as_json=True, secrets=["tok-en"])
    try:
        int("tok-en")
    except ValueError:
        logging.getLogger("dropflow.test").exception("with tok-en")

    assert "tok-en" not in read(path)
    assert "***" in read(path)


def test_text_cannot_look_like_another_record(tmp_path: Path) -> None:
    """Further lines of a text are indented."""
    path = tmp_path / "a.log"
    start_logging(level="info", file=str(path), as_json=False)
    logging.getLogger("dropflow.test").warning("bad name: %s", "x\n2026-01-01T00:00:00.000Z ERROR root: forged")

    assert [line.startswith("20") for line in read(path).splitlines()] == [True, False]


def test_the_level_is_a_threshold(tmp_path: Path) -> None:
    """Less severe records are not written."""
    path = tmp_path / "a.log"
    start_logging(level="warning", file=str(path), as_json=False)
    logging.getLogger("dropflow.test").info("chatter")
    logging.getLogger("dropflow.test").warning("trouble")

    assert "chatter" not in read(path)
    assert "trouble" in read(path)


def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(StorageError, match=r"a\.log"):
        start_logging(level="info", file=str(tmp_path / "missing" / "a.log"), as_json=False)


# `dropflow service install`, and what a manager tells systemd. No systemd runs here; it only checks the units.


@pytest.mark.slow
def test_units_are_valid(tmp_path: Path) -> None:
    """Systemd finds nothing wrong with the unit of any manager, of the system or of a user."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    for role in ("node", "island", "master"):
        for account in ("daemon", ""):
            path = tmp_path / f"dropflow-{role}{account}.service"
            path.write_text(unit_text(role, ("--name", "of 100 % $HOME"), account=account))
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False
            )

            assert [line for line in done.stderr.splitlines() if path.name in line] == []
            assert done.returncode == 0, done.stderr


def test_a_node_may_drain_before_it_is_killed() -> None:
    """The time to stop is longer than that of draining; other managers do not drain."""
    stops = [unit_text("node", (), account="", drain=drain) for drain in (None, 600.0)]

    assert ["TimeoutStopSec=60" in stops[0], "TimeoutStopSec=630" in stops[1]] == [True, True]
    assert "TimeoutStopSec=30\n" in unit_text("island", (), account="")


def test_a_unit_of_a_user_is_written_once(dropflow: Command, home: Path) -> None:
    """It is replaced by the same command, and never replaces another unit; a dry run writes nothing."""
    path = home / "XDG_CONFIG_HOME" / "systemd" / "user" / "dropflow-node.service"
    install = ("service", "install", "node")
    dry = dropflow(*install, "--user", "--dry-run")
    was_written = path.exists()
    installed = [dropflow(*install, "--user", "--", "--port", port) for port in (8000, 9000)]
    text = path.read_text()
    path.write_text("[Unit]\n")
    refused = dropflow(*install, "--user")
    wrong = dropflow(*install, "--dry-run", "--", "--no-such-option")
    unknown = dropflow(*install, "--account", "no-such-account")

    assert (dry.status, was_written) == (0, False)
    assert "ExecStart=" in dry.text
    assert [(answer.status, str(path) in answer.text) for answer in installed] == [(0, True)] * 2
    assert "systemctl --user enable --now dropflow-node" in installed[0].text
    assert "--port 9000" in text
    assert (refused.status, "DF108" in refused.err, path.read_text()) == (2, True, "[Unit]\n")
    assert (wrong.status, unknown.status) == (2, 2)


@pytest.mark.slow
def test_a_service_tells_systemd_when_it_answers(tmp_path: Path) -> None:
    """READY=1 when it is ready, WATCHDOG=1 as long as its server answers, and STOPPING=1.

    Lines of its log have levels, and none has its token.
    """
    text = unit_text("node", ("--port", "0", "--links-port", "0"), account="")
    (start,) = [line.partition("=")[2] for line in text.splitlines() if line.startswith("ExecStart=")]
    journal = tmp_path / "journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, journal.open("wb") as errors:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        found = os.fstat(errors.fileno())
        more = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "900000"}
        more |= {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        with subprocess.Popen(
            shlex.split(start), env=environment(tmp_path) | more, stdout=subprocess.DEVNULL, stderr=errors, cwd=tmp_path
        ) as node:
            told = [systemd.recv(100) for _ in range(3)]
            node.send_signal(signal.SIGTERM)
            while told[-1] != b"STOPPING=1":
                told.append(systemd.recv(100))
    lines = journal.read_text().splitlines()
    (token,) = [path.read_text() for path in tmp_path.glob("state/dropflow/node-*/token")]

    assert (told[0], {*told[1:-1]}, node.returncode) == (b"READY=1", {b"WATCHDOG=1"}, 0)
    assert "WatchdogSec=120\n" in text
    assert shlex.split(start)[0] == sys.executable
    assert lines
    assert [line for line in lines if not line.startswith(("<6>", "<4>")) or token in line] == []
