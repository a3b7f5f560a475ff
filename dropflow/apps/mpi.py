"""MPI programs: each rank of a job is a drop, and they run one command together.

The placement keeps the ranks of a job on one node, or each `ranks_per_node` of them. The attempts of the ranks on a
node meet in the process of their session; the last to arrive is the *head* of the job there. The head on the node of
rank 0 is the *leader*: it starts the job with ``mpirun`` or ``mpiexec``, or another launcher that the graph names, or
as plain processes without any. All ranks end with the job, so a failure of one is a failure of all.

Over several nodes, the heads send the leader a message when their ranks have arrived. The leader then claims the
processors of each node, in the order of the names of nodes, so that two jobs never wait for each other. It runs
``mpirun`` of Open MPI with an agent that takes the place of ssh: the head on the other node runs the daemon of Open MPI
as one of its own commands. docs/adr/0044-mpi-over-nodes.md has the reasons.

Each rank runs the command with its own values for placeholders, and with these variables:

=====================  ======================================================
variable               value
=====================  ======================================================
``DROPFLOW_RANK``      number of the rank, from 0
``DROPFLOW_RANKS``     number of ranks of the job
=====================  ======================================================
"""

import contextlib
import json
import os
import shlex
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from dropflow.apps.app_interface import Context
from dropflow.apps.ranks import CHANGED, HEARD, JOBS, NODES, Job, JobNodes, claimed
from dropflow.apps.shell import COMMAND_PARAMETERS, BashShellApp
from dropflow.clock import SystemClock
from dropflow.data.workspace import claim_shared_memory, release_shared_memory
from dropflow.errors import AppError, MissingDependencyError
from dropflow.graph.components import Component, Parameter
from dropflow.graph.templates import RANKS_FIELD, Kind, Template, ranks_per_node

_LAUNCHERS = ("mpirun", "mpiexec")
_DAEMONS = ("orted", "prted")
"""Programs that the agent may start: the daemons of Open MPI 4 and 5."""
_CLOCK = SystemClock()
_SECONDS = 0.5
"""Longest seconds between two checks for cancellation. `Context` cannot wake a thread that waits for other ranks."""
_PATIENCE = 600.0
"""Seconds that a rank waits for the other ranks. Their inputs may come later, or never if a producer failed."""
_ANSWER = 10.0
"""Seconds after the end of a job in which the other nodes must report the ends of their daemons; else they are lost."""

