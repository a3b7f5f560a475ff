"""One session on this node: its directory, its engine, its thread, and what is known of it from outside."""

import logging
import shutil
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dropflow.apps.registry import finding, findings
from dropflow.apps.runner_factory import make_runner
from dropflow.apps.streaming_links import streaming_links
from dropflow.clock import Clock
from dropflow.data.repository import LocalRepository
from dropflow.data.storage_errors import storage_error
from dropflow.engine.content_record import ContentRecord
from dropflow.engine.events import Lost
from dropflow.engine.journal import Journal, JournalHeader
from dropflow.engine.reports import SessionResult
from dropflow.engine.runners.pool import WorkerPool
from dropflow.engine.session import Session
from dropflow.engine.statistics import Attempts, Statistics, snapshot
from dropflow.errors import ConflictError, InternalError, StorageError
from dropflow.exception_text import name_of, text_of
from dropflow.failure import Failure
from dropflow.graph.digest import digest
from dropflow.graph.slice_codec import dump_slice
from dropflow.graph.slices import Slice
from dropflow.problems import Problem, refuse_errors
from dropflow.rest.schema import SessionDetail, SessionInfo
from dropflow.states import SessionState
from managers.deployment import Deployment
from managers.links import Links
from managers.node import session_views
from managers.node.checksummed_file import write_checksummed
from managers.node.exchange import NodeExchange
from managers.node.failure_log import FailureLog
from managers.node.fetch_pool import FetchPool
from managers.node.file_watcher import FileWatcher
from managers.node.finished_sessions import End, remove, write_end

__all__ = ["HostedSession"]

_log = logging.getLogger(__name__)

_MOST_FAILURES = 100
_RATE_SECONDS = 5.0
_JOIN_SECONDS = 10.0
_PATIENCE = 60.0


