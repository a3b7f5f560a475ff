"""Batch systems as rows of one table: their scripts, and the calls of their commands.

A script has directives, the lines that a facility needs, and one command: ``dropflow launch head``, which starts the
node managers by the command behind ``--``, once on each host. Only that command, the directives and the calls of
``sbatch``, ``qsub`` and others differ between batch systems.

Slurm is used with ``srun``, Grid Engine with ``qrsh -inherit``; PBS with ``pbsdsh`` is untried.
"""

import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from dropflow.errors import (
    BadFileError,
    BatchSystemError,
    DropflowError,
    JobRefusedError,
    MissingDependencyError,
    UsageError,
)
from dropflow.version import __version__
from managers.jobs.job_directory import JobDirectory, JobRequest, seconds_of_time

_CALL_SECONDS = 60.0
"""Seconds after which a command of the batch system is stopped, and counts as failed."""
_SECRETS = ("DROPFLOW_TOKEN", "DROPFLOW_URL")
"""Variables of the user that a batch system would otherwise keep, and show to its administrators."""
_PLAIN_PATH = re.compile(r"[^\s%'\"`$\\]+")
_SLURM_OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
_BEGUN = ("RUNNING", "SUSPENDED", "COMPLETING", "COMPLETED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED")
"""States of jobs that have begun. One that is not known has not: a pool cancels a job that has begun without a node."""


