"""``dropflow clone``: run the graph of a session again, with other values."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from dropflow.cli.exit_status import Exit
from dropflow.cli.options import (
    ConnectionOptions,
    connection_options,
    output_options,
    patience_option,
    session_argument,
    setting_options,
)
from dropflow.cli.output import CommandOutput
from dropflow.cli.planning_options import usable_nodes
from dropflow.cli.run_or_session import continue_session
from dropflow.cli.submit import PlacementOptions, fit
from dropflow.errors import UsageError
from dropflow.ids import SESSION_NAME_HINT, is_session_name
from dropflow.rest.schema import SubmitQuery

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.rest.client import Client
    from dropflow.rest.schema import SessionInfo

__all__ = ["command"]


@click.command("clone")
@output_options
@session_argument
@connection_options
@setting_options
@click.option("--name", default="", metavar="NAME", help="Name of the new session; made from the graph's by default.")
@click.option("--wait", is_flag=True, help="Follow the new session to its end; status and answer are those of run.")
@patience_option
def command(
    output: CommandOutput,
    *,
    manager: ConnectionOptions,
    session: str,
    configuration: str | None,
    settings: tuple[str, ...],
    name: str,
    wait: bool,
    patience: float,
) -> Exit:
    """Run the graph of SESSION again, in a new session, with other values.

    The session has a copy of its logical graph, with the configuration and the settings of its submission. Values that
    --set and --config do not give stay as they were there. The graph is translated again, so that numbers of copies
    can change, and placed on the nodes that are there now. Without values any session can be cloned, also one of a
    physical graph. The session itself does not change.
    """
    if name and not is_session_name(name):
        raise UsageError(f"--name {name!r} is not a name of a session", hint=SESSION_NAME_HINT)

    def submit(client: "Client") -> "SessionInfo":
        graph = _translated(output, client.graph(session), session, configuration, settings)
        parted = fit(graph, usable_nodes(output, client), PlacementOptions(anew=True))
        return client.submit(parted, SubmitQuery(session=name))

    return continue_session(output, manager, submit, wait=wait, patience=patience)


def _translated(
    output: CommandOutput, graph: "PhysicalGraph", session: str, configuration: str | None, settings: tuple[str, ...]
) -> "PhysicalGraph":
    """Return the graph with other values, without parts and nodes."""
    import numpy as np

    from dropflow.cli.graph_files import note_warnings
    from dropflow.graph.logical_note import logical_of, with_more_settings
    from translator.pipeline import translate
    from translator.stage_options import ComponentOptions

    note = logical_of(graph)
    if note is None:
        if configuration or settings:
            raise UsageError(
                f"session {session!r} has no copy of a logical graph, so its values cannot change",
                where="--set" if settings else "--config",
                hint="it was submitted as a physical graph; 'dropflow submit' takes the logical graph and --set",
            )
        part = np.zeros(graph.drops, dtype=np.int32)
        part.flags.writeable = False
        return replace(graph, part=part, places=())
    found = translate(
        note.document,
        name=graph.name,
        configuration=configuration or note.configuration or None,
        settings=with_more_settings(note.settings, settings),
        component_options=ComponentOptions(missing_here="ignored"),  # the nodes report what they lack
    )
    note_warnings(output, found.problems)
    return found.graph
