"""`dropflow launch slurm` with a real Slurm: one controller and two hosts on this machine. It needs root."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.graph.codec import save
from tests.apps.mpi_jobs import job
from tests.e2e.cluster import until
from tests.e2e.launched import ROOT, Launched, running_slurm
from tests.processes import gone, working_in
from tests.recovery_graphs import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Launched]:
    """A Slurm with two hosts, for one test."""
    with running_slurm(tmp_path) as launched:
        yield launched


def test_the_guide_to_slurm_is_as_it_says(slurm: Launched) -> None:
    """The commands of the page run one after another, with the output that it shows; no secret is where others look."""

    def then(command: str) -> None:
        if command.startswith("dropflow nodes"):
            public = slurm.shell("scontrol show job; cat dropflow-jobs/*/job.sh dropflow-jobs/*/output")

            assert slurm.secrets_seen(public) == []

    slurm.run_guide("howto/slurm.md", then)

    assert slurm.nothing_is_left()
    assert "Traceback" not in slurm.shell("cat dropflow-jobs/*/output")
    assert "error DF107" in slurm.shell("dropflow sessions --to slurm:1", status=2)


def test_a_killed_test_leaves_no_slurm(tmp_path: Path) -> None:
    """Daemons, steps and their commands end with the process that has started the Slurm, also if that is killed."""
    test = (
        "import pathlib, sys, tests.e2e.launched as launched\n"
        "with launched.running_slurm(pathlib.Path(sys.argv[1])) as slurm:\n"
        "    slurm.shell('sbatch --nodes=2 --wrap \"srun sleep 600\"')\n"
        "    print('running', flush=True)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", test, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        ready = started.stdout.readline()
        wanted = {"slurmctld", "slurmd", "slurmstepd", "sleep"}
        all_run = until(lambda: wanted <= {process.info["name"] for process in working_in(tmp_path)}, 120)
        started.kill()

    assert (ready, all_run) == (b"running\n", True)
    assert gone(working_in(tmp_path))


@pytest.mark.exhaustive
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


def test_ranks_are_started_by_srun_on_all_hosts_of_the_job(slurm: Launched) -> None:
    """They do not wait for processors that the nodes of the session have, since these are a step of the same job."""
    where = "echo $DROPFLOW_RANK of $DROPFLOW_RANKS on $SLURMD_NODENAME > {out}"
    save(job(where, ranks=2, launcher="srun --nodes=2 -n %n"), slurm.home / "g.dfg")
    slurm.shell("timeout 120 dropflow launch slurm g.dfg --nodes 2 --time 10 -o out")
    (made,) = (path for path in (slurm.home / "out").rglob("*") if path.is_file() and " of 2 on " in path.read_text())

    assert made.read_text() == "0 of 2 on n1\n1 of 2 on n2\n"
    assert slurm.nothing_is_left()


@pytest.mark.exhaustive
def test_faults_of_slurm_one_after_another(slurm: Launched) -> None:
    """A preempted job goes on by itself with --requeue, and ends in words without; a controller may start again."""
    marks = slurm.home / "marks"
    save(files(marks, 0.5), slurm.home / "g.dfg")
    arguments = ("g.dfg", "--nodes", 2, "--time", 10, "--margin", "4s", "--output", "json")
    urgent = "sbatch --partition=urgent --nodes=2 --exclusive --output=/dev/null --wrap 'sleep 1'"
    with slurm.started(*arguments, "--requeue") as launched:
        slurm.until(f"cat {marks}", "SOURCE\nFIRST")
        slurm.shell(urgent)
        slurm.until("squeue -h -j 1 -o %r", "BeginTime")
        first = marks.read_text().split()
        slurm.shell("scontrol update jobid=1 StartTime=now")
        answer, notes = launched.communicate(timeout=200)

    assert launched.returncode == 0, notes
    assert "SOURCE" not in marks.read_text().split()[len(first) :]  # what was completed is kept

    marks.unlink()
    with slurm.started(*arguments) as launched:
        slurm.until(f"cat {marks}", "SOURCE")
        slurm.shell(urgent)
        answer, notes = launched.communicate(timeout=200)
    reply = json.loads(answer)
    with slurm.started(Path(reply["output"]).parent, *arguments[1:]) as again:
        slurm.until("squeue -h -p p -o %T", "RUNNING")
        slurm.shell("kill $(cat controller.pid); while pgrep -F controller.pid; do sleep 0.1; done 2>&-; slurmctld")
        ended = json.loads(again.communicate(timeout=200)[0])

    assert (launched.returncode, reply["status"]) == (1, "CANCELLED"), notes
    assert reply["text"] == "the batch system has ended its job"
    assert "can go on in another job" in notes
    assert (again.returncode, ended["status"]) == (0, "FINISHED")
    assert slurm.nothing_is_left()


@pytest.mark.exhaustive
def test_a_job_is_not_started_again_without_end(slurm: Launched) -> None:
    """With --requeue, a job whose nodes end by themselves is not; nor is one that completes nothing in three runs."""
    marks = slurm.home / "marks"
    save(files(marks, 600), slurm.home / "g.dfg")
    arguments = ("--nodes", 2, "--time", 10, "--margin", "4s", "--requeue", "--output", "json")
    with slurm.started("g.dfg", *arguments) as launched:
        slurm.until(f"cat {marks}", "SOURCE")
        for node in [process for process in slurm.processes() if process.info["cmdline"][3:5] == ["launch", "member"]]:
            node.terminate()
        launched.communicate(timeout=200)
    first = (launched.returncode, slurm.becomes("squeue -h | wc -l", "0"))
    (directory,) = (slurm.home / "dropflow-jobs").iterdir()
    with slurm.started(directory, *arguments) as launched:
        for number in range(1, 4):
            slurm.until(f"cat {marks}", "SOURCE\n" * (number + 1))
            slurm.shell("scancel --signal=USR1 --batch 2")  # as Slurm does before the walltime
            if number < 3:
                slurm.until("squeue -h -o %r", "BeginTime")
                slurm.shell("scontrol update jobid=2 StartTime=now")
        second, _ = launched.communicate(timeout=200)

    assert first == (1, True)
    assert launched.returncode == 1
    assert "it ran 3 times in a row and completed no more drops" in json.loads(second)["error"]["text"]
    assert slurm.nothing_is_left()


def test_jobs_that_never_run(slurm: Launched) -> None:
    """What Slurm refuses, and why a job waits, is told in its words; nothing is left of a refused job."""
    refused = slurm.shell("dropflow launch slurm examples/hello.graph -p nowhere", status=2)
    array = slurm.shell("dropflow launch slurm examples/hello.graph -- --array=1-3", status=2)
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

    assert "a job array would run several copies of the job in one directory" in array
    assert ("error DF118" in refused, "partition" in refused, left) == (True, True, [])
    assert "job 1 is PENDING" in reason
    assert (waiting.returncode, "'scancel 1' cancels it" in stopped) == (130, True)
    assert (cancelled.returncode, "job 2 has ended before its session was over: CANCELLED" in why) == (1, True), why
