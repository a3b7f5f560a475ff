"""Jobs of `dropflow launch` in a directory of their own, and the guide that describes them."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.network import Network, missing
from tests.processes import end_working_in, ended_with_this_process, environment, words

ROOT = Path(__file__).resolve().parents[2]

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
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=2000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=2000
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=60 State=UP PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=n[1-2] MaxTime=60 State=UP PriorityTier=2 PreemptMode=OFF
"""
_GRID_ENGINE = {
    "bootstrap": "admin_user none\ndefault_domain none\nignore_fqdn false\nspooling_method classic\n"
    "spooling_lib libspoolc\nspooling_params {root}/default/common;{directory}/queues\nbinary_path /usr/sbin\n"
    "qmaster_spool_dir {directory}/queues\nsecurity_mode none\nlistener_threads 2\nworker_threads 2\n"
    "scheduler_threads 1\n",
    "act_qmaster": "login\n",
    "hosts": "127.0.0.1 localhost\n{0} login\n{1} h1\n{2} h2\n",
    "environment": "pe_name hosts\nslots 9\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\n"
    "stop_proc_args NONE\nallocation_rule 1\ncontrol_slaves TRUE\njob_is_first_task FALSE\nurgency_slots min\n"
    "accounting_summary FALSE\nqsort_args NONE\n",
}
"""The files of a Grid Engine."""
_GRID_ENGINE_SETUP = """
set -e
cd {directory}
spooldefaults=/usr/lib/gridengine/spooldefaults
/usr/lib/gridengine/spoolinit classic libspoolc "{root}/default/common;{directory}/queues" init
$spooldefaults configuration /usr/share/gridengine/default-configuration
$spooldefaults complexes /usr/share/gridengine/util/resources/centry
$spooldefaults usersets /usr/share/gridengine/util/resources/usersets
$spooldefaults managers root
sge_qmaster
until qconf -sss; do sleep 0.2; done
qconf -ah h1,h2; qconf -as login; qconf -as h1; qconf -as h2
qconf -Ap environment
qconf -sq | sed -e 's/^qname .*/qname all.q/; s/^hostlist .*/hostlist h1 h2/; s/^pe_list .*/pe_list hosts/' \\
  -e 's/^slots .*/slots 2/; s/^shell_start_mode .*/shell_start_mode unix_behavior/' \\
  -e 's/^load_thresholds .*/load_thresholds NONE/; s/^notify .*/notify 00:00:10/' >queue
qconf -Aq queue
qconf -sconf | sed -e 's/^min_uid .*/min_uid 0/; s/^min_gid .*/min_gid 0/' \\
  -e 's!^execd_spool_dir .*!execd_spool_dir {directory}/spool!' >global
qconf -Mconf global
qconf -ssconf | sed -e 's/^schedule_interval .*/schedule_interval 0:0:1/' \\
  -e 's/^flush_\\(submit\\|finish\\)_sec .*/flush_\\1_sec 1/' >scheduler
qconf -Msconf scheduler
"""
_SSH_SERVER = """
Port {port}
ListenAddress {address}
HostKey {home}/host-key
AuthorizedKeysFile {home}/user-key.pub
PidFile {home}/sshd-{address}.pid
StrictModes no
MaxStartups 200
UsePAM no
PasswordAuthentication no
SetEnv XDG_STATE_HOME={home}/remote-state SHLVL=2{more}
"""
_SSH_CLIENT = """
Host {names}
  HostName {address}
  Port {port}
  IdentityFile {home}/user-key
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
"""


