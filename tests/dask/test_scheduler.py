"""Collections of dask, computed by dropflow in this process."""

import contextvars
import operator
import subprocess
import sys
import threading
import weakref
from typing import Any

import dask
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.task_spec import DataNode, Task, TaskRef

import dropflow.dask
from dropflow.errors import BadGraphError, BadParameterError
from tests.lazy_module import LazyModule

da = LazyModule("dask.array")
db = LazyModule("dask.bag")

pytestmark = pytest.mark.parametrize("runner", ["threads", "inline"])


class _Unusual(Exception):  # noqa: N818 - the type is the point
    """An exception with a constructor of its own."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.second = second


def _raise(_: Any) -> Any:
    raise _Unusual(1, 2)


@pytest.mark.slow
def test_collections_have_the_values_of_dask(runner: str) -> None:
    """Arrays, bags and delayed functions have the values that dask's own scheduler computes."""
    x = da.arange(64, chunks=8).reshape(8, 8)
    y = (x + x.T).rechunk((3, 5))
    bag = db.from_sequence(range(20), npartitions=4).map(lambda value: value**2).filter(lambda value: value % 2)
    total = dask.delayed(sum)([dask.delayed(operator.add)(number, 1) for number in range(5)])
    collections = (y, y.sum(axis=0), da.tensordot(y, y, axes=1), bag, bag.sum(), total)
    expected = dask.compute(*collections, scheduler="sync")

    with dropflow.dask.scheduler(runner=runner):
        found = dask.compute(*collections)

    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours, theirs)


