"""The runner of other engines, with an engine that a test plays: no package of an engine is needed."""

import socket
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadParameterError, ConflictError, LinkError
from dropflow.execution.content_location import Handle
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.tasks import AttemptResult, StreamOpened, Task
from dropflow.graph.physical import PhysicalGraph
from dropflow.runners import external
from dropflow.runners.engine import AttemptKey, Batch, BatchAnswer, EngineEvents, WorkerView
from dropflow.runners.external import ExternalRunner, check_address, refuse_silent, workers_of_places
from dropflow.runners.external_host import HostView, refuse_other_versions, share_directory
from dropflow.testing.drawing import draw
from dropflow.version import __version__
from tests.e2e.cluster import until


class PlayedEngine:
    """Records what it gets."""

    name = "Played"

    def __init__(self, slots: int = 2) -> None:
        self.workers = [WorkerView(f"w{number}", 1, ("here",)) for number in range(slots)]
        self.batches: dict[int, Batch] = {}
        self.hints: dict[int, tuple[str, ...]] = {}
        self.calls: list[tuple[str, object]] = []
        self.events: EngineEvents | None = None
        self.is_closed = False

    def start(self, spec: ExecutorSpec, factory: str, events: EngineEvents, *, store: str = "") -> Sequence[WorkerView]:
        """Start."""
        del spec, factory, store
        self.events = events
        return self.workers

    def put(self, data: bytes) -> object:
        """Refuse: only workers with directories of their own get contents."""
        raise AssertionError(f"{len(data)} bytes were put")

    def submit(self, batch: Batch, name: str, workers: Sequence[str], pieces: Sequence[object] = ()) -> None:
        """Note a batch."""
        del name
        assert not pieces
        self.hints[batch.number] = tuple(workers)
        self.batches[batch.number] = batch

    def abort(self, attempts: Sequence[AttemptKey], grace: float) -> None:
        """Note."""
        del grace
        self.calls.append(("abort", tuple(attempts)))

    def recall(self, numbers: Sequence[int]) -> None:
        """Note."""
        self.calls.append(("recall", tuple(numbers)))

    def discard(self, number: int) -> None:
        """Note."""
        self.calls.append(("discard", number))

    def want(self, seconds: float) -> None:
        """Note."""
        self.calls.append(("want", seconds))

    def ping(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Note."""
        self.is_closed = True

    def answer(self, number: int, worker: str = "w0", seconds: float = 0.001) -> None:
        """Answer a batch with success, as if each attempt had taken a millisecond."""
        batch = self.batches.pop(number)
        results = tuple(AttemptResult(task.drop, task.attempt, {}, seconds=seconds) for task in batch.tasks)
        assert self.events is not None
        self.events.answered(BatchAnswer(number, worker, results), True)

    def answer_one(self) -> bool:
        """Answer a batch, if there is one; return False."""
        for number in tuple(self.batches)[:1]:
            self.answer(number)
        return False


class Played:
    """A runner on a played engine, with what it has delivered."""

    def __init__(self, graph: PhysicalGraph, *, slots: int = 2, places: Sequence[str] = ()) -> None:
        self.engine = PlayedEngine(slots)
        spec = ExecutorSpec(session="s", directory="/", templates=graph.templates, links=graph.links)
        place_of = np.arange(graph.drops, dtype=np.int32) % max(len(places), 1) if places else None
        self.runner = ExternalRunner(self.engine, spec, places=places, place_of=place_of)
        self.results: list[AttemptResult] = []
        self.runner.start(self._take)

    def _take(self, results: Sequence[StreamOpened | AttemptResult]) -> None:
        self.results += [result for result in results if isinstance(result, AttemptResult)]

    def submit(self, drops: Sequence[int]) -> None:
        """Submit attempts of drops."""
        self.runner.submit([Task(drop, 1, drop, f"d{drop}", ()) for drop in drops])


GRAPH = draw(", ".join(f"A{number}" for number in range(64)))


@pytest.fixture
def played():  # noqa: ANN201 - a generator of Played
    """A runner with two slots, closed at the end."""
    made = Played(draw("A -> b"))
    yield made
    made.runner.close()
    assert made.engine.is_closed


def same_template(drops: Sequence[int]) -> list[Task]:
    """Attempts of one template."""
    return [Task(drop, 1, 0, f"d{drop}", ()) for drop in drops]


@pytest.mark.slow
def test_attempts_of_unknown_length_go_one_for_each_slot_and_short_ones_in_batches(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine gets no more than its workers run, until attempts are known to be short."""
    monkeypatch.setattr(external, "_SLOW_SECONDS", 3600.0)  # a busy machine lets batches wait, which makes them long
    played.runner.submit(same_template(range(100)))
    assert until(lambda: len(played.engine.batches) == 2)
    assert [len(batch.tasks) for batch in played.engine.batches.values()] == [1, 1]
    assert len(played.runner.running) == 2
    for number in (1, 2):
        played.engine.answer(number)
    assert until(lambda: len(played.engine.batches) == 4)
    sizes = [len(batch.tasks) for batch in played.engine.batches.values()]
    assert sizes[0] > 20
    assert sizes == sorted(sizes, reverse=True)
    answered = 2
    while answered + sum(sizes) < 100:
        number = min(played.engine.batches)
        answered += len(played.engine.batches[number].tasks)
        played.engine.answer(number)
        assert until(lambda: number not in played.engine.batches and len(played.engine.batches) == 4)  # noqa: B023
        sizes = [len(batch.tasks) for batch in played.engine.batches.values()]
    for number in tuple(played.engine.batches):
        played.engine.answer(number)
    assert until(lambda: len(played.results) == 100)


@pytest.mark.slow
def test_the_engine_is_told_how_much_work_waits(played: Played) -> None:
    """Of unknown attempts half a second each, of long ones five; nothing once none waits, or all are held."""
    played.engine.workers = []
    played.engine.events.workers([])  # type: ignore[union-attr]

    def is_told(seconds: float) -> bool:
        return until(lambda: [what for call, what in played.engine.calls if call == "want"][-1:] == [seconds])

    played.runner.submit(same_template(range(40)))
    assert is_told(20.0)
    played.runner.hold(is_held=True)
    assert is_told(0.0)
    played.runner.hold(is_held=False)
    played.engine.workers = [WorkerView("w0", 1, ("here",))]
    played.engine.events.workers(played.engine.workers)  # type: ignore[union-attr]
    assert until(lambda: bool(played.engine.batches))
    played.engine.answer(1, seconds=60.0)
    assert is_told(38 * 5.0)


@pytest.mark.slow
def test_a_batch_of_one_that_is_lost_is_a_fault_and_one_of_several_is_innocent(played: Played) -> None:
    """Of several attempts nothing is known: they are repeated free of charge, and each alone. Late answers are void."""
    played.runner.submit(same_template(range(40)))
    assert until(lambda: len(played.engine.batches) == 2)
    events = played.engine.events
    assert events is not None
    events.lost(1, "the worker has left")
    assert until(lambda: len(played.results) == 1)
    assert (played.results[0].failure.code, played.results[0].failure.is_innocent) == ("DF202", False)  # type: ignore[union-attr]

    played.engine.answer(2)
    assert until(lambda: any(len(batch.tasks) > 1 for batch in played.engine.batches.values()))
    number, batch = next((at, one) for at, one in played.engine.batches.items() if len(one.tasks) > 1)
    count = len(played.results)
    events.lost(number, "the worker has left")
    assert until(lambda: len(played.results) >= count + len(batch.tasks))
    lost = played.results[count : count + len(batch.tasks)]
    assert all(one.failure is not None and one.failure.is_innocent for one in lost)
    seen = len(played.results)
    events.answered(BatchAnswer(number, "w0", tuple(AttemptResult(one.drop, 1) for one in batch.tasks)), True)
    again = batch.tasks[0].drop
    played.engine.batches.pop(number)
    played.engine.batches.pop(1)
    for at in tuple(played.engine.batches):
        played.engine.answer(at)
    seen += 40 - 2 - len(batch.tasks)
    assert until(lambda: len(played.results) == seen or played.engine.answer_one())
    played.runner.submit([Task(again, 2, 0, "d", ())])
    assert until(lambda: any([task.drop for task in one.tasks] == [again] for one in played.engine.batches.values()))
    assert len(played.results) == seen


@pytest.mark.slow
def test_what_a_slow_batch_has_not_begun_is_recalled_and_sent_again(played: Played) -> None:
    """After a quarter of a second the batch is asked for what it has; what it returns goes elsewhere."""
    played.runner.submit(same_template(range(20)))
    assert until(lambda: len(played.engine.batches) == 2)
    for number in (1, 2):
        played.engine.answer(number)
    assert until(lambda: any(call == "recall" for call, _ in played.engine.calls))
    number, batch = next((at, one) for at, one in played.engine.batches.items() if len(one.tasks) > 1)
    assert played.engine.events is not None
    returned = batch.tasks[1:]
    played.engine.events.answered(BatchAnswer(number, "w0", returned=returned), False)
    drops = {task.drop for task in returned}
    others = [one for at, one in played.engine.batches.items() if at != number]
    for at in [at for at in played.engine.batches if at != number]:
        played.engine.answer(at)
    assert others

    assert until(
        lambda: any(
            drops & {task.drop for task in one.tasks} for at, one in played.engine.batches.items() if at > number
        )
    )


@pytest.mark.slow
def test_an_aborted_attempt_that_is_not_answered_is_given_up(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not react does not delay the session: after the grace period the batch is discarded."""
    monkeypatch.setattr(external, "MARGIN_SECONDS", 0.0)
    played.runner.submit(same_template(range(3)))
    assert until(lambda: len(played.engine.batches) == 2)
    played.runner.abort(2, 1, 0.0)
    played.runner.abort(0, 1, 0.0)
    assert until(lambda: len(played.results) == 2)

    assert [(result.drop, result.failure.kind) for result in played.results if result.failure] == [
        (2, "Aborted"),
        (0, "Aborted"),
    ]
    assert ("abort", ((0, 1),)) in played.engine.calls
    assert ("discard", 1) in played.engine.calls


@pytest.mark.slow
def test_an_engine_that_is_gone_fails_all_attempts_now_and_later(played: Played) -> None:
    """The session ends with the reason, and can be resumed with another runner."""
    played.runner.submit(same_template(range(5)))
    assert until(lambda: len(played.engine.batches) == 2)
    assert played.engine.events is not None
    played.engine.events.broken("the connection was lost")
    assert until(lambda: len(played.results) == 5)
    played.runner.submit(same_template([7]))
    assert until(lambda: len(played.results) == 6)

    assert {result.failure.code for result in played.results if result.failure} == {"DF204"}
    assert "connection was lost" in played.results[-1].failure.text  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_thread_of_a_runner_that_is_broken_waits(played: Played) -> None:
    """Nothing is due any more: without a command, it computes nothing until the session ends."""
    assert played.engine.events is not None
    played.runner.submit(same_template([0]))
    played.engine.events.broken("the connection was lost")

    assert until(lambda: played.runner._timeout() is None)


@pytest.mark.slow
def test_commands_after_one_that_fails_are_carried_out(played: Played) -> None:
    """Attempts that are submitted just after an error in the thread of the runner are answered with it."""
    gate = threading.Event()

    def wait() -> None:
        assert gate.wait(60)

    def fail() -> None:
        raise ValueError("a bug")

    played.runner._command(wait)
    played.runner._command(fail)
    played.runner.submit(same_template([0]))
    gate.set()

    assert until(lambda: len(played.results) == 1)
    assert "a bug" in played.results[0].failure.text  # type: ignore[union-attr]


def test_attempts_wait_for_the_first_worker_of_an_engine_that_starts_without_any() -> None:
    """Attempts that are submitted before the engine reports no workers wait, and do not fail."""
    engine = PlayedEngine(0)
    spec = ExecutorSpec(session="s", directory="/", templates=GRAPH.templates, links=GRAPH.links)
    runner = ExternalRunner(engine, spec)
    results: list[object] = []
    runner.submit(same_template([0]))
    runner.start(results.extend)
    until(lambda: engine.calls or results)
    runner.close()

    assert [call for call, _ in engine.calls] == ["want"]
    assert not results


@pytest.mark.slow
def test_placed_drops_go_to_the_workers_of_their_place() -> None:
    """The drops of one place get the same worker as a hint."""
    made = Played(GRAPH, slots=4, places=("n0", "n1"))
    made.submit(range(4))
    assert until(lambda: len(made.engine.batches) == 4)
    hints = {batch.tasks[0].drop: made.engine.hints[number] for number, batch in made.engine.batches.items()}
    made.runner.close()

    assert hints == {0: ("w0",), 1: ("w1",), 2: ("w0",), 3: ("w1",)}


@pytest.mark.slow
def test_the_next_attempts_are_those_of_the_place_whose_workers_are_free() -> None:
    """A worker gets the attempts of its own place as long as there are any, however fast it is."""
    made = Played(GRAPH, slots=2, places=("n0", "n1"))
    made.submit(range(12))
    seen = []
    for _ in range(8):
        assert until(lambda: len(made.engine.batches) == 2)
        seen.append(sorted(batch.tasks[0].drop % 2 for batch in made.engine.batches.values()))
        made.engine.answer(min(made.engine.batches, key=lambda number: made.engine.hints[number]), seconds=10.0)
    made.runner.close()

    assert seen == [[0, 1]] * 6 + [[1, 1]] * 2, "then the free worker helps the other place"


@pytest.mark.slow
def test_a_short_attempt_that_waits_alone_behind_a_long_one_is_recalled(played: Played) -> None:
    """Once: if it runs already, it is no use to ask again. What comes back goes to a worker that is free."""
    played.runner.submit(same_template(range(4)))
    for number in (1, 2):
        assert until(lambda: number in played.engine.batches)  # noqa: B023
        played.engine.answer(number)
    assert until(lambda: [len(batch.tasks) for batch in played.engine.batches.values()] == [1, 1])
    assert until(lambda: {3, 4} <= set(recalled(played.engine)))
    assert played.engine.events is not None
    played.engine.events.answered(BatchAnswer(4, "w0", returned=played.engine.batches[4].tasks), True)
    assert until(lambda: 5 in played.engine.batches)
    assert until(lambda: 5 in recalled(played.engine))

    assert sorted(recalled(played.engine)) == [3, 4, 5]


def recalled(engine: PlayedEngine) -> list[int]:
    """The batches that were recalled, each as often as it was."""
    return [number for call, what in tuple(engine.calls) if call == "recall" for number in what]  # type: ignore[attr-defined]


@given(
    st.lists(st.sampled_from(["a", "b", "c", "n1", "n2"]), max_size=6, unique=True),
    st.lists(st.tuples(st.sampled_from(["a", "b", "d"]), st.integers(1, 3)), max_size=6),
)
def test_places_are_spread_over_workers(places: list[str], found: list[tuple[str, int]]) -> None:
    """A place that names a host gets its workers; the others get one each, as evenly as possible."""
    workers = [WorkerView(f"w{at}", slots, (host,)) for at, (host, slots) in enumerate(found)]
    chosen = workers_of_places(places, workers)
    hosts = {worker.hosts[0] for worker in workers}

    assert set(chosen) == (set(range(len(places))) if workers else set())
    others = []
    for row, names in chosen.items():
        if places[row] in hosts and len(hosts) > 1:
            assert names == tuple(worker.name for worker in workers if worker.hosts == (places[row],))
        else:
            others += names
    counts = [others.count(worker.name) for worker in workers]
    assert not counts or max(counts) - min(counts) <= 1


def test_workers_with_another_version_are_refused_with_what_to_do() -> None:
    """The error names the workers and their versions; a worker without the session directory is no reason."""
    good, blind = HostView(__version__, "h1", ""), HostView(__version__, "h2", "/x: No such file")
    refuse_other_versions("Dask", {"w1": good, "w2": blind})
    with pytest.raises(ConflictError, match=r"w2 \(0\.0\) of Dask have another version of dropflow") as caught:
        refuse_other_versions("Dask", {"w1": good, "w2": HostView("0.0", "h2", "")})

    assert f"install dropflow {__version__}" in caught.value.hint
    assert share_directory({"w1": good})
    assert not share_directory({"w1": good, "w2": blind})


@pytest.mark.slow
def test_results_have_numbers_of_worker_processes_that_differ_between_hosts(played: Played) -> None:
    """Each host numbers its worker processes from 1; the session's table of times needs other numbers."""
    from dropflow.execution.tasks import Usage  # noqa: PLC0415 - only here

    played.runner.submit(same_template(range(2)))
    assert until(lambda: len(played.engine.batches) == 2)
    assert played.engine.events is not None
    for number in (1, 2):
        drop = played.engine.batches[number].tasks[0].drop
        result = AttemptResult(drop, 1, {drop: Handle()}, usage=Usage(1.0, worker=1))
        played.engine.events.answered(BatchAnswer(number, f"w{number}", (result,)), True)
    assert until(lambda: len(played.results) == 2)

    assert sorted(one.usage.worker for one in played.results if one.usage) == [1, 2]


# Addresses of engines that are wrong, or where no engine answers.


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("dask", "tcp://host:8786"),
        ("dask", "tls://[::1]:8786"),
        ("dask", "host:8786"),
        ("ray", "auto"),
        ("ray", "host:6379"),
    ],
)
def test_addresses_of_engines_are_accepted(kind: str, address: str) -> None:
    """These are what the engines print."""
    check_address(kind, address)


