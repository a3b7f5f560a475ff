"""``dropflow launch slurm --login``: jobs that are submitted on a login node, over ssh.

One ``ssh`` does all of it. Its standard input carries a `JobOrder` and the graph, and then ends only when the command
here does; its standard output carries the answer, and then the results as a tar archive. `launch_at_login` is the end
of the user, `run_login` the other one.
"""

import os
import shutil
import signal
import sys
import tarfile
import threading
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryDirectory
from typing import IO, Any

import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.hosts import first_line
from dropflow.cli.jobs import LaunchReply, ScriptReply, run_order
from dropflow.cli.output import CommandOutput, ErrorReply, JsonOutput, OutputKind
from dropflow.cli.session_replies import SubmitReply
from dropflow.errors import BadFileError, LinkError, MissingDependencyError, UsageError
from dropflow.graph.codec import dump, parse
from dropflow.graph.physical import PhysicalGraph
from dropflow.version import __version__
from managers.places.batch import JobOrder
from managers.places.job_directory import JobDirectory, new_job_directory
from managers.places.ssh import SSH_FAILED, SshHost, ssh_command

_END_SECONDS = 10.0
_INSTALL = f"install dropflow {__version__} there, and name its interpreter as 'python' in --facility FILE"


def launch_at_login(output: CommandOutput, login: str, order: JobOrder, graph: PhysicalGraph) -> Exit:
    """Submit a job on a login node, wait for it, and copy its results; return its exit status.

    Raises
    ------
    LinkError
        There is no connection, or it has been cut.
    MissingDependencyError
        There is no ``ssh`` here, or no dropflow on the login node.
    """
    if shutil.which("ssh") is None:
        raise MissingDependencyError("this host has no command ssh", hint="install the client of OpenSSH")
    if login.startswith("-"):
        raise UsageError(f"{login!r} cannot be a host", where="--login")
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
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101
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
                process.wait(_END_SECONDS)
            except TimeoutExpired:
                process.kill()


def _answer(output: CommandOutput, login: str, order: JobOrder, results: Path, process: "Popen[bytes]") -> Exit:
    """Print what the login node answers, after its results are here."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    line = process.stdout.readline()
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
        output.answer(msgspec.structs.replace(reply, login=login) if isinstance(reply, LaunchReply) else reply)
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
    """Move what is in a tar archive into a directory, once all of it is here."""
    results.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=results, prefix=".incoming-") as aside:
        with tarfile.open(fileobj=archive, mode="r|") as members:
            members.extractall(aside, filter="data")
        for found in sorted(Path(aside).glob("*/*")):
            target = results / found.relative_to(aside)
            target.parent.mkdir(exist_ok=True)
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            found.replace(target)


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
