"""`dropflow service install`, and what a manager tells systemd. No systemd runs here; it only checks the units."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dropflow.cli.service import unit_text
from tests.processes import environment, run


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


@pytest.mark.slow
def test_a_unit_of_a_user_is_written_once(tmp_path: Path) -> None:
    """It is replaced by the same command, and never replaces another unit; a dry run writes nothing."""
    path = tmp_path / "config" / "systemd" / "user" / "dropflow-node.service"
    dry = run(tmp_path, "service", "install", "node", "--user", "--dry-run")
    was_written = path.exists()
    installed = [run(tmp_path, "service", "install", "node", "--user", "--", "--port", port) for port in (8000, 9000)]
    text = path.read_text()
    path.write_text("[Unit]\n")
    refused = run(tmp_path, "service", "install", "node", "--user")
    wrong = run(tmp_path, "service", "install", "node", "--dry-run", "--", "--no-such-option")
    unknown = run(tmp_path, "service", "install", "node", "--account", "no-such-account")

    assert (dry.returncode, was_written) == (0, False)
    assert "ExecStart=" in dry.stdout
    assert [(done.returncode, str(path) in done.stdout) for done in installed] == [(0, True)] * 2
    assert "systemctl --user enable --now dropflow-node" in installed[0].stdout
    assert "--port 9000" in text
    assert (refused.returncode, "DF108" in refused.stderr, path.read_text()) == (2, True, "[Unit]\n")
    assert (wrong.returncode, unknown.returncode) == (2, 2)


@pytest.mark.slow
def test_a_service_tells_systemd_when_it_answers(tmp_path: Path) -> None:
    """The command of a unit sends READY=1 when it is ready; lines of its log have levels, and none has its token."""
    text = unit_text("node", ("--port", "0", "--links-port", "0"), account="")
    (start,) = [line.partition("=")[2] for line in text.splitlines() if line.startswith("ExecStart=")]
    journal = tmp_path / "journal"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, journal.open("wb") as errors:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        found = os.fstat(errors.fileno())
        more = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        with subprocess.Popen(
            shlex.split(start), env=environment(tmp_path) | more, stdout=subprocess.DEVNULL, stderr=errors, cwd=tmp_path
        ) as node:
            told = systemd.recv(100)
            node.send_signal(signal.SIGTERM)
    lines = journal.read_text().splitlines()
    (token,) = [path.read_text() for path in tmp_path.glob("state/dropflow/node-*/token")]

    assert (told, node.returncode) == (b"READY=1", 0)
    assert shlex.split(start)[0] == sys.executable
    assert lines
    assert [line for line in lines if not line.startswith(("<6>", "<4>")) or token in line] == []
