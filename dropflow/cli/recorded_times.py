"""The times of the attempts of a run or a session, for commands that show them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dropflow.cli.candidates import runs
from dropflow.cli.options import ConnectionOptions
from dropflow.errors import UsageError

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.times.octets import TimesSection

__all__ = ["are_directories", "runs_argument", "sections_of_directories", "sections_of_session"]

runs_argument = click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=runs)


def are_directories(manager: ConnectionOptions, runs: Sequence[str]) -> bool:
    """Return whether RUN... are directories of a run, and not a session of a manager.

    Raises
    ------
    UsageError
        Several sessions are named.
    """
    here = manager.url is None and all(Path(run, "graph.dfg").exists() or "/" in run for run in runs)
    if not here and len(runs) > 1:
        raise UsageError(f"{len(runs)} sessions are named", where=runs[1], hint="name one session, or directories")
    return here


def sections_of_directories(runs: Sequence[str]) -> "tuple[PhysicalGraph, list[TimesSection]]":
    """Return the graph and the records of the directories of one session."""
    from dropflow.measured_run import read_parts

    return read_parts([Path(run) for run in runs])


def sections_of_session(manager: ConnectionOptions, session: str) -> "tuple[PhysicalGraph, list[TimesSection]]":
    """Return the graph and the records of a session, of all nodes that answer."""
    from dropflow.cli.connection import connect
    from dropflow.times.octets import read_sections

    with connect(manager) as client:
        sections = list(read_sections(client.times(session).chunks, where=client.url))
        return client.graph(session), sections
