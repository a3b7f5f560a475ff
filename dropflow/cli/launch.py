"""``dropflow launch``: graphs and clusters on the hosts of a batch system, or over ssh."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dropflow.cli.exit_status import Exit
from dropflow.cli.option_types import (
    Duration,
    GivenOptions,
    graphs,
    options_of,
    output_options,
    setting_options,
    skip_option,
)
from dropflow.cli.output import CommandOutput, OutputKind
from dropflow.sessions.options import SubmitOptions

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from managers.places.batch import BatchSystem, Facility, JobState
    from managers.places.job_directory import JobDirectory, JobRequest, JobStatus
    from managers.places.ssh import SshHost

__all__ = ["launch_command"]

_LOOK_SECONDS = 0.5
"""How often the status of a job is read, which is a file."""
_ASK_SECONDS = (1.0, 2.0, 7.0, 30.0)
"""Seconds between calls of the batch system after a submission; the last one counts from then on."""
_SILENT_SECONDS = 30.0
"""Time without a new status after which the batch system is asked whether the job still runs."""
_SYSTEMS = {
    "slurm": ("Slurm", "sbatch"),
    "pbs": ("PBS, untried: tell us whether it works", "qsub"),
    "sge": ("Grid Engine, untried: tell us whether it works. It needs a parallel environment: -- -pe NAME N", "qsub"),
}


@click.group("launch")
def launch_command() -> None:
    """Run GRAPH on hosts of a batch system or over ssh, or start a cluster there.

    One job starts a node manager on each of its hosts and an island on the first, over ssh on this host, with a key of
    its own. A directory has all files of the job, and outlives it; hosts of a batch system share it.
    """


class ScriptReply(msgspec.Struct, frozen=True, kw_only=True):
    """The batch script that a job would have."""

    ok: bool = True
    script: str

    def lines(self) -> Iterator[str]:
        """The script."""
        yield from self.script.splitlines()


class LaunchReply(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was submitted and is not waited for.

    Attributes
    ----------
    to : str
        What commands take as ``--to``.
    url : str
        Address of its island, once it has one: its pages, for a browser that ``dropflow open`` signs in.
    """

    ok: bool = True
    job: str
    to: str
    directory: str
    session: str = ""
    url: str = ""

    def lines(self) -> Iterator[str]:
        """Where it is, and the commands that reach it."""
        yield f"job {self.job}  {self.directory}"
        if self.url:
            yield f"  in the browser: {self.url} (dropflow open --to {self.to})"
        follow = f"watch {self.session}" if self.session else "submit GRAPH --wait"
        yield f"  here:           dropflow {follow} --to {self.to}"


