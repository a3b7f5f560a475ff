"""`dropflow launch ssh` and `up --hosts` with a real sshd on this machine, which is all of their hosts."""

import json
import re
import signal
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import psutil
import pytest

from dropflow.clock import SystemClock
from dropflow.graph.codec import save
from tests.e2e.launched import ROOT, Launched, running_ssh
from tests.e2e.network import Network, missing
from tests.processes import required_packages, working_in
from tests.recovery_graphs import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[Launched]:
    """Hosts over ssh, for one test."""
    launched = Launched(tmp_path, "ssh")
    with running_ssh(launched):
        page = (ROOT / "docs" / "howto" / "ssh.md").read_text(encoding="utf-8")
        hosts = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
        (tmp_path / "hosts.toml").write_text(f'directory = "{tmp_path}/nodes"\n{hosts}')
        yield launched


def test_the_guide_to_ssh_is_as_it_says(ssh: Launched) -> None:
    """The commands of the page run one after another; no secret is where others look, and no process is left."""

    def then(command: str) -> None:
        if command.startswith("dropflow nodes"):
            public = ssh.shell("cat dropflow-jobs/*/job.sh dropflow-jobs/*/output; grep -rh . nodes")

            assert ssh.secrets_seen(public) == []

    ssh.run_guide("howto/ssh.md", then)

    assert ssh.nothing_is_left()


def test_all_problems_of_hosts_are_in_one_table(ssh: Launched) -> None:
    """Nothing is started; a host that does not answer is left out if that is asked for, and no other."""
    with socket.socket() as silent, socket.socket() as taken:
        for each in (silent, taken):
            each.bind(("127.0.0.1", 0))
            each.listen()
        port = taken.getsockname()[1]
        (ssh.home / "bad.toml").write_text(
            f'directory = "{ssh.home}/nodes"\n'
            '[hosts.alpha]\npython = "/nowhere/python"\n'
            f"[hosts.beta]\nport = {port}\n"
            f'[hosts.old]\nssh = "alpha"\npython = "{ssh.home}/old"\n'
            f'[hosts.silent]\nssh = "ssh://127.0.0.1:{silent.getsockname()[1]}"\n'
        )
        found = {"python": [3, 9], "version": "", "error": "", "time": 0, "free": 9, "writable": False, "ports": []}
        (ssh.home / "old").write_text(f"#!/bin/sh\nread line\necho '{json.dumps(found)}'\n")
        (ssh.home / "old").chmod(0o755)
        program = ssh.home / "bin" / "ssh"
        program.write_text(program.read_text().replace('"$@"', '-o ConnectTimeout=1 "$@"'))
        shown = ssh.shell("dropflow launch ssh --hosts bad.toml examples/hello.graph", status=2)
        answer = json.loads(ssh.shell("dropflow up --hosts bad.toml --skip-unreachable --output json", status=2))

    texts = {f"{problem['host']}: {problem['text']}" for problem in answer["problems"]}
    varying = {text for text in texts if text.startswith(("old: its clock differs by -", "silent: Connection "))}
    assert len(varying) == 2
    assert texts - varying == {
        "alpha: its Python does not run: sh: 1: exec: /nowhere/python: not found",
        f"beta: cannot listen on port {port}: Address already in use",
        "old: its Python is 3.9",
        f"old: {ssh.home}/nodes cannot be written",
        f"old: {ssh.home}/nodes has only 9 Bytes left",
    }
    assert all(text.partition(": ")[2] in shown for text in texts - varying)
    assert "nothing was started" in shown
    assert not (ssh.home / "dropflow-jobs").exists()
    assert ssh.nothing_is_left()


