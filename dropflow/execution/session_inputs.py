"""Items that come in through the inbox of a session, and the events for the core that follow from them.

Contents are committed here, before the core processes the event. So a consumer never starts on data that do not exist.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np

from dropflow.errors import DropflowError
from dropflow.execution.attempt_times import AttemptTimes
from dropflow.execution.chains import is_not_begun
from dropflow.execution.content_location import Handle
from dropflow.execution.content_table import ContentTable, OpenStreams, OutgoingEvents
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import (
    Cancel,
    CancelDrop,
    Continue,
    Event,
    Failed,
    Finished,
    Lost,
    Opened,
    Pause,
    Reported,
    Run,
    Stopped,
    Withdrawn,
)
from dropflow.execution.failure_table import FailureTable
from dropflow.execution.given_attempts import GivenAttempts
from dropflow.execution.inbox import OwnerCall
from dropflow.execution.interfaces import Arrival, RemoteEvent
from dropflow.execution.tasks import AttemptResult, StreamOpened
from dropflow.execution.walltime import is_postponed
from dropflow.failure import Failure
from dropflow.states import DropState

SessionInput = (
    StreamOpened | AttemptResult | Arrival | Lost | Cancel | CancelDrop | Pause | Continue | OwnerCall[Any, Any]
)
"""Results and open streams of attempts, messages of other nodes, and requests of other threads."""


class SessionInputs:
    """Turns inputs into events. Used by the session's thread.

    Parameters
    ----------
    core : Core
        Decides which attempts are current.
    contents : ContentTable
        Commits the parts that attempts wrote.
    streams : OpenStreams
        Streams of the drops that live here.
    outgoing : OutgoingEvents
        Gets streams of the drops on other nodes.
    failures : FailureTable
        Records failures and lost nodes.
    given : GivenAttempts
        The attempts that the runner has.
    times : AttemptTimes or None
        Records the times of attempts; None for no records.
    """

    __slots__ = (
        "_contents",
        "_core",
        "_early_results",
        "_failures",
        "_given",
        "_has_continued",
        "_outgoing",
        "_streams",
        "_template_of",
        "_times",
        "durations",
        "postponed",
        "reason",
    )

    def __init__(
        self,
        core: Core,
        contents: ContentTable,
        streams: OpenStreams,
        outgoing: OutgoingEvents,
        failures: FailureTable,
        *,
        given: GivenAttempts,
        times: AttemptTimes | None,
    ) -> None:
        self.durations: dict[int, tuple[int, float]] = {}
        """Number of successful attempts, and their seconds together, by template."""
        self.postponed: set[int] = set()
        """Drops whose attempts were not started because of the walltime."""
        self.reason = ""
        """Why the session was cancelled."""
        self._core = core
        self._template_of = np.ascontiguousarray(core.graph.template).data
        self._contents = contents
        self._streams = streams
        self._outgoing = outgoing
        self._failures = failures
        self._given = given
        self._has_continued = False
        self._times = times
        self._early_results: dict[int, AttemptResult] = {}
        """Results of attempts that ran ahead of their inputs, by drop."""

    def events(self, items: Sequence[SessionInput], owner: object) -> list[Event]:
        """Return the events for items that came in; calls of other threads are carried out with `owner`."""
        events: list[Event] = []
        # The core has not processed these events yet, so the drops that they settle are remembered here.
        settled: set[int] = set()
        followed: set[int] = set()
        has_lost = False
        for position, item in enumerate(items):
            if isinstance(item, AttemptResult):
                self._given.end()
                if has_lost:
                    self._contents.discard(item.handles.values())
                else:
                    events += self._on_attempt(item, settled, followed)
            elif isinstance(item, StreamOpened):
                events += self._on_stream_opened(item)
            elif isinstance(item, OwnerCall):
                item.carry_out(owner)
            elif isinstance(item, Lost):
                self._failures.lost.append(item)
                events.append(item)
                has_lost = True
            elif isinstance(item, CancelDrop | Pause | Continue):
                events.append(item)
                self._has_continued |= isinstance(item, Continue)
                if isinstance(item, CancelDrop):
                    self._failures.add_cancelled(item)
                    settled.update(item.drops)
            elif isinstance(item, Cancel):
                return events + self.events_after_cancel(items[position:], owner, settled)
            else:
                events += self._on_arrival(item)
        return events

    def take_continued(self) -> bool:
        """Return whether the session was continued after a pause since the last call."""
        has_continued, self._has_continued = self._has_continued, False
        return has_continued

    def events_after_cancel(
        self, items: Sequence[SessionInput], owner: object, settled: Collection[int] = ()
    ) -> list[Event]:
        """Return the events for items that came in since the session was cancelled: only ends of attempts count.

        Parameters
        ----------
        settled : collection of int
            Drops that are settled by events which the core has not processed yet.
        """
        events: list[Event] = []
        stopped: list[int] = []
        for item in items:
            if isinstance(item, AttemptResult):
                self._given.end()
                self._contents.discard(item.handles.values())
                if self._given.awaits(item):
                    self._given.keep(item, set())
                elif item.drop not in settled and self._core.drops.is_current(item.drop, item.attempt):
                    stopped.append(item.drop)
            elif isinstance(item, StreamOpened):
                self._contents.discard([item.handle])
            elif isinstance(item, OwnerCall):
                item.carry_out(owner)
            elif isinstance(item, Cancel):
                self.reason = self.reason or item.reason
                events.append(item)
        return [*events, Stopped(tuple(stopped))] if stopped else events

    def events_after_others(self, results: Sequence[AttemptResult]) -> list[Event]:
        """Return the events of results that waited until the core processed the results of the attempts before them."""
        events: list[Event] = []
        for result in results:
            if self._core.drops.is_current(result.drop, result.attempt):
                events += self._on_result(result)
            else:
                self._contents.discard(result.handles.values())
        return events

    def discard_unwanted(self) -> None:
        """Discard the results of attempts that were given to the runner, and that the core did not run."""
        for result in self._given.take_unwanted():
            self._contents.discard(result.handles.values())

    def accept(self, drop: int) -> list[Event]:
        """Return the events of a result that came before the inputs were complete. They are complete now."""
        result = self._early_results.pop(drop, None)
        return [] if result is None else self._on_result(result)

    def discard_early(self, drop: int) -> bool:
        """Discard the result of an attempt that ran ahead of its inputs; return whether there was one."""
        result = self._early_results.pop(drop, None)
        if result is not None:
            self._contents.discard(result.handles.values())
        return result is not None

    def _on_attempt(self, result: AttemptResult, settled: set[int], followed: set[int]) -> list[Event]:
        """Return the events of a result, if it counts.

        Parameters
        ----------
        settled : set of int
            Drops that are settled by events which the core has not processed yet; the drop of the result is added.
        followed : set of int
            Applications of chains whose results count; the application of the result is added.
        """
        drop, given = result.drop, self._given
        if given.awaits(result):
            if not given.keep(result, followed):
                self._contents.discard(result.handles.values())
            return []
        if drop in settled or not self._core.drops.is_current(drop, result.attempt):
            self._contents.discard(result.handles.values())
            return []
        if result.failure is not None and is_not_begun(result):
            given.submit_again(Run(drop, result.attempt))
            return []
        settled.add(drop)
        events = self._on_result(result)
        if given.has_ahead and events and isinstance(events[0], Finished):
            followed.add(drop)
        return events

    def _on_result(self, result: AttemptResult) -> list[Event]:
        """Commit the outputs of an attempt, or note why it failed; the result of an attempt that ran ahead waits."""
        if is_postponed(result):
            self.postponed.add(result.drop)
            return []
        drop, failure = result.drop, result.failure
        if self._core.streaming.is_ahead(drop):
            self._early_results[drop] = result
            return []
        if self._core.drops.has_known_states:
            result = self._without_settled(result)
        if failure is None:
            if self._core.drops.cancelled:
                result = self._without_cancelled(result)
            try:
                self._contents.commit(result)
            except DropflowError as error:
                failure = Failure.of(error)
            else:
                template = self._template_of[drop]
                count, seconds = self.durations.get(template, (0, 0.0))
                self.durations[template] = count + 1, seconds + result.seconds
                if self._times is not None:
                    self._times.ended(result, failed=False)
                return [Finished(drop, result.attempt, result.skipped)]
        return [self._fail(result, failure)]

    def _fail(self, result: AttemptResult, failure: Failure) -> Failed:
        """Note why an attempt has failed."""
        drop = result.drop
        if self._times is not None:
            self._times.ended(result, failed=True)
        if failure.infrastructure:
            self._contents.discard_attempt(drop, result.attempt)
            failure = self._failures.add_fault(drop, result.attempt, failure)
        self._failures.add(drop, failure)
        return Failed(drop, result.attempt, failure)

    def _without_settled(self, result: AttemptResult) -> AttemptResult:
        """Discard the outputs that a repeated attempt wrote to settled drops; return the result without them."""
        states = self._core.drops.states
        settled = {target: part for target, part in result.handles.items() if states[target] > DropState.WRITING}
        if not settled:
            return result
        self._contents.discard(settled.values())
        for target in settled:
            self._streams.remove_all(target)
        left = {target: part for target, part in result.handles.items() if target not in settled}
        return msgspec.structs.replace(result, handles=left)

    def _without_cancelled(self, result: AttemptResult) -> AttemptResult:
        """Return the result without the contents of outputs that were cancelled, which are discarded."""
        cancelled = self._core.drops.cancelled
        self._contents.discard([handle for drop, handle in result.handles.items() if drop in cancelled])
        kept = {drop: handle for drop, handle in result.handles.items() if drop not in cancelled}
        return msgspec.structs.replace(result, handles=kept)

    def _on_stream_opened(self, opened: StreamOpened) -> list[Event]:
        """Add a stream that an attempt here has begun to write: for consumers, or for the node of its drop."""
        if not self._core.drops.is_current(opened.drop, opened.attempt):
            self._contents.discard([opened.handle])
            return []
        if opened.target in self._core.drops.remote:
            self._outgoing.add_foreign_stream(opened.target, opened.attempt, opened.handle)
        else:
            self._streams.add(opened.target, opened.attempt, opened.handle)
        return [Opened(opened.target, opened.drop, opened.attempt)]

    def _on_arrival(self, arrival: Arrival) -> list[Event]:
        try:
            return [self._on_remote_event(event, contents) for event, contents in arrival.open()]
        except DropflowError as error:
            lost = Lost(arrival.sender, Failure.of(error))
            self._failures.lost.append(lost)
            return [lost]

    def _on_remote_event(self, event: RemoteEvent, contents: dict[int, Handle] | Failure) -> Event:
        """Add the contents that came with an event of another node, before the core sees the event."""
        if isinstance(event, Withdrawn):
            return event
        if not isinstance(event, Reported):
            if isinstance(contents, dict):
                self._streams.add(event.drop, event.attempt, contents[event.drop])
            return event
        self._outgoing.discard_parts(event.drop)
        if not isinstance(contents, Failure):
            try:
                if event.drop in contents:
                    self._contents.add_remote(event.drop, contents[event.drop])
                else:
                    self._contents.place(event.drop, event.attempt, contents)
            except DropflowError as error:
                contents = Failure.of(error)
            else:
                return event
        self._failures.add_remote(event.drop, contents)
        return Reported(event.drop, DropState.ERROR, event.drop, event.attempt)
