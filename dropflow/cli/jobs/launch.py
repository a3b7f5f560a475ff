"""``dropflow launch``: graphs and clusters on the hosts of a batch system, or over ssh."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dropflow.cli.candidates import graphs
from dropflow.cli.common_options import (
    Duration,
    GivenOptions,
    grouped,
    hosts_options,
    options_of,
    output_options,
    setting_options,
)
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.session_options import SubmitOptions

if TYPE_CHECKING:
    from managers.jobs.batch import Facility
    from managers.jobs.ssh import SshHost

_SYSTEMS = {
    "slurm": ("Slurm", "sbatch"),
    "pbs": ("PBS, untried: tell us whether it works", "qsub"),
    "sge": ("Grid Engine, on several hosts with a parallel environment of one slot a host: -- -pe NAME N", "qsub"),
}
_directory_option = click.option(
    "--directory",
    default="",
    metavar="DIR",
    help="Where the directory of the job is made, dropflow-jobs by default; hosts of a batch system must see it.",
)
_results_option = click.option(
    "-o", "results", metavar="DIR", help="Where the results go; the directory of the job by default."
)
_detach_option = click.option("--detach", is_flag=True, help="Do not wait for the job.")


@click.group("launch")
def launch_command() -> None:
    """Run GRAPH on hosts of a batch system or over ssh, or start a cluster there.

    One job starts a node manager on each of its hosts and an island on the first, over ssh on this host, with a key of
    its own. A directory has all files of the job, and outlives it; hosts of a batch system share it.
    """


def _walltime(_: click.Context, __: click.Parameter, text: str) -> str:
    """Return the text of an option, which must be a walltime or empty."""
    from managers.jobs.job_directory import seconds_of_time

    try:
        if text:
            seconds_of_time(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def _site(time: str, partition: str, account: str, facility: str | None, directory: str) -> "Facility":
    from managers.jobs.batch import facility_of

    chosen = {"time": time, "partition": partition, "account": account, "directory": directory}
    return msgspec.structs.replace(facility_of(facility), **{key: text for key, text in chosen.items() if text})


site_options = grouped(
    "site",
    _site,
    click.option("--time", default="", metavar="H:MM:SS", callback=_walltime, help="Walltime of a job."),
    click.option("-p", "--partition", default="", metavar="NAME", help="Partition or queue."),
    click.option("--account", default="", metavar="NAME", help="Account that jobs are charged to."),
    click.option("--facility", metavar="FILE", help="What jobs need at this site, as TOML; options have priority."),
    _directory_option,
)
"""Adds the options that tell what jobs need at a site; the command gets them as one `Facility`, called `site`."""


def _requeue_option(name: str) -> Callable[[Any], Any]:
    # Grid Engine 8.1.9 keeps a job over several hosts waiting forever that has ended with the status for another run.
    text = "Start the job again after the walltime, and go on, until the session is over."
    return click.option("--requeue", is_flag=True, help=text) if name != "sge" else lambda command: command


def _command_of(name: str) -> Callable[..., None]:
    """Return the command of one batch system."""
    title, submitter = _SYSTEMS[name]

    @launch_command.command(name, short_help=f"Run GRAPH in a job of {title.partition(',')[0]}, or start a cluster.")
    @output_options
    @click.argument("graph", metavar="[GRAPH]", required=False, shell_complete=graphs)
    @click.argument("arguments", metavar="[-- ARGUMENT...]", nargs=-1, type=click.UNPROCESSED)
    @click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Hosts of the job.")
    @site_options
    @click.option("--login", metavar="HOST", help="Submit on this host, over ssh, and copy the results from there.")
    @_results_option
    @click.option(
        "--margin",
        type=Duration(),
        default="60s",
        show_default=True,
        help="How long before the walltime the session stops, at most a quarter of it.",
    )
    @_requeue_option(name)
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

    Before the walltime nothing new is started, and what does not end in time is cancelled; exit status 4. GRAPH may
    also be the directory of a job that has ended: a new job goes on with its session.

    While the job runs, commands find its manager by --to {name}:JOB. Without GRAPH the command ends once the cluster
    answers, and the cluster ends with the job.

    With --login the job is submitted on another host, which ssh connects to, and DIR gets the results on this one. The
    Python interpreter there is that of --facility, by default one at the same path as here.
    """
    return command


for _name in _SYSTEMS:
    _command_of(_name)


