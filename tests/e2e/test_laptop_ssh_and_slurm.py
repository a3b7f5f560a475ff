"""A laptop, ssh and a Slurm with two hosts together, all of them on this machine. It needs root."""

import json
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from tests.e2e.cluster import until
from tests.e2e.launched import Launched, running_slurm, running_ssh
from tests.processes import Running, gone, working_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Launched]:
    """A laptop without Slurm, from which ``ssh cluster`` reaches a login node that has it."""
    with running_slurm(tmp_path) as launched:
        (tmp_path / "laptop").mkdir()
        (tmp_path / "site.toml").write_text(f'python = "{sys.prefix}"\ndirectory = "{tmp_path}/dropflow-jobs"\n')
        with running_ssh(launched, SLURM_CONF=launched.environment.pop("SLURM_CONF")):
            yield launched
        launched.environment["SLURM_CONF"] = str(tmp_path / "slurm.conf")


@pytest.mark.exhaustive
def test_the_tutorial_of_a_cluster_is_as_it_says(cluster: Launched) -> None:
    """Its commands run one after another: a picture comes back from two nodes. No process is left."""
    cluster.run_guide("tutorial/cluster.md", lambda _: None)

    assert (cluster.home / "sky" / "files" / "sky.png").read_bytes()[1:4] == b"PNG"
    assert list((cluster.home / "sky").glob(".*")) == []
    assert cluster.nothing_is_left()


@pytest.mark.exhaustive
def test_a_login_node_that_cannot_be_used(cluster: Launched) -> None:
    """What is wrong there, and with its job, has a code; Ctrl-C leaves the job, and no process that waits for it."""
    launch = "dropflow launch slurm examples/hello.graph --facility site.toml --login"
    refused = cluster.shell(f"{launch} cluster -p nowhere", status=2)
    script = cluster.shell(f"{launch} cluster --dry-run")
    unreachable = cluster.shell(f"{launch} 127.0.0.1 2>&1", status=3)
    nothing = cluster.shell(
        "dropflow launch slurm examples/hello.graph --login cluster --facility <(echo 'python=\"/no\"')", status=2
    )
    with cluster.started(
        "examples/hello.graph", "--login", "cluster", "--facility", "site.toml", "--time", "9:00:00"
    ) as waiting:
        assert waiting.stderr is not None
        reason = waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        _, stopped = waiting.communicate(timeout=60)

    assert ("error DF118" in refused, "partition" in refused) == (True, True)
    assert script.startswith("#!/bin/bash")
    assert "error DF220" in unreachable
    assert "error DF106" in nothing
    assert ("job 1 is PENDING" in reason, waiting.returncode, "'scancel 1' cancels it" in stopped) == (True, 130, True)
    assert cluster.nothing_is_left()


@pytest.mark.exhaustive
def test_a_pool_grows_shrinks_and_pauses(tmp_path: Path) -> None:
    """It gets nodes while work waits, gives them back, pauses when Slurm refuses, and leaves no job or process."""
    with running_slurm(tmp_path) as slurm:
        del slurm.environment["DROPFLOW_TOKEN"]
        slurm.shell("dropflow keys create")
        work = "def measure(input): import time; time.sleep(4); return 100.0 + int(input[0])"
        add = "dropflow pool add slurm --time 0:10:00 --idle 3s --every 1s --margin 10s"
        listed = "dropflow pool list --output json"
        with Running(tmp_path, "island", "--name", "island", "--port", 0, "--host", "0.0.0.0") as island:  # noqa: S104 - with a key
            slurm.environment["DROPFLOW_URL"] = island.ready["url"]
            script = slurm.shell(f"{add} --max 2 --dry-run")
            slurm.shell(f"{add} --min 1 --max 2 -- --cpus-per-task=2")
            slurm.until("dropflow nodes", "alive")
            session = slurm.shell(
                f"dropflow submit examples/error-threshold.graph --set Measure.func_code='{work}'"
            ).split()[0]
            slurm.until(listed, '"nodes":2')
            keys = list(slurm.home.glob("dropflow-jobs/pool-pool/key"))
            answer = slurm.shell(f"dropflow watch {session}")
            slurm.until(listed, '"nodes":1')
            slurm.until("squeue -h -o %i | wc -l", "1")
            removed = slurm.shell("dropflow pool remove")
            slurm.until("squeue -h -o %i | wc -l", "0")
            slurm.shell(f"{add} --name bad --min 1 --max 1 -p nowhere")
            slurm.until(listed, "10 requests in a row were refused")
            paused = slurm.shell("dropflow pool list; dropflow pool remove bad; dropflow pool list")

        assert slurm.nothing_is_left()
    assert "B:TERM@10" in script
    assert [path.stat().st_mode & 0o777 for path in keys] == [0o600]
    assert ("FINISHED" in answer, "removed" in removed) == (True, True)
    assert ("paused" in paused, "no pools" in paused) == (True, True)


