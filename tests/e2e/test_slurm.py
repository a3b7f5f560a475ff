"""`dropflow launch slurm` with a real Slurm: one controller and two hosts on this machine. It needs root."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dropflow.graph.codec import save
from tests.e2e.launched import Launched
from tests.recovery_graphs import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_TOOLS = ("slurmctld", "slurmd", "srun", "sbatch")
_CONFIGURATION = """
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/controller.pid
SlurmdPidFile={directory}/%n.pid
SlurmctldLogFile={directory}/controller.log
SlurmdLogFile={directory}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=2000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=2000
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=60 State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Launched]:
    """A Slurm with two hosts, for one test."""
    lacking = [tool for tool in _TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if lacking or os.geteuid() != 0:
        pytest.skip(f"a Slurm needs root, and {', '.join(lacking) or 'its programs'}")
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (one, two, three)]
    host = socket.gethostname().partition(".")[0]
    (tmp_path / "state").mkdir()
    (tmp_path / "slurm.conf").write_text(_CONFIGURATION.format(directory=tmp_path, host=host, ports=ports))
    found = Launched(tmp_path, "slurm", SLURM_CONF=str(tmp_path / "slurm.conf"))
    try:
        found.shell("slurmctld -c; slurmd -N n1 -c; slurmd -N n2 -c")
        found.until("sinfo -h -o %D -t idle", "2")
        yield found
        found.shell("scancel --user root --full --signal KILL; true")
    finally:
        pids = [tmp_path / f"{name}.pid" for name in ("n1", "n2", "controller")]
        running = [psutil.Process(int(path.read_text())) for path in pids if path.exists()]
        for process in running:
            process.terminate()
        for process in psutil.wait_procs(running, timeout=2)[1]:
            process.kill()


def test_the_guide_to_slurm_is_as_it_says(slurm: Launched) -> None:
    """The commands of the page run one after another, with the output that it shows; no secret is where others look."""

    def then(command: str) -> None:
        if command.startswith("dropflow nodes"):
            public = slurm.shell("scontrol show job; cat dropflow-jobs/*/job.sh dropflow-jobs/*/output")

            assert slurm.secrets_seen(public) == []

    slurm.run_guide("slurm.md", then)

    assert slurm.nothing_is_left()
    assert "Traceback" not in slurm.shell("cat dropflow-jobs/*/output")
    assert "error DF107" in slurm.shell("dropflow sessions --to slurm:1", status=2)


def test_a_session_goes_on_without_a_host_and_in_another_job(slurm: Launched) -> None:
    """It goes on after the loss of a host and after a walltime with ``--requeue``, to the end."""
    marks = slurm.home / "marks"
    save(files(marks, 0.5), slurm.home / "g.dfg")
    arguments = ("g.dfg", "--nodes", 2, "--time", 10, "--requeue", "--margin", "4s", "--output", "json")
    with slurm.started(*arguments) as launched:
        slurm.until(f"cat {marks}", "SOURCE")
        slurm.shell("scontrol update nodename=n2 state=down reason=test")
        slurm.until("cat dropflow-jobs/*/status.json", "node node-1 is lost")
        slurm.shell("scancel --signal=USR1 --batch 1")  # as Slurm does before the walltime
        slurm.until("squeue -h -o %r", "BeginTime")
        first = marks.read_text().split()
        slurm.shell("scontrol update nodename=n2 state=resume || true; scontrol update jobid=1 StartTime=now")
        answer, notes = launched.communicate(timeout=200)
    then = marks.read_text().split()[len(first) :]
    (directory,) = (slurm.home / "dropflow-jobs").iterdir()

    assert launched.returncode == 0, notes
    reply = json.loads(answer)
    assert (reply["status"], reply["ok"], reply["output"]) == ("FINISHED", True, str(directory / "results"))
    assert (directory / "results" / "files" / "sums.txt").exists()
    assert "SOURCE" not in then  # what was completed is kept
    assert slurm.nothing_is_left()


def test_jobs_that_never_run(slurm: Launched) -> None:
    """What Slurm refuses, and why a job waits, is told in its words; nothing is left of a refused job."""
    refused = slurm.shell("dropflow launch slurm examples/hello.graph -p nowhere", status=2)
    left = list((slurm.home / "dropflow-jobs").iterdir())
    with slurm.started("examples/hello.graph", "--time", "10:00:00") as waiting:
        assert waiting.stderr is not None
        reason = waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        _, stopped = waiting.communicate(timeout=60)
    with slurm.started("examples/hello.graph", "--time", "10:00:00") as cancelled:
        slurm.until("squeue -h -o %i", "2")
        slurm.shell("scancel 1 2")
        _, why = cancelled.communicate(timeout=60)

    assert ("error DF118" in refused, "partition" in refused, left) == (True, True, [])
    assert "job 1 is PENDING" in reason
    assert (waiting.returncode, "'scancel 1' cancels it" in stopped) == (130, True)
    assert (cancelled.returncode, "job 2 has ended before its session was over: CANCELLED" in why) == (1, True), why