def _time(_: click.Context, __: click.Parameter, text: str) -> str:
    from managers.places.job_directory import seconds_of_time

    try:
        if text:
            seconds_of_time(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


_directory_option = click.option(
    "--directory",
    default="dropflow-jobs",
    show_default=True,
    metavar="DIR",
    help="Where the directory of the job is made; hosts of a batch system must see it under the same path.",
)
_results_option = click.option(
    "-o", "results", metavar="DIR", help="Where the results go; the directory of the job by default."
)
_detach_option = click.option("--detach", is_flag=True, help="Do not wait for the job.")


def _command_of(name: str) -> Callable[..., None]:
    """Return the command of one batch system."""
    title, submitter = _SYSTEMS[name]

    @launch_command.command(name, short_help=f"Run GRAPH in a job of {title.partition(',')[0]}, or start a cluster.")
    @output_options
    @click.argument("graph", metavar="[GRAPH]", required=False, shell_complete=graphs)
    @click.argument("arguments", metavar="[-- ARGUMENT...]", nargs=-1, type=click.UNPROCESSED)
    @click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Hosts of the job.")
    @click.option("--time", "walltime", default="", metavar="H:MM:SS", callback=_time, help="Walltime of the job.")
    @click.option("-p", "--partition", default="", metavar="NAME", help="Partition or queue.")
    @click.option("--account", default="", metavar="NAME", help="Account that the job is charged to.")
    @click.option("--facility", metavar="FILE", help="What jobs need at this site, as TOML; options have priority.")
    @_directory_option
    @_results_option
    @click.option(
        "--margin",
        type=Duration(),
        default="60s",
        show_default=True,
        help="How long before the walltime the session stops, at most a quarter of it.",
    )
    @click.option("--requeue", is_flag=True, help="Start the job again after the walltime, until the session is over.")
    @_detach_option
    @click.option("--dry-run", is_flag=True, help="Print the batch script, and submit nothing.")
    @setting_options
    @options_of(SubmitOptions)
    def command(output: CommandOutput, **given: Any) -> Exit:
        return _launch(name, output, **given)

    command.help = f"""Run GRAPH in one job of {title}; without GRAPH, start a cluster.

    Each host of the job gets a node manager. GRAPH is translated here, and placed there. The command waits for the end
    of the session, with the answer and exit status of 'dropflow submit --wait', and the results are in DIR: the job
    writes them there. Ctrl-C stops waiting, and the job continues. Arguments behind -- go to {submitter}.

    Before the walltime nothing new is started, and what does not end in time is cancelled; exit status 4. With
    --requeue the next job goes on. GRAPH may also be the directory of a job that has ended: a new job goes on with its
    session.

    While the job runs, commands find its manager by --to {name}:JOB. Without GRAPH the command ends once the cluster
    answers, and the cluster ends with the job.
    """
    return command


for _name in _SYSTEMS:
    _command_of(_name)


@launch_command.command("ssh", short_help="Run GRAPH on hosts over ssh, or start a cluster there.")
@output_options
@click.argument("graph", metavar="[GRAPH]", required=False, shell_complete=graphs)
@click.option("--hosts", required=True, metavar="FILE", help="The hosts, as TOML: a table [hosts.NAME] for each.")
@skip_option
@_directory_option
@_results_option
@_detach_option
@setting_options
@options_of(SubmitOptions)
def ssh_command(output: CommandOutput, *, hosts: str, skip_unreachable: bool, **given: Any) -> Exit:
    """Run GRAPH on hosts over ssh; without GRAPH, start a cluster.

    ssh is that of the user, with its configuration, and never asks. All hosts are checked first: connection, Python,
    dropflow, clock, disk and ports. If one has a problem, nothing is started; exit status 2. Each gets a node manager,
    and this host an island. The command waits for the end of the session, with the answer and exit status of 'dropflow
    submit --wait', and the results are in DIR on this host. Ctrl-C ends the session and all managers. GRAPH may also be
    the directory of a job that has ended: a new one goes on with its session on the same hosts.

    While it runs, commands find its manager by --to ssh:JOB. Without GRAPH, or with --detach, the command ends early,
    and 'dropflow down --to ssh:JOB' ends the cluster.
    """
    from dropflow.cli.hosts import usable_hosts

    found = usable_hosts(output, hosts, skip_unreachable=skip_unreachable)
    return _launch("ssh", output, nodes=len(found), hosts=found, **given) if found else Exit.BAD_INPUT


@launch_command.command("head", hidden=True)
@output_options
@click.argument("directory")
@click.argument("spread", nargs=-1, type=click.UNPROCESSED)
def head_command(_: CommandOutput, *, directory: str, spread: tuple[str, ...]) -> Exit:
    """Run the cluster of a job; its batch script is this command."""
    from dropflow.cli.launched_job import run_head

    return run_head(directory, spread)


@launch_command.command("member", hidden=True)
@output_options
@click.argument("directory")
@click.argument("rank", required=False)
def member_command(_: CommandOutput, *, directory: str, rank: str | None) -> Exit:
    """Run the node manager of a host of a job."""
    from dropflow.cli.launched_job import run_member

    run_member(directory, rank)


@launch_command.command("hosts", hidden=True)
@output_options
@click.argument("directory")
def hosts_command(_: CommandOutput, *, directory: str) -> Exit:
    """Run the node managers of a job on its hosts, over ssh."""
    from dropflow.cli.hosts import run_hosts

    return run_hosts(directory)


@launch_command.command("host", hidden=True)
@output_options
def host_command(_: CommandOutput) -> Exit:
    """Run the node manager of this host, by an order on standard input."""
    from dropflow.cli.hosts import run_host

    run_host()


def _launch(
    name: str,
    output: CommandOutput,
    *,
    graph: str | None,
    nodes: int,
    directory: str,
    results: str | None,
    detach: bool,
    settings: tuple[str, ...],
    configuration: str | None,
    options: GivenOptions[SubmitOptions],
    arguments: tuple[str, ...] = (),
    walltime: str = "",
    partition: str = "",
    account: str = "",
    facility: str | None = None,
    margin: float = 0.0,
    requeue: bool = False,
    dry_run: bool = False,
    hosts: tuple["SshHost", ...] = (),
) -> Exit:
    from dropflow.cli.hosts import end_process
    from dropflow.clock import SystemClock
    from dropflow.errors import UsageError
    from dropflow.ids import dated_session_name
    from managers.places.batch import SYSTEMS, facility_of, job_script
    from managers.places.job_directory import JobDirectory, JobRequest, new_job_directory, seconds_of_time
    from managers.places.ssh import local_address

    if graph is not None and graph.startswith("-") and graph != "-":  # there is no GRAPH, only arguments behind --
        arguments, graph = (graph, *arguments), None
    site = facility_of(facility)
    chosen = {"partition": partition, "account": account, "time": walltime}
    site = msgspec.structs.replace(site, **{key: text for key, text in chosen.items() if text})
    try:
        seconds = seconds_of_time(site.time) if site.time else 0.0
    except ValueError as error:
        raise UsageError(f"the time of the facility cannot be used: {error}", where=facility or "--time") from error
    earlier = JobDirectory(Path(graph).absolute()) if graph is not None and Path(graph).is_dir() else None
    read = None if graph is None or earlier is not None else _read(output, graph, configuration, settings)
    session = "" if read is None else dated_session_name(read.name, SystemClock().now())
    parent = Path(directory).absolute()
    path = parent / (session or dated_session_name("cluster", SystemClock().now())) if earlier is None else earlier.path
    request = JobRequest(
        system=name,
        session=session,
        nodes=nodes,
        seconds=seconds,
        margin=min(margin, seconds / 4) if seconds else margin,
        goes_on=requeue,
        results=str(Path(results).absolute() if results else path / "results"),
        options=options.options,
        hosts=hosts,
        address=local_address(hosts[0]) if hosts else "",
    )
    if earlier is not None:
        before = earlier.request
        request = msgspec.structs.replace(
            request,
            session=before.session,
            options=before.options,
            results=request.results if results else before.results,
        )
    system = SYSTEMS[name]
    if dry_run:
        output.answer(ScriptReply(script=job_script(system, JobDirectory(path), request, site)))
        return Exit.FINISHED
    job = earlier or new_job_directory(parent, path.name)
    if read is not None:
        from dropflow.graph.codec import save

        save(read, job.graph)
        job.graph.chmod(0o600)
    number = _submit(name, job, request, site, arguments)
    waiting = _JobWait(output, system, job, number)
    reply = LaunchReply(job=number, to=f"{name}:{number}", directory=str(job.path), session=request.session)
    if detach:
        output.answer(reply)
        return Exit.FINISHED
    try:
        status = waiting.until_over() if request.session else waiting.until_running()
    except KeyboardInterrupt:
        if system.is_here:
            output.note(f"ending job {number}; its session can go on in another job: 'dropflow launch ... {job.path}'")
            end_process(int(number))
            return Exit.INTERRUPTED
        stop = " ".join((*system.cancel, number))
        output.note(f"stopped waiting; job {number} continues. It is in {job.path}; '{stop}' cancels it")
        return Exit.INTERRUPTED
    if status.detail is None or not request.session:
        output.answer(msgspec.structs.replace(reply, url=status.url))
        return Exit.FINISHED
    return _answer(output, status, request)


def _read(output: CommandOutput, graph: str, configuration: str | None, settings: tuple[str, ...]) -> "PhysicalGraph":
    """Return the graph in a file. Components are not looked for here: the nodes report what they lack."""
    from dropflow.cli.graph_files import note_warnings, read_graph

    found = read_graph(graph, configuration=configuration, settings=settings, components=None)
    note_warnings(output, found.problems)
    return found.graph


def _submit(name: str, job: "JobDirectory", request: "JobRequest", site: "Facility", arguments: tuple[str, ...]) -> str:
    """Write the files of a job, submit it, and return its number. A new directory is removed if it is refused."""
    from dropflow.cli.manager_records import record_job
    from dropflow.errors import DropflowError
    from managers.places.batch import SYSTEMS, job_script

    system, before = SYSTEMS[name], job.status
    job.write(request)
    if before is None:
        job.write_text(job.output, "")
    job.write_text(job.script, job_script(system, job, request, site))
    try:
        number = system.submit_job(job.script, arguments)
    except DropflowError:
        if before is None:
            job.remove()
        raise
    if before is not None:
        job.write(msgspec.structs.replace(before, state="starting", url="", notes=(), code="", text="", time=0.0))
    record_job(f"{name}-{number}", job.path)
    return number


def _answer(output: CommandOutput, status: "JobStatus", request: "JobRequest") -> Exit:
    """Print how the session ended, as ``dropflow submit --wait`` does."""
    from dropflow.cli.session_replies import SubmitReply, exit_of_session

    detail = status.detail
    assert detail is not None  # noqa: S101 - the caller has looked
    for note in status.notes:
        output.note(note)
    parts = max(len(detail.nodes), 1)
    output.answer(SubmitReply.of(detail, manager=status.url, parts=parts, waited=True, results=request.results))
    return exit_of_session(detail)


class _JobWait:
    """Waits for a job by the files in its directory; the batch system is asked when these do not tell enough."""

    def __init__(self, output: CommandOutput, system: "BatchSystem", job: "JobDirectory", number: str) -> None:
        from dropflow.clock import SystemClock

        self._output = output
        self._system = system
        self._job = job
        self._number = number
        self._clock = SystemClock()
        self._pause = threading.Event()
        self._state = ""
        self._asked = 0
        self._changed = self._next = self._clock.monotonic()
        self._last = -1.0

    def until_running(self) -> "JobStatus":
        """Return the status of the job once its cluster answers.

        Raises
        ------
        BatchSystemError
            The job has ended.
        """
        while True:
            status = self._look()
            if status is not None and status.state == "running":
                return status

    def until_over(self) -> "JobStatus":
        """Show the progress of the session until it is over or no job goes on with it, and return the last status.

        Raises
        ------
        BatchSystemError
            The job has ended before the session was over.
        """
        from dropflow.cli.progress import session_progress
        from dropflow.cli.watch import statistics_of

        with session_progress(quiet=self._output.kind is OutputKind.QUIET) as show:
            shown = -1.0
            while True:
                status = self._look()
                if status is None:
                    continue
                if status.detail is not None and status.time != shown:
                    shown = status.time
                    show(statistics_of(status.detail))
                if status.state == "over" or self._is_last(status):
                    return status

    def _is_last(self, status: "JobStatus") -> bool:
        """Return whether the session has stopped and no job goes on with it."""
        from dropflow.cli.session_replies import exit_of_session

        if status.state != "stopped" or status.detail is None:
            return False
        is_alone = exit_of_session(status.detail) is Exit.PAUSED and not self._job.request.goes_on
        if is_alone or self._state == "over":
            self._output.note(f"the session can go on in another job: 'dropflow launch ... {self._job.path}'")
            return True
        return False

    def _look(self) -> "JobStatus | None":
        """Return the status of the job after a short time, and ask the batch system if it is silent.

        Raises
        ------
        BatchSystemError
            The job has ended, and its directory does not say how.
        """
        self._pause.wait(_LOOK_SECONDS)
        status, now = self._job.status, self._clock.monotonic()
        if status is not None and status.time != self._last:
            self._last, self._changed = status.time, now
            if status.state == "stopped":
                self._asked, self._next = 0, now + _ASK_SECONDS[0]
        if status is not None and status.state == "over":
            self._raise_error(status)
            return status
        is_running = status is not None and status.time and status.state in ("starting", "running")
        if now >= self._next and (not is_running or now > self._changed + _SILENT_SECONDS):
            self._next = now + _ASK_SECONDS[min(self._asked, len(_ASK_SECONDS) - 1)]
            self._asked += 1
            self._ask(status)
        return status

    def _raise_error(self, status: "JobStatus") -> None:
        from dropflow.errors import BatchSystemError

        if status.code:
            text = f"job {self._number} has ended: {status.text}"
            raise BatchSystemError(text, where=str(self._job.path), hint=f"the error has the code {status.code}")

    def _ask(self, status: "JobStatus | None") -> None:
        """Ask the batch system for the state of the job, and note what has changed."""
        from dropflow.errors import BatchSystemError

        try:
            found: JobState | None = self._system.states_of_jobs().get(self._number)
        except BatchSystemError as error:
            self._output.note(f"{error.text}; asking again")
            return
        if found is not None and not found.is_over:
            text = f"job {self._number} is {found.word}" + (f": {found.reason}" if found.reason else "")
            if text != self._state:
                self._state = text
                self._output.note(text)
            return
        word = found.word if found is not None else "gone"
        if status is not None and status.state == "stopped":
            self._output.note(f"job {self._number} is {word}")
            self._state = "over"
            return
        self._pause.wait(2 * _LOOK_SECONDS)
        last = self._job.status
        if last is not None and last.state in ("over", "stopped"):
            return
        raise BatchSystemError(
            f"job {self._number} has ended before its session was over: {word}",
            where=str(self._job.path),
            hint=f"see {self._job.output.name} there; 'dropflow launch ... {self._job.path}' goes on with the session",
        )
