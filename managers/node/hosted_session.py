"""A session that this process executes: its parts, its states, and its reports for users."""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import Any

import msgspec
import numpy as np

from dropflow.api.requests import WALLTIME_REQUEST, CancelRequest
from dropflow.api.session_records import PartEnd, SessionDetail, SessionInfo
from dropflow.apps.needs import finding, findings, prepare_containers
from dropflow.apps.ranks import deliver, join_nodes, leave_nodes
from dropflow.apps.registry import streaming_links
from dropflow.data.repository import LocalRepository, MemoryLimitedRepository
from dropflow.errors import DropflowError, InternalError, StorageError
from dropflow.execution.content_location import ContentRecord, Handle
from dropflow.execution.decisions.continuation import Continuation, continuation_of, recomputed_drops
from dropflow.execution.decisions.events import Lost
from dropflow.execution.session import Session, Watch
from dropflow.execution.statistics import Attempts, SessionResult, Statistics, applications_run, snapshot
from dropflow.failure import Failure, Problem, name_of, refuse_errors, text_of
from dropflow.formatting import format_time
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import Slice
from dropflow.graph.templates import ranks_per_node
from dropflow.reuse.log import TakenCount
from dropflow.sessions import summaries
from dropflow.states import DropState, SessionState
from dropflow.times.octets import NodeReceipts
from managers.deployment import Deployment
from managers.messages import Events, RankMessage
from managers.node.content_watch import ContentWatch
from managers.node.contents import ContentExchange
from managers.node.copy_effects import RELEASED, CopyRecords, ReleasedContents
from managers.node.decisions.events import (
    Changed,
    ContentUnavailable,
    Ended,
    Frozen,
    Over,
    PartFinished,
    PartSettled,
    SessionEvent,
    ViewEvent,
)
from managers.node.directory import SessionDirectory, SessionEnd
from managers.node.exchange import MessagesByView, NodeExchange
from managers.node.fetch_pool import write_receipts
from managers.node.finished_sessions import MOST_FAILURES, REPLACED
from managers.node.progress import Progress, ProgressLog
from managers.node.resources import SessionResources
from managers.node.session_log import FailureLog
from managers.node.view_states import Beginning, NextViewBegins, adopt_copies, report_of, restart_in
from managers.recovery.decision_text import explain_decision
from managers.recovery.records import WAITING, SharedFile, View, ViewDecision, first_view, unpack_column

_log = logging.getLogger(__name__)
_end_decoder = msgspec.msgpack.Decoder(PartEnd)


# The nodes of MPI jobs over several nodes.