class Facility(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of jobs at one site.

    Attributes
    ----------
    partition, account, time : str
        The partition or queue, the account, and the walltime, unless options of the command name others.
    modules : tuple of str
        Environment modules to load.
    setup : tuple of str
        Lines of shell that run before Python starts, on the first host.
    lines : tuple of str
        Further arguments of ``sbatch`` or ``qsub``, such as ``--constraint=cpu``; one a line of the script.
    python : str
        The Python interpreter, or the directory of a virtual environment, in which dropflow is installed on the hosts.
    directory : str
        Where directories of jobs are made, unless an option of the command names another place.
    """

    partition: str = ""
    account: str = ""
    time: str = ""
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    python: str = ""
    directory: str = "dropflow-jobs"

    def __post_init__(self) -> None:
        """Refuse what is not a walltime, by a `ValueError`."""
        seconds_of_time(self.time or "0")

    @property
    def interpreter(self) -> str:
        """The Python interpreter of the hosts."""
        if not self.python:
            return sys.executable
        given = Path(self.python).expanduser()
        return str(given / "bin" / "python" if given.is_dir() else given)

    @property
    def seconds(self) -> float:
        """The walltime in seconds; 0 if it is that of the partition."""
        return seconds_of_time(self.time or "0")

    def margin(self, wanted: float) -> float:
        """Return how many seconds before the walltime work stops: at most a quarter of it."""
        return min(wanted, self.seconds / 4) if self.time else wanted


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A job to submit, here or on a login node.

    Attributes
    ----------
    request : JobRequest
        What it is to do; results without a directory go into that of the job.
    site : Facility
        What it needs.
    arguments : tuple of str
        For the command that submits it.
    detach, dry_run : bool
        Whether it is not waited for, or not submitted.
    quiet : bool
        Whether a login node prints no notes.
    size : int
        Bytes of the graph that follow an order to a login node.
    version : str
        Version of dropflow at the other end.
    """

    request: JobRequest
    site: Facility
    arguments: tuple[str, ...]
    detach: bool
    dry_run: bool
    quiet: bool = False
    size: int = 0
    version: str = __version__


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its batch system sees it: a word such as ``PENDING``, and why; `is_over` if it will not run again."""

    word: str
    reason: str = ""
    is_over: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether it runs, or has run."""
        return self.is_over or self.word in _BEGUN


class BatchSystem(NamedTuple):
    """One batch system.

    Attributes
    ----------
    marker : str
        Text with which directives begin.
    directives : callable
        Returns them for a request, a facility and the path of the output.
    spread : callable
        Returns the command that runs a command once on each host, given the number of hosts and that command.
    number : str
        Regular expression for the line with the number of a job, which is its first group, in the answer of `submit`.
    submit, states, cancel, requeue : tuple of str
        The commands that submit a script, list the jobs of the user, and cancel or start again the job whose number
        follows. ``{user}`` is the name of the user. An empty `requeue`: it does not start jobs again.
    preempted : tuple of str
        The command that prints when the job whose number follows was preempted, if it was. Empty: it cannot be asked.
    read_states : callable
        Returns the states in an answer of `states`, by the number of the job.
    rank, processors : str
        Environment variables with the number of the host in a job, and of the processors that the job has there.
    job : str
        Environment variable with the number of the job.
    has_input : bool
        Whether the end of the standard input of `spread` reaches the commands on the hosts. Signals do not do: ``srun``
        kills its tasks at once after SIGTERM.
    is_here : bool
        Whether jobs are processes of this host, which end when they are not waited for any more.
    """

    marker: str
    directives: Callable[[JobRequest, Facility, Path], list[str]]
    spread: Callable[[int, Sequence[str]], list[str]]
    number: str
    submit: tuple[str, ...]
    states: tuple[str, ...]
    cancel: tuple[str, ...]
    requeue: tuple[str, ...]
    read_states: Callable[[str], dict[str, JobState]]
    rank: str
    processors: str
    job: str
    preempted: tuple[str, ...] = ()
    has_input: bool = False
    is_here: bool = False

    def submit_job(self, script: Path, arguments: Sequence[str]) -> str:
        """Submit a script with further arguments, and return the number of the job.

        Raises
        ------
        JobRefusedError
            The batch system refuses it.
        BatchSystemError
            It tells no number.
        MissingDependencyError
            This host has no such command.
        """
        answer = _call([*self.submit, *arguments, str(script)], what="the job was refused", refusal=JobRefusedError)
        # A site's wrapper of the command may greet before and after it.
        numbers = [found[1] for line in answer.splitlines() if (found := re.fullmatch(self.number, line.strip()))]
        if not numbers:
            text = f"{self.submit[0]} printed no number of the job, but {answer.strip()[-200:]!r}"
            raise BatchSystemError(text, hint="look whether it is queued")
        return numbers[-1]

    def states_of_jobs(self, jobs: Iterable[str]) -> dict[str, JobState]:
        """Return the states of those of `jobs` that the batch system still knows.

        PBS cuts the name of the server, which follows the number, where it lists jobs.
        """
        command = [getpass.getuser() if word == "{user}" else word for word in self.states]
        known = self.read_states(_call(command, what="the jobs cannot be listed"))
        states = {job.partition(".")[0]: state for job, state in known.items()}
        return {job: states[number] for job in jobs if (number := job.partition(".")[0]) in states}

    def cancel_job(self, job: str) -> None:
        """Cancel a job."""
        _call([*self.cancel, job], what=f"job {job} cannot be cancelled")

    def requeue_job(self, job: str) -> None:
        """Let a job start again."""
        _call([*self.requeue, job], what=f"job {job} cannot be started again")

    def is_preempted(self, job: str) -> bool:
        """Return whether the batch system is about to end a job for another one."""
        if not self.preempted:
            return False
        return any(map(str.isdigit, _call([*self.preempted, job], what=f"job {job} cannot be looked up")))


def facility_of(path: str | None) -> Facility:
    """Return what is in a facility file.

    Raises
    ------
    BadFileError
        It cannot be read, or has other keys or types.
    """
    if path is None:
        return Facility()
    try:
        return msgspec.convert(tomllib.loads(Path(path).read_text(encoding="utf-8")), type=Facility)
    except OSError as error:
        raise BadFileError(f"the facility file cannot be read: {error.strerror}", where=path) from error
    except (ValueError, msgspec.MsgspecError) as error:
        hint = f"it is TOML with the keys {', '.join(Facility.__struct_fields__)}"
        raise BadFileError(f"the facility file cannot be used: {error}", where=path, hint=hint) from error


def job_script(system: BatchSystem, job: JobDirectory, request: JobRequest, facility: Facility) -> str:
    """Return the batch script of a job. It has paths and numbers, and nothing secret."""
    base = [facility.interpreter, "-m", "dropflow", "launch"]
    member = [*base, "member", str(job.path)]
    spread = shlex.join(system.spread(request.nodes, member))
    command = f"{shlex.join([*base, 'head', str(job.path)])} -- \\\n  {spread}"
    if request.is_pool:
        command = f'{shlex.join(member)} "${system.job}"'
    modules = [shlex.join(["module", "load", *facility.modules])] if facility.modules else []
    directives = [*system.directives(request, facility, job.output), *facility.lines]
    lines = [
        "#!/bin/bash",
        *(f"{system.marker} {directive}" for directive in directives),
        "umask 077",
        *modules,
        *facility.setup,
        f"exec {command}",
    ]
    return "\n".join(lines) + "\n"


def _call(command: Sequence[str], *, what: str, refusal: type[DropflowError] = BatchSystemError) -> str:
    """Run a command of a batch system and return what it printed."""
    if shutil.which(command[0]) is None:
        hint = "run this on a login node of the cluster, where its commands are installed"
        raise MissingDependencyError(f"this host has no command {command[0]}", hint=hint)
    kept = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CALL_SECONDS,
            env=kept,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BatchSystemError(f"{what}: no answer within {_CALL_SECONDS:g} s", where=command[0]) from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        text = "; ".join(line.removeprefix(f"{command[0]}: error: ") for line in lines)
        raise refusal(f"{what}: {text or f'status {done.returncode}'}", where=command[0])
    return done.stdout


# Slurm.


def _slurm_directives(request: JobRequest, facility: Facility, output: Path) -> list[str]:
    return [
        *_named(
            ("--job-name={}", "--time={}", "--partition={}", "--account={}", "--output={}"), request, facility, output
        ),
        f"--nodes={request.nodes}",
        "--ntasks-per-node=1",
        "--open-mode=append",
        "--no-kill",
        "--requeue" if request.goes_on else "--no-requeue",
        f"--signal=B:{'TERM' if request.is_pool else 'USR1'}@{request.margin:.0f}",
    ]


def _slurm_spread(nodes: int, member: Sequence[str]) -> list[str]:
    return [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--cpu-bind=none",
        *member,
    ]


def _slurm_states(answer: str) -> dict[str, JobState]:
    rows = [line.split("|", 2) for line in answer.splitlines() if line.count("|") == 2]
    return {
        job.strip(): JobState(word=word, reason="" if reason == "None" else reason, is_over=word in _SLURM_OVER)
        for job, word, reason in rows
    }


def _named(forms: Sequence[str], request: JobRequest, facility: Facility, output: Path, *, time: str = "") -> list[str]:
    """Return the directives for the name of a job, its walltime, partition, account and output, of those it has.

    The walltime is as Slurm has it, where a plain number is minutes, or `time`. Names of jobs begin with a letter, as
    Grid Engine demands.

    Raises
    ------
    UsageError
        The path of the output has a character that batch systems take for something else.
    """
    if not _PLAIN_PATH.fullmatch(str(output)):
        raise UsageError(
            "a job cannot write its output there: batch systems take blanks, quotes, %, $ and backslashes in paths for "
            "something else",
            where=str(output),
            hint="give another --directory, and a pool another --name",
        )
    name = "".join(sign if (sign.isascii() and sign.isalnum()) or sign in "-_." else "-" for sign in request.session)
    name = (name if name[:1].isalpha() else f"dropflow-{name}".rstrip("-"))[:60]
    given = (name, time or facility.time, facility.partition, facility.account, str(output))
    return [form.format(value) for form, value in zip(forms, given, strict=True) if value]


# PBS, untried, and Grid Engine.


def _seconds(facility: Facility) -> str:
    return f"{facility.seconds:.0f}" if facility.time else ""


def _pbs_directives(request: JobRequest, facility: Facility, output: Path) -> list[str]:
    return [
        *_named(
            ("-N {:.15}", "-l walltime={}", "-q {}", "-A {}", "-o {}"),
            request,
            facility,
            output,
            time=_seconds(facility),
        ),
        f"-l nodes={request.nodes}:ppn=1",
        "-j oe",
        "-r y" if request.goes_on else "-r n",
    ]


def _pbs_states(answer: str) -> dict[str, JobState]:
    words = {
        "Q": "PENDING",
        "W": "PENDING",  # its time to begin has not come
        "T": "PENDING",  # on its way to another queue or server
        "H": "HELD",
        "M": "MOVED",  # to another server, which knows its state
        "B": "RUNNING",  # an array with a job that has begun
        "R": "RUNNING",
        "S": "SUSPENDED",
        "U": "SUSPENDED",  # by the user of its workstation
        "E": "COMPLETING",
        "C": "COMPLETED",
        "F": "COMPLETED",
        "X": "COMPLETED",  # a job of an array
    }
    states = {}
    for line in answer.splitlines():
        columns = line.split()
        if columns and columns[0][:1].isdigit():
            letter = next((column for column in reversed(columns) if column in words), "")
            states[columns[0]] = JobState(word=words.get(letter, "UNKNOWN"), is_over=letter in ("C", "F", "X"))
    return states


def _sge_directives(request: JobRequest, facility: Facility, output: Path) -> list[str]:
    return [
        *_named(("-N {}", "-l h_rt={}", "-q {}", "-A {}", "-o {}"), request, facility, output, time=_seconds(facility)),
        "-j y",
        "-notify",
        "-r n",
    ]


def _sge_spread(nodes: int, member: Sequence[str]) -> list[str]:
    if nodes == 1:
        return [*member, "0"]
    hosts = f'"${{PE_HOSTFILE:?several hosts need a parallel environment: -- -pe NAME {nodes}}}"'
    # All processes of a job get the signals that announce its end, which are for the head of the job. The commands get
    # this command's input, not that of the loop, nor /dev/null, which commands behind an & have.
    each = f'while read host _; do qrsh -inherit "$host" {shlex.join(member)} "$k" <&3 & k=$((k + 1)); done'
    return ["bash", "-c", f"trap '' USR1 USR2; exec 3<&0; k=0; {each} <{hosts}; wait"]


def _sge_states(answer: str) -> dict[str, JobState]:
    rows = [line.split() for line in answer.splitlines()]
    return {
        row[0]: JobState(word=_sge_word(row[4]), reason=row[4] if "E" in row[4] else "")
        for row in rows
        if len(row) > 4 and row[0].isdigit()
    }


def _sge_word(letters: str) -> str:
    """Return what the letters of a state mean, see sge_status(5)."""
    if "q" in letters:
        return "HELD" if "h" in letters else "PENDING"
    return "RUNNING" if set(letters) & set("rt") else "SUSPENDED"


# Hosts over ssh: a job is a process of this host, whose number is its process id.


def _ssh_states(answer: str) -> dict[str, JobState]:
    rows = [line.split(maxsplit=1) for line in answer.splitlines()]
    return {row[0]: JobState(word="RUNNING") for row in rows if " launch head " in row[-1]}


SYSTEMS = {
    "slurm": BatchSystem(
        marker="#SBATCH",
        directives=_slurm_directives,
        spread=_slurm_spread,
        number=r"(\d+)(?:;.*)?",  # the name of the cluster
        submit=("sbatch", "--parsable"),
        states=("squeue", "--noheader", "--me", "--states=all", "--format=%A|%T|%r"),
        cancel=("scancel",),
        requeue=("scontrol", "requeue"),
        preempted=("squeue", "--noheader", "--Format=PreemptTime", "--jobs"),
        read_states=_slurm_states,
        rank="SLURM_PROCID",
        processors="SLURM_CPUS_ON_NODE",
        job="SLURM_JOB_ID",
        has_input=True,
    ),
    "pbs": BatchSystem(
        marker="#PBS",
        directives=_pbs_directives,
        spread=lambda _, member: ["pbsdsh", "-u", *member],
        number=r"(\d+(?:\[\])?(?:\.[A-Za-z]\S*)?)",  # of an array, with the name of the server
        submit=("qsub",),
        states=("qstat", "-u", "{user}"),
        cancel=("qdel",),
        requeue=("qrerun",),
        read_states=_pbs_states,
        rank="PBS_NODENUM",
        processors="NCPUS",
        job="PBS_JOBID",
    ),
    "sge": BatchSystem(
        marker="#$",
        directives=_sge_directives,
        spread=_sge_spread,
        number=r"(\d+)(?:\.\d+-\d+:\d+)?",  # the tasks of an array
        submit=("qsub", "-terse", "-w", "e"),
        states=("qstat",),
        cancel=("qdel",),
        requeue=(),
        read_states=_sge_states,
        rank="",
        processors="NSLOTS",
        job="JOB_ID",
        has_input=True,
    ),
    "ssh": BatchSystem(
        marker="# ",
        directives=lambda *_: [],
        spread=lambda _, member: [*member[:-2], "hosts", member[-1]],
        number=r"(\d+)",
        submit=("sh", "-c", 'setsid sh "$0" >>"${0%/*}/output" 2>&1 </dev/null & echo $!'),
        states=("ps", "-e", "-o", "pid=,args="),
        cancel=("kill",),
        requeue=(),
        read_states=_ssh_states,
        rank="",
        processors="",
        job="",
        has_input=True,
        is_here=True,
    ),
}
"""The batch systems that there are templates for."""
