"""Streaming: which data drops are open, and which applications run ahead of their inputs.

A data drop is *open* while its producer writes it and consumers may read the data. An application runs *ahead* when
each of its inputs is complete or open to it; its result, success or failure, counts when all inputs are complete. If an
input ends otherwise, or its producer has to try again, the drop is *withdrawn*. Then the application starts over as if
it had not begun, with a new attempt that does not count as one of its tries.

Streaming changes when applications run, and never their results. Graphs without streams cost one test of an empty
dictionary.
"""

from collections.abc import Iterable

import numpy as np

from dropflow.execution.decisions.drop_table import DropTable
from dropflow.execution.decisions.events import (
    NO_CAUSE,
    Abort,
    Accept,
    Action,
    Opened,
    Publish,
    Run,
    Withdraw,
    Withdrawn,
)
from dropflow.graph.physical import PhysicalGraph
from dropflow.states import DropState

_INITIALIZED, _WRITING, _COMPLETED = int(DropState.INITIALIZED), int(DropState.WRITING), int(DropState.COMPLETED)


class _Stream:
    """The attempts that have written a data drop before it was complete. Removed when the drop is settled.

    Attributes
    ----------
    open_attempt : int
        The attempt whose output consumers here may read; 0 while the drop is not open here.
    announced : int
        The attempt on this node that was announced to the drop's own node; 0 for none.
    withdrawn : int
        The latest attempt that has been withdrawn. It and earlier ones cannot open the drop.
    """

    __slots__ = ("announced", "open_attempt", "withdrawn")

    def __init__(self) -> None:
        self.open_attempt = self.announced = self.withdrawn = 0


class _Reader:
    """An application that reads, or has read, open inputs.

    Attributes
    ----------
    open_inputs : int
        Number of its inputs that are open to it.
    is_ahead : bool
        Whether its attempt runs although these inputs are not complete.
    """

    __slots__ = ("is_ahead", "open_inputs")

    def __init__(self) -> None:
        self.open_inputs = 0
        self.is_ahead = False


