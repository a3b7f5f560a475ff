"""The attempts of a session that wait for one place of its placement, and which workers that place stands for."""

from collections.abc import Iterable, Mapping, Sequence

from dropflow.engine.api import ExecutorSpec, ResultSink, Task
from dropflow.engine.external.engine import WorkerView
from dropflow.engine.runners.expected_seconds import ExpectedSeconds
from dropflow.engine.runners.runner_queue import RunnerQueue

__all__ = ["PlaceQueue", "workers_of_places"]

_MOST_BYTES = 4_000_000
"""The most bytes of contents that travel with a batch."""


class PlaceQueue(RunnerQueue):
    """A queue of attempts for one place.

    Parameters
    ----------
    number, spec, deliver
        As in `RunnerQueue`.
    expected : ExpectedSeconds
        How long attempts take, which all queues of a runner share.
    single : set of int
        Drops whose attempts go alone in a batch: a batch with one of them was lost.
    """

    def __init__(
        self, number: int, spec: ExecutorSpec, deliver: ResultSink, expected: ExpectedSeconds, single: set[int]
    ) -> None:
        super().__init__(number, spec, deliver)
        self.expected = expected
        self._single = single

    def runs_alone(self, task: Task) -> bool:
        """Return whether an attempt waits apart from the others."""
        return task.is_suspect or task.drop in self._single

    def take_batch(self, most: int, seconds: float) -> list[Task]:
        """Remove and return the first attempts that wait, as `take` does, with contents of limited size."""
        tasks = self.take(most, seconds)
        size = 0
        for count, task in enumerate(tasks):
            size += sum(len(each.handle.body) for each in task.inputs if each.handle is not None)
            if count and size > _MOST_BYTES:
                self.pending.extendleft(reversed(tasks[count:]))
                return tasks[:count]
        return tasks


def workers_of_places(places: Sequence[str], workers: Iterable[WorkerView]) -> Mapping[int, tuple[str, ...]]:
    """Return the names of the workers that each place of a placement stands for.

    A place that has the name of workers stands for these: the one that their operator gave them, or their address.
    Otherwise a place that names the host of workers stands for these. The others stand for one worker each, in the
    order of the names, so that drops that were placed together are together: round and round if there are more places
    than workers.

    Parameters
    ----------
    places : sequence of str
        Names of the nodes of a graph: of workers, ``host`` or ``host:port``.
    workers : iterable of WorkerView
        The workers of an engine.
    """
    found = sorted(workers, key=lambda worker: worker.name)
    if not found:
        return {}
    by_name: dict[str, list[str]] = {}
    by_host: dict[str, list[str]] = {}
    for worker in found:
        for name in {worker.name, worker.alias}:
            by_name.setdefault(name, []).append(worker.name)
        for host in worker.hosts:
            by_host.setdefault(host, []).append(worker.name)
    hosts = {worker.hosts for worker in found}
    chosen: dict[int, tuple[str, ...]] = {}
    others = 0
    for row, place in enumerate(places):
        here = by_host.get(place) or by_host.get(place.rpartition(":")[0] or place)
        if place and place in by_name:
            chosen[row] = tuple(by_name[place])
        elif here is not None and len(hosts) > 1:
            chosen[row] = tuple(here)
        else:
            chosen[row] = (found[others % len(found)].name,)
            others += 1
    return chosen
