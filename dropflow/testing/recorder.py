"""Strict fakes of a runner and a repository: they record calls, and refuse unexpected ones."""

from collections.abc import Callable, Mapping, Sequence

from dropflow.engine.api import AttemptResult, Handle, Task
from dropflow.engine.runners.aborted import aborted
from dropflow.graph.templates import Template
from dropflow.stopping import GRACE_SECONDS

__all__ = ["FakeRepository", "FakeRunner"]


class FakeRunner:
    """Does not run tasks: a test takes and answers them.

    Parameters
    ----------
    answer : callable or None
        If given, answers each task when it is submitted, in that thread.
    """

    def __init__(self, answer: Callable[[Task], AttemptResult] | None = None, *, window: int = 1000) -> None:
        self.window = window
        self.running: Mapping[int, int] = {}
        self.tasks: list[Task] = []
        self.aborted: list[int] = []
        self.closed = False
        self.is_held = False
        self._answer = answer
        self._deliver: Callable[[Sequence[AttemptResult]], None] | None = None

    def start(self, deliver: Callable[[Sequence[AttemptResult]], None]) -> None:
        """Remember where results go."""
        self._deliver = deliver

    def submit(self, tasks: Sequence[Task]) -> None:
        """Record tasks, and answer them if there is an answer."""
        self.tasks += tasks
        if self._answer is not None:
            self.deliver([self._answer(task) for task in tasks])

    def deliver(self, results: Sequence[AttemptResult]) -> None:
        """Hand results to the session."""
        if self._deliver is None:
            raise AssertionError("the runner was not started")
        self._deliver(results)

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:  # noqa: ARG002 - one protocol
        """Record, and answer."""
        self.aborted.append(drop)
        self.deliver([aborted(drop, attempt)])

    def hold(self, *, is_held: bool) -> None:
        """Record."""
        self.is_held = is_held

    def give_back(self) -> Sequence[Task]:
        """Return the tasks that were not taken."""
        tasks, self.tasks = self.tasks, []
        return tasks

    def interrupt(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Record."""
        self.closed = True

    def take(self, *oids: str) -> list[Task]:
        """Consume the next tasks, which must be those of these drops in this order."""
        taken, self.tasks = self.tasks[: len(oids)], self.tasks[len(oids) :]
        found = tuple(task.oid for task in taken)
        if found != oids:
            raise AssertionError(f"expected tasks of {oids}, there were {found}")
        return taken

    def expect_nothing(self) -> None:
        """Refuse tasks that were not taken."""
        if self.tasks:
            raise AssertionError(f"unexpected tasks of {[task.oid for task in self.tasks]}")


class FakeRepository:
    """Keeps handles in dictionaries, and records what was discarded.

    Parameters
    ----------
    fail_on, fail_to_keep : dict of int to Exception
        Drops whose commit, or whose `keep_result`, raises the given error.
    vanished : Exception or None
        Raised at the end, as if the session directory were gone.
    """

    def __init__(
        self,
        fail_on: dict[int, Exception] | None = None,
        *,
        fail_to_keep: dict[int, Exception] | None = None,
        vanished: Exception | None = None,
    ) -> None:
        self.committed: dict[int, tuple[int, Handle]] = {}
        self.assembled: dict[int, tuple[Handle, ...]] = {}
        self.discarded: list[Handle] = []
        self.discarded_attempts: list[tuple[int, int]] = []
        self.released: list[int] = []
        self.results: dict[str, Handle] = {}
        self.revoked: list[Handle] = []
        self.adopted: dict[int, Handle] = {}
        self._fail_on = fail_on or {}
        self._fail_to_keep = fail_to_keep or {}
        self._vanished = vanished

    def adopt(self, contents: Mapping[int, Handle]) -> None:
        """Record."""
        self.adopted.update(contents)

    def commit(self, drop: int, attempt: int, template: Template, part: Handle) -> Handle:
        """Record; a second commit of the same drop is refused."""
        del template
        if drop in self._fail_on:
            raise self._fail_on[drop]
        if drop in self.committed:
            raise AssertionError(f"drop {drop} was committed twice")
        self.committed[drop] = (attempt, part)
        return part

    def assemble(self, drop: int, template: Template, parts: Sequence[Handle]) -> Handle:
        """Record, and join the bodies."""
        del template
        if drop in self._fail_on:
            raise self._fail_on[drop]
        self.assembled[drop] = tuple(parts)
        return Handle(body=b"".join(part.body for part in parts))

    def discard(self, part: Handle) -> None:
        """Record."""
        self.discarded.append(part)

    def discard_attempt(self, drop: int, attempt: int) -> None:
        """Record."""
        self.discarded_attempts.append((drop, attempt))

    def release(self, drop: int, template: Template, handle: Handle) -> bool:
        """Record; the content is removed unless its template says that it is to persist."""
        del handle
        self.released.append(drop)
        return not template.persist

    def is_replaced(self, drop: int, handle: Handle) -> bool:
        """Return False: each drop has a place of its own."""
        del drop, handle
        return False

    def keep_result(self, drop: int, oid: str, template: Template, handle: Handle) -> Handle:
        """Record, or raise the given error."""
        del template
        if drop in self._fail_to_keep:
            raise self._fail_to_keep[drop]
        self.results[oid] = handle
        return handle

    def revoke(self, drop: int, handle: Handle) -> None:
        """Record, and forget the commit."""
        del self.committed[drop]
        self.revoked.append(handle)

    def confirm(self) -> None:
        """Raise the given error, if there is one."""
        if self._vanished is not None:
            raise self._vanished