def test_an_exception_has_what_its_task_has_printed(runner: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its notes have the end of it, without the output of other tasks; all is printed as before."""

    def fails(number: int) -> int:
        for line in range(1000):
            sys.stderr.write(f"line {line} of {number}\n")
        raise _Unusual(1, 2)

    def prints(number: int) -> int:
        sys.stdout.writelines([f"task {number}\n", "ends\n"])
        return number

    before = sys.stdout, sys.stderr
    first = dask.delayed(prints)(7)
    with pytest.raises(_Unusual, match="1 and 2") as caught, dropflow.dask.scheduler(runner=runner):
        dask.delayed(fails)(first).compute()

    note = caught.value.__notes__[1]
    assert note.startswith("the end of its log:\n")
    assert note.splitlines()[-1] == "line 999 of 7"
    assert "task 7" not in note
    assert len(note) < 1000
    assert (sys.stdout, sys.stderr) == before
    output = capsys.readouterr()
    assert output.out == "task 7\nends\n"
    assert output.err.count("\n") == 1000


def test_all_ways_to_choose_the_scheduler(runner: str) -> None:
    """A collection is computed here by an argument, by dask's configuration, and in the context."""
    get = dropflow.dask.Scheduler(runner=runner).get
    threads = {threading.main_thread().name} if runner == "inline" else {"runner"}
    name = dask.delayed(lambda: threading.current_thread().name)()

    with dask.config.set(scheduler=get):
        configured = name.compute()
    with dropflow.dask.scheduler(runner=runner, workers=1) as made:
        inside = name.compute()

    assert {name.compute(scheduler=get), configured, inside, made.get({"x": name.dask[name.key]}, "x")} == threads
    assert dropflow.dask.get(name.dask, name.key) == "runner"


def test_nested_keys_and_plain_graphs(runner: str) -> None:
    """The values have the structure of the keys, and graphs may be of either form that dask has."""
    get = dropflow.dask.Scheduler(runner=runner).get
    old = {"x": 1, "y": (operator.add, "x", 1), "z": (sum, ["x", "y"])}
    new = {"x": DataNode(None, 1), "y": Task(None, operator.add, TaskRef("x"), 1)}

    assert get(old, [["x", "z"], ["y"]]) == ((1, 3), (2,))
    assert get(new, ["y", "x", "y"]) == (2, 1, 2)
    assert get(old, "z") == 3
    assert get(old, []) == ()


def test_an_exception_of_a_task_is_raised_as_it_is(runner: str) -> None:
    """The exception has its type, its attributes and its traceback, and a note that names the drop."""
    x = da.ones(4, chunks=2).map_blocks(_raise, dtype=float, name="fails", meta=np.ones(0))

    with dropflow.dask.scheduler(runner=runner), pytest.raises(_Unusual, match=r"1 and 2") as caught:
        x.compute()

    assert caught.value.second == 2
    assert caught.traceback[-1].name == "_raise"
    assert any("raised by dask_" in note and "fails" in note for note in caught.value.__notes__)


def test_what_is_no_ordinary_exception_is_raised_too(runner: str) -> None:
    """SystemExit and KeyboardInterrupt of a task end the computation."""
    for kind in (SystemExit, KeyboardInterrupt):
        with pytest.raises(kind, match=r"^stop"):
            dropflow.dask.Scheduler(runner=runner).get({"x": (_throw, kind)}, "x")


def _throw(kind: type[BaseException]) -> None:
    raise kind("stop")


def test_nothing_starts_after_an_exception(runner: str) -> None:
    """Tasks that need the failed one do not run, nor those that wait for a thread."""
    ran: list[int] = []
    nodes: dict[str, Any] = {"bad": (_raise, 0), "after": (ran.append, "bad")}

    with pytest.raises(_Unusual, match=r"1 and 2"):
        dropflow.dask.Scheduler(runner=runner, workers=1).get(nodes, ["after"])

    assert ran == []


class _Counted:
    """A value; the number of those that exist is counted."""

    alive = most = 0
    lock = threading.Lock()

    def __init__(self) -> None:
        with _Counted.lock:
            _Counted.alive += 1
            _Counted.most = max(_Counted.most, _Counted.alive)
        weakref.finalize(self, _Counted._end)

    @staticmethod
    def _end() -> None:
        _Counted.alive -= 1


def test_values_are_released_after_their_last_reader(runner: str) -> None:
    """A long chain of tasks holds few values at a time; nothing but the results is left at the end."""
    _Counted.alive = _Counted.most = 0
    length = 200
    nodes: dict[Any, Any] = {("x", 0): (_Counted,)}
    for number in range(1, length):
        # Two consumers: not a chain that runs as one unit.
        nodes["y", number] = (lambda _: _Counted(), ("x", number - 1))
        nodes["x", number] = (lambda *_: _Counted(), ("x", number - 1), ("y", number))

    result = dropflow.dask.Scheduler(runner=runner, workers=2).get(nodes, [("x", length - 1)])

    assert len(result) == 1
    assert _Counted.most < 40
    assert _Counted.alive <= 1 + (2 if runner == "threads" else 0)  # a thread may be about to end


def test_a_result_with_readers_is_kept(runner: str) -> None:
    """A value that is wanted, and that other tasks read, is returned."""
    nodes = {"x": (operator.add, 1, 1), "y": (operator.neg, "x")}

    assert dropflow.dask.Scheduler(runner=runner).get(nodes, ["x", "y"]) == (2, -2)


def test_persisted_chunks_are_values(runner: str) -> None:
    """A persisted collection has its chunks: what is computed from it does not compute them again."""
    ran: list[int] = []
    x = da.ones(4, chunks=2).map_blocks(lambda block: ran.append(1) or block + 1, dtype=float, meta=np.ones(0))

    with dropflow.dask.scheduler(runner=runner):
        kept = x.persist()
        values = [float(kept.sum().compute()) for _ in range(2)]

    assert values == [8.0, 8.0]
    assert len(ran) == 2


def test_callbacks_of_dask_are_called(runner: str) -> None:
    """Callbacks get each task with its value, and see the computation end; those of dask's diagnostics work so."""
    seen: list[Any] = []
    nodes = {"x": 1, "y": (operator.add, "x", 1), "z": (operator.neg, "y")}
    watcher = Callback(
        start=lambda graph: seen.append(("start", set(graph))),
        start_state=lambda _, state: seen.append(("state", set(state["waiting"]), state["cache"])),
        pretask=lambda key, _, state: seen.append(("before", key, key in state["running"])),
        posttask=lambda key, value, _, state, __: seen.append(("after", key, value, key in state["finished"])),
        finish=lambda _, __, failed: seen.append(("finish", failed)),
    )

    with watcher:
        dropflow.dask.Scheduler(runner=runner).get(nodes, "z")

    assert seen == [
        ("start", {"x", "y", "z"}),
        ("state", {"y", "z"}, {"x": 1}),
        ("before", "y", True),
        ("after", "y", 2, True),
        ("before", "z", True),
        ("after", "z", -2, True),
        ("finish", False),
    ]


def test_an_exception_of_a_callback_is_raised(runner: str) -> None:
    """What a callback raises ends the computation."""
    ends: list[bool] = []

    with (
        Callback(pretask=lambda *_: _raise(0), finish=lambda _, __, failed: ends.append(failed)),
        pytest.raises(_Unusual, match=r"1 and 2"),
    ):
        dropflow.dask.Scheduler(runner=runner).get({"x": (operator.neg, 1)}, "x")

    assert ends == [True]


def test_tasks_see_context_variables(runner: str) -> None:
    """A task runs with the context variables of the caller, and what it sets is not seen by others."""
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(3)

    def read(_: Any) -> int:
        found = variable.get()
        variable.set(9)
        return found

    values = dropflow.dask.Scheduler(runner=runner).get({"x": (read, 0), "y": (read, "x")}, ["x", "y"])

    assert (values, variable.get()) == ((3, 3), 3)


def test_a_task_may_compute_a_collection(runner: str) -> None:
    """A computation within a task has threads of its own, so it does not wait for its own task."""
    inner = dask.delayed(operator.add)(1, 2)

    with dropflow.dask.scheduler(runner=runner, workers=1):
        assert dask.delayed(lambda: inner.compute() + 1, pure=False)().compute() == 4


def test_options_are_checked(runner: str) -> None:
    """Unknown runners, and numbers of workers that are not positive, are refused."""
    with pytest.raises(BadParameterError, match=r"there is no runner 'ray' for dask graphs"):
        dropflow.dask.Scheduler(runner="ray")
    with pytest.raises(BadParameterError, match=r"the number of workers is 0"):
        dropflow.dask.Scheduler(runner=runner, workers=0)
    with pytest.raises(BadParameterError, match=r"the number of workers is -1"):
        da.ones(2).compute(scheduler=dropflow.dask.Scheduler(runner=runner).get, num_workers=-1)
    with pytest.raises(BadGraphError, match=r"the key 'y' is wanted"):
        dropflow.dask.Scheduler(runner=runner).get({"x": 1}, "y")


def test_a_missing_dask_is_explained(runner: str) -> None:
    """Without dask, the error of the import has the command that installs it."""
    del runner
    script = "import sys; sys.modules['dask'] = None\nimport dropflow.dask"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert "MissingDependencyError" in done.stderr
    assert "pip install 'dropflow[dask]'" in done.stderr


def test_retries_of_tasks(runner: str) -> None:
    """A task that raises is tried again as often as an annotation, or an option of the computation, says."""
    calls: list[str] = []

    def flaky(name: str) -> int:
        calls.append(name)
        if calls.count(name) < 3:
            raise OSError(f"{name} {calls.count(name)}")
        return calls.count(name)

    with dask.annotate(retries=2):
        noted = dask.delayed(flaky)("noted")
    with dropflow.dask.scheduler(runner=runner):
        assert noted.compute() == 3
        assert dask.delayed(flaky)("asked").compute(retries=2) == 3
        assert dask.delayed(flaky)("kept").persist(retries=2).compute() == 3
        with dask.annotate(retries=5):
            assert dask.delayed(flaky)("around").compute() == 3
        with pytest.raises(OSError, match=r"few 2") as caught:
            dask.delayed(flaky)("few").compute(retries=1)
    assert len(caught.value.__notes__) == 1


def test_priority_of_tasks(runner: str) -> None:
    """Tasks of a higher priority run first; others stay in their order."""
    ran: list[int] = []
    tasks = []
    for number in range(6):
        with dask.annotate(priority=number % 3):
            tasks.append(dask.delayed(ran.append)(number, dask_key_name=f"task-{number}"))

    dask.compute(tasks, scheduler=dropflow.dask.Scheduler(runner=runner, workers=1).get)

    assert [number % 3 for number in ran] == [2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"resources": {"GPU": 1}}, r"resources=\{'GPU': 1\}, and dropflow cannot"),
        ({"workers": "one"}, r"workers=\[?'one'\]?, and dropflow cannot"),
        ({"retries": "many"}, "retries of tasks is 'many'"),
        ({"retries": -1}, "retries of tasks is -1"),
    ],
)
def test_what_cannot_be_done_for_tasks_is_refused(runner: str, options: dict[str, Any], text: str) -> None:
    """Nothing that has an effect with dask.distributed is ignored."""
    one = dask.delayed(abs)(-1)

    with dropflow.dask.scheduler(runner=runner), pytest.raises(BadParameterError, match=text):
        one.compute(**options)
    if options != {"retries": "many"}:
        with dropflow.dask.scheduler(), dask.annotate(**options), pytest.raises(BadParameterError, match=text):
            one.compute()
    assert one.compute(scheduler=dropflow.dask.get, workers="one", allow_other_workers=True) == 1
