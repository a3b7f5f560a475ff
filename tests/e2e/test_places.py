"""Places together: a laptop, ssh and a Slurm with two hosts, all of them on this machine. It needs root."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.launched import Launched, running_slurm, running_ssh

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
