"""Batch systems: how their lists of jobs are read. Hosts over ssh: how dropflow is installed there."""

import os
import signal
from pathlib import Path

import pytest

from dropflow.errors import BatchSystemError, UsageError
from managers.jobs import installation
from managers.jobs.batch import SYSTEMS, Facility
from managers.jobs.job_directory import JobRequest
from managers.jobs.ssh import SshHost

_QSTAT = """
pbs-server:
                                                            Req'd  Req'd   Elap
Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time
--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----
1234567.pbs-ser user     workq    dropflow    29071   2  16    --  01:00 R 00:01
1234568.pbs-ser* user    workq    dropflow      --    2  16    --  01:00 Q   --
"""


def test_jobs_of_pbs_are_known_although_their_ids_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`qsub` prints the whole id, and `qstat` as much of it as its column holds. Only jobs of this user are listed."""
    qstat = tmp_path / "qstat"
    qstat.write_text(f"#!/bin/sh\ntest \"$*\" = '-u alice' && cat <<'END'\n{_QSTAT}END\n")
    qstat.chmod(0o755)
    monkeypatch.setenv("LOGNAME", "alice")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    jobs = ["1234567.pbs-server.example.org", "1234568.pbs-server.example.org", "123456.pbs-server.example.org"]

    states = SYSTEMS["pbs"].states_of_jobs(jobs)

    assert {job: state.word for job, state in states.items()} == {jobs[0]: "RUNNING", jobs[1]: "PENDING"}


def _print_by_submit(text: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sbatch", "qsub"):
        command = path / name
        command.write_text(f"#!/bin/sh\necho '{text}'\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")


@pytest.mark.parametrize("text", ["", "Welcome to cluster X"])
def test_a_batch_system_that_tells_no_number_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A job without a number could be neither watched nor cancelled."""
    _print_by_submit(text, tmp_path, monkeypatch)

    with pytest.raises(BatchSystemError, match="sbatch printed no number of the job"):
        SYSTEMS["slurm"].submit_job(tmp_path / "job.sh", ())


@pytest.mark.parametrize(
    ("system", "printed", "number"),
    [
        ("slurm", "17", "17"),
        ("slurm", "17;gpu", "17"),
        ("pbs", "17.server-1", "17.server-1"),
        ("pbs", "17[].server", "17[].server"),
        ("sge", "17", "17"),
        ("sge", "17.1-10:1", "17"),
    ],
)
def test_the_number_of_a_job_is_found_between_greetings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, printed: str, number: str
) -> None:
    """Wrappers of sites print lines before and after it, also a version, which is no number of a job."""
    _print_by_submit(f"Welcome to cluster X\n\n  {printed}\nHave a nice day\n23.11.4", tmp_path, monkeypatch)

    assert SYSTEMS[system].submit_job(tmp_path / "job.sh", ()) == number


@pytest.mark.parametrize(
    ("letter", "word", "has_begun", "is_over"),
    [
        ("W", "PENDING", False, False),
        ("T", "PENDING", False, False),
        ("M", "MOVED", False, False),
        ("H", "HELD", False, False),
        ("?", "UNKNOWN", False, False),
        ("B", "RUNNING", True, False),
        ("S", "SUSPENDED", True, False),
        ("U", "SUSPENDED", True, False),
        ("X", "COMPLETED", True, True),
        ("F", "COMPLETED", True, True),
    ],
)
def test_the_states_of_jobs_of_pbs(letter: str, word: str, *, has_begun: bool, is_over: bool) -> None:
    """A pool would cancel a job that has begun and has no node, so one that waits or is in a new state has not."""
    (state,) = (
        SYSTEMS["pbs"].read_states(_QSTAT.replace(" R 00:01", f" {letter} 00:01").partition("\n1234568")[0]).values()
    )

    assert (state.word, state.has_begun, state.is_over) == (word, has_begun, is_over)


@pytest.mark.parametrize(("word", "has_begun"), [("REQUEUE_HOLD", False), ("SPECIAL_EXIT", False), ("STAGE_OUT", True)])
def test_a_state_of_slurm_that_is_not_known_has_not_begun(word: str, *, has_begun: bool) -> None:
    """Most of the rarer states are those of jobs that wait."""
    (state,) = SYSTEMS["slurm"].read_states(f"17|{word}|None\n").values()

    assert state.has_begun is has_begun


@pytest.mark.parametrize(
    ("session", "name"), [("2mass", "dropflow-2mass"), ("größe 1", "gr--e-1"), ("", "dropflow"), ("m31_b.2", "m31_b.2")]
)
def test_names_of_jobs_are_those_that_batch_systems_take(session: str, name: str) -> None:
    """They begin with a letter, and have letters, digits and signs of ASCII: Grid Engine refuses others."""
    request = JobRequest(system="sge", session=session, nodes=1, seconds=0, margin=0, goes_on=False, results="")

    assert f"-N {name}" in SYSTEMS["sge"].directives(request, Facility(), Path("log"))


@pytest.mark.parametrize("system", ["slurm", "pbs", "sge"])
@pytest.mark.parametrize("directory", ["my jobs", 'a"b', "it's", "50%", "$HOME", "a\\b"])
def test_a_path_that_batch_systems_misread_is_refused_before_a_job_is_submitted(system: str, directory: str) -> None:
    """They would write the output elsewhere, or refuse a directive with a text that does not tell why."""
    request = JobRequest(system=system, session="s", nodes=1, seconds=0, margin=0, goes_on=False, results="")

    with pytest.raises(UsageError, match="batch systems take"):
        SYSTEMS[system].directives(request, Facility(), Path("/home/user", directory, "output.log"))


def test_an_installation_ends_with_its_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared connection that ssh leaves in the background keeps the standard error of the first command open."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\ncat >/dev/null\nsleep 60 </dev/null >/dev/null &\necho $! >{tmp_path}/kept\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(installation, "_INSTALL_SECONDS", 20.0)

    hosts, problems = installation.install_on([SshHost(name="a")])
    os.kill(int((tmp_path / "kept").read_text()), signal.SIGKILL)

    assert [host.name for host in hosts] == ["a"]
    assert problems == []