@pytest.fixture
def seen(cluster: Launched) -> Launched:
    """A job without a graph on the cluster, whose manager answers; it was launched on the login node."""
    launch = f"cd {cluster.home} && {sys.executable} -m dropflow launch slurm --time 0:10:00"
    cluster.shell(f"ssh cluster '{launch}'")
    return cluster


def _listens(port: int | None) -> bool:
    """Return whether something on this host listens on a port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port or 0)) == 0


def _browse(address: str) -> str:
    """Return the page that an address of ``dropflow open`` leads to."""
    login, _, asked = address.partition("#")
    opener = build_opener(HTTPCookieProcessor())
    body = json.dumps(dict(parse_qsl(asked))).encode()
    headers = {"Content-Type": "application/json", "Origin": login.removesuffix("/login")}
    with opener.open(Request(login, body, headers), timeout=60) as answer:  # noqa: S310 - it is HTTP
        path = json.loads(answer.read())["next"]
    with opener.open(urljoin(login, path), timeout=60) as answer:
        return str(answer.read().decode())


_SHARED = "ControlPath {home}/%n\nControlMaster auto\nControlPersist yes\n"


@pytest.mark.parametrize(
    "is_shared",
    [
        pytest.param(False, id="own connection"),
        pytest.param(True, id="shared connection", marks=pytest.mark.exhaustive),
    ],
)
def test_a_cluster_is_seen_through_one_ssh(seen: Launched, *, is_shared: bool) -> None:
    """Commands on the laptop reach the manager of a job, and a browser its pages; no port and no ssh is left."""
    if is_shared:
        with (seen.home / "ssh_config").open("a") as configuration:
            configuration.write(_SHARED.format(home=seen.home))
        seen.shell("ssh cluster true >/dev/null 2>&1")
    to = "--to ssh://cluster/slurm:1"
    session = json.loads(seen.shell(f"dropflow submit examples/hello.graph --wait --output json {to}"))
    seen.shell(f"dropflow fetch -o hello {session['session']} {to}")
    nodes = json.loads(seen.shell(f"dropflow nodes --output json {to}"))["nodes"]
    node = urlsplit(nodes[0]["url"]).netloc
    there = seen.shell(f"DROPFLOW_TOKEN= dropflow sessions --key dropflow-jobs/*/key --to ssh://cluster/{node}")
    with seen.started(command=("dropflow", "open", session["session"], *to.split())) as opened:
        assert opened.stdout is not None
        address = opened.stdout.readline().strip()
        try:
            page = _browse(address)
        finally:
            opened.send_signal(signal.SIGINT if is_shared else signal.SIGKILL)
    refused = until(lambda: not _listens(urlsplit(address).port), 60)
    shared = seen.shell("ssh -O check cluster 2>&1 || true; ssh -O exit cluster 2>&1 || true")
    left = [one for one in working_in(seen.home) if one.info["name"] == "ssh"]

    assert (session["status"], (seen.home / "hello" / "files" / "hello.txt").exists()) == ("FINISHED", True)
    assert (session["session"] in there, f"<title>{session['session']}" in page) == (True, True)
    assert (refused, "Master running" in shared, gone(left)) == (True, is_shared, True)


@pytest.mark.exhaustive
def test_managers_that_cannot_be_seen_through_ssh(cluster: Launched) -> None:
    """A job that is not known there, a host that cannot be reached, and addresses that name no manager have codes."""
    unknown = cluster.shell("dropflow nodes --to ssh://cluster/slurm:9", status=2)
    unreachable = cluster.shell("dropflow nodes --to ssh://127.0.0.1/slurm:1", status=3)
    silent = cluster.shell("dropflow nodes --to ssh://cluster/127.0.0.1:9", status=3)
    wrong = [
        cluster.shell(f"dropflow nodes --to ssh://{text}", status=2) for text in ("", "/slurm:1", "a/b:c", "-a/b:1")
    ]

    assert ("DF107" in unknown, "no job 9" in unknown) == (True, True)
    assert ("DF220" in unreachable, "DF220" in silent) == (True, True)
    assert [text.partition(":")[0] for text in wrong] == ["error DF100"] * 4
