"""The report of the directory of a run, from its graph, its journal, its times and its summary."""

from pathlib import Path

import msgspec
import numpy as np

from dropflow.api.drop_records import ResultInfo
from dropflow.api.requests import ResultList
from dropflow.api.session_records import SessionDetail
from dropflow.clock import SystemClock
from dropflow.errors import UsageError
from dropflow.execution.journal import ReplayedSession, is_blank, replay
from dropflow.execution.statistics import applications_run, cause_reports, snapshot
from dropflow.files import JOURNAL, SUMMARY
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.text_ids import oid
from dropflow.reuse.log import reuse_origin, taken_results
from dropflow.sessions.summaries import failure_info, logical_nodes
from dropflow.times.attempts import attempts_of
from dropflow.times.measured_run import read_parts
from dropflow.times.timeline import analyse
from dropflow.web.report import SessionReport


class _Ending(msgspec.Struct, frozen=True):
    """The fields of ``summary.json`` that a report shows."""

    seconds: float = 0.0
    notes: tuple[str, ...] = ()


def run_report(directory: Path) -> SessionReport:
    """Return the report of a run, also of a run that was killed or still runs.

    Raises
    ------
    NotFoundError, BadFileError
        There is no run, or its files are damaged.
    UsageError
        It is the directory of a node, which has only a part of its session; or no attempt has run.
    """
    graph, sections = read_parts([directory])
    if (directory / "deployment.json").exists():
        raise UsageError(
            "this directory of a node has only its part of a session",
            where=str(directory),
            hint="name the session, and its manager with --to URL",
        )
    journal = directory / JOURNAL
    if is_blank(journal):
        raise UsageError("nothing has run in this directory", where=str(directory), hint="see dropflow run --keep")
    replayed, attempts = replay(graph, journal), attempts_of(sections)
    statistics = snapshot(replayed.core, 0.0)
    ending, reused = _ending(directory), len(taken_results(directory))
    detail = SessionDetail(
        session=directory.resolve().name,
        graph=graph.name,
        status=statistics.status.name,
        drops=statistics.drops,
        settled=statistics.settled,
        counts=statistics.drop_counts,
        started=replayed.started,
        seconds=ending.seconds or max(attempts.end - attempts.start, 0.0),
        nodes=("this machine",),
        logical=logical_nodes(statistics),
        notes=ending.notes,
        computed=applications_run(statistics) - reused,
        reused=reused,
    )
    return SessionReport(
        detail=detail,
        failures=[
            failure_info(report) for report in cause_reports(graph, replayed.core, str(directory), replayed.failures)
        ],
        analysis=analyse(graph, attempts),
        written=SystemClock().now(),
        states=np.frombuffer(bytes(replayed.core.drops.states), np.uint8),
        results=_results(graph, replayed, directory),
        inputs={
            row: content.location
            for row, content in replayed.contents.items()
            if graph.predecessors.ptr[row] == graph.predecessors.ptr[row + 1] and content.kind in ("file", "directory")
        },
    )


def _results(graph: PhysicalGraph, replayed: ReplayedSession, directory: Path) -> ResultList:
    """Return the contents of leaves and of drops that persist, from the journal."""
    is_leaf = np.diff(graph.successors.ptr) == 0
    is_root = np.diff(graph.predecessors.ptr) == 0
    results = []
    for row, content in sorted(replayed.contents.items()):
        template = graph.templates[graph.template[row]]
        is_file = content.kind in ("file", "directory")
        # As for a session of managers: without data that other drops consumed, and without inputs from elsewhere.
        is_result = is_leaf[row] or template.persist or is_file
        if not is_result or (is_root[row] and not content.is_inside) or content.kind in ("null", "url"):
            continue
        results.append(
            ResultInfo(
                drop=row,
                oid=oid(graph, row),
                name=template.name,
                node="",
                path=content.location,
                size=content.size,
                checksum=content.checksum or None,
                is_directory=content.kind == "directory",
                missing=content.missing,
                reused=reuse_origin(graph, directory, row),
            )
        )
    return ResultList(results=tuple(results))


def _ending(directory: Path) -> _Ending:
    try:
        return msgspec.json.decode((directory / SUMMARY).read_bytes(), type=_Ending)
    except (OSError, msgspec.DecodeError):
        return _Ending()