@pytest.mark.exhaustive
def test_dropflow_is_installed_on_hosts_once(tmp_path: Path) -> None:
    """A host with a Python alone runs a graph; what cannot be installed is in the table of problems."""
    site = tmp_path / "site"  # what dropflow requires, so that pip needs no network
    site.mkdir()
    for name in required_packages("dropflow"):
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    hosts = f'directory = "{tmp_path}/nodes"\nworkers = 2\npython = "{sys.base_prefix}/bin/python3"\n[hosts.alpha]\n'
    (tmp_path / "bare.toml").write_text(hosts)
    (tmp_path / "bad.toml").write_text(f'{hosts}[hosts.beta]\npackages = ["no-such-package"]\n')
    ssh = Launched(tmp_path, "ssh")
    launch = "dropflow launch ssh --install examples/hello.graph --hosts"
    with running_ssh(ssh, PIP_NO_INDEX="1", PYTHONPATH=str(site)):
        refused = ssh.shell(f"{launch} bad.toml", status=2)
        first = ssh.shell(f"{launch} bare.toml")
        made = [path.stat().st_ctime for path in tmp_path.glob("nodes/dropflow-*/complete")]
        second = ssh.shell(f"{launch} bare.toml")

    assert "dropflow cannot be installed: ERROR: No matching distribution found for no-such-package" in refused
    assert ("FINISHED" in first, "FINISHED" in second, len(made)) == (True, True, 1)
    assert made == [path.stat().st_ctime for path in tmp_path.glob("nodes/dropflow-*/complete")]
    assert ssh.nothing_is_left()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "sign", ["nodes/0.json", "island", "FIRST"], ids=["before the island", "before the session", "at work"]
)
def test_a_session_goes_on_when_the_ssh_to_a_host_is_cut(sign: str, ssh: Launched) -> None:
    """Whenever that is, the session ends on the other host with all results, and its own manager ends."""
    save(files(ssh.home / "marks", 0.5), ssh.home / "g.dfg")
    with ssh.started("g.dfg", "--hosts", "hosts.toml", "--output", "json") as launched:
        ssh.until("ls dropflow-jobs/*/nodes/0.json dropflow-jobs/*/ marks 2>/dev/null; cat marks", sign)
        every = psutil.process_iter(["cmdline", "environ"])
        ours = [one for one in every if str(ssh.home) in str(one.info["environ"]) and one.info["cmdline"]]
        cut = [
            our for our in ours if our.info["cmdline"][-2:-1] == ["alpha"] and "launch host" in our.info["cmdline"][-1]
        ]
        cut[0].kill()
        answer, notes = launched.communicate(timeout=200)

    assert launched.returncode == 0, notes
    assert (json.loads(answer)["status"], len(cut)) == ("FINISHED", 1)
    assert ssh.nothing_is_left()


@pytest.mark.exhaustive
def test_losses_and_ends_of_hosts_over_ssh(ssh: Launched) -> None:
    """A session goes on without a host that dies and in another job after Ctrl-C; a killed `up` leaves no manager."""
    marks = ssh.home / "marks"
    save(files(marks, 0.5), ssh.home / "g.dfg")
    with ssh.started("g.dfg", "--hosts", "hosts.toml") as first:
        ssh.until(f"cat {marks}", "FIRST")
        first.send_signal(signal.SIGINT)
        _, said = first.communicate(timeout=100)
    kept = marks.read_text().split()
    (directory,) = (ssh.home / "dropflow-jobs").iterdir()

    assert (first.returncode, "can go on in another job" in said) == (130, True)
    assert ssh.nothing_is_left()

    with ssh.started(directory, "--hosts", "hosts.toml", "--output", "json") as second:
        ssh.until(f"cat {marks}", "SECOND")
        then = marks.read_text().split()[len(kept) :]
        nodes = [process for process in ssh.processes() if process.info["cmdline"][-2:] == ["launch", "host"]]
        nodes[0].kill()
        answer, notes = second.communicate(timeout=200)

    assert len(nodes) == 2
    assert second.returncode == 0, notes
    assert json.loads(answer)["status"] == "FINISHED"
    assert "SOURCE" not in then  # what was completed is kept
    assert ssh.nothing_is_left()

    ssh.shell("dropflow up --hosts hosts.toml --port 0 >up.json 2>/dev/null &")
    ssh.until("cat up.json", '"ready":true')

    assert len(json.loads((ssh.home / "up.json").read_text())["nodes"]) == 2
    assert "ended http://" in ssh.shell("dropflow down")
    assert ssh.nothing_is_left()