@pytest.mark.parametrize(
    ("kind", "address", "problem"),
    [
        ("dask", "http://host:8786", "has the scheme 'http'"),
        ("dask", "auto", "is not a host and a port"),
        ("dask", "tcp://host", "is not a host and a port"),
        ("dask", "tcp://host:99999", "is not a host and a port"),
        ("dask", "tcp://:8786", "is not a host and a port"),
        ("ray", "ray://host:10001", "cannot be used through a Ray Client server"),
        ("ray", "tcp://host:6379", "has the scheme 'tcp'"),
        ("ray", "host", "is not a host and a port"),
        ("ray", "host:x", "is not a host and a port"),
    ],
)
def test_others_are_refused_with_an_example(kind: str, address: str, problem: str) -> None:
    """The error has the address, what is wrong with it, and one that would do."""
    with pytest.raises(BadParameterError, match=problem) as caught:
        check_address(kind, address)

    assert repr(address) in caught.value.text
    assert f"--runner {kind}=" in caught.value.hint


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def at(listener: socket.socket) -> str:
    """The address of a socket."""
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_an_address_without_a_process_is_refused_at_once(listener: socket.socket) -> None:
    """The connection is refused; so is a host that does not exist."""
    address = at(listener)
    listener.close()
    for kind, what in (("dask", "Dask scheduler"), ("ray", "Ray cluster")):
        with pytest.raises(LinkError, match=f"no {what} that answers: Connection refused") as caught:
            refuse_silent(kind, address, 5.0)
        assert caught.value.where == address


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_host_that_cannot_have_its_name_is_refused(host: str) -> None:
    """A label of the name is empty or too long, so that it cannot be looked up."""
    with pytest.raises(LinkError, match=f"'{host}' is not the name of a host"):
        refuse_silent("dask", f"tcp://{host}:8786", 5.0)


def test_a_process_that_does_not_greet_is_no_scheduler_of_dask(listener: socket.socket) -> None:
    """Another service may wait for the client to speak, or close the connection. That of Ray waits, too."""
    with pytest.raises(LinkError, match=r"nothing was received in 0\.05 s"):
        refuse_silent("dask", f"tcp://{at(listener)}", 0.05)
    refuse_silent("ray", at(listener), 5.0)
    closing = threading.Thread(target=lambda: [listener.accept()[0].close() for _ in range(3)])
    closing.start()
    with pytest.raises(LinkError, match="the connection was closed"):
        refuse_silent("dask", f"tcp://{at(listener)}", 5.0)
    closing.join()


def test_a_process_that_greets_is_accepted(listener: socket.socket) -> None:
    """What it sends is not looked at. Addresses with encryption and of other networks are left to the engine."""

    def greet() -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"x")

    greeting = threading.Thread(target=greet)
    greeting.start()
    refuse_silent("dask", f"tcp://{at(listener)}", 5.0)
    greeting.join()
    refuse_silent("dask", f"tls://{at(listener)}", 5.0)
    refuse_silent("dask", "ucx://no-such-host:1", 5.0)
