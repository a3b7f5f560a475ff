"""The head of a job of `dropflow launch`, and the node manager of a host over ssh."""

import subprocess
import sys
import tarfile
from errno import ENOSPC
from io import BytesIO
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dropflow.api.client import Client
from dropflow.api.session_records import SessionDetail
from dropflow.cli.exit_status import Exit
from dropflow.cli.jobs import hosts, launched_job, login
from dropflow.cli.jobs.job_submission import ScriptReply, run_order
from dropflow.cli.jobs.pool_process import PoolFacts, PoolOrder, list_pools
from dropflow.cli.output import CommandOutput
from dropflow.errors import BatchSystemError, ConflictError, JobRefusedError, StorageError, WorldError
from dropflow.states import UNKNOWN
from dropflow.submission.manager_records import record_job
from managers.jobs import job_directory
from managers.jobs.batch import Facility, JobOrder
from managers.jobs.job_directory import JobRequest, JobStatus, new_job_directory
from managers.jobs.pool import PoolSettings
from managers.jobs.ssh import SshHost, node_input
from managers.keys import create, load
from tests.fake_manager import manager_with_sessions
from tests.processes import environment
from tests.virtual_clock import VirtualClock

_REQUEST = JobRequest(system="ssh", session="s", nodes=1, seconds=0.0, margin=0.0, goes_on=True, results="")


def _detail(**changes: object) -> SessionDetail:
    manager = manager_with_sessions()
    return msgspec.structs.replace(manager.session(manager.sessions()[0].session), **changes)


@pytest.mark.slow
def test_a_session_whose_nodes_do_not_answer_ends_its_job_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job does not wait without end for a session that is UNKNOWN."""
    monkeypatch.setattr(launched_job, "_AWAY_SECONDS", 0.0)
    job = new_job_directory(tmp_path, "job")
    unknown = _detail(status=UNKNOWN, text="alpha is unavailable")

    class Island(Client):
        def watch(self, session: str, *, version: int, seconds: float) -> SessionDetail:
            assert (session, version, seconds > 0) == (unknown.session, unknown.version, True)
            return unknown

    head = launched_job._JobHead(job, _REQUEST, launched_job._JobSignals(_REQUEST))
    with Island("http://127.0.0.1:9") as island, pytest.raises(BatchSystemError, match="UNKNOWN for 0 s: alpha is un"):
        head._follow(island, unknown)


def _slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have commands of Slurm of this test; return their files: ``sbatch`` is run, and ``squeue`` is printed."""
    bin_, home = tmp_path / "bin", tmp_path / "home"
    bin_.mkdir()
    for name, text in (("sbatch", '. "$HOME/sbatch"'), ("squeue", 'cat "$HOME/squeue"')):
        (bin_ / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin_ / name).chmod(0o755)
    home.mkdir()
    (home / "sbatch").write_text("echo 41")
    (home / "squeue").touch()
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    return home


def _order(system: str = "slurm") -> JobOrder:
    request = msgspec.structs.replace(_REQUEST, system=system, seconds=60.0)
    return JobOrder(request=request, site=Facility(), arguments=(), detach=True, dry_run=False)