class Launched:
    """Commands that launch jobs in a directory with the examples.

    Parameters
    ----------
    directory : Path
        It, and their home.
    system : str
        ``slurm``, ``sge`` or ``ssh``.
    more : str
        Further variables of their environment.
    """

    def __init__(self, directory: Path, system: str, **more: str) -> None:
        self.home = directory
        self.system = system
        self.before: Sequence[str] = ()
        """The words in front of a command that run it on another host."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
        self.environment = environment(directory) | {"PATH": path, "DROPFLOW_TOKEN": "a-token-of-the-user"} | more
        shutil.copytree(ROOT / "examples", directory / "examples")

    def shell(self, command: str, *, status: int = 0) -> str:
        """Run a command, and return what it printed; without a traceback, and with this exit status."""
        done = subprocess.run(
            [*self.before, "/bin/bash", "-c", command],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), (
            f"{command}\n{done.stdout}{done.stderr}"
        )
        return done.stdout + done.stderr

    def until(self, command: str, wanted: str) -> None:
        """Wait until a command prints a text."""
        assert self.becomes(command, wanted), f"{command} has not printed {wanted!r}"

    def becomes(self, command: str, wanted: str) -> bool:
        """Return whether a command prints a text within some time."""
        pause = threading.Event()
        return any(wanted in self.shell(f"{command} || true") or pause.wait(0.2) for _ in range(600))

    def started(self, *arguments: object, command: Sequence[str] = ()) -> "subprocess.Popen[str]":
        """Start a ``dropflow launch``, or another command, that waits for its job."""
        command = command or (sys.executable, "-m", "dropflow", "launch", self.system, *map(str, arguments))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*self.before, *command], env=self.environment, cwd=self.home, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    def processes(self) -> list[psutil.Process]:
        """Return the processes of dropflow that work in this directory, or have it in their environment."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            arguments = process.info["cmdline"] or []
            places = [*arguments, *(process.info["environ"] or {}).values()]
            if "dropflow" in arguments and any(str(self.home) in place for place in places):
                found.append(process)
        return found

    def nothing_is_left(self) -> bool:
        """Return whether all processes of jobs end."""
        _, alive = psutil.wait_procs(self.processes(), timeout=60)
        return alive == []

    def run_guide(self, page: str, then: Callable[[str], None]) -> None:
        """Run the commands of a page one after another, and check their output; `then` is called after each.

        JOB in a command is the number of the last job that was shown.
        """
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```shell\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        steps = [step.splitlines() for block in blocks for step in ("\n" + block).split("\n$ ")[1:]]
        job = "0"
        for command, *expected in steps:
            shown = self.shell(command.replace("JOB", job))
            job = (re.findall(r"job (\d+) ", shown) or [job])[-1]
            for line in expected:
                assert re.search(re.escape(line).replace(r"\.\.\.", ".*"), shown), f"{command}\n{shown}"
            then(command)

    def secrets_seen(self, public: str) -> list[str]:
        """Return the secrets of jobs that are in a text, or in an argument or variable of a process."""
        files = [*self.home.glob("dropflow-jobs/*/key"), *self.home.glob("dropflow-jobs/*/token")]
        hidden = [path.read_text().split()[-1] for path in files] + ["a-token-of-the-user"]
        seen = " ".join(word for process in self.processes() for word in words(process))

        assert len(hidden) > 2
        assert [path for path in files if path.stat().st_mode & 0o077] == []
        return [secret for secret in hidden if secret in public or secret in seen]


@contextmanager
def running_slurm(tmp_path: Path) -> Iterator[Launched]:
    """Run a Slurm with two hosts. It needs root."""
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
    with ended_with_this_process(tmp_path):
        try:
            found.shell("slurmctld -c; slurmd -N n1 -c; slurmd -N n2 -c")
            found.until("sinfo -h -o %D -t idle", "2")
            yield found
        finally:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                found.shell("timeout 20 scancel --user root --full --signal KILL; true")
            # The daemons of steps wait for the controller, have no variables, and remain if they are not killed.
            end_working_in(tmp_path, "slurm")


@contextmanager
def running_grid_engine(tmp_path: Path) -> Iterator[Launched]:
    """Run a Grid Engine with two hosts beside that of the user, each a network namespace. It needs root."""
    lacking = missing("ip", "unshare", "sge_qmaster", "sge_execd", "qsub", "qrsh")
    if lacking:
        pytest.skip(f"no Grid Engine: {lacking}")
    root = tmp_path / "root"
    for name in ("root/default/common", "queues", "spool/h1", "spool/h2"):
        (tmp_path / name).mkdir(parents=True)
    for link in Path("/var/lib/gridengine").iterdir():
        if link.name != "default":
            (root / link.name).symlink_to(link)
    ports = {"SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445"}  # of network namespaces of the test
    found = Launched(tmp_path, "sge", SGE_ROOT=str(root), SGE_CELL="default", **ports)
    with Network(3) as network, ended_with_this_process(tmp_path):
        addresses = [network.address(host) for host in range(3)]
        for name, text in _GRID_ENGINE.items():
            at = root / "default" / "common" if name in ("bootstrap", "act_qmaster") else tmp_path
            (at / name).write_text(text.format(*addresses, directory=tmp_path, root=root))
        # Each host has a name of its own, and knows those of the others.
        enter = 'hostname "$0" && mount --bind hosts /etc/hosts && exec "$@"'
        h1, h2, found.before = (
            [*network.before(host), "unshare", "-m", "-u", "sh", "-c", enter, name]
            for host, name in ((1, "h1"), (2, "h2"), (0, "login"))
        )
        try:
            found.shell(_GRID_ENGINE_SETUP.format(directory=tmp_path, root=root))
            for before in (h1, h2):
                subprocess.run([*before, "sge_execd"], env=found.environment, cwd=tmp_path, check=True)
            found.until("qhost | grep -c lx-", "2")
            yield found
        finally:
            end_working_in(tmp_path, "sge")


@contextmanager
def running_ssh(launched: Launched, network: Network | None = None, **more: str) -> Iterator[list[psutil.Popen]]:
    """Run a server of SSH with its own keys, and a configuration in which it is several hosts with more variables.

    With a network, its host 0 is that of the user, and each of the others has a server, which is all that it lets in.
    """
    tmp_path = launched.home
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd or ssh")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = "".join(f" {name}={value}" for name, value in more.items())
    for name in ("host-key", "user-key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    hosts: dict[str, tuple[str, Sequence[str]]] = {"alpha beta silent cluster": ("127.0.0.1", ())}
    if network is not None:
        names = ["alpha", "beta", *(f"h{number}" for number in range(3, network.hosts))]
        hosts = {name: (network.address(at), network.before(at)) for at, name in enumerate(names, 1)}
        launched.before = network.before(0)
        for at in range(network.hosts):
            network.let_in_only(at, port)
    configuration = ""
    for names, (address, _) in hosts.items():
        text = _SSH_SERVER.format(home=tmp_path, address=address, port=port, more=variables)
        (tmp_path / f"sshd_config-{address}").write_text(text)
        configuration += _SSH_CLIENT.format(names=names, home=tmp_path, address=address, port=port)
    (tmp_path / "ssh_config").write_text(configuration)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ssh"  # ssh finds the configuration of the user by the password file only
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/ssh_config "$@"\n')
    program.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with ended_with_this_process(tmp_path):
        launched.environment["PATH"] = f"{tmp_path}/bin:{launched.environment['PATH']}"
        running = []
        try:
            for address, before in hosts.values():
                command = [server, "-D", "-f", tmp_path / f"sshd_config-{address}", "-E", tmp_path / "sshd.log"]
                running.append(psutil.Popen([*before, *command]))
            for names in (min(hosts), max(hosts)):
                launched.until(f"ssh {names.split()[0]} echo works", "works")
            yield running
        finally:
            for one in running:
                one.terminate()
            psutil.wait_procs(running, timeout=60)