class HostedSession:
    """A session that was prepared here.

    Parameters
    ----------
    piece : Slice
        What this node holds.
    deployment : Deployment
        What else there is to know; its slices are not kept.
    directory : Path
        Session directory; must not exist.
    links : Links
        Of this process.
    fetch_pool : FetchPool
        Threads that fetch contents from other nodes.
    file_watcher : FileWatcher
        Hears when data that other nodes follow grow.
    clock : Clock
        Time.
    runner : str
        Where applications run, one of `dropflow.apps.runner_factory.RUNNERS`.
    pool : WorkerPool
        Worker processes, shared by the sessions of this node; with threads, as many a session.
    in_place : bool
        Whether to read files of other nodes where they lie, if they are seen from here.
    on_end : callable
        Called in the session's thread when it is over.

    Raises
    ------
    ConflictError
        There is such a directory.
    BadGraphError
        A component is unknown, a parameter cannot be used, or the graph has a cycle.
    StorageError
        The directory cannot be written.
    """

    def __init__(
        self,
        piece: Slice,
        deployment: Deployment,
        directory: Path,
        *,
        links: Links,
        fetch_pool: FetchPool,
        file_watcher: FileWatcher,
        clock: Clock,
        runner: str = "processes",
        pool: WorkerPool,
        in_place: bool = True,
        on_end: Callable[["HostedSession"], None] = lambda _: None,
    ) -> None:
        self.piece = piece
        self.name = deployment.session
        self.epoch = deployment.epoch
        self.whole = deployment.drops
        self.directory = directory
        self.result: SessionResult | None = None
        self._deployment = msgspec.structs.replace(deployment, slices={})
        self._clock = clock
        self._on_end = on_end
        self._changed = threading.Condition()
        self._version = 1
        self._statistics: Statistics | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._started = self._finished = 0.0
        self._text = ""
        self._forsaken: threading.Timer | None = None
        refuse_errors(_unusable(piece), name=piece.graph.name)
        streams = streaming_links(piece.graph)
        self._make_directory()
        try:
            self._repository = LocalRepository(directory, self.name, clock, piece.graph)
            self._save(piece)
            self.exchange = NodeExchange(
                piece,
                session=self.name,
                epoch=self.epoch,
                links=links,
                fetch_pool=fetch_pool,
                file_watcher=file_watcher,
                workspace=self._repository.workspace,
                clock=clock,
                streams=streams,
                in_place=in_place,
            )
            self.session = Session(
                piece.graph,
                self._repository,
                make_runner(piece.graph, directory, runner, pool.size, session=self.name, pool=pool),
                session=self.name,
                directory=str(directory),
                clock=clock,
                streams=streams,
                exchange=self.exchange,
                journal=self._journal(piece, streams),
                instruments=(FailureLog(piece.graph, self.name),),
                on_statistics=self._on_statistics,
                check_invariants=deployment.check,
            )
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._thread = threading.Thread(target=self._run, name=f"session-{self.name}", daemon=True)

    # Its life.

    @property
    def state(self) -> SessionState:
        """DEPLOYING until it is started."""
        if self.result is not None:
            return self.result.status
        return SessionState.RUNNING if self._started else SessionState.DEPLOYING

    def expect_start(self, seconds: float) -> None:
        """Cancel it if nobody starts it in `seconds`, and a while: whoever deployed it is gone then."""
        with self._changed:
            if self._started or self._forsaken is not None:
                return
            reason = f"nobody started it in {seconds + _PATIENCE:g} s; the manager that deployed it must have ended"
            self._forsaken = threading.Timer(seconds + _PATIENCE, self.cancel, [reason])
            self._forsaken.daemon = True
            self._forsaken.start()

    @property
    def is_done(self) -> bool:
        """Whether it is over, and everything about it is in its directory."""
        return self.result is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Run; again is no error."""
        with self._changed:
            if self._forsaken is not None:
                self._forsaken.cancel()
            if self._started or self.result is not None:
                return
            self._started = self._clock.now()
            self._version += 1
        self._thread.start()

    def cancel(self, reason: str) -> None:
        """Stop it; one that is over stays as it is."""
        if self.state.is_terminal:
            return
        self._text = self._text or (f"cancelled: {reason}" if reason else "cancelled")
        self.start()  # one that was only prepared ends through the same door
        self.session.cancel(reason)
        self.exchange.hurry()  # its thread may be waiting for room to tell a node that takes nothing

    def lose(self, node: str, failure: Failure, *, before: int | None = None) -> None:
        """A node of the session is gone: all lives of its process before incarnation `before`."""
        if self.state.is_terminal or (before is not None and self._incarnation(node) >= before):
            return
        self.start()
        self.session.lose(node, failure)
        self.exchange.hurry()

    def stop(self, wait: float = _JOIN_SECONDS) -> None:
        """Cancel it and wait for its end.

        Raises
        ------
        ConflictError
            It does not end in time.
        """
        self.cancel("")
        if self._thread.ident is not None:
            self._thread.join(wait)
            if self._thread.is_alive():
                raise ConflictError(f"session {self.name!r} does not stop", hint="wait a moment, and try again")

    def remove(self) -> None:
        """Stop it, and remove what it left behind.

        Raises
        ------
        ConflictError
            It does not stop.
        StorageError
            The directory cannot be removed.
        """
        self.stop()
        remove(self.directory)

    def _incarnation(self, node: str) -> int:
        """Which life of a node's process was meant when the session was deployed."""
        return next((place.incarnation for place in self._deployment.places if place.node == node), 0)

    def _run(self) -> None:
        try:
            result = self.session.run()
        except Exception as error:  # noqa: BLE001 - else the session would be RUNNING for ever
            _log.exception("session %s stopped: this is a bug of dropflow", self.name)
            result = self._broken(error)
        finally:
            self._repository.close()
        self._write_summary(result)
        with self._changed:
            self._finished = self._clock.now()
            self._text = self._text or self._why(result)
            self.result = result
            self._version += 1
            self._changed.notify_all()
        _log.info("the session is %s", result.status.name, extra={"session": self.name})
        self._on_end(self)
        self._write_end()

    def _broken(self, error: Exception) -> SessionResult:
        self._text = f"the engine failed: {text_of(error)}"
        # For the other nodes it is as if this one were gone: its drops will never be settled.
        text = f"the engine of node {self.piece.node} failed: {text_of(error)}"
        failure = Failure(code=InternalError.code, kind=name_of(error), text=text, hint="see the log of that node")
        self.exchange.give_up("", Lost(self.piece.node, failure))
        return SessionResult(
            session=self.name,
            status=SessionState.FAILED,
            drops=int(self.piece.is_own.sum()),
            states={},
            seconds=self._clock.now() - self._started,
            failures=(),
            directory=str(self.directory),
            notes=(self._text,),
        )

    def _why(self, result: SessionResult) -> str:
        if result.status is not SessionState.FAILED or not result.failures:
            return ""
        first = next((one for one in result.failures if one.text), None)
        if first is None:
            return "drops failed because of failures on other nodes"
        if not first.drop:
            return first.text
        more = f" (and {len(result.failures) - 1} more)" if len(result.failures) > 1 else ""
        return f"{first.name} ({first.drop}) failed: {first.text}{more}"

    # What it looks like.

    def info(self) -> SessionInfo:
        """In one row."""
        course = self._course()
        return SessionInfo(**course, **self._counts(self._latest(), course["status"]))

    def detail(self) -> SessionDetail:
        """With its logical nodes and failures."""
        course = self._course()
        statistics = self._latest()
        failures, notes = self.session.call(lambda live: (live.reports(), tuple(live.notes)))
        return SessionDetail(
            **course,
            **self._counts(statistics, course["status"]),
            logical=session_views.logical_nodes(statistics),
            failures=tuple(session_views.failure_info(one, self.piece.node) for one in failures[:_MOST_FAILURES]),
            notes=(*self._deployment.notes, *notes),
        )

    def watch(self, version: int, seconds: float) -> SessionDetail:
        """As `detail`, once it is newer than `version` or over, or after `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self.result is not None, seconds)
        return self.detail()

    def _latest(self) -> Statistics:
        statistics = self._statistics
        if statistics is None:
            statistics = self.session.call(lambda live: snapshot(live.core, 0.0))
        return statistics

    def _course(self) -> dict[str, Any]:
        """How far the session has come. To be asked before the counts, or what is over would have counts of before."""
        with self._changed:
            now = self._finished or self._clock.now()
            return {
                "session": self.name,
                "graph": self._deployment.graph,
                "status": self.state.name,
                "epoch": self.epoch,
                "version": self._version,
                "created": self._deployment.created,
                "started": self._started,
                "finished": self._finished,
                "seconds": max(0.0, now - self._started) if self._started else 0.0,
                "nodes": (self.piece.node,),
                "text": self._text,
                "whole": self.whole,
            }

    def _counts(self, statistics: Statistics, status: str) -> dict[str, Any]:
        rate = self._rate()
        left = statistics.drops - statistics.settled
        is_over = SessionState[status].is_terminal
        return {
            "drops": statistics.drops,
            "settled": statistics.settled,
            **msgspec.structs.asdict(Attempts() if is_over else self.session.attempts()),
            "states": session_views.totals(statistics),
            "rate": rate,
            "remaining": left / rate if rate > 0 and not is_over else None,
        }

    def _on_statistics(self, statistics: Statistics) -> None:
        now = self._clock.monotonic()
        with self._changed:
            self._statistics = statistics
            self._samples.append((now, statistics.settled))
            while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:  # noqa: PLR2004 - a span
                self._samples.popleft()
            self._version += 1
            self._changed.notify_all()

    def _rate(self) -> float:
        with self._changed:
            samples = tuple(self._samples)
        if len(samples) < 2:  # noqa: PLR2004 - a span has two ends
            return self._statistics.rate if self._statistics is not None else 0.0
        (began, before), (ended, after) = samples[0], samples[-1]
        return (after - before) / (ended - began) if ended > began else 0.0

    # Its directory.

    def _make_directory(self) -> None:
        try:
            self.directory.mkdir(parents=True)
        except FileExistsError:
            raise ConflictError(
                f"there is a directory for a session {self.name!r} already, of which nothing is known",
                where=str(self.directory),
                hint="look what is in it and remove it, or give the new session another name",
            ) from None
        except OSError as error:
            raise StorageError(f"cannot be made: {error.strerror}", where=str(self.directory)) from error

    def _save(self, piece: Slice) -> None:
        try:
            with (self.directory / "slice.dfs").open("wb") as stream:
                stream.writelines(dump_slice(piece))
        except OSError as error:
            raise StorageError(f"cannot be written: {error.strerror}", where=str(self.directory)) from error
        write_checksummed(self.directory / "deployment.json", self._deployment)

    def _journal(self, piece: Slice, streams: tuple[int, ...]) -> Journal:
        header = JournalHeader(self.name, digest(piece.graph), self._clock.now(), streams, self.epoch)
        return Journal(self.directory / "journal.dfj", header)

    def _write_end(self) -> None:
        """What a later life of this node is to know."""
        failures = tuple(session_views.failure_info(one, self.piece.node) for one in self.session.call(Session.reports))
        held = self.session.call(Session.held)
        directory = f"{self.directory}/"
        own = self.piece.is_own
        contents = {row: ContentRecord.of(handle, directory) for row, handle in held.items() if own[row]}
        end = End(whole=self.whole, detail=self.detail(), failures=failures, contents=contents)
        try:
            write_end(self.directory, end)
        except StorageError as error:
            # Another process will find the same in the journal.
            self.session.notes.append(error.text)

    def _write_summary(self, result: SessionResult) -> None:
        try:
            body = msgspec.json.format(msgspec.json.encode(result), indent=2)
            (self.directory / "summary.json").write_bytes(body)
        except OSError as error:
            self.session.notes.append(str(storage_error("write", self.directory / "summary.json", error)))


def _unusable(piece: Slice) -> list[Problem]:
    """What keeps the graph from running here. Nodes that live elsewhere may need what only this host lacks."""
    own = {piece.graph.templates[row].key for row in np.unique(piece.graph.template[piece.is_own]).tolist()}
    found = findings(piece.graph.templates, piece.graph.links, imports=True)
    return [finding(template, error) for template, error in found if not error.of_host or template.key in own]
