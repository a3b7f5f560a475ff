"""Login nodes, over ssh: jobs that are submitted there, and managers that are reached through one.

``dropflow launch slurm --login`` needs one ``ssh``. Its standard input carries a `JobOrder` and the graph, and then
ends only when the command here does; its standard output carries the answer, and then the results as a tar archive.
`launch_at_login` is the end of the user, `run_login` the other one.

``--to slurm:JOB`` is the manager of a job that was launched here (`manager_of_job`). ``--to ssh://LOGIN/slurm:JOB``
needs one connection, too (`LoginTunnel`), and no dropflow on the login node: a command of the shell there prints the
address and the key of the job, and one port of this host is forwarded to that address.
"""

import itertools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryDirectory
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.jobs.hosts import first_line
from dropflow.cli.jobs.job_submission import LaunchReply, ScriptReply, run_order
from dropflow.cli.output import CommandOutput, ErrorReply, JsonOutput, OutputKind
from dropflow.cli.sessions.session_replies import SubmitReply
from dropflow.errors import BadFileError, LinkError, MissingDependencyError, NotFoundError, UsageError
from dropflow.graph.codec import dump, parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.ids import safe_name
from dropflow.submission.manager_records import directory_of_job
from dropflow.submission.options import ConnectionOptions
from dropflow.version import __version__
from managers.jobs.batch import SYSTEMS, JobOrder
from managers.jobs.job_directory import JobDirectory, JobStatus, new_job_directory
from managers.jobs.ssh import SSH_FAILED, SSH_OPTIONS, SshHost, ssh_command
from managers.keys import parse_key

_SSH_END_SECONDS = 10.0
"""Seconds in which ssh must end when its input is closed; then it is killed."""
_INSTALL = f"install dropflow {__version__} there, and name its interpreter as 'python' in --facility FILE"
_BORDER = "dropflow-job"
_READ_JOB = f"""
job="${{XDG_STATE_HOME:-$HOME/.local/state}}/dropflow/jobs/"%s
echo {_BORDER}
[ -d "$job" ] && {{ cat "$job/status.json" 2>/dev/null; echo; cat "$job/key"; }}
echo {_BORDER}
exec cat >/dev/null
"""
"""Prints the status of a job on one line, and its key; see `manager_records.record_job` and `JobDirectory`.

It ends with its standard input, and so with the process here.
"""
_FORWARD_ATTEMPTS = 5
"""Most searches for a free port: another process may take it before ssh does."""


def launch_at_login(output: CommandOutput, login: str, order: JobOrder, graph: PhysicalGraph) -> Exit:
    """Submit a job on a login node, wait for it, and copy its results; return its exit status.

    Raises
    ------
    LinkError
        There is no connection, or it has been cut.
    MissingDependencyError
        There is no ``ssh`` here, or no dropflow on the login node.
    """
    _check_login(login)
    results = Path(order.request.results or order.request.session).absolute()
    content = b"".join(dump(graph))
    order = msgspec.structs.replace(
        order,
        request=msgspec.structs.replace(order.request, results=""),
        quiet=output.kind is OutputKind.QUIET,
        size=len(content),
    )
    command = ssh_command(SshHost(name=login, python=order.site.python), "-m dropflow launch login --output json")
    # In a session of its own, so that Ctrl-C reaches it only by the end of its standard input.
    with Popen(command, stdin=PIPE, stdout=PIPE, start_new_session=True) as process:  # noqa: S603 - no shell here
        assert process.stdin is not None  # it is a pipe
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(order) + b"\n" + content)
                process.stdin.flush()
            return _answer(output, login, order, results, process)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(_SSH_END_SECONDS)
            except TimeoutExpired:
                process.kill()


def _answer(output: CommandOutput, login: str, order: JobOrder, results: Path, process: "Popen[bytes]") -> Exit:
    """Print what the login node answers, after its results are here."""
    assert process.stdout is not None  # it is a pipe
    # The shell there may print other lines before.
    line = next((line for line in process.stdout if line.startswith(b"{")), b"")
    hint = f"a job that was submitted continues; its results will be below {order.site.directory} on {login}"
    if not line:
        if process.wait() == SSH_FAILED:
            raise LinkError("the connection of ssh failed, or was cut", where=login, hint=hint)
        raise MissingDependencyError("dropflow does not run there", where=login, hint=_INSTALL)
    if "error" in msgspec.json.decode(line, type=dict[str, Any]):
        output.error(msgspec.json.decode(line, type=ErrorReply))
        return Exit(process.wait())
    if order.dry_run or order.detach:
        kind: type[ScriptReply | LaunchReply] = ScriptReply if order.dry_run else LaunchReply
        reply = msgspec.json.decode(line, type=kind)
        if isinstance(reply, LaunchReply):
            reply = msgspec.structs.replace(reply, login=login, to=f"ssh://{login}/{reply.to}")
        output.answer(reply)
        return Exit(process.wait())
    ended = msgspec.json.decode(line, type=SubmitReply)
    try:
        _unpack(process.stdout, results)
    except (tarfile.TarError, EOFError) as error:
        text = f"the results could not be copied ({error})"
        hint = f"they are in {ended.output}: 'scp -r {login}:{ended.output} {results}'"
        raise LinkError(text, where=login, hint=hint) from error
    output.answer(msgspec.structs.replace(ended, output=str(results)))
    return Exit(process.wait())


