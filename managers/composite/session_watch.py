"""Watching sessions at the children while they are watched here.

However many requests watch a session, there is one long poll for each child that has a part of it. There is a bound on
long polls: beyond it, changes come with the status of the child, once per period.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from managers.composite.machine_time import MachineTime

__all__ = ["LongPoll", "SessionWatch"]

_LINGER = 10.0
"""Seconds for which a session is watched after the last request: clients that poll come back soon."""
_LONGEST = 5.0
"""Seconds that a long poll waits at a child."""
_SHORTEST = 0.1
"""Seconds between two long polls of a session at a child, however fast it changes."""
_AFTER_ERROR = 1.0
"""Seconds between a long poll that failed and the next one."""
_MOST = 16
"""Long polls at a time: each takes a thread."""


@dataclass(frozen=True)
class LongPoll:
    """A long poll to send: one session at one child."""

    session: str
    url: str
    seconds: float = _LONGEST


class SessionWatch:
    """Which sessions are watched, and which long polls are under way."""

    def __init__(self, time: MachineTime) -> None:
        self._time = time
        self._watchers: Counter[str] = Counter()
        self._left: dict[str, float] = {}
        """When the last watcher of a session left."""
        self._under_way: set[tuple[str, str]] = set()
        self._next: dict[tuple[str, str], float] = {}
        """When the next long poll of a session at a child may be sent."""

    def enter(self, session: str) -> None:
        """Note that one more request watches a session."""
        self._watchers[session] += 1

    def leave(self, session: str, *, is_over: bool = False) -> None:
        """Note that a request watches a session no more. One that is over is not watched any longer."""
        self._watchers[session] -= 1
        if self._watchers[session]:
            return
        del self._watchers[session]
        if is_over:
            self._forget(session)
        else:
            self._left[session] = self._time.now

    def sessions(self) -> list[str]:
        """Return the sessions that are watched, or were a moment ago."""
        for session, left in list(self._left.items()):
            if self._time.now - left >= _LINGER and session not in self._watchers:
                self._forget(session)
        return list(dict.fromkeys((*self._watchers, *self._left)))

    def begin(self, wanted: Iterable[tuple[str, str]]) -> list[LongPoll]:
        """Return the long polls to send now, of these sessions at these children; the oldest first."""
        due = [key for key in wanted if key not in self._under_way and self._next.get(key, 0.0) <= self._time.now]
        found = sorted(due, key=lambda key: self._next.get(key, 0.0))[: _MOST - len(self._under_way)]
        self._under_way.update(found)
        return [LongPoll(session, url) for session, url in found]

    def end(self, poll: LongPoll, *, is_answered: bool) -> None:
        """Note that a long poll is over."""
        self._under_way.discard((poll.session, poll.url))
        if poll.session in self._watchers or poll.session in self._left:
            self._next[poll.session, poll.url] = self._time.now + (_SHORTEST if is_answered else _AFTER_ERROR)

    def deadline(self) -> float:
        """Return when the next long poll may be sent."""
        due = [moment for key, moment in self._next.items() if key not in self._under_way and moment > self._time.now]
        return min(due, default=inf)

    def _forget(self, session: str) -> None:
        self._left.pop(session, None)
        self._next = {key: due for key, due in self._next.items() if key[0] != session}