def test_the_directory_of_a_job_that_runs_gets_no_second_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the terminal of `launch` was closed; once the job has ended, another one goes on with its session."""
    home = _slurm(tmp_path, monkeypatch)
    job = new_job_directory(tmp_path, "job")
    assert run_order(CommandOutput(), _order(), job) is Exit.FINISHED
    (home / "squeue").write_text("41|RUNNING|None\n")
    for system in ("slurm", "ssh"):
        with pytest.raises(ConflictError, match="job 41 is RUNNING in this directory") as caught:
            run_order(CommandOutput(), _order(system), job)
    (home / "squeue").write_text("41|COMPLETED|None\n")

    assert "scancel 41" in caught.value.hint
    assert run_order(CommandOutput(), _order(), job) is Exit.FINISHED


@pytest.mark.parametrize(
    ("sbatch", "is_known", "is_kept"),
    [("exit 1", True, True), ("exit 1", False, False), ("echo later", False, True)],
    ids=["of a former job", "new and refused", "new and without a number"],
)
def test_a_directory_with_a_job_outlives_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sbatch: str, is_known: bool, is_kept: bool
) -> None:
    """The graph of a job that was cancelled before it began stays, and that of a job that may be queued."""
    home = _slurm(tmp_path, monkeypatch)
    job = new_job_directory(tmp_path, "job")
    job.graph.touch()
    if is_known:
        run_order(CommandOutput(), _order(), job)
    (home / "sbatch").write_text(sbatch)

    with pytest.raises((BatchSystemError, JobRefusedError), match=r"no number|refused"):
        run_order(CommandOutput(), _order(), job)
    assert job.graph.exists() is is_kept


def test_results_of_a_login_node_remove_no_directory(tmp_path: Path) -> None:
    """A directory in the place of a result is kept each time, and files beside the directories of results come, too."""
    sent, here = tmp_path / "sent", tmp_path / "here"
    (sent / "results" / "maps").mkdir(parents=True)
    (sent / "results" / "maps" / "new.fits").write_text("new")
    (sent / "report.json").write_text("{}")
    (here / "results" / "maps").mkdir(parents=True)
    (here / "results" / "maps" / "thesis.txt").write_text("precious")
    for _ in range(2):
        archive = BytesIO()
        with tarfile.open(fileobj=archive, mode="w|") as members:
            members.add(sent, arcname="")
        archive.seek(0)
        login._unpack(archive, here)

    assert sorted(str(path.relative_to(here)) for path in here.rglob("*.*") if path.is_file()) == [
        "report.json",
        "results/maps.before-fetch-1/new.fits",
        "results/maps.before-fetch/thesis.txt",
        "results/maps/new.fits",
    ]


def test_jobs_in_a_row_that_complete_nothing_are_counted() -> None:
    """The count begins again with a job that completes more, and with the first one."""
    some = _detail()
    more = msgspec.structs.replace(
        some, counts=msgspec.structs.replace(some.counts, completed=some.counts.completed + 1)
    )
    before = JobStatus(detail=some, idle=2)

    assert [before.idle_after(one) for one in (some, more, None)] == [3, 0, 3]
    assert JobStatus().idle_after(None) == 1


def test_a_process_that_does_not_end_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of 'dropflow down' names a process that ignores SIGTERM; one that has ended is no error."""
    monkeypatch.setattr(hosts, "_END_SECONDS", 0.05)
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with Popen([sys.executable, "-c", program], stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            with pytest.raises(WorldError, match=f"process {process.pid} has not ended within 0.05 s"):
                hosts.end_process(process.pid)
        finally:
            process.kill()
    hosts.end_process(process.pid)


def test_a_full_disk_ends_no_session_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far the job is gets written when there is room again. That it is over must be written."""

    def full(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    job = new_job_directory(tmp_path, "job")
    head = launched_job._JobHead(job, _REQUEST, launched_job._JobSignals(_REQUEST))
    monkeypatch.setattr(head, "_clock", clock := VirtualClock())
    with monkeypatch.context() as patch:
        patch.setattr(job_directory, "replace_file", full)
        head.tell("running")
        with pytest.raises(StorageError, match="No space left"):
            head.tell("over")
    clock.advance(11.0)
    head.tell("running")

    assert job.status is not None
    assert job.status.state == "running"


@pytest.mark.usefixtures("home")
def test_the_list_of_pools_leaves_a_damaged_directory_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are listed, and a note has the directory and the reason."""
    settings = PoolSettings(least=0, most=4, idle=1.0, seconds=60.0, margin=1.0, every=1.0)
    for name in ("good", "damaged", "half"):
        (path := tmp_path / name).mkdir()
        order = PoolOrder(name=name, island="http://i", settings=settings, site=Facility(), arguments=())
        (path / "pool.json").write_bytes(b"{" if name == "damaged" else msgspec.json.encode(order))
        (path / "state.json").write_bytes(msgspec.json.encode(PoolFacts()))
        record_job(f"pool-{name}", path)
    (tmp_path / "good" / "wanted").write_text("on")

    assert list_pools(CommandOutput()) is Exit.FINISHED
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["pool", "good"]
    assert f"{tmp_path}/damaged is left out: the record of the job is damaged\n" in shown.err
    assert f"{tmp_path}/half is left out: this is not the directory of a pool\n" in shown.err


def test_a_login_node_may_greet(capsys: pytest.CaptureFixture[str]) -> None:
    """What the shell of a login node prints before the answer is no part of it."""
    answer = msgspec.json.encode(ScriptReply(script="#!/bin/sh")) + b"\n"
    process: Any = SimpleNamespace(stdout=BytesIO(b"Welcome to the cluster\n\n" + answer), wait=lambda: 0)
    order: Any = SimpleNamespace(dry_run=True, detach=False, site=SimpleNamespace(directory="jobs"))

    assert login._answer(CommandOutput(), "cluster", order, Path("results"), process) is Exit.FINISHED
    assert capsys.readouterr().out == "#!/bin/sh\n"


@pytest.mark.slow
def test_nothing_is_left_of_the_key_of_a_node_that_is_killed(tmp_path: Path) -> None:
    """A node manager over ssh has the cluster key in no file."""
    secret = create(tmp_path / "key").secret.decode()
    host = SshHost(name="alpha", address="127.0.0.1", directory=f"{tmp_path}/nodes")
    order = node_input(host, key=tmp_path / "key", root="job", options=("--output", "json", "--workers", "1"))
    command = [sys.executable, "-m", "dropflow", "launch", "host"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path), cwd=tmp_path
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        node.stdin.write(order)
        node.stdin.flush()
        ready = msgspec.json.decode(node.stdout.readline())
        with Client(ready["url"], secret=load(tmp_path / "key").secret) as client:
            name = client.info().name
        node.kill()
    files = [path for path in (tmp_path / "nodes").rglob("*") if path.is_file()]

    assert (name, files != []) == ("alpha", True)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
