"""MPI programs: the ranks of a job are drops of their own, which run one command together.

The attempts of all ranks meet in the process of their session. The last to arrive starts the job: with ``mpirun`` or
``mpiexec``, or another launcher that the node names, or as plain processes without any. All ranks end with the job, so
a failure of one is a failure of all. The placement keeps the ranks of a job on one node.

Each rank runs the command with its own values for placeholders, and with these variables:

=====================  ======================================================
variable               value
=====================  ======================================================
``DROPFLOW_RANK``      number of the rank, from 0
``DROPFLOW_RANKS``     number of ranks of the job
=====================  ======================================================
"""

import shlex
import shutil
import tempfile
import threading
from pathlib import Path
from typing import ClassVar

from dropflow.apps.api import Context
from dropflow.apps.shell import COMMAND_PARAMETERS, BashShellApp
from dropflow.engine.parameters import Component, Parameter
from dropflow.errors import AppError, MissingDependencyError
from dropflow.graph.templates import Kind, Template

__all__ = ["MPIApp"]

_LAUNCHERS = ("mpirun", "mpiexec")
_SECONDS = 0.5
"""Longest time between two checks for cancellation. `Context` cannot wake a thread that waits for others."""
_PATIENCE = 600.0
"""Seconds that a rank waits for the others. Their inputs may come later, or never if a producer failed."""

_START = """\
rank="${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-$DROPFLOW_RANK}}}}"
[ -n "$rank" ] || { echo "the launcher sets no variable with the rank" >&2; exit 90; }
export DROPFLOW_RANK="$rank"
exec /bin/bash "$(dirname "$0")/$rank.sh"
"""
_PROCESSES = """\
failed="$(dirname {start})/failed"
trap 'exit "$(head -n 1 "$failed")"' USR1
run() {{ DROPFLOW_RANK=$1 /bin/bash {start} || {{ echo $? >> "$failed"; kill -USR1 $$; }}; }}
for ((rank = 0; rank < DROPFLOW_RANKS; rank++)); do run $rank & done
wait
[ ! -s "$failed" ] || exit "$(head -n 1 "$failed")"
"""
_OPEN_MPI = {
    # Graphs decide how many ranks there are, and containers often run as root.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


class _Job:
    """The ranks of one attempt of a job that have arrived. All is guarded by `_CHANGED`."""

    def __init__(self) -> None:
        self.commands: dict[int, str] = {}
        self.left: set[int] = set()
        self.outcome: str | None = None
        """Empty if the job has succeeded; None while it has not ended."""


_CHANGED = threading.Condition()
"""The attempts of ranks run in threads of one process, and meet here: no queue has many ends."""
_JOBS: dict[tuple[str, str, tuple[int, ...], int], _Job] = {}


class MPIApp(BashShellApp):
    """Runs a command as an MPI program."""

    component = Component(
        name="MPIApp",
        kind=Kind.APP,
        category="Mpi",
        dropclass="dlg.apps.mpi.MPIApp",
        description="Runs a command in several ranks, with mpirun if it is installed. Outputs complete when all ranks "
        "have ended.",
        parameters=(
            *COMMAND_PARAMETERS,
            Parameter(
                name="num_of_procs",
                type="Integer",
                default=1,
                minimum=1,
                parameter_type="ComponentParameter",
                description="Number of ranks.",
            ),
            Parameter(
                name="launcher",
                parameter_type="ComponentParameter",
                default="auto",
                description="What starts the ranks: auto for mpirun or mpiexec, and processes if both are missing; "
                "none for processes; or a command such as 'srun -n %n', in which %n is the number of ranks.",
            ),
        ),
    )
    waits: ClassVar[bool] = True
    fuses: ClassVar[bool] = False

    def __init__(self, template: Template) -> None:
        super().__init__(template)
        last = template.axes[-1] if template.axes else None
        self.ranks = last.size if last is not None and last.kind == "mpi" else 1

    def run(self, context: Context) -> None:
        """Wait for the other ranks, run the job, and end with it.

        Raises
        ------
        AppError
            The job failed, or a rank did not arrive.
        MissingDependencyError
            The launcher of the node is not installed.
        """
        rank = context.index[-1] if self.ranks > 1 else 0
        key = (
            str(context.directory),
            self.template.key,
            tuple(context.index[: len(context.index) - 1]),
            context.attempt,
        )
        command = self.filled(context)
        with _CHANGED:
            job = _JOBS.setdefault(key, _Job())
            job.commands[rank] = command
            is_last = len(job.commands) == self.ranks
            _CHANGED.notify_all()
        try:
            if is_last:
                self._lead(context, job)
            else:
                self._follow(context, job, rank)
        finally:
            with _CHANGED:
                job.left.add(rank)
                if len(job.left) == len(job.commands) or job.outcome is None:
                    _JOBS.pop(key, None)
                if job.outcome is None:
                    job.outcome = f"rank {rank} was stopped"
                _CHANGED.notify_all()
        if job.outcome:
            raise AppError(f"the MPI job failed: {job.outcome}", hint="see the log of the rank that started it")

    def _lead(self, context: Context, job: _Job) -> None:
        with tempfile.TemporaryDirectory(prefix="mpi-", dir=context.directory) as folder:
            for rank, command in job.commands.items():
                (Path(folder) / f"{rank}.sh").write_text(command, encoding="utf-8")
            start = Path(folder) / "start.sh"
            start.write_text(_START, encoding="utf-8")
            text, values = self._launch(shlex.quote(str(start))), self.around.values()
            by = "as processes" if text.startswith("failed=") else f"by {text.partition(' /bin/bash ')[0]}"
            context.log(f"{self.ranks} ranks {by}: {self.command[:200]}")
            status = context.command(
                self.around.prelude + text,
                {"DROPFLOW_RANKS": str(self.ranks), **_OPEN_MPI, **values},
                hidden=tuple(self.around.secrets(values).values()),
            )
        with _CHANGED:
            if job.outcome is None:
                job.outcome = f"it ended with status {status}: {self.command[:200]}" if status else ""

    def _launch(self, start: str) -> str:
        """Return the command that starts the script `start` in all ranks."""
        launcher = str(self.parameters["launcher"]).strip()
        if launcher == "auto":
            launcher = next((f"{name} -n %n" for name in _LAUNCHERS if shutil.which(name)), "none")
        if launcher == "none":
            return _PROCESSES.format(start=start)
        program = shlex.split(launcher)[0] if launcher else ""
        if not shutil.which(program):
            raise MissingDependencyError(
                f"the launcher '{program}' of MPI node '{self.template.name}' is not installed",
                hint="install it, or set the field launcher to none, which starts plain processes",
            )
        return f"{launcher.replace('%n', str(self.ranks))} /bin/bash {start}"

    def _follow(self, context: Context, job: _Job, rank: int) -> None:
        waited = 0.0
        while True:
            with _CHANGED:
                if job.outcome is not None:
                    break
                _CHANGED.wait(_SECONDS)
                arrived = len(job.commands)
            context.wait(0)
            waited = waited + _SECONDS if arrived < self.ranks else 0.0
            if waited > _PATIENCE:
                raise AppError(
                    f"rank {rank} waited for the others: {arrived} of {self.ranks} came in {_PATIENCE:g} s",
                    hint="give all ranks the same inputs, so that they begin together",
                )
        context.log("the output of the job is in the log of the rank that came last")
