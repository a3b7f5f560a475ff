"""Reads the sessions of earlier processes of a node from their directories.

When a session is over, its end is written beside its graph and its journal. Where the end is missing, the process
ended while the session ran: then the journal is replayed once, to see how far the session had come and what it had
committed. Each session is read on its own. One that cannot be read is FAILED, with the reason, and stays on the disk
until it is deleted.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from dropflow.data.removed_directory import REMOVED, remove_rest
from dropflow.data.repository import remove_uncommitted
from dropflow.data.surviving_contents import replaced_contents
from dropflow.data.workspace import Workspace
from dropflow.engine.content_record import ContentRecord
from dropflow.engine.core import Core
from dropflow.engine.journal import ReplayedSession
from dropflow.engine.recovery import recomputed_drops
from dropflow.engine.reports import cause_reports
from dropflow.engine.statistics import snapshot
from dropflow.errors import DropflowError, StorageError
from dropflow.failure import Failure
from dropflow.graph.slices import Slice
from dropflow.graph.text_ids import oid
from dropflow.rest.operation_records import CancelRequest
from dropflow.rest.session_records import FailureInfo, SessionDetail
from dropflow.states import DropState, SessionState
from managers.deployment import Deployment
from managers.node import session_views
from managers.node.downloads import refuse_changed
from managers.node.finished_sessions import DamagedSession, FinishedSession, end_interrupted
from managers.node.session_directory import SessionDirectory, SessionEnd

__all__ = ["recover", "recover_all"]

_log = logging.getLogger(__name__)

_MOST_FAILURES = 100
_MOST_NAMED = 20


def recover_all(sessions: Path, node: str) -> dict[str, FinishedSession | DamagedSession]:
    """Return the sessions whose directories are in `sessions`, by name.

    Directories of sessions that were never prepared to the end are removed.
    """
    found: dict[str, FinishedSession | DamagedSession] = {}
    remove_rest(sessions)
    for path in sorted(path for path in sessions.iterdir() if path.is_dir() and not path.name.startswith(REMOVED)):
        directory = SessionDirectory(path)
        with suppress(DropflowError):  # then the session is damaged, as it turns out below
            directory.next.settle()
            directory.next.discard()
        if directory.is_unprepared:
            directory.discard()
            continue
        session: FinishedSession | DamagedSession
        try:
            session = recover(directory, node)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one session, the others are served
            _log.warning("the session in %s cannot be read: %s", path, error)
            session = DamagedSession(directory, node, error)
        found[session.name] = session
    return found


def recover(directory: SessionDirectory, node: str) -> FinishedSession:
    """Return the session in a directory in which no process is at work.

    Raises
    ------
    DropflowError, KeyError
        The session cannot be read.
    """
    try:
        end = directory.end()
    except DropflowError as error:
        _log.warning("the end of the session in %s is derived from its journal again: %s", directory.path, error)
        end = None
    if end is not None:
        return FinishedSession(directory, end)
    deployment = directory.deployment()
    remove_uncommitted(Workspace(os.path.abspath(directory.path), deployment.session))  # noqa: PTH100 - keeps links
    end = _end_of_interrupted(directory, deployment, node)
    try:
        directory.write_end(end)
    except StorageError as error:
        _log.warning("the end of session %s will be derived again: %s", deployment.session, error)
    return FinishedSession(directory, end)


def _end_of_interrupted(directory: SessionDirectory, deployment: Deployment, node: str) -> SessionEnd:
    """Return the end of a session whose process ended before it."""
    piece = directory.slice(node)
    replayed = directory.replay(piece)
    core = replayed.core
    request = directory.cancel_request()
    lost = end_interrupted(core, node, request)
    failures = _failures(directory, piece, replayed)
    if lost is not None:
        failures.insert(0, _lost_node(piece, core, lost))
    cancelled = (request or CancelRequest()).text if core.status is SessionState.CANCELLED else ""
    statistics = snapshot(core, 0.0)
    running = [0] * len(statistics.nodes)
    ended = directory.journal.stat().st_mtime
    own = {row: record for row, record in replayed.contents.items() if piece.is_own[row]}
    replaced = replaced_contents(own)
    contents = {
        row: record for row, record in own.items() if row not in replaced and _is_left(row, record, replayed, directory)
    }
    detail = SessionDetail(
        session=deployment.session,
        graph=deployment.graph,
        status=core.status.name,
        epoch=deployment.epoch,
        version=int(ended * 1000),
        drops=statistics.drops,
        settled=statistics.settled,
        counts=session_views.counts_of(statistics, running),
        states=session_views.totals(statistics),
        created=deployment.created,
        started=replayed.started,
        finished=ended,
        seconds=max(0.0, ended - replayed.started),
        rate=statistics.settled / (ended - replayed.started) if 0 < replayed.started < ended else 0.0,
        nodes=(node,),
        text=cancelled if lost is None else lost.text,
        whole=deployment.drops,
        logical=session_views.logical_nodes(statistics, running),
        failures=tuple(failures[:_MOST_FAILURES]),
        recomputed=deployment.recomputed_before(node) + recomputed_drops(piece.graph, replayed.known),
        notes=(*deployment.notes, *_damage(piece, contents, directory)),
    )
    return SessionEnd(whole=deployment.drops, detail=detail, failures=tuple(failures), contents=contents)


def _is_left(row: int, record: ContentRecord, replayed: ReplayedSession, directory: SessionDirectory) -> bool:
    """Return whether there is a content, or should be one: a file that was released may be there still."""
    handle = record.in_directory(directory.path)
    if handle is None:
        return False
    return row not in replayed.released or (bool(handle.location) and os.path.lexists(handle.location))


def _damage(piece: Slice, contents: Mapping[int, ContentRecord], directory: SessionDirectory) -> Iterator[str]:
    """Yield a note for each content that was committed and is missing, or has another size."""
    for row, record in contents.items():
        handle = record.in_directory(directory.path)
        if handle is not None:
            try:
                refuse_changed(handle)
            except DropflowError as error:
                yield f"the content of {oid(piece.graph, row)} is lost: {error.text}"


def _lost_node(piece: Slice, core: Core, failure: Failure) -> FailureInfo:
    """Return the loss of this node as a root cause."""
    states = np.frombuffer(core.drops.states, dtype=np.uint8)
    cancelled = np.flatnonzero(piece.is_own & (states == DropState.CANCELLED.value)).tolist()
    lost = [row for row in cancelled if row not in core.drops.cancelled]
    return FailureInfo(
        drop="",
        name=piece.node,
        node=piece.node,
        code=failure.code,
        kind=failure.kind,
        text=failure.text,
        hint=failure.hint,
        count=len(lost),
        drops=tuple(oid(piece.graph, row) for row in lost[:_MOST_NAMED]),
    )


def _failures(directory: SessionDirectory, piece: Slice, replayed: ReplayedSession) -> list[FailureInfo]:
    """Return the root causes of the drops in ERROR here. Of a cause on another node, only the row is known."""
    reports = cause_reports(piece.graph, replayed.core, str(directory.path), replayed.failures, rows=piece.drop.data)
    return [session_views.failure_info(report, piece.node) for report in reports]
