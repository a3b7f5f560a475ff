"""Measurements for plans: of the directory of a run, of a session of a manager, or of the file of a profile."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dropflow.cli.options import ConnectionOptions
from dropflow.cli.output import CommandOutput
from dropflow.cli.recorded_times import are_directories, sections_of_directories, sections_of_session
from dropflow.errors import NotFoundError

if TYPE_CHECKING:
    from dropflow.measured_run import MeasuredRun
    from translator.planning.measured import MeasuredNode

__all__ = ["measured_by", "run_of"]


def run_of(output: CommandOutput, manager: ConnectionOptions, runs: Sequence[str]) -> "MeasuredRun":
    """Return what the directories of one run, or a session of a manager, have recorded.

    Notes tell which nodes of a session did not answer.

    Raises
    ------
    NotFoundError
        There is no such run or session.
    """
    import numpy as np

    from dropflow.measured_run import MeasuredRun

    if are_directories(manager, runs):
        graph, sections = sections_of_directories(runs)
    else:
        graph, sections = sections_of_session(manager, runs[0])
    for section in sections:
        if section.missing:
            output.note(f"node {section.node} did not answer: its attempts are missing ({section.missing})")
    return MeasuredRun(graph, np.concatenate([section.records for section in sections]))


def measured_by(output: CommandOutput, manager: ConnectionOptions, profiles: Sequence[str]) -> "Iterator[MeasuredNode]":
    """Yield what runs, sessions and files of profiles have measured.

    Raises
    ------
    NotFoundError
        There is no such run, session or file, or nothing of it was recorded.
    BadFileError
        A file is not a profile.
    """
    from translator.planning.measured import measured_nodes
    from translator.planning.profile_file import read_profile

    for profile in profiles:
        if Path(profile).is_file():
            yield from read_profile(Path(profile))
            continue
        run = run_of(output, manager, [profile])
        if not len(run.records):
            raise NotFoundError("this run has recorded no attempts", where=profile, hint="run it again")
        yield from measured_nodes(run)
