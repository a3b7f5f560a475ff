"""The life of each session of a node, from the end of its preparation to its removal, and the end of the node.

Part of `NodeMachine`: pure decisions. They append actions to a list, and set timers, which the machine owns.
"""

from collections.abc import Callable, Iterable
from functools import partial
from math import inf

from dropflow.api.requests import CancelRequest
from dropflow.errors import ConflictError, DropflowError, GoneError, LinkError
from dropflow.failure import Failure
from managers.machine_calls import CallId, Return
from managers.node.decisions.events import (
    Action,
    CancelSession,
    Log,
    LoseNode,
    RemoveSession,
    RetireSession,
    StartSession,
    WithdrawSession,
)
from managers.node.decisions.sessions import FinishedRecord, Phase, SessionRecord, SessionTable, Work

_Key = tuple[str, str | int]
_STOP_SECONDS = 10.0
"""Seconds that calls wait for the end of a session that was cancelled."""
_START_SECONDS = 60.0
"""Seconds that a prepared session waits for its start, in addition to the time for its preparation."""
_CLOSE_SECONDS = 10.0
"""Seconds that a node that is closed waits for its sessions."""


class Timers:
    """Functions to be called at monotonic times, one for each key."""

    def __init__(self) -> None:
        self._timers: dict[_Key, tuple[float, Callable[[float], None]]] = {}

    def __contains__(self, key: _Key) -> bool:
        """Return whether a function is set for `key`."""
        return key in self._timers

    def set(self, key: _Key, when: float, function: Callable[[float], None]) -> None:
        """Call `function` with the time once it is `when`; replaces the function that was set for `key` before."""
        self._timers[key] = (when, function)

    def clear(self, key: _Key) -> None:
        """Remove the function of `key`. Idempotent."""
        self._timers.pop(key, None)

    def run(self, now: float) -> None:
        """Call the functions that are due, in the order of their times."""
        for _, key in sorted((when, key) for key, (when, _) in self._timers.items() if when <= now):
            timer = self._timers.pop(key, None)
            if timer is not None:  # a function before it may have cleared it
                timer[1](now)

    def deadline(self) -> float:
        """Return the time of the next function; infinity if there is none."""
        return min((when for when, _ in self._timers.values()), default=inf)


