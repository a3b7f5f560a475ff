"""The report of the directory of a run, from its graph, its journal, its times and its summary."""

from pathlib import Path

import msgspec

from dropflow.clock import SystemClock
from dropflow.engine.journal import is_blank, replay
from dropflow.engine.reports import cause_reports
from dropflow.engine.statistics import by_name, snapshot
from dropflow.errors import UsageError
from dropflow.measured_run import read_parts
from dropflow.rest.report import SessionReport
from dropflow.rest.schema import FailureInfo, LogicalNodeInfo, SessionDetail
from dropflow.times.analysis import analyse
from dropflow.times.attempts import attempts_of

__all__ = ["run_report"]


class _Ending(msgspec.Struct, frozen=True):
    """The fields of ``summary.json`` that a report shows."""

    seconds: float = 0.0
    notes: tuple[str, ...] = ()


def run_report(directory: Path) -> SessionReport:
    """Return the report of a run, also of one that was killed or still runs.

    Raises
    ------
    NotFoundError, BadFileError
        There is no run, or its files are damaged.
    UsageError
        It is the directory of a node, which has only a part of its session; or nothing has run.
    """
    graph, sections = read_parts([directory])
    if (directory / "deployment.json").exists():
        raise UsageError(
            "this directory of a node has only its part of a session",
            where=str(directory),
            hint="name the session, and its manager with --to URL",
        )
    journal = directory / "journal.dfj"
    if is_blank(journal):
        raise UsageError("nothing has run in this directory", where=str(directory), hint="see dropflow run --keep")
    replayed, attempts = replay(graph, journal), attempts_of(sections)
    statistics = snapshot(replayed.core, 0.0)
    ending = _ending(directory)
    logical = tuple(
        LogicalNodeInfo(
            key=node.key,
            name=node.name,
            category=node.category,
            is_app=node.is_app,
            artificial=node.artificial,
            drops=node.total,
            states=by_name(node.counts),
            order=order,
            counts=node.drop_counts(),
        )
        for order, node in enumerate(statistics.nodes)
    )
    reports = cause_reports(graph, replayed.core, str(directory), replayed.failures)
    failures = [
        FailureInfo(
            drop=one.drop,
            name=one.name,
            node="",
            code=one.code,
            kind=one.kind,
            text=one.text,
            hint=one.hint,
            detail=one.detail,
            count=one.count,
            took_along=one.took_along,
            attempts=one.attempts,
            row=one.row,
        )
        for one in reports
    ]
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
        logical=logical,
        notes=ending.notes,
    )
    return SessionReport(
        detail=detail, failures=failures, analysis=analyse(graph, attempts), written=SystemClock().now()
    )


def _ending(directory: Path) -> _Ending:
    try:
        return msgspec.json.decode((directory / "summary.json").read_bytes(), type=_Ending)
    except (OSError, msgspec.DecodeError):
        return _Ending()