def _unpack(archive: IO[bytes], results: Path) -> None:
    """Move what is in a tar archive into a directory, once all of it is here.

    A directory in the place of a result stays, as ``NAME.before-fetch`` and a number: it may have files of the user.
    """
    results.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=results, prefix=".incoming-") as aside:
        with tarfile.open(fileobj=archive, mode="r|") as members:
            members.extractall(aside, filter="data")
        paths = [path for path in Path(aside).glob("*") if path.is_symlink() or not path.is_dir()]
        for path in sorted([*paths, *Path(aside).glob("*/*")]):
            target = results / path.relative_to(aside)
            target.parent.mkdir(exist_ok=True)
            if target.is_dir() and not target.is_symlink():
                names = (f"{target}.before-fetch{f'-{number}' if number else ''}" for number in itertools.count())
                target.rename(next(name for name in names if not os.path.lexists(name)))
            path.replace(target)


class _LoginOutput(JsonOutput):
    """Prints answers as JSON, and keeps where the results are."""

    def __init__(self, *, quiet: bool) -> None:
        self.results = ""
        self.is_quiet = quiet

    def answer(self, reply: Any) -> None:
        """Print the answer as JSON."""
        super().answer(reply)
        self.results = reply.output if isinstance(reply, SubmitReply) else ""

    def note(self, text: str) -> None:
        """Print one line, unless that is not wanted."""
        if not self.is_quiet:
            super().note(text)


def run_login() -> Exit:
    """Submit a job on this host by the order on standard input, wait for it, and send its results.

    Raises
    ------
    BadFileError
        The connection ended before the order did.
    UsageError
        The order is of another version.
    """
    line = first_line(0)
    version = msgspec.json.decode(line or b"{}", type=dict[str, Any]).get("version")
    if version != __version__:
        hint = "install the same version on both hosts"
        raise UsageError(
            f"this host has dropflow {__version__}, and yours {version}", where=os.uname().nodename, hint=hint
        )
    order = msgspec.json.decode(line, type=JobOrder)
    content = bytearray()
    while len(content) < order.size:
        block = os.read(0, min(1 << 20, order.size - len(content)))
        if not block:
            raise BadFileError("the connection ended before the graph was here")
        content += block
    threading.Thread(target=_interrupt_at_end, daemon=True).start()
    output = _LoginOutput(quiet=order.quiet)
    parent, name = Path(order.site.directory).expanduser().absolute(), order.request.session
    job = JobDirectory(parent / name) if order.dry_run else new_job_directory(parent, name)
    status = run_order(output, order, job, parse(content))
    if output.results and Path(output.results).is_dir():
        sys.stdout.flush()
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
            archive.add(output.results, arcname="")
        sys.stdout.buffer.flush()
    return status


