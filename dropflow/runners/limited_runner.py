"""Limits how many processors the attempts of a session use at a time: the degree of parallelism of its plan.

It is a runner around any other one. What would exceed the limit waits here, in the order of priorities, and none
overtakes another one that waits. Data, which take no processor, do not wait.
"""

import threading
from collections.abc import Mapping, Sequence

from dropflow.execution.chains import members
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.interfaces import Runner
from dropflow.execution.tasks import AttemptResult, ResultSink, StreamOpened, Task
from dropflow.graph.templates import Kind, ResourceNeeds
from dropflow.runners.capacity import Capacity
from dropflow.runners.dispatcher import RunnerQueue
from dropflow.stopping import GRACE_SECONDS

_NOTHING = ResourceNeeds(0)


class LimitedRunner:
    """Passes the attempts of a session to another runner, so that they use at most `cpus` processors at a time.

    Parameters
    ----------
    runner : Runner
        Runs attempts.
    spec : ExecutorSpec
        Its templates have the resources of their attempts.
    cpus : int
        The limit. An attempt that declares more runs alone.
    """

    def __init__(self, runner: Runner, spec: ExecutorSpec, cpus: int) -> None:
        self.window = runner.window
        self.cpus = cpus
        self._runner = runner
        self._is_app = tuple(template.kind is Kind.APP for template in spec.templates)
        self._capacity = Capacity(cpus)
        # Guards the queue and the taken resources: results come from any thread.
        self._lock = threading.Lock()
        self._queue = RunnerQueue(0, spec, self._answer)
        self._deliver: ResultSink = self._answer
        self._taken: dict[tuple[int, int], ResourceNeeds] = {}
        """Resources of the attempts that were given to the runner, by drop and attempt; of a chain, by its last one."""

    def _answer(self, results: Sequence[StreamOpened | AttemptResult]) -> None:
        """Deliver the answers for attempts that wait here."""
        self._deliver(results)

    def start(self, deliver: ResultSink) -> None:
        """Start the runner."""
        self._deliver = deliver
        self._runner.start(self._take_results)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Submit attempts within the limit, and queue the rest."""
        with self._lock:
            begin = [task for task in tasks if not self._is_app[task.template]]
            self._queue.add([task for task in tasks if self._is_app[task.template]])
            begin += self._admitted()
        if begin:
            self._runner.submit(begin)

    def _admitted(self) -> list[Task]:
        """Remove and return the first attempts of the queue within the limit, and note their resources."""
        admitted: list[Task] = []
        for queue in (self._queue.suspects, self._queue.pending):
            while queue:
                needs = self._capacity.admitted(ResourceNeeds(self._queue.needs_of(queue[0]).cpus))
                if not self._capacity.fits(needs):
                    return admitted
                self._capacity.take(needs)
                task = queue.popleft()
                last = members(task)[-1]
                self._taken[last.drop, last.attempt] = needs
                admitted.append(task)
        return admitted

    def _take_results(self, results: Sequence[StreamOpened | AttemptResult]) -> None:
        self._deliver(results)
        with self._lock:
            for result in results:
                if isinstance(result, AttemptResult):
                    self._capacity.free(self._taken.pop((result.drop, result.attempt), _NOTHING))
            begin = self._admitted()
        if begin:
            self._runner.submit(begin)

    @property
    def running(self) -> Mapping[int, int]:
        """The drops whose attempts run."""
        return self._runner.running

    def abort(self, drop: int, attempt: int, grace: float = GRACE_SECONDS) -> None:
        """Stop an attempt, or answer it if it waits here."""
        with self._lock:
            self._queue.abort(drop, attempt)
        self._runner.abort(drop, attempt, grace)

    def hold(self, *, is_held: bool) -> None:
        """Start no attempts while `is_held`."""
        self._runner.hold(is_held=is_held)
        with self._lock:
            self._queue.hold(is_held=is_held)
            begin = self._admitted()
        if begin:
            self._runner.submit(begin)

    def give_back(self) -> Sequence[Task]:
        """Return the attempts that wait here and in the runner."""
        returned = self._runner.give_back()
        with self._lock:
            for task in returned:
                last = members(task)[-1]
                self._capacity.free(self._taken.pop((last.drop, last.attempt), _NOTHING))
            return (*self._queue.give_back(), *returned)

    def interrupt(self) -> None:
        """Interrupt the runner."""
        self._runner.interrupt()

    def close(self) -> None:
        """Forget the attempts that wait, and close the runner."""
        with self._lock:
            self._queue.clear()
        self._runner.close()
