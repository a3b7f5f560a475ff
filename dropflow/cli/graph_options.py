"""The options of commands that plan, submit, or take a run or a session."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from dropflow.cli.candidates import is_run_directory
from dropflow.cli.common_options import GivenOptions, given_on_command_line, grouped, options_of
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.errors import UsageError
from dropflow.files import refuse_other_directory
from dropflow.session_options import meta_of
from dropflow.submission.options import ConnectionOptions, environment_connection
from translator.options import PartitionOptions

if TYPE_CHECKING:
    from dropflow.api.client import Client
    from dropflow.api.session_records import SessionInfo
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.times.measured_run import MeasuredSeconds
    from translator.plan.machines import LiveMachines


class PlanningChoice(msgspec.Struct, frozen=True, kw_only=True):
    """How a graph is to be planned, as the options of a command say.

    Attributes
    ----------
    options : PartitionOptions
        Those of the stage, apart from the number of parts.
    profiles : tuple of str
        Runs, sessions and files whose measurements take the place of estimates.
    is_given : bool
        Whether the command line has one of these options.
    """

    options: PartitionOptions = PartitionOptions()
    profiles: tuple[str, ...] = ()
    is_given: bool = False

    def measured(
        self, output: "CommandOutput", graph: "PhysicalGraph", manager: ConnectionOptions | None = None
    ) -> "PhysicalGraph":
        """Return a graph with what earlier runs have measured; sessions are those of `manager`."""
        if not self.profiles:
            return graph
        from dropflow.cli.times import measured_by
        from translator.plan.measured import with_measured_nodes

        where = environment_connection() if manager is None else manager
        return with_measured_nodes(graph, measured_by(output, where, self.profiles))

    def for_parts(self, parts: int) -> PartitionOptions:
        """Return the options of the stage, for a number of parts."""
        return msgspec.structs.replace(self.options, parts=parts)

    def over(self, known: Mapping[str, Any]) -> "PlanningChoice":
        """Return the noted options of an earlier plan with those that are on the command line."""
        try:
            noted = msgspec.convert(known, PartitionOptions)
        except msgspec.ValidationError:
            return self  # of another version
        options = GivenOptions(options=self.options, given=given_on_command_line(tuple(meta_of(PartitionOptions))))
        return msgspec.structs.replace(self, options=options.over(noted), is_given=True)


def profile_option(use: str, more: str = "") -> Callable[[Callable[..., Exit]], Callable[..., Exit]]:
    """Return the option that names what has measured times and sizes; `use` is what it is for."""
    return click.option(
        "--profile",
        "profiles",
        multiple=True,
        metavar="RUN",
        help=f"{use} the times and sizes that RUN has measured{more}: the directory of a run, a "
        "session of a manager, or a file of measurements (dropflow times -o FILE.npz); repeatable.",
    )


def seconds_by(
    output: "CommandOutput", graph: "PhysicalGraph", profiles: Sequence[str], manager: ConnectionOptions | None = None
) -> "MeasuredSeconds | None":
    """Return how long applications took by these profiles; None without one. Sessions are those of `manager`."""
    if not profiles:
        return None
    from dropflow.cli.times import measured_by
    from translator.plan.measured import measured_seconds

    where = environment_connection() if manager is None else manager
    return measured_seconds(graph, measured_by(output, where, profiles))


def _choice(options: GivenOptions[PartitionOptions], profiles: tuple[str, ...]) -> PlanningChoice:
    return PlanningChoice(options=options.options, profiles=profiles, is_given=bool(options.given or profiles))


planning_options = grouped(
    "choice",
    _choice,
    options_of(PartitionOptions),
    profile_option("Plan with", ", not with those of GRAPH"),
)
"""Adds the options that steer a plan; the command gets them as one `PlanningChoice`, called `choice`."""


def is_url(source: str) -> bool:
    """Whether this names a manager, rather than a file or nodes."""
    return "://" in source


def nodes_of_manager(output: "CommandOutput", url: str) -> "LiveMachines":
    """Return the nodes of the manager at `url` as they are now; notes tell which are left out.

    Raises
    ------
    UsageError
        No node is alive there.
    """
    from dropflow.submission.connection import connect_to, manager_url
    from dropflow.submission.submit import usable_nodes

    # A token in the environment is for the manager of DROPFLOW_URL, if that names one.
    environment = environment_connection()
    credentials = msgspec.structs.replace(environment, url=environment.url or url)
    with connect_to(manager_url(ConnectionOptions(url=url)), credentials) as client:
        return usable_nodes(client, output.note)


# Commands that continue either the run in a directory or a session of a manager.

_OF_REUSE = ("reuse", "store", "verify_reuse", "trust_times")
_OF_DIRECTORIES = (
    "runner",
    "workers",
    "infrastructure_retries",
    "retry_memory",
    "durable",
    "containers",
    "check",
    "report_locals",
    "grace",
    *_OF_REUSE,
)
_OF_SESSIONS = ("url", "token", "key", "wait", "patience", "without_missing", "force")


def session_options(function: Callable[..., Exit]) -> Callable[..., Exit]:
    """Add the options that are about sessions of managers only."""
    function = click.option(
        "--without-missing",
        is_flag=True,
        help="Continue a session although most of its nodes are missing: only if they are off, or gone for good.",
    )(function)
    return click.option("--wait", is_flag=True, help="Follow the session of a manager to its end.")(function)


def is_directory(run: str) -> bool:
    """Return whether RUN of the present command is the directory of a run, and not a session of a manager.

    It is if there is such a directory, or if it is written as a path; it is not with ``--to``.

    Raises
    ------
    UsageError
        An option was given that the other kind of run has.
    """
    context = click.get_current_context()
    here = is_run_directory(run) and not _is_given(context, "url")
    refuse_without_run(run)
    wrong = [name for name in (_OF_SESSIONS if here else _OF_DIRECTORIES) if _is_given(context, name)]
    if wrong:
        options = {param.name: param.opts[-1] for param in context.command.params}
        what = "the directory of a run" if here else "a session of a manager, which keeps the options of its submission"
        raise UsageError(
            f"{', '.join(options[name] for name in wrong)} cannot be used: {run} is {what}",
            hint="leave it out; a directory is given with its path, such as ./NAME, and a session with --to URL",
        )
    return here


def refuse_without_run(run: str) -> None:
    """Raise if RUN of the present command is a directory that has no run, and can be no session of a manager.

    Raises
    ------
    NotFoundError
        It is one.
    """
    if Path(run).is_dir() and not is_run_directory(run) and _no_manager(click.get_current_context()):
        refuse_other_directory(Path(run))


def continue_session(
    output: CommandOutput,
    manager: ConnectionOptions,
    call: "Callable[[Client], SessionInfo]",
    *,
    wait: bool,
    patience: float,
) -> Exit:
    """Continue a session by `call`, and answer as ``dropflow submit`` does."""
    from dropflow.cli.watch import answer_started

    with manager.connect() as client:
        info = call(client)
        info = info if wait else client.session(info.session)
        return answer_started(output, manager, client.url, info, patience=patience if wait else None)


def _no_manager(context: click.Context) -> bool:
    """Whether no manager is named, and none runs on this host: RUN cannot be a session."""
    from dropflow.submission.manager_records import records_here

    named = context.get_parameter_source("url") in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return not named and not records_here()


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE
