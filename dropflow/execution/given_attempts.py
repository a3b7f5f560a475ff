"""The attempts of a session that its runner has: how many, and those that were given together with one before them.

The core has no chains. It decides that an application runs when its input has completed, as without them. If that
attempt is with the runner already, it is not submitted again. Its result may come in together with the result of the
attempt before it; then it waits until the core has processed the earlier result. So all decisions of the core, and all
entries of the journal, are the same with and without chains.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dropflow.execution.chains import is_not_begun
from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Run
from dropflow.execution.tasks import AttemptResult
from dropflow.graph.physical import IntColumn
from dropflow.states import DropState

_INITIALIZED, _WRITING = int(DropState.INITIALIZED), int(DropState.WRITING)
_LONGEST = 256
"""Most attempts that follow one attempt."""
_MOST_AHEAD = 4096
"""Most attempts that wait with the runner for an attempt before them: their tasks are in memory."""


class _Ahead(NamedTuple):
    """An attempt that the runner has before the core has decided that it runs, and the application that it follows."""

    attempt: int
    before: int


class GivenAttempts:
    """The attempts that the runner has, and their order in chains. Used by the session's thread.

    Parameters
    ----------
    core : Core
        States and attempts.
    column : int32 array, shape (drops,), or None
        From `dropflow.graph.physical.follower_column`.
    window : int
        Number of attempts that the runner takes at a time.
    """

    __slots__ = ("_again", "_ahead", "_column", "_core", "_count", "_most", "_results")

    def __init__(self, core: Core, column: IntColumn | None, window: int) -> None:
        self._core = core
        self._column = None if column is None else np.ascontiguousarray(column).data
        self._most = min(_LONGEST * window, max(_MOST_AHEAD, 2 * window))
        self._count = 0
        self._ahead: dict[int, _Ahead] = {}
        """Attempts that run ahead of the decision of the core, by drop."""
        self._results: dict[int, AttemptResult] = {}
        """Results that came before the core has decided that the attempt runs, by drop."""
        self._again: list[Run] = []
        """Attempts that the runner did not begin, and that must be submitted again."""

    @property
    def has_chains(self) -> bool:
        """Whether the session has chains at all."""
        return self._column is not None

    @property
    def count(self) -> int:
        """Number of attempts that the runner has, also of those whose results will not count."""
        return self._count

    @property
    def decided(self) -> int:
        """Number of attempts that the runner has and that the core has decided to run."""
        return self._count - len(self._ahead)

    @property
    def has_ahead(self) -> bool:
        """Whether an attempt waits with the runner for the attempt before it."""
        return bool(self._ahead)

    @property
    def ahead(self) -> Mapping[int, int]:
        """The attempts that wait with the runner for the attempt before them, by drop."""
        return {drop: given.attempt for drop, given in self._ahead.items()}

    @property
    def is_full(self) -> bool:
        """Whether too many attempts wait to add chains."""
        return len(self._ahead) >= self._most

    def continue_with(self, count: int) -> None:
        """Continue a session in the same process, whose runner has this many attempts."""
        self._count = count

    def add(self, attempts: int) -> None:
        """Count attempts that are given to the runner without others that follow them."""
        self._count += attempts

    def give(self, run: Run) -> list[Run]:
        """Count an attempt that is given to the runner; return those that follow it in its chain, given with it.

        A drop that has had an infrastructure fault runs alone, in a process of its own.
        """
        core, following = self._core, list[Run]()
        self._count += 1
        if self._column is None or run.drop in core.drops.faults:
            return following
        states, before, drop = core.drops.states, run.drop, self._column[run.drop]
        while drop >= 0 and len(following) < _LONGEST and states[drop] == _INITIALIZED:
            if drop in self._ahead or drop in self._results or drop in core.drops.faults:
                break
            attempt = core.drops.attempt(drop)
            self._ahead[drop] = _Ahead(attempt, before)
            following.append(Run(drop, attempt))
            before, drop = drop, self._column[drop]
        self._count += len(following)
        return following

    def end(self) -> None:
        """Count a result: the runner has this attempt no longer."""
        self._count -= 1

    def take_back(self, attempts: int) -> None:
        """Count attempts that the runner has given back."""
        self._count -= attempts

    def submit_again(self, run: Run) -> None:
        """Keep an attempt that the runner gave back without having begun it."""
        self._again.append(run)

    def take_again(self) -> Sequence[Run]:
        """Remove and return the attempts that must be submitted again."""
        if not self._again:
            return ()
        again, self._again = self._again, []
        return again

    def awaits(self, result: AttemptResult) -> bool:
        """Return whether the core has not decided yet that the attempt of a result runs."""
        given = self._ahead.get(result.drop)
        return given is not None and given.attempt == result.attempt

    def keep(self, result: AttemptResult, accepted: set[int]) -> bool:
        """Keep the result of an attempt that `awaits` the core; return False if it does not count.

        It counts if the result of the attempt before it counts. An infrastructure fault always counts, unless the
        attempt was innocent: it ended the process of both.

        Parameters
        ----------
        accepted : set of int
            Applications whose results came in just before and count; the application is added if its result counts.
        """
        drop, failure = result.drop, result.failure
        given = self._ahead.pop(drop)
        if is_not_begun(result) or self._core.drops.states[drop] > _WRITING:
            return False
        if given.before in accepted:
            if failure is None:
                accepted.add(drop)
        elif failure is None or not failure.infrastructure or failure.is_innocent:
            return False
        self._results[drop] = result
        return True

    def begin(self, runs: Sequence[Run]) -> tuple[list[Run], list[AttemptResult]]:
        """Divide attempts that the core has decided to run into attempts to submit, and results that are here already.

        The remaining attempts are with the runner.
        """
        if not self._ahead and not self._results:
            return list(runs), []
        new: list[Run] = []
        ended: list[AttemptResult] = []
        for run in runs:
            given, result = self._ahead.pop(run.drop, None), self._results.pop(run.drop, None)
            if result is not None and result.attempt == run.attempt:
                ended.append(result)
            elif given is None or given.attempt != run.attempt:
                new.append(run)
        return new, ended

    def take_unwanted(self) -> list[AttemptResult]:
        """Remove and return the results of attempts that the core did not run after the attempt before them."""
        unwanted = [result for result in self._results.values() if result.failure is None]
        for result in unwanted:
            del self._results[result.drop]
        return unwanted

    def settled(self) -> list[tuple[int, int]]:
        """Return the attempts that wait with the runner although their drop is settled."""
        states = self._core.drops.states
        return [(drop, given.attempt) for drop, given in self._ahead.items() if states[drop] > _WRITING]