_START = """\
rank="${{OMPI_COMM_WORLD_RANK:-${{PMIX_RANK:-${{PMI_RANK:-${{SLURM_PROCID:-$DROPFLOW_RANK}}}}}}}}"
[ -n "$rank" ] || {{ echo "the launcher sets no variable with the rank" >&2; exit 90; }}
export DROPFLOW_RANK="$rank"
export OMPI_MCA_btl_vader_backing_directory={shared} OMPI_MCA_btl_sm_backing_directory={shared}
cd {directory} && exec /bin/bash {folder}/"$rank.sh"
"""
_PROCESSES = """\
failed="$(dirname {start})/failed"
trap 'exit "$(head -n 1 "$failed")"' USR1
run() {{ DROPFLOW_RANK=$1 /bin/bash {start} || {{ echo $? >> "$failed"; kill -USR1 $$; }}; }}
for ((rank = 0; rank < DROPFLOW_RANKS; rank++)); do run $rank & done
wait
[ ! -s "$failed" ] || exit "$(head -n 1 "$failed")"
"""
_SLURM = {"SLURM_OVERLAP": "1"}
"""A node in a batch job is a step of the job, and holds the processors. Another ``srun`` would wait for them
forever."""
_OPEN_MPI = {
    # Graphs decide how many ranks there are, and containers often run as root.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


_AGENT = """\
#!{python}
import json, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    link.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    sys.exit(int(link.makefile().read() or 1))
"""
"""The script that ``mpirun`` calls as ``agent HOST COMMAND``. It passes its arguments to the leader, and exits with the
status of the command."""
_RUN_START = """/bin/bash -c 'exec /bin/bash "$DROPFLOW_JOB"'"""
"""The script has another path on each node."""


_OWN = ("auto", "none")
"""Values of the field launcher that are not commands."""


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
                name=RANKS_FIELD,
                type="Integer",
                default=0,
                minimum=0,
                parameter_type="ComponentParameter",
                description="Ranks that are together on one node, for a job over several nodes, which needs Open MPI; "
                "0 for all.",
            ),
            Parameter(
                name="launcher",
                parameter_type="ComponentParameter",
                default="auto",
                description="Launcher of the ranks: auto for mpirun or mpiexec, and processes if both are missing; "
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

    def needs(self) -> tuple[str, ...]:
        """Return the needs of the command, and the launcher: that of a job over several nodes, or a named one."""
        named = str(self.parameters["launcher"]).split()[:1]
        launcher = ["mpirun"] if ranks_per_node(self.template) else [name for name in named if name not in _OWN]
        return (*super().needs(), *(f"program:{name}" for name in launcher))

    def run(self, context: Context) -> None:
        """Wait for the other ranks, run the job, and end with it.

        Raises
        ------
        AppError
            The job failed, or a rank did not arrive.
        MissingDependencyError
            The launcher of the node is not installed.
        WorkerDiedError
            Ranks on another node were lost.
        """
        rank = context.index[-1] if self.ranks > 1 else 0
        outer = context.index[: len(context.index) - 1] if self.ranks > 1 else context.index
        key = (str(context.directory), "/".join([self.template.key, *map(str, outer)]))
        known = NODES.get(key[0]) if ranks_per_node(self.template) else None

        def placed() -> tuple[str, ...]:
            return ("",) * self.ranks if known is None else known.of_ranks(self.template.key, outer)

        command = self.filled(context)
        with CHANGED:
            job = JOBS.get(key)
            if job is not None and job.outcome is None and (job.has_begun or job.nodes != placed()):
                job.lose("ranks were placed on another node")
            if job is None or job.outcome is not None:
                job = JOBS[key] = Job(key, placed, "" if known is None else known.node)
            job.commands[rank] = command
            is_last = len(job.commands) == len(job.here)
            CHANGED.notify_all()
        try:
            if not is_last:
                self._follow(context, job, rank)
            elif known is None or not job.others:
                with claimed(job, self.template.cpus, partial(self._await, context, job)):
                    self._lead(context, job)
            elif job.nodes[0] == known.node:
                self._lead_nodes(context, job, known)
            else:
                self._serve(context, job, known)
        finally:
            with CHANGED:
                job.left.add(rank)
                job.end(f"rank {rank} was stopped")
                if len(job.left) == len(job.commands) and JOBS.get(key) is job:
                    del JOBS[key]
        job.raise_outcome()

    # On one node.

    def _lead(self, context: Context, job: Job) -> None:
        with self._scripts(context, job) as (folder, start):
            text = self._launch(shlex.quote(str(start)))
            by = "as processes" if text.startswith("failed=") else f"by {text.partition(' /bin/bash ')[0]}"
            context.log(f"{self.ranks} ranks {by}: {self.command[:200]}")
            self._ended(job, self._execute(context, job, folder, text, _OPEN_MPI))

    @contextlib.contextmanager
    def _scripts(self, context: Context, job: Job) -> Iterator[tuple[Path, Path]]:
        """Write the commands of the ranks here, and the script that each rank starts with."""
        # Open MPI gives the shared memory of two nodes on one host the same name, so it needs different directories.
        with tempfile.TemporaryDirectory(prefix="mpi-", dir=context.directory) as name, _memory(name) as shared:
            folder = Path(name)
            for rank, command in job.commands.items():
                (folder / f"{rank}.sh").write_text(command, encoding="utf-8")
            start = folder / "start.sh"
            places = {"directory": str(context.directory), "folder": name, "shared": shared}
            start.write_text(
                _START.format(**{key: shlex.quote(path) for key, path in places.items()}), encoding="utf-8"
            )
            yield folder, start

    def _execute(self, context: Context, job: Job, folder: Path, text: str, environment: Mapping[str, str]) -> int:
        """Run a command for all ranks here, and return its status."""
        values, pid = self.environment.values(), folder / "pid"
        with CHANGED:
            if job.outcome is not None:
                return 1
            job.has_begun, job.pid = True, pid
        try:
            return context.command(
                f"echo $$ > {shlex.quote(str(pid))}\n{self.environment.prelude}{text}",
                {"DROPFLOW_RANKS": str(self.ranks), **_SLURM, **environment, **values},
                hidden=tuple(self.environment.secrets(values).values()),
            )
        finally:
            with CHANGED:
                job.pid = None

    def _ended(self, job: Job, status: int) -> None:
        with CHANGED:
            job.end(f"it ended with status {status}: {self.command[:200]}" if status else "")

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

    # Over several nodes.

    def _lead_nodes(self, context: Context, job: Job, known: JobNodes) -> None:
        """Run the job on all its nodes, and send them how it has ended."""
        with CHANGED:
            answers = HEARD.setdefault(job.key, {})
        try:
            self._check_launcher()
            self._await(context, job, lambda: all(answers.get(node) == "ready" for node in job.others), _PATIENCE)
            with CHANGED:
                job.has_begun = True
            for node in job.others:
                known.send(node, job.key[1], "queued")
            with contextlib.ExitStack() as claims:
                for node in sorted(set(job.nodes)):
                    if node == known.node:
                        claims.enter_context(claimed(job, self.template.cpus, partial(self._await, context, job)))
                    else:
                        known.send(node, job.key[1], "claim")
                        self._await(context, job, partial(_has_granted, answers, node))
                self._run_over_nodes(context, job, known, answers)
        except (AppError, MissingDependencyError) as error:
            with CHANGED:
                job.end(str(error))
            raise
        finally:
            with CHANGED:
                job.end("its leader was stopped", is_lost=True)
                outcome = f"end {'lost' if job.is_lost else 'failed'} {job.outcome}" if job.outcome else "end"
            for node in job.others:
                known.send(node, job.key[1], outcome)

    def _run_over_nodes(self, context: Context, job: Job, known: JobNodes, answers: dict[str, str]) -> None:
        # The names of the hosts are none that can be looked up: Open MPI would take a host that it finds for this one.
        hosts = {node: f"dropflow-node{number}" for number, node in enumerate(job.others)}
        hosts[known.node] = os.uname().nodename
        nodes = {host: node for node, host in hosts.items()}

        def start_on(host: str, command: str) -> int:
            """Tell the head on a node to start a daemon; return its exit status when it has ended."""
            node = nodes[host]
            known.send(node, job.key[1], f"start {command}")
            with CHANGED:
                CHANGED.wait_for(lambda: answers.get(node, "").startswith(("ended", "left", "ready")))
                return _status(answers[node])

        with self._scripts(context, job) as (folder, start), tempfile.TemporaryDirectory(prefix="mpi-") as private:
            hostfile, agent, address = folder / "hosts", folder / "agent", f"{private}/agent"
            hostfile.write_text("".join(f"{hosts[node]}\n" for node in job.nodes), encoding="utf-8")
            agent.write_text(_AGENT.format(python=sys.executable, address=address), encoding="utf-8")
            agent.chmod(0o700)
            context.log(f"{self.ranks} ranks on the nodes {', '.join(sorted(hosts))}: {self.command[:200]}")
            text = f"exec mpirun -n {self.ranks} --hostfile {shlex.quote(str(hostfile))} --map-by seq {_RUN_START}"
            with _agent_server(address, start_on):
                status = self._execute(context, job, folder, text, {**_by_agent(agent), "DROPFLOW_JOB": str(start)})
            with CHANGED:
                CHANGED.wait_for(lambda: all(answers.get(node) != "granted" for node in job.others), _ANSWER)
                silent = [node for node in job.others if not answers.get(node, "").startswith("ended")]
                if status and silent:
                    job.lose(f"node {silent[0]} does not answer")
        self._ended(job, status)

    def _check_launcher(self) -> None:
        if self.parameters["launcher"] != "auto":
            text = f"the launcher '{self.parameters['launcher']}' cannot start ranks on several nodes"
            raise AppError(text, hint=f"leave the field launcher empty for Open MPI, or set {RANKS_FIELD} to 0")
        program = shutil.which("mpirun")
        command = [program or "false", "--version"]
        about = subprocess.run(command, check=False, capture_output=True).stdout  # noqa: S603 - asks for its name
        if b"Open MPI" not in about:
            raise MissingDependencyError(
                f"mpirun of Open MPI, which MPI node '{self.template.name}' needs on several nodes, is not installed",
                hint=f"install Open MPI on all nodes, or set the field {RANKS_FIELD} to 0",
            )

    def _serve(self, context: Context, job: Job, known: JobNodes) -> None:
        """Run the daemon that the leader on another node asks for, and end as it does."""
        leader, name, answer = job.nodes[0], job.key[1], "left"
        with CHANGED:
            answers = HEARD.setdefault(job.key, {})
            answers.pop(leader, None)
        try:
            known.send(leader, name, "ready")
            self._await(context, job, lambda: leader in answers, _PATIENCE)
            self._await(context, job, lambda: answers[leader] != "queued")
            with (
                claimed(job, self.template.cpus, partial(self._await, context, job))
                if answers[leader] == "claim"
                else contextlib.nullcontext()
            ):
                if answers[leader] == "claim":
                    known.send(leader, name, "granted")
                    self._await(context, job, lambda: answers[leader] != "claim")
                if answers[leader].startswith("start "):
                    daemon = _daemon(answers[leader].removeprefix("start "))
                    with self._scripts(context, job) as (folder, start):
                        status = self._execute(
                            context, job, folder, f"exec {daemon}", {**_OPEN_MPI, "DROPFLOW_JOB": str(start)}
                        )
                    answer = f"ended {status}"
                    known.send(leader, name, answer)
                self._await(context, job, lambda: answers[leader].startswith("end"))
            with CHANGED:
                _, _, outcome = answers[leader].partition(" ")
                kind, _, text = outcome.partition(" ")
                job.end(text, is_lost=kind == "lost")
        finally:
            if job.outcome is None or answer == "left":
                known.send(leader, name, "left")

    def _await(self, context: Context, job: Job, holds: Callable[[], bool], patience: float = 0.0) -> None:
        """Wait until `holds`.

        Raises
        ------
        AppError
            The condition did not hold within `patience` seconds.
        WorkerDiedError
            The job was lost, or its ranks are on other nodes now.
        """
        end = _CLOCK.monotonic() + patience
        while True:
            with CHANGED:
                job.raise_outcome()
                if holds():
                    return
                CHANGED.wait(_SECONDS)
            context.wait(0)
            if job.others and job.placed() != job.nodes:
                with CHANGED:
                    job.lose("ranks were placed on another node")
            if patience and _CLOCK.monotonic() > end:
                raise AppError(
                    f"the ranks on other nodes did not come in {patience:g} s",
                    hint="give all ranks the same inputs, so that they begin together",
                )

    def _follow(self, context: Context, job: Job, rank: int) -> None:
        end = _CLOCK.monotonic() + _PATIENCE
        while True:
            with CHANGED:
                if job.outcome is not None:
                    break
                CHANGED.wait(_SECONDS)
                arrived = len(job.commands)
            context.wait(0)
            if arrived < len(job.here) and _CLOCK.monotonic() > end:
                raise AppError(
                    f"rank {rank} waited for the others: {arrived} of {len(job.here)} came in {_PATIENCE:g} s",
                    hint="give all ranks the same inputs, so that they begin together",
                )
        context.log("the output of the job is in the log of the rank that came last")


def _by_agent(agent: Path) -> dict[str, str]:
    """Return the variables with which Open MPI 4 or 5 starts its daemons by an agent, also in a job of Slurm."""
    return {
        **_OPEN_MPI,
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "OMPI_MCA_ras": "^slurm",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_ras": "^slurm",
    }


@contextlib.contextmanager
def _memory(folder: str) -> Iterator[str]:
    """Make a directory in shared memory for the job in `folder`; the next session removes it if this process dies."""
    with contextlib.ExitStack() as made:
        path = claim_shared_memory(Path(folder).name)
        if path is None:
            yield made.enter_context(tempfile.TemporaryDirectory(prefix="dropflow-mpi-"))
        else:
            made.callback(release_shared_memory, path)
            yield str(path)


@contextlib.contextmanager
def _agent_server(address: str, start_on: Callable[[str, str], int]) -> Iterator[None]:
    """Serve the agents of ``mpirun``, each in a thread, at a socket in a private directory."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                host, *words = json.loads(self.rfile.readline())
                self.wfile.write(str(start_on(host, " ".join(words))).encode())

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        block_on_close = False

    with Server(address, Handler) as server:
        threading.Thread(target=server.serve_forever, name="mpi-agents", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def _daemon(command: str) -> str:
    """Return the command of a daemon of Open MPI, each word quoted, so that it can be nothing else.

    Raises
    ------
    AppError
        It is not such a command.
    """
    words = shlex.split(command)
    if not words or Path(words[0]).name not in _DAEMONS:
        raise AppError(
            f"the leader of the MPI job asks for {command[:80]!r}, which is not a daemon of Open MPI",
            hint="use the mpirun of the system's Open MPI, without a wrapper",
        )
    return shlex.join(words)


def _has_granted(answers: Mapping[str, str], node: str) -> bool:
    return answers.get(node) == "granted"


def _status(text: str) -> int:
    return int(text.removeprefix("ended ")) if text.startswith("ended ") else 1
