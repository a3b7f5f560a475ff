"""The records of attempts in runs, sessions of managers and files of measurements."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dropflow.cli.output import CommandOutput
from dropflow.cli.run_or_session import is_run_directory, refuse_without_run
from dropflow.errors import NotFoundError, UsageError
from dropflow.submission.options import ConnectionOptions

if TYPE_CHECKING:
    from dropflow.graph.physical import PhysicalGraph
    from dropflow.times.measured_run import MeasuredRun
    from dropflow.times.octets import TimesSection
    from translator.plan.measured import MeasuredNode


def are_directories(runs: Sequence[str]) -> bool:
    """Return whether RUN... are directories of a run, and not a session of a manager.

    Raises
    ------
    UsageError
        Several sessions are named.
    """
    here = all(is_run_directory(run) for run in runs)
    for run in runs:
        refuse_without_run(run)
    if not here and len(runs) > 1:
        raise UsageError(f"{len(runs)} sessions are named", where=runs[1], hint="name one session, or directories")
    return here


def recorded(
    output: CommandOutput, manager: ConnectionOptions, runs: Sequence[str]
) -> "tuple[PhysicalGraph, list[TimesSection]]":
    """Return the graph and the records of the directories of one run, or of a session.

    Notes tell which nodes of a session did not answer.

    Raises
    ------
    NotFoundError
        There is no such run or session.
    """
    if are_directories(runs):
        from dropflow.times.measured_run import read_parts

        return read_parts([Path(run) for run in runs])
    from dropflow.times.octets import read_sections

    with manager.connect() as client:
        sections = list(read_sections(client.times(runs[0]).chunks, where=client.url))
        graph = client.graph(runs[0])
    for section in sections:
        if section.missing:
            output.note(f"node {section.node} did not answer: its attempts are missing ({section.missing})")
    return graph, sections


def measured_run(output: CommandOutput, manager: ConnectionOptions, runs: Sequence[str]) -> "MeasuredRun":
    """Return what the directories of one run, or a session of a manager, have recorded; see `recorded`."""
    import numpy as np

    from dropflow.times.measured_run import MeasuredRun

    graph, sections = recorded(output, manager, runs)
    return MeasuredRun(graph, np.concatenate([section.records for section in sections]))


def measured_graph(output: CommandOutput, manager: ConnectionOptions, run: str) -> "PhysicalGraph":
    """Return the graph of the directory of a run, or of a session, with the times and sizes that it has measured."""
    from translator.plan.measured import measured_nodes, with_measured_nodes

    measured = measured_run(output, manager, [run])
    return with_measured_nodes(measured.graph, measured_nodes(measured))


def measured_by(output: CommandOutput, manager: ConnectionOptions, profiles: Sequence[str]) -> "Iterator[MeasuredNode]":
    """Yield what runs, sessions and files of profiles have measured.

    Raises
    ------
    NotFoundError
        There is no such run, session or file, or nothing of it was recorded.
    BadFileError
        A file is not a profile.
    """
    from translator.plan.measured import measured_nodes, read_profile

    for profile in profiles:
        if Path(profile).is_file():
            yield from read_profile(Path(profile))
            continue
        run = measured_run(output, manager, [profile])
        if not len(run.records):
            raise NotFoundError("this run has recorded no attempts", where=profile, hint="run it again")
        yield from measured_nodes(run)