_WHY_NOT = missing("ip", "iptables")


@pytest.mark.exhaustive
@pytest.mark.netns
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "never")
def test_hosts_that_let_nothing_in_but_ssh_have_a_tunnel(tmp_path: Path) -> None:
    """Sessions run on hosts that reach each other through the tunnel only; one goes on without a cut host."""
    marks = tmp_path / "marks"
    save(files(marks, 0.5), tmp_path / "g.dfg")
    (tmp_path / "hosts.toml").write_text(f'directory = "{tmp_path}/nodes"\nworkers = 1\n[hosts.alpha]\n[hosts.beta]\n')
    (tmp_path / "stays.toml").write_text("stays = true\n[hosts.alpha]\n")
    ssh = Launched(tmp_path, "ssh")
    del ssh.environment["DROPFLOW_TOKEN"]
    up = "dropflow up --hosts hosts.toml --port 0"
    with Network(3) as network, running_ssh(ssh, network):
        closed = ssh.shell(up, status=2)
        alone = ssh.shell("dropflow up --tunnel --hosts stays.toml", status=2)
        launched = ssh.shell("dropflow launch ssh examples/estimate-pi.graph --tunnel --hosts hosts.toml -o results")
        left = ssh.nothing_is_left()
        ssh.shell(f"{up} --tunnel >up.json 2>up.txt &")
        ssh.until("cat up.json", '"ready":true')
        looked = ssh.shell("dropflow doctor")
        with ssh.started(command=("dropflow", "submit", "g.dfg", "--wait", "--output", "json")) as waiting:
            ssh.until(f"cat {marks}", "FIRST")
            of_ssh = [one for one in working_in(tmp_path) if one.info["name"] == "ssh"]
            (cut,) = [one for one in of_ssh if "alpha" in one.info["cmdline"]]
            cut.kill()
            answer, notes = waiting.communicate(timeout=200)
        printed = (tmp_path / "up.txt").read_text()
        ssh.shell("dropflow down")

        assert ssh.nothing_is_left()
    assert "cannot connect to 10.99.0.2:" in closed
    assert "alpha: a manager that is reached through its ssh ends with it" in alone
    assert ("FINISHED" in launched, (tmp_path / "results" / "files" / "pi.txt").exists(), left) == (True, True, True)
    assert "links between nodes: 2 of 2 connections succeeded" in looked
    assert (waiting.returncode, json.loads(answer)["status"]) == (0, "FINISHED"), notes
    assert "alpha has ended with status" in printed


@pytest.mark.exhaustive
@pytest.mark.netns
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "never")
def test_64_hosts_start_together(tmp_path: Path) -> None:
    """All of them are nodes of one cluster, which is there within a minute if nothing else runs here; all end again."""
    names = ["alpha", "beta", *(f"h{number}" for number in range(3, 65))]
    tables = "".join(f"[hosts.{name}]\n" for name in names)
    (tmp_path / "hosts.toml").write_text(f'directory = "{tmp_path}/nodes"\nworkers = 1\n{tables}')
    ssh = Launched(tmp_path, "ssh")
    del ssh.environment["DROPFLOW_TOKEN"]
    with Network(65) as network, running_ssh(ssh, network):
        for host in range(65):
            network.heal(host)
        began = SystemClock().monotonic()
        ssh.shell("dropflow up --hosts hosts.toml --port 0 >up.json 2>up.txt &")
        ssh.until("cat up.json", '"ready":true')
        print(f"{SystemClock().monotonic() - began:.0f} s")  # noqa: T201
        nodes = json.loads(ssh.shell("dropflow nodes --output json"))["nodes"]
        ssh.shell("dropflow down")

        assert ssh.nothing_is_left()
    assert [(node["name"], node["state"]) for node in nodes] == [(name, "alive") for name in sorted(names)]