@launch_command.command("ssh", short_help="Run GRAPH on hosts over ssh, or start a cluster there.")
@output_options
@click.argument("graph", metavar="[GRAPH]", required=False, shell_complete=graphs)
@click.option("--hosts", required=True, metavar="FILE", help="The hosts, as TOML: a table [hosts.NAME] for each.")
@hosts_options
@_directory_option
@_results_option
@_detach_option
@setting_options
@options_of(SubmitOptions)
def ssh_command(
    output: CommandOutput,
    *,
    hosts: str,
    skip_unreachable: bool,
    install: bool,
    tunnel: bool,
    directory: str,
    **given: Any,
) -> Exit:
    """Run GRAPH on hosts over ssh; without GRAPH, start a cluster.

    ssh is that of the user, with its configuration, and never asks. All hosts are checked first: connection, Python,
    dropflow, clock, disk and ports. If one has a problem, nothing is started; exit status 2. Each gets a node manager,
    and this host an island. The command waits for the end of the session, with the answer and exit status of 'dropflow
    submit --wait', and the results are in DIR on this host. Ctrl-C ends the session and all managers. GRAPH may also be
    the directory of a job that has ended: a new one goes on with its session on the same hosts.

    While it runs, commands find its manager by --to ssh:JOB. Without GRAPH, or with --detach, the command ends early,
    and 'dropflow down --to ssh:JOB' ends the cluster.
    """
    from dropflow.cli.jobs.hosts import usable_hosts
    from managers.jobs.batch import Facility
    from managers.jobs.ssh import free_ports

    here = free_ports(1) if tunnel else ()
    usable = usable_hosts(output, hosts, skip_unreachable=skip_unreachable, install=install, tunnel=here)
    site = Facility(directory=directory) if directory else Facility()
    if not usable:
        return Exit.BAD_INPUT
    return _launch("ssh", output, nodes=len(usable), site=site, hosts=usable, tunnel=here, **given)


_PARTS = {
    "head": ("launched_job", "run_head"),
    "member": ("launched_job", "run_member"),
    "hosts": ("hosts", "run_hosts"),
    "host": ("hosts", "run_host"),
    "login": ("login", "run_login"),
}
"""The processes of a job, which start each other: the module and the function that each command calls."""


def _part(name: str) -> None:
    """Add the command of a process of jobs; its arguments are those of the function."""
    module, function = _PARTS[name]

    @launch_command.command(name, hidden=True)
    @output_options
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(_: CommandOutput, *, arguments: tuple[str, ...]) -> Exit:
        return Exit(getattr(import_module(f"dropflow.cli.jobs.{module}"), function)(*arguments))


for _name in _PARTS:
    _part(_name)


def refuse_job_array(arguments: Iterable[str]) -> None:
    """Refuse arguments of ``sbatch`` that would have several jobs share one directory.

    Raises
    ------
    UsageError
        One of them asks for a job array.
    """
    arrays = [word for word in arguments if word.startswith(("--array", "-a"))]
    if arrays:
        hint = "launch a job for each session: scatters of a graph make copies of its applications"
        raise UsageError("a job array would run several copies of the job in one directory", where=arrays[0], hint=hint)


def _launch(
    name: str,
    output: CommandOutput,
    *,
    graph: str | None,
    nodes: int,
    site: "Facility",
    results: str | None,
    detach: bool,
    settings: tuple[str, ...],
    configuration: str | None,
    options: GivenOptions[SubmitOptions],
    arguments: tuple[str, ...] = (),
    margin: float = 0.0,
    requeue: bool = False,
    dry_run: bool = False,
    login: str | None = None,
    hosts: tuple["SshHost", ...] = (),
    tunnel: tuple[int, ...] = (),
) -> Exit:
    from dropflow.cli.graphs.graph_files import read_for_nodes
    from dropflow.cli.jobs.job_submission import run_order
    from dropflow.clock import SystemClock
    from dropflow.ids import dated_session_name
    from managers.jobs.batch import JobOrder
    from managers.jobs.job_directory import JobDirectory, JobRequest, new_job_directory
    from managers.jobs.ssh import local_address

    if graph is not None and graph.startswith("-") and graph != "-":  # there is no GRAPH, only arguments behind --
        arguments, graph = (graph, *arguments), None
    if name == "slurm":
        refuse_job_array((*arguments, *site.lines))
    is_job = graph is not None and Path(graph).is_dir()
    if login is not None and (graph is None or is_job):
        raise UsageError(
            "--login needs a graph", hint=f"run this on {login}, with 'ssh -t {login} dropflow launch ...'"
        )
    read = None if graph is None or is_job else read_for_nodes(output, graph, configuration, settings)
    session = "" if read is None else dated_session_name(read.name, SystemClock().now())
    request = JobRequest(
        system=name,
        session=session,
        nodes=nodes,
        seconds=site.seconds,
        margin=site.margin(margin),
        goes_on=requeue,
        results=str(Path(results).absolute()) if results else "",
        options=options.options,
        hosts=hosts,
        address=local_address(hosts[0]) if hosts else "",
        tunnel=tunnel,
    )
    order = JobOrder(request=request, site=site, arguments=arguments, detach=detach, dry_run=dry_run)
    if login is not None:
        from dropflow.cli.jobs.login import launch_at_login

        assert read is not None  # looked at above
        return launch_at_login(output, login, order, read)
    parent = Path(site.directory).expanduser().absolute()
    if is_job:
        job = JobDirectory(Path(str(graph)).absolute())
        before = job.request
        request = msgspec.structs.replace(
            request, session=before.session, options=before.options, results=request.results or before.results
        )
        return run_order(output, msgspec.structs.replace(order, request=request), job)
    path = parent / (session or dated_session_name("cluster", SystemClock().now()))
    job = JobDirectory(path) if dry_run else new_job_directory(parent, path.name)
    return run_order(output, order, job, read)