class Lifecycle:
    """Moves the sessions of one node from phase to phase.

    Parameters
    ----------
    node : str
        Name of the node.
    table : SessionTable
        The sessions.
    timers : Timers
        Calls functions of this object later.
    actions : list
        Actions to carry out; decisions are appended.
    kept : int
        Number of sessions that are over and stay in memory.
    """

    def __init__(self, node: str, table: SessionTable, timers: Timers, actions: list[Action], *, kept: int) -> None:
        self._node = node
        self._table = table
        self._timers = timers
        self._actions = actions
        self._kept = kept

    def answer(self, calls: Iterable[int], error: Exception | None = None) -> None:
        """Answer calls with None, or with an error."""
        self._actions += [Return(call, error=error) for call in calls]

    # Forward.

    def connecting(self, record: SessionRecord) -> None:
        """Begin to wait for the peers of a session that is built."""
        self._move(record, Phase.CONNECTING)

    def prepared(self, record: SessionRecord, now: float) -> None:
        """Note that the peers of a session have answered: it can be started."""
        self._move(record, Phase.PREPARED)
        seconds = record.seconds + _START_SECONDS
        until = now + seconds
        reason = f"it was not started within {seconds:g} s; the manager that deployed it must have ended"

        def give_up(now: float) -> None:
            if record.is_joining:
                self.withdraw(record, now)
            else:
                self.cancel(record, now, CancelRequest(reason=reason))

        self._timers.set(("session", record.name), until, give_up)
        self.answer(record.preparing)
        record.preparing = []

    def start(self, record: SessionRecord) -> None:
        """Start a session, unless it was started before."""
        if record.phase is Phase.PREPARED:
            self._move(record, Phase.RUNNING)
            record.former = None
            self._table.set_work(record, Work.THREAD)
            self._actions.append(StartSession(record.instance))

    def cancel(self, record: SessionRecord, now: float, request: CancelRequest, error: Exception | None = None) -> None:
        """Cancel a session. One that is not yet prepared is removed as well; one that is over stays as it is."""
        if record.phase is Phase.CONNECTING:
            self.withdraw(record, now, error)
        elif record.phase.is_live:
            self._actions.append(CancelSession(record.instance, request, self._end_run(record)))

    def fail(self, record: SessionRecord, now: float, node: str, failure: Failure) -> None:
        """Fail a session because of the loss of a node. One that is not yet prepared is removed."""
        if record.phase is Phase.CONNECTING:
            self.withdraw(record, now, LinkError(failure.text, where=self._node, hint=failure.hint))
        elif record.phase.is_live:
            self._actions.append(LoseNode(record.instance, node, failure, self._end_run(record)))

    def _end_run(self, record: SessionRecord) -> bool:
        """Note that a session is to stop; return False if a thread must be started to end it.

        A session that never ran ends as all others do: in its thread.
        """
        is_idle = record.phase is Phase.RUNNING and record.work is Work.NONE
        if record.phase is Phase.PREPARED:
            self._move(record, Phase.RUNNING)
            record.former = None
        record.is_stopping = True
        if record.work is Work.NONE:
            self._table.set_work(record, Work.THREAD)
        return not is_idle

    def over(self, record: SessionRecord) -> None:
        """Note that a session has its result."""
        if record.phase is Phase.RUNNING:
            self._move(record, Phase.ENDING)
        self.changed(record)

    def ended(self, record: SessionRecord) -> None:
        """Note that the thread of a session has ended."""
        if record.phase is Phase.STOPPING:
            self._remove(record)
        else:
            self._move(record, Phase.ENDED)
            self._retire_oldest()

    # Out of memory.

    def _retire_oldest(self) -> None:
        ended = [record for record in self._table if record.phase is Phase.ENDED]
        for record in ended[: max(len(ended) - self._kept, 0)]:
            self._move(record, Phase.RETIRING)
            self._actions.append(RetireSession(record.name, record.epoch, record.instance))

    def retired(self, record: SessionRecord, finished: FinishedRecord | None) -> None:
        """Note that a session was read from its directory; None if it cannot be read, and stays in memory."""
        if finished is None:
            self._move(record, Phase.ENDED)
        else:
            self._move(record, Phase.FINISHED)
            record.is_hosted = False
            self._table.set_instance(record, finished)
        if record.removing:  # the removal had to wait for the job
            self._remove(record)

    # Removal.

    def withdraw(self, record: SessionRecord, now: float, error: Exception | None = None) -> None:
        """Remove a session as soon as nothing works on it; calls that wait until it is prepared get `error`."""
        error = error or self._taken_back(record)
        record.removing += [(call, error) for call in record.preparing]
        record.preparing = []
        match record.phase:
            case Phase.BUILDING:
                self._move(record, Phase.ABANDONED)
            case Phase.CONNECTING | Phase.PREPARED | Phase.RUNNING | Phase.ENDING | Phase.STOPPING:
                self.stop(record, now)
            case Phase.ENDED | Phase.FINISHED:
                self._remove(record)
            case Phase.ABANDONED | Phase.RETIRING | Phase.REMOVING:
                pass  # the job that works on it ends with an event

    def stop(self, record: SessionRecord, now: float) -> None:
        """Cancel a session, which is removed once its thread has ended.

        If it was to continue an earlier session and has not begun, the earlier session is visible again.
        """
        if record.former is not None:
            self._move(record, Phase.REMOVING)
            self._actions.append(WithdrawSession(record.name, record.epoch, record.instance))
            return
        if record.phase is not Phase.STOPPING:
            if record.result is None:
                self._actions.append(CancelSession(record.instance, CancelRequest(), self._end_run(record)))
            self._move(record, Phase.STOPPING)
        key = ("session", record.name)
        if key not in self._timers:
            self._timers.set(key, now + _STOP_SECONDS, partial(self._give_up_stopping, record))

    def removed(self, record: SessionRecord, error: Exception | None) -> None:
        """Forget a session that was removed. With an `error`, its directory could not be removed, and it stays."""
        if error is None:
            self.forget(record)
        else:
            self._move(record, Phase.ENDED if record.is_hosted else Phase.FINISHED)
            self._answer_removal(record, error)

    def forget(self, record: SessionRecord, error: Exception | None = None) -> None:
        """Answer all calls that wait for a session that was removed, or could not be built because of `error`."""
        self._timers.clear(("session", record.name))
        self._table.remove(record)
        self.answer([call for call, *_ in record.postponed], self._taken_back(record))
        record.postponed = []
        self.answer(record.preparing, error)
        self._answer_removal(record, None)

    def abandon(self, record: SessionRecord, error: Exception) -> None:
        """Answer all calls that wait for a session with an error."""
        self.answer([call for call, *_ in record.postponed], error)
        record.postponed = []
        self.answer(record.preparing, error)
        record.preparing = []
        self._answer_removal(record, error)
        self.changed(record, error)

    def _remove(self, record: SessionRecord) -> None:
        self._move(record, Phase.REMOVING)
        self._actions.append(RemoveSession(record.name, record.epoch, record.instance))

    def _give_up_stopping(self, record: SessionRecord, now: float) -> None:
        del now
        hint = "it will be removed when it stops; look at the log of this node if that does not happen"
        self._answer_removal(record, ConflictError(f"session {record.name!r} does not stop", hint=hint))

    def _answer_removal(self, record: SessionRecord, error: Exception | None) -> None:
        """Answer the calls that wait for a removal: each with its own error if it has one, else with `error`."""
        self._actions += [Return(call, error=own or error) for call, own in record.removing]
        record.removing = []

    def _taken_back(self, record: SessionRecord) -> DropflowError:
        if record.phase is Phase.CONNECTING:
            return LinkError(f"session {record.name!r} was undone while its peers were connected", where=self._node)
        return GoneError(f"session {record.name!r} was undone while it was prepared", hint="submit the graph again")

    # Watching.

    def watch(self, record: SessionRecord, call: int, version: int, until: float, now: float) -> None:
        """Answer `call` once the version of the session is not `version`, or it is over, or at the time `until`."""
        if record.result is not None or record.version != version or until <= now:
            self.answer([call])
            return
        record.watching.append(call)
        self._timers.set(("watch", call), until, lambda _: self._stop_watching(record, call))

    def changed(self, record: SessionRecord, error: Exception | None = None) -> None:
        """Answer the calls that watch a session."""
        for call in record.watching:
            self._timers.clear(("watch", call))
        self.answer(record.watching, error)
        record.watching = []

    def _stop_watching(self, record: SessionRecord, call: int) -> None:
        record.watching.remove(call)
        self.answer([call])

    def _move(self, record: SessionRecord, phase: Phase) -> None:
        """Change a phase; the time limit of the phase before does not count any more."""
        self._timers.clear(("session", record.name))
        self._table.move(record, phase)


