"""The options that steer a plan: those of the stage, measurements, and the nodes of a manager."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dropflow.cli.common_options import GivenOptions, given_on_command_line, grouped, options_of
from dropflow.cli.exit_status import Exit
from dropflow.cli.output import CommandOutput
from dropflow.session_options import meta_of
from dropflow.submission.options import ConnectionOptions, environment_connection
from translator.options import PartitionOptions

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.times.measured_run import MeasuredSeconds
    from translator.plan.machines import LiveMachines


class PlanningChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that is requested for a graph, from the options of a command.

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
        from dropflow.cli.understand.measured_runs import measured_by
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
    from dropflow.cli.understand.measured_runs import measured_by
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
    """Return whether this names a manager, rather than a file or nodes."""
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