class _JobRanks:
    """`dropflow.apps.ranks.JobNodes` of one session."""

    def __init__(self, hosted: "HostedSession", directory: str) -> None:
        self.node = hosted.piece.node
        self.directory = directory
        self._hosted = hosted
        self._known: tuple[int, dict[tuple[str, int], tuple[str, ...]]] = (-1, {})
        """A view, and the nodes of jobs in it. Threads that call at the same time may each compute them."""
        join_nodes(self.directory, self)

    def leave(self) -> None:
        """Forget the session."""
        leave_nodes(self.directory)

    def others(self) -> set[str]:
        """Return the nodes that have ranks of a job with ranks here."""
        graph = self._hosted.piece.graph
        spread = [row for row, template in enumerate(graph.templates) if ranks_per_node(template)]
        if not spread:
            return set()
        whole_graph = self._hosted.directory.graph_in_view()
        part_lists = (np.unique(whole_graph.part[whole_graph.template == row]).tolist() for row in spread)
        nodes = [{whole_graph.places[part] for part in parts} for parts in part_lists]
        return set().union(*(names for names in nodes if self.node in names)) - {self.node}

    def of_ranks(self, key: str, outer: Sequence[int]) -> tuple[str, ...]:
        """Return the node of each rank of a job."""
        templates = self._hosted.piece.graph.templates
        row = next(number for number, template in enumerate(templates) if template.key == key)
        *around, ranks = [axis.size for axis in templates[row].axes]
        job = int(np.ravel_multi_index(tuple(outer), around)) if around else 0
        view, known = self._hosted.view.number, self._known
        if known[0] != view:
            known = self._known = (view, {})
        if (key, job) not in known[1]:
            graph = self._hosted.directory.graph_in_view()
            rows = np.flatnonzero((graph.template == row) & (graph.instance // ranks == job))
            rows = rows[np.argsort(graph.instance[rows])]
            known[1][key, job] = tuple(graph.places[part] for part in graph.part[rows].tolist())
        return known[1][key, job]

    def send(self, node: str, job: str, text: str) -> None:
        """Send a text about a job to a node."""
        self._hosted.exchange.send(node, RankMessage(self._hosted.name, self._hosted.epoch, job, text))


class HostedSession:
    """A session that was built here.

    `start`, `cancel` and `lose` are for one thread, the owner of the node's sessions; all other methods are for any
    thread. If the session was cancelled or lost a node, its own thread ends it. Otherwise a job ends it, which the
    owner starts when no thread is at work.

    Parameters
    ----------
    piece : Slice
        The drops of this node.
    deployment : Deployment
        The session; the bytes of its graph are not kept.
    directory : SessionDirectory
        Its directory, with the graph.
    resources : SessionResources
        Makes the parts of the session, and executes it.
    beginning : Beginning, optional
        The state with which the session continues, if it was over; None for a new session.
    report : callable
        Takes the session's events, in the thread in which they happen: `Changed`, then `Over`, and at last `Ended`.

    Raises
    ------
    BadGraphError
        A component is unknown, a parameter cannot be used, or the graph has a cycle.
    MissingDependencyError
        An image cannot be pulled.
    StorageError
        The directory cannot be written.
    """

    is_certain = True
    """Whether this process has executed the session to its end."""

    def __init__(
        self,
        piece: Slice,
        deployment: Deployment,
        directory: SessionDirectory,
        *,
        resources: SessionResources,
        report: Callable[[SessionEvent | ViewEvent | ContentUnavailable], None],
        beginning: Beginning | None = None,
    ) -> None:
        self.piece = piece
        self.name = deployment.session
        self.epoch = deployment.epoch
        self.whole = deployment.drops
        self.directory = directory
        self.deployment = deployment.without_graph()
        self._clock = clock = resources.clock
        self._report = report
        self._progress = ProgressLog(clock, self._on_progress)
        self._taken = TakenCount(directory.path)
        self._cancelled = ""
        self._own_failure: Failure | None = None
        refuse_errors(_unusable(piece), name=piece.graph.name)
        images: list[str] = []
        if resources.shared_memory is not None:  # applications run here
            images = prepare_containers(
                [piece.graph.templates[row] for row in np.unique(piece.graph.template[piece.is_own]).tolist()],
                directory.path,
                report=lambda line: _log.info("session %s: %s", self.name, line, extra={"session": self.name}),
            )
        repository: Callable[..., LocalRepository] = LocalRepository
        if deployment.memory_limit:
            repository = partial(MemoryLimitedRepository, limit=deployment.memory_limit)
        self._repository = repository(
            directory.path, self.name, clock, piece.graph, shared_memory=resources.shared_memory
        )
        self._resources = resources
        view = first_view(deployment)
        self._survives_losses = view is not None
        self.view = view or View(deployment.view, ())
        """The members and witnesses of the present view."""
        self._waiting = ""
        self.ends: tuple[bytes, ...] = ()
        """How each part ended, as in `managers.messages.PartDone`; set by the owner of the node's sessions."""
        self.lacks_witness = False
        """Whether reports show that no witness answers; set by the owner of the node's sessions."""
        self._shared: Mapping[int, SharedFile] = {}
        self.copied: set[int] = set()
        """Rows of contents here that other members may hold copies of; for the session's thread."""
        continuation, problems = None, list[str]()
        with ExitStack() as undo:
            undo.callback(self._repository.close)
            self.exchange = self._make_exchange(piece, self.view.number, None)
            undo.callback(self.exchange.close)
            self.exchange.contents.copies_to_disk = bool(deployment.memory_limit)
            self.events = MessagesByView(self.exchange)
            """Takes the messages of other nodes."""
            if beginning is not None:
                continuation, problems = beginning.continuation(piece, self._repository, directory)
            self.session = self._make_session(piece, self.exchange, continuation, None, self.view)
            undo.pop_all()
        self.ranks = _JobRanks(self, str(self._repository.workspace.files))
        self.session.notes += [*images, *problems]
        self._recomputed = deployment.recomputed_before(piece.node) + recomputed_drops(piece.graph, self.session.known)

    def _make_exchange(self, piece: Slice, view: int, contents: ContentExchange | None) -> NodeExchange:
        def on_unavailable(peer: str, fail: Callable[[], None]) -> None:
            self._report(ContentUnavailable(self.name, self.epoch, view, peer, fail))

        return NodeExchange(
            piece,
            session=self.name,
            epoch=self.epoch,
            resources=self._resources,
            workspace=self._repository.workspace,
            streams=streaming_links(piece.graph),
            view=view,
            contents=contents,
            on_unavailable=on_unavailable,
        )

    def _make_session(
        self,
        piece: Slice,
        exchange: NodeExchange,
        continuation: Continuation | None,
        before: Session | None,
        view: View,
    ) -> Session:
        drains, settled = piece.node in view.draining, PartSettled(self.name, self.epoch, exchange.view)
        return self._resources.make_session(
            piece.graph,
            self._repository,
            exchange,
            self.deployment,
            watch=Watch(
                instruments=(
                    FailureLog(piece.graph, self.name),
                    ContentWatch(
                        self.deployment, piece, exchange, copied=self.copied, report=self._report, drains=drains
                    ),
                    *([NextViewBegins(self.directory)] if continuation else []),
                ),
                on_statistics=self._progress.count,
                on_idle=partial(self._report_part, exchange.view, is_idle=True) if self.deployment.until else None,
                on_settled=partial(self._report, settled) if drains else None,
                check_invariants=self.deployment.check,
            ),
            continuation=continuation,
            before=before,
        )

    def receive(self, peer: str, message: Events | RankMessage) -> None:
        """Take a message of another node. For any thread."""
        if isinstance(message, Events):
            self.events.receive(peer, message)
        else:
            deliver(self.ranks.directory, peer, message.job, message.text)

    # For the owner of the node's sessions.

    def start(self) -> None:
        """Begin to execute the session. Idempotent."""
        if self._progress.latest.state is SessionState.DEPLOYING:
            self._progress.start(self.deployment.started)
            self._advance()

    def cancel(self, request: CancelRequest, *, has_thread: bool = True) -> None:
        """Cancel the session; if it was not started, it is started and ends in its thread."""
        if not self.state.is_terminal:
            self._cancelled = self._cancelled or request.text
            self._stop_thread(lambda: self.session.cancel(request.reason, request.grace), has_thread=has_thread)

    def lose(self, node: str, failure: Failure, *, has_thread: bool = True) -> None:
        """Fail the session because of the loss of a node."""
        if not self.state.is_terminal:
            self._stop_thread(lambda: self.session.lose(node, failure), has_thread=has_thread)

    def freeze(self, shared: Mapping[int, SharedFile], *, has_thread: bool) -> None:
        """Stop the session for a change of its view, and report `Frozen`. Attempts that run go on.

        Parameters
        ----------
        shared : mapping of int to SharedFile
            Files of other members, by row; the report has the files that still exist.
        """
        self._shared = shared
        self.session.freeze()
        self.exchange.stop_waiting()
        if not has_thread:
            self._advance()  # which returns at once

    def show_waiting(self, text: str, seconds: float) -> None:
        """Show users why the session waits while it is frozen; nothing if the text is empty.

        Parameters
        ----------
        seconds : float
            Seconds after which it fails; infinity if it does not.
        """
        if text and seconds < inf:
            until = format_time(self._clock.now() + seconds)
            command = f"dropflow resume {self.name} --force"
            text += f". It fails at {until} unless they answer; if they are stopped for good: {command}"
        self._waiting = text
        self._progress.touch()

    def show_witness(self, *, is_lacking: bool) -> None:
        """Show in reports whether the session lacks a witness, so that a manager can become the witness."""
        self.lacks_witness = is_lacking

    def note(self, text: str) -> None:
        """Add a note to the session."""
        self.session.post(lambda live: live.notes.append(text))

    def silence(self) -> None:
        """Send the other nodes nothing about the end of the session here: they go on without this node."""
        self.events.silence()

    def _stop_thread(self, stop: Callable[[], None], *, has_thread: bool) -> None:
        self.start()
        stop()
        self.session.is_frozen = False
        self.exchange.stop_waiting()  # the thread may wait to send to a node that does not read
        if not has_thread:
            self._advance()

    def _advance(self) -> None:
        try:
            self._resources.execute(self.session, f"{self.name}@{self.piece.node}", self._on_thread_returned)
        except RuntimeError as error:  # the system has no thread left
            self.end(error)

    # In the thread of a job, while no thread is at work in the session.

    def continue_in(self, decision: ViewDecision, copies: Mapping[int, Handle], held: Collection[int] = ()) -> None:
        """Continue in the next view, with the drops of this node in it and their known states.

        Parameters
        ----------
        copies : mapping of int to Handle
            Copies here, by row, of contents whose drops this node takes over.
        held : collection of int
            Rows of contents of other nodes that stay copies here.
        """
        reset = unpack_column(decision.reset, np.int32)
        frozen = self.session.hand_over()
        contents = self.exchange.contents
        graph = self.directory.graph_in_view()
        note = explain_decision(graph, decision)
        piece = self.directory.save_next(decision, graph, self.piece)
        self._repository.set_graph(piece.graph)
        exchange = self._make_exchange(piece, decision.view.number, contents)
        self.copied |= copies.keys()
        CopyRecords(self.directory.path).begin_view((self.epoch, decision.view.number), held)
        adopted, problems = adopt_copies(self._repository, piece, copies)
        continuation = continuation_of(frozen, piece, restart_in(decision), adopted)
        states = np.frombuffer(continuation.known.states, dtype=np.uint8)
        contents.next_view(reset.tolist(), set(piece.drop[states == DropState.COMPLETED].tolist()))
        session = self._make_session(piece, exchange, continuation, self.session, decision.view)
        session.notes += [*self.session.notes, note, *problems]
        self._recomputed += recomputed_drops(piece.graph, session.known)
        self.piece, self.exchange, self.session, self.view = piece, exchange, session, decision.view
        self.events.next_view(decision.view.number, exchange)
        self._advance()

    def withdraw(self) -> None:
        """Undo the continuation of a session that was over. It has not begun, and the files stay unchanged."""
        self.session.close()
        self._repository.close()
        self.directory.next.discard()

    def finish(self, error: Exception | None = None, *, has_thread: bool = False) -> None:
        """End the session, since it is over on all its members, or because of `error`.

        If a thread is at work in it, this must be called in the owner's thread, and only stops that thread.
        """
        if error is not None:
            self.end(error)
        elif self.session.is_over and not has_thread:
            self._end_with_result()
        else:
            is_late = self.session.is_idle
            request = WALLTIME_REQUEST if is_late else CancelRequest(reason="it is over on the other nodes")
            self.cancel(request, has_thread=has_thread)

    # In the session's thread.

    def _on_thread_returned(self, error: Exception | None) -> None:
        session = self.session
        # A session on one fixed node is over when its part is over. A node that is to join is not a member yet.
        is_first = self.view.number == self.deployment.view and not self.deployment.is_joining
        is_alone = len(self.view.members) == 1 and is_first and not session.is_frozen
        if error is not None:
            self.end(error)
        elif session.is_over and (not self._survives_losses or session.has_given_up or is_alone):
            self._end_with_result()
        elif session.is_over and not session.is_frozen:
            self._report_part(self.view.number)
        else:  # it stopped because it was frozen, even if it was cancelled since
            report = report_of(session, self.piece, workers=self._resources.workers, shared=self._shared)
            self._report(Frozen(self.name, self.epoch, report))

    def _report_part(self, view: int, *, is_idle: bool = False) -> None:
        """Report that the part here is finished, and how. If it is idle, the remaining drops will be cancelled."""
        statistics = snapshot(self.session.core, 0.0)
        end = summaries.part_end(self.piece.node, statistics, is_cancelled=is_idle)
        self._report(PartFinished(self.name, self.epoch, view, is_idle, msgspec.msgpack.encode(end)))

    def _end_with_result(self) -> None:
        try:
            self.session.close()
            outcome: SessionResult | Exception = self.session.result()
        except Exception as error:  # noqa: BLE001 - the node must learn that the session is over
            outcome = error
        self.end(outcome)

    def end(self, outcome: SessionResult | Exception) -> None:
        """End the session with its result, or with the exception of its execution."""
        if isinstance(outcome, SessionResult):
            result, text = outcome, self._cancelled or _why(outcome)
        else:
            if isinstance(outcome, DropflowError) and not isinstance(outcome, InternalError):
                _log.error("session %s cannot go on here: %s", self.name, outcome)
            else:
                _log.error("session %s stopped: this is a bug of dropflow", self.name, exc_info=outcome)
            if self.state.is_terminal:
                return  # its end is known, and only the record of it could not be made
            result, text = self._execution_failed(outcome)
        self.ranks.leave()
        _close(self._repository, "could not remove uncommitted data")
        try:
            _write(self.session, self.directory.write_summary, result)
            _write(self.session, partial(write_receipts, self.directory.path), receipts_of(self))
            _log.info("the session is %s", result.status.name, extra={"session": self.name})
            self._progress.end(result.status, text)
            _write(self.session, self.directory.write_end, _end_of(self))
        finally:
            self._report(Ended(self.name, self.epoch))

    def _execution_failed(self, error: Exception) -> tuple[SessionResult, str]:
        """Return the result of the session if its execution raised `error`; inform the other nodes first."""
        # For the other nodes, this node is lost: its drops will never be settled.
        text = f"the session failed on node {self.piece.node}: {text_of(error)}"
        failure = Failure(code=InternalError.code, kind=name_of(error), text=text, hint="see the log of that node")
        self._own_failure = failure
        self.exchange.give_up("", Lost(self.piece.node, failure))
        # They would go on without their contents, which are removed.
        _close(self.session, "could not stop its attempts")
        note = f"the execution failed: {text_of(error)}"
        result = SessionResult(
            session=self.name,
            status=SessionState.FAILED,
            drops=int(self.piece.is_own.sum()),
            states={},
            seconds=self._progress.latest.seconds(self._clock.monotonic()),
            failures=(),
            directory=str(self.directory.path),
            notes=(note,),
        )
        return result, note

    def _on_progress(self, progress: Progress) -> None:
        if progress.is_over:
            self._report(Over(self.name, self.epoch, progress.state, self._own_failure))
        else:
            self._report(Changed(self.name, self.epoch, progress.version))

    # For any thread.

    @property
    def finding(self) -> str:
        """The problem of a session that is not over; empty if there is none."""
        if self.state.is_terminal:
            return ""
        if self._waiting.startswith(WAITING):
            return f"session {self.name!r}: {self._waiting}"
        path = self.directory.path
        return "" if os.access(path, os.W_OK | os.X_OK) else f"session {self.name!r} cannot write its directory {path}"

    @property
    def state(self) -> SessionState:
        """DEPLOYING until the session is started; CANCELLING from the request until it has ended."""
        return self._state_of(self._progress.latest)

    def _state_of(self, progress: Progress) -> SessionState:
        if progress.is_over:
            return progress.state
        if self._cancelled:
            return SessionState.CANCELLING
        return SessionState.PAUSED if self.session.core.status is SessionState.PAUSED else progress.state

    def why_gone(self, drop: int) -> str:
        """Return why the content of a completed drop does not exist any more."""
        if int(self.piece.drop[drop]) in ReleasedContents(self.directory.path, self.epoch).rows():
            return RELEASED
        is_replaced = self.session.call(lambda live: drop in live.handover.replaced())
        return REPLACED if is_replaced else "was released after its last consumer"

    def graph(self) -> PhysicalGraph:
        """Return the whole graph.

        Raises
        ------
        GoneError
            Its file cannot be read.
        """
        with self.directory.gone_if_unreadable(self.piece.node):
            return self.directory.graph()

    def info(self) -> SessionInfo:
        """Return the session as one row."""
        progress = self._progress.latest
        statistics = progress.statistics or self.session.call(lambda live: snapshot(live.core, 0.0))
        return SessionInfo(**self._fields(progress, statistics, _running(self.session, progress, statistics)))

    def detail(self) -> SessionDetail:
        """Return the session with its logical nodes and failures."""
        progress = self._progress.latest
        # Read in one step of the session, so that causes and counts agree.
        failures, notes, faults, statistics = self.session.call(
            lambda live: (
                live.reports(0, MOST_FAILURES),
                tuple(live.notes),
                live.fault_note(),
                snapshot(live.core, 0.0),
            )
        )
        running = _running(self.session, progress, statistics)
        return SessionDetail(
            **self._fields(progress, statistics, running),
            logical=summaries.logical_nodes(statistics, running),
            failures=tuple(summaries.failure_info(failure, self.piece.node) for failure in failures),
            notes=(*self.deployment.notes, *notes, *([f"node {self.piece.node}: {faults}"] if faults else [])),
            ends=self._known_ends(progress, statistics),
        )

    def _known_ends(self, progress: Progress, statistics: Statistics) -> tuple[PartEnd, ...]:
        """Return how the parts of nodes ended; for a cancelled session, only the part of this node."""
        if not progress.is_over:
            return ()
        if not self.ends and self._survives_losses and progress.state is SessionState.CANCELLED:
            return (summaries.part_end(self.piece.node, statistics, is_cancelled=True),)
        return tuple(map(_end_decoder.decode, self.ends))

    def _reused(self) -> int:
        """Return how many applications here have taken the results of earlier runs."""
        return self._taken.read() if self.deployment.reuse else 0

    def _fields(self, progress: Progress, statistics: Statistics, running: Sequence[int]) -> dict[str, Any]:
        now = self._clock.monotonic()
        now_at = Attempts() if progress.is_over else self.session.attempts()
        attempts = Attempts() if progress.is_over else summaries.attempts_of(statistics, running, now_at)
        status, quiet = self._state_of(progress), progress.quiet(now)
        has_rate = status is not SessionState.PAUSED and quiet <= progress.usual_quiet
        return {
            "session": self.name,
            "graph": self.deployment.graph,
            "status": status.name,
            "epoch": self.epoch,
            "version": progress.version,
            "created": self.deployment.created,
            "started": progress.started,
            "finished": progress.finished,
            "seconds": progress.seconds(now),
            "nodes": (self.piece.node,),
            "text": progress.text or self._cancelled or self._waiting,
            "whole": self.whole,
            "drops": statistics.drops,
            "settled": statistics.settled,
            **msgspec.structs.asdict(attempts),
            "counts": summaries.counts_of(statistics, running),
            "states": statistics.states,
            "rate": progress.rate if has_rate else 0.0,
            "remaining": progress.remaining if has_rate else None,
            "quiet": quiet,
            "usual_quiet": 0.0 if progress.is_over else progress.usual_quiet,
            "view": self.view.number,
            "recomputed": self._recomputed,
            "computed": applications_run(statistics) - (reused := self._reused()),
            "reused": reused,
            "members": tuple(place.node for place in self.view.members),
            "joined_by": self.deployment.joined_by,
            "request_id": self.deployment.request_id,
            "user": self.deployment.user,
            "lacks_witness": self.lacks_witness and not progress.is_over,
        }


def receipts_of(hosted: HostedSession) -> NodeReceipts:
    """Return the counts of contents that a session has received from other nodes so far."""
    return hosted.session.call(lambda _: hosted.exchange.contents.receipts.read(hosted.piece.node))


def _running(session: Session, progress: Progress, statistics: Statistics) -> list[int]:
    """Return how many drops of each logical node run."""
    drops = () if progress.is_over else tuple(session.runner.running)
    return summaries.running_by_node(statistics, session.graph, drops)


def _end_of(hosted: HostedSession) -> SessionEnd:
    """Return the record from which later processes of the node read a session that is over."""
    piece, session = hosted.piece, hosted.session
    failures = tuple(summaries.failure_info(report, piece.node) for report in session.call(Session.reports))
    directory, kept = f"{hosted.directory.path}/", session.call(Session.contents)
    contents = {row: ContentRecord.of(handle, directory) for row, handle in kept.items() if piece.is_own[row]}
    return SessionEnd(whole=hosted.whole, detail=hosted.detail(), failures=failures, contents=contents, is_certain=True)


def _write(session: Session, write: Callable[[Any], None], content: object) -> None:
    """Write a file of the directory. An error becomes a note, because the journal has the same data."""
    try:
        write(content)
    except StorageError as error:
        _log.warning("%s", error)
        session.notes.append(str(error))


def _close(part: Session | LocalRepository, failed: str) -> None:
    """Close a part of a session, or log that it failed."""
    try:
        part.close()
    except Exception as error:  # noqa: BLE001 - the session must end all the same
        _log.error("a session %s", failed, exc_info=error)


def _why(result: SessionResult) -> str:
    """Return why a session failed; empty if it did not fail, or if nodes with failed drops have the reasons."""
    if result.status is not SessionState.FAILED or not result.failures:
        return ""
    first = next((failure for failure in result.failures if failure.text), None)
    if first is None:
        return ""
    if not first.drop:
        return first.text
    more = f" (and {len(result.failures) - 1} more)" if len(result.failures) > 1 else ""
    return f"{first.name} ({first.drop}) failed: {first.text}{more}"


def _unusable(piece: Slice) -> list[Problem]:
    """Return the problems of the graph here. What only this host lacks does not count for drops of other nodes."""
    own = {piece.graph.templates[row].key for row in np.unique(piece.graph.template[piece.is_own]).tolist()}
    errors = findings(piece.graph.templates, piece.graph.links, imports=True)
    return [finding(template, error) for template, error in errors if not error.of_host or template.key in own]