def _interrupt_at_end() -> None:
    """Interrupt this process, as Ctrl-C does, when the connection ends."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)


# Managers of jobs, also of those that are reached through a login node.


def manager_of_job(manager: ConnectionOptions) -> ConnectionOptions:
    """Return the address and the key of the manager of a job, which options name as ``slurm:123``.

    Raises
    ------
    NotFoundError
        The job is not known here, has not started, or is over.
    """
    system, _, number = str(manager.url).partition(":")
    directory = directory_of_job(f"{system}-{number}")
    if directory is None:
        raise NotFoundError(
            f"no job {number} of {system} was launched from here",
            hint="give the number that 'dropflow launch' printed, with the same home directory",
        )
    job = JobDirectory(directory)
    url = _running_url(job.status, number, where=str(directory))
    return ConnectionOptions(url=url, key=manager.key or str(job.key))  # a token is that of another manager


def _running_url(status: JobStatus | None, number: str, *, where: str) -> str:
    """Return the address of the manager of a job.

    Raises
    ------
    NotFoundError
        The job has not started, or is over.
    """
    if status is None or not status.url or status.state != "running":
        states = {"stopped": "has stopped", "over": "is over"}
        state = states.get(status.state, "has not started") if status is not None else "has not started"
        raise NotFoundError(f"job {number} {state}, so that its manager cannot be asked", where=where)
    return status.url


class LoginTunnel:
    """One ssh to a login node, with one port of this host that leads to a manager.

    It shares a connection that the user has open. Otherwise it has one of its own, which other commands do not share,
    so that it ends with this process, also if that is killed.

    Parameters
    ----------
    url : str
        ``ssh://LOGIN/SYSTEM:JOB`` for the manager of a job, ``ssh://LOGIN/HOST:PORT`` for another one.

    Raises
    ------
    UsageError
        It has none of these forms.
    """

    def __init__(self, url: str) -> None:
        login, _, target = url.removeprefix("ssh://").partition("/")
        self._login, self._target = f"ssh://{login}" if ":" in login else login, target.strip("/")
        host, _, number = self._target.rpartition(":")
        self._job = number if host in SYSTEMS else ""
        if not login or not host or not (self._job or number.isdecimal()):
            hint = "examples are ssh://cluster/slurm:123 and ssh://me@cluster/localhost:8001"
            raise UsageError(f"{url!r} names no manager behind a login node", where="--to", hint=hint)
        self._stack = ExitStack()
        self._shared: tuple[str, ...] = ()
        self._ssh: Popen[bytes] | None = None
        self.secret: bytes | None = None
        """That of the key of the job."""

    def open(self, manager: ConnectionOptions) -> ConnectionOptions:
        """Connect, and return the options with an address on this host, and without a token for another manager.

        Raises
        ------
        LinkError
            There is no connection, or no port can be forwarded.
        NotFoundError
            The job is not known there, has not started, or is over.
        """
        _check_login(self._login)
        if self._call("-O", "check") != "":
            directory = self._stack.enter_context(TemporaryDirectory(prefix="dropflow-"))
            self._shared = ("-S", f"{directory}/ssh")
        own = ("-M", "-o", "ControlPersist=no") if self._shared else ()
        script = _READ_JOB % shlex.quote(safe_name(self._target.replace(":", "-")))
        command = ["ssh", *SSH_OPTIONS, *self._shared, *own, "--", self._login, f"exec sh -c {shlex.quote(script)}"]
        self._ssh = Popen(command, stdin=PIPE, stdout=PIPE, start_new_session=True)  # noqa: S603 - no shell here
        answer = self._read_answer(self._ssh)
        url = f"http://{self._target}" if not self._job else self._url_of_job(answer)
        local = f"http://127.0.0.1:{self._forward(url)}"
        token = None if self._job else manager.token
        return ConnectionOptions(url=local, token=token, key=manager.key, tunnel=self)

    def wait(self) -> None:
        """Wait until the connection ends."""
        if self._ssh is not None:
            self._ssh.wait()

    def close(self) -> None:
        """End the connection, and close the port. Idempotent."""
        self._stack.close()

    def _read_answer(self, process: "Popen[bytes]") -> list[str]:
        """Return the lines that the login node prints for the job; its shell may print others before."""
        assert process.stdout is not None  # it is a pipe
        self._stack.callback(self._end, process)
        borders, lines = 0, list[str]()
        for line in process.stdout:
            text = line.decode(errors="replace").strip()
            borders += text == _BORDER
            if borders == 2:
                return lines[1:]
            if borders:
                lines.append(text)
        raise LinkError("the connection of ssh failed, or was cut", where=self._login, hint=self._hint)

    @property
    def _hint(self) -> str:
        return f"try 'ssh -o BatchMode=yes {self._login} true'"

    def _url_of_job(self, answer: Sequence[str]) -> str:
        """Return the address of the manager of the job, and keep its key."""
        if not answer:
            hint = "give the number that 'dropflow launch' printed, and the user who launched it: ssh://USER@HOST"
            raise NotFoundError(f"no job {self._job} was launched there", where=self._login, hint=hint)
        status = msgspec.json.decode(answer[0], type=JobStatus) if answer[0] else None
        url = _running_url(status, self._job, where=self._login)
        self.secret = parse_key("\n".join(answer[1:]).encode(), where=f"the key of job {self._job}").secret
        return url

    def _forward(self, url: str) -> int:
        """Let ssh forward a port of this host to an address; return the port."""
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else str(parts.hostname)
        failure = ""
        for _ in range(_FORWARD_ATTEMPTS):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port: int = free.getsockname()[1]
            forward = ("-L", f"127.0.0.1:{port}:{host}:{parts.port or 80}")
            failure = self._call("-O", "forward", *forward)
            if not failure:
                if not self._shared:
                    self._stack.callback(self._call, "-O", "cancel", *forward)
                return port
        raise LinkError(f"ssh forwards no port: {failure}", where=self._login, hint=self._hint)

    def _call(self, *arguments: str) -> str:
        """Ask the connection for something; return why it fails, empty if it does not."""
        command = ["ssh", *self._shared, *arguments, "--", self._login]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
        return "" if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"

    def _end(self, process: "Popen[bytes]") -> None:
        with process:
            assert process.stdin is not None  # it is a pipe
            process.stdin.close()
            process.terminate()


def _check_login(login: str) -> None:
    """Refuse a login node that ssh would take as an option, and a host without ssh."""
    if shutil.which("ssh") is None:
        raise MissingDependencyError("this host has no command ssh", hint="install the client of OpenSSH")
    if login.startswith("-"):
        raise UsageError(f"{login!r} cannot be a host")