class Streaming:
    """The open drops of a session, and the applications that read them. Changes the table of drops.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph that is executed.
    drops : DropTable
        The state of its drops.
    links : collection of int
        Links whose data can be read while they are written. Links of applications that wait for only some of their
        inputs are left out: these act on complete inputs.
    """

    __slots__ = (
        "_drops",
        "_links",
        "_pred",
        "_pred_ptr",
        "_succ",
        "_succ_link",
        "_succ_ptr",
        "readers",
        "streams",
    )

    def __init__(self, graph: PhysicalGraph, drops: DropTable, links: Iterable[int]) -> None:
        self.streams: dict[int, _Stream] = {}
        """Streams by data drop. The core tests whether it is empty."""
        self.readers: dict[int, _Reader] = {}
        """Readers by application. The core tests whether it is empty."""
        self._drops = drops
        self._links = frozenset(
            link for link in links if graph.templates[graph.links[link].target].effective_inputs <= 0
        )
        self._succ_ptr = np.ascontiguousarray(graph.successors.ptr).data
        self._succ = np.ascontiguousarray(graph.successors.neighbour).data
        self._succ_link = np.ascontiguousarray(graph.successors.link).data
        self._pred_ptr = np.ascontiguousarray(graph.predecessors.ptr).data

    def open_attempt(self, drop: int) -> int:
        """Return the attempt of the producer whose output consumers here may read; 0 if the drop is not open."""
        stream = self.streams.get(drop)
        return 0 if stream is None else stream.open_attempt

    def open_inputs(self, app: int) -> int:
        """Return how many inputs of an application are open to it."""
        reader = self.readers.get(app)
        return 0 if reader is None else reader.open_inputs

    def is_ahead(self, app: int) -> bool:
        """Return whether the attempt of an application reads inputs that are not complete: its result must wait."""
        reader = self.readers.get(app)
        return reader is not None and reader.is_ahead

    # Events, and the actions that follow.

    def on_opened(self, event: Opened) -> list[Action] | None:
        """Open a drop that its producer has begun to write. None if the event is refused."""
        drop, producer, attempt = event.drop, event.producer, event.attempt
        drops = self._drops
        is_here, is_reported = drop not in drops.remote, producer < 0 or producer in drops.remote
        producers = self._pred_ptr[drop + 1] - self._pred_ptr[drop]
        stream = self.streams.get(drop) or _Stream()
        if (
            drops.states[drop] > _WRITING
            or attempt <= max(stream.withdrawn, stream.open_attempt)
            or (producers != 1 and (is_here or not is_reported))
            or not (is_reported or drops.is_current(producer, attempt))
        ):
            return None
        self.streams[drop] = stream
        if not is_here and not is_reported:
            # The node of the drop opens it, also for its consumers here.
            stream.announced = attempt
            return [Publish(drop, DropState.WRITING, NO_CAUSE, attempt)]
        actions: list[Action] = []
        # An earlier attempt is open still if no event has withdrawn it yet.
        self._withdraw(self._retract(drop, stream, actions), actions)
        stream.open_attempt = attempt
        drops.move(drop, _WRITING)
        if drops.is_border(drop):
            actions.append(Publish(drop, DropState.WRITING, NO_CAUSE, attempt))
        for app in self._readers_of(drop):
            self.readers.setdefault(app, _Reader()).open_inputs += 1
            self.run_ahead(app, actions)
        return actions

    def on_withdrawn(self, event: Withdrawn) -> list[Action] | None:
        """Withdraw the data that an attempt on another node wrote; None if the event is refused."""
        drop, attempt = event.drop, event.attempt
        stream = self.streams.get(drop) or _Stream()
        if self._drops.states[drop] > _WRITING or attempt <= stream.withdrawn:
            return None
        self.streams[drop] = stream
        stream.withdrawn = attempt
        actions: list[Action] = []
        if stream.open_attempt <= attempt:
            self._withdraw(self._retract(drop, stream, actions), actions)
        return actions

    def on_retry(self, producer: int) -> list[Action]:
        """Withdraw the data of an application whose attempt failed and is followed by another attempt."""
        actions: list[Action] = []
        self._withdraw(self._succ[self._succ_ptr[producer] : self._succ_ptr[producer + 1]].tolist(), actions)
        return actions

    def on_settled(self, drop: int, state: int) -> list[Action]:
        """Close a data drop of `streams` that is settled. Unless it is complete, its readers start over."""
        actions: list[Action] = []
        stream = self.streams.pop(drop)
        if stream.open_attempt:
            readers = self._close(drop)
            if state != _COMPLETED:
                self._withdraw(self._start_over(readers, actions), actions)
                actions.append(Withdraw(drop, stream.open_attempt))
        return actions

    def run_ahead(self, app: int, actions: list[Action]) -> None:
        """Run an application if all of its inputs are complete or open to it, and it does not run already."""
        drops = self._drops
        if (
            drops.states[app] == _INITIALIZED
            and 0 < drops.pending_inputs[app] == self.open_inputs(app)
            and app not in drops.failed_inputs
            and app not in drops.skipped_inputs
        ):
            self.readers[app].is_ahead = True
            drops.start(app)
            actions.append(Run(app, drops.attempt(app)))

    def stop(self, app: int) -> None:
        """Forget the attempt of an application that may run ahead: it does not run any more."""
        reader = self.readers.get(app)
        if reader is not None:
            reader.is_ahead = False
            self._forget_idle(app, reader)

    def accept(self, app: int) -> list[Action]:
        """Accept the result of an application: the inputs that it ran ahead of are complete now."""
        reader = self.readers[app]
        reader.is_ahead = False
        self._forget_idle(app, reader)
        return [Accept(app, self._drops.attempt(app))]

    def clear(self) -> None:
        """Close everything: the session is over."""
        self.streams.clear()
        self.readers.clear()

    def _readers_of(self, drop: int) -> list[int]:
        """Return the applications here that may read a drop while it is written; twice, if one has two such ports."""
        start, stop = self._succ_ptr[drop], self._succ_ptr[drop + 1]
        pairs = zip(self._succ[start:stop], self._succ_link[start:stop], strict=True)
        return [app for app, link in pairs if link in self._links and app not in self._drops.remote]

    def _close(self, drop: int) -> list[int]:
        """Take an open drop from its readers; return them."""
        apps = self._readers_of(drop)
        for app in apps:
            reader = self.readers[app]
            reader.open_inputs -= 1
            self._forget_idle(app, reader)
        return apps

    def _withdraw(self, drops: list[int], actions: list[Action]) -> None:
        """Withdraw the data of the producers of `drops`, and all data that were written because of them."""
        waiting = drops.copy()
        while waiting:
            drop = waiting.pop()
            stream = self.streams.get(drop)
            if stream is not None:
                if stream.announced:
                    actions.append(Publish(drop, DropState.INITIALIZED, NO_CAUSE, stream.announced))
                    stream.announced = 0
                waiting += self._retract(drop, stream, actions)

    def _retract(self, drop: int, stream: _Stream, actions: list[Action]) -> list[int]:
        """Undo the opening of a drop; return the drops that its readers write."""
        attempt = stream.open_attempt
        if not attempt:
            return []
        stream.open_attempt = 0
        self._drops.move(drop, _INITIALIZED)
        if self._drops.is_border(drop):
            actions.append(Publish(drop, DropState.INITIALIZED, NO_CAUSE, attempt))
        written = self._start_over(self._close(drop), actions)
        actions.append(Withdraw(drop, attempt))
        return written

    def _start_over(self, apps: list[int], actions: list[Action]) -> list[int]:
        """Abort the attempts of `apps` that run ahead, as if they had not begun; return the drops that they write."""
        drops = self._drops
        written: list[int] = []
        for app in apps:
            reader = self.readers.get(app)
            if reader is not None and reader.is_ahead:
                reader.is_ahead = False
                actions.append(Abort(app, drops.attempt(app)))
                drops.running.discard(app)
                drops.repeat(app)
                drops.move(app, _INITIALIZED)
                written += self._succ[self._succ_ptr[app] : self._succ_ptr[app + 1]]
                self._forget_idle(app, reader)
        return written

    def _forget_idle(self, app: int, reader: _Reader) -> None:
        if not reader.open_inputs and not reader.is_ahead:
            del self.readers[app]