class Closing:
    """Closes one node.

    Parameters
    ----------
    node : str
        Name of the node.
    table, sessions, timers, actions :
        The parts of its machine.
    """

    def __init__(
        self, node: str, table: SessionTable, sessions: Lifecycle, timers: Timers, actions: list[Action]
    ) -> None:
        self.has_begun = False
        """Whether the node takes no more sessions because it ends."""
        self._node = node
        self._table = table
        self._sessions = sessions
        self._timers = timers
        self._actions = actions
        self._calls: list[int] = []

    def close(self, call: CallId[None], now: float) -> None:
        """Cancel all sessions; answered once all are over, or after some time."""
        reason = f"node {self._node} is stopping"
        self.has_begun = True
        self._calls.append(call)
        self._timers.set(("close", ""), now + _CLOSE_SECONDS, self._give_up)
        for record in self._table:
            if record.phase is Phase.BUILDING:
                self._sessions.withdraw(record, now, LinkError(reason))
            else:
                self._sessions.cancel(record, now, CancelRequest(reason=reason))

    def finish(self) -> None:
        """Answer `close` once nothing works on any session."""
        if self._calls and all(record.phase.is_quiet for record in self._table):
            self._timers.clear(("close", ""))
            self._sessions.answer(self._calls)
            self._calls = []

    def _give_up(self, now: float) -> None:
        del now
        for record in self._table:
            if not record.phase.is_quiet:
                self._actions.append(Log(f"session {record.name!r} does not stop", record.name))
                self._sessions.abandon(record, LinkError(f"node {self._node} is stopping"))
        self._sessions.answer(self._calls)
        self._calls = []
