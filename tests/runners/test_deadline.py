"""The time limit of attempts: how they are stopped, and what is reported."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dropflow.apps.app_interface import Context
from dropflow.apps.needs import with_time_limit
from dropflow.data.file import FileWriter
from dropflow.errors import BadGraphError, BadParameterError, Interrupted
from dropflow.execution.drop_log import DropLog
from dropflow.execution.tasks import AttemptResult, Task
from dropflow.graph.build import GraphBuilder
from dropflow.graph.components import time_limit
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.runners.in_process import ThreadRunner
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.runners.executor_bench import Bench
from tests.runners.scripted_runners import Answers

MEMORY = "dlg.data.drops.memory.InMemoryDROP"
LIMITED = (Argument(name="timeout", value=0.05, type="Float"),)
LATE = "the attempt took longer than its limit of 0.05 s and was stopped"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """An application between two data drops."""
    found = Bench(tmp_path / "session")
    yield found
    found.close()
    found.repository.close()


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropflow.runners.attempt_limits._STOP_SECONDS", 0.1)
    monkeypatch.setattr("dropflow.runners.attempt_limits._INTERRUPT_SECONDS", 0.1)


def _compute(_: Context) -> None:
    while True:
        pass


def _swallow(_: Context) -> None:
    while True:
        try:
            while True:
                pass
        except BaseException as error:
            raise ValueError("mine") from error


@pytest.mark.parametrize(
    "run",
    [lambda ctx: ctx.wait(98765), lambda ctx: ctx.command("exec sleep 98765", {}), _compute, _swallow],
    ids=["waits", "runs a command", "computes in Python", "raises something else"],
)
def test_an_attempt_ends_at_its_limit(
    run: Callable[[Context], Any], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt fails with its own code and can be retried; its output is removed."""
    if "command" in str(run.__code__.co_names):
        monkeypatch.undo()  # a command has its own grace, which the interrupt waits for

    def begin(ctx: Context) -> None:
        ctx.outputs[0].write(b"x" * 1_000_000)
        run(ctx)

    result = bench.run(begin, fields=LIMITED)

    assert result.failure is not None
    assert (result.failure.code, result.failure.kind) == ("DF110", "AttemptTimeoutError")
    assert result.failure.text == LATE
    assert result.failure.retryable
    assert result.handles == {}
    assert not list((bench.directory / "tmp" / "shm").iterdir())


_TRACED = """
import sys
from dropflow.runners.attempt_limits import Deadline
from dropflow.errors import Interrupted

try:
    with Deadline(0.01, lambda: None, lambda: None):
        while True:
            pass
except Interrupted:
    sys.settrace(lambda *_: None)
    print((lambda: "returned")())
"""


@pytest.mark.slow
def test_a_thread_can_be_traced_after_it_was_interrupted() -> None:
    """Debuggers and coverage trace: in CPython 3.11, a withdrawn exception would make the next traced call endless."""
    traced = subprocess.run([sys.executable, "-c", _TRACED], capture_output=True, text=True, timeout=60, check=True)

    assert traced.stdout.strip() == "returned"


@pytest.mark.slow
def test_the_limit_includes_formatting_the_exception(bench: Bench) -> None:
    """An exception whose `__str__` does not return is interrupted like the application itself."""

    def compute(_: object) -> str:
        while True:
            pass

    endless = type("Endless", (Exception,), {"__str__": compute})

    def fail(_: Context) -> None:
        raise endless

    failure = bench.run(fail, fields=LIMITED).failure

    assert failure is not None
    assert failure.text == LATE


def test_an_attempt_within_its_limit_is_not_affected(bench: Bench) -> None:
    """No exception is raised in the thread afterwards, and an attempt that fails by itself keeps its own reason."""
    fields = (Argument(name="timeout", value=1000.0, type="Float"),)

    assert bench.run(lambda _: None, fields=fields).failure is None
    failure = bench.run(lambda _: {}["none"], fields=fields).failure
    assert failure is not None
    assert failure.kind == "KeyError"


def test_a_thread_that_cannot_be_stopped_is_replaced() -> None:
    """Its attempt fails, a new thread takes its place, and its late result is ignored."""
    release = threading.Event()

    class Stuck:
        """Runs until it is released, and ignores exceptions."""

        on_stream_opened = on_overdue = staticmethod(lambda _: None)

        def execute(self, task: Task) -> AttemptResult:
            if task.drop == 0:
                self.on_overdue(AttemptResult(task.drop, task.attempt, seconds=1.0))
                release.wait()
            return AttemptResult(task.drop, task.attempt, seconds=2.0)

        def abort(self, drop: int, attempt: int, grace: float = 5.0) -> None:
            """Ignore the abort."""

        def close(self) -> None:
            """Nothing is held."""

    answers = Answers()
    runner = ThreadRunner(Stuck(), threads=1)  # type: ignore[arg-type]
    runner.start(answers.deliver)
    stuck = runner._threads[0]
    runner.submit([Task(drop, 1, 0, f"d{drop}", ()) for drop in range(3)])
    answers.wait(0, 1, 2)
    release.set()
    stuck.join(60)
    runner.close()

    assert sorted((result.drop, result.seconds) for result in answers.results) == [(0, 1.0), (1, 2.0), (2, 2.0)]


def _sleeper(code: str, *, tries: int = 1) -> PhysicalGraph:
    builder = GraphBuilder("late")
    fields = (*LIMITED, Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    builder.app("late", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=fields, tries=tries)
    builder.data("out", component=MEMORY, category="Memory")
    builder.connect("late", "out")
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_a_session_continues_if_an_attempt_cannot_be_stopped(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If native code does not return, the thread is abandoned or the worker process killed; each try counts."""
    monkeypatch.setattr("dropflow.runners.worker_process._OVERDUE_SECONDS", 0.1)
    monkeypatch.setattr("dropflow.runners.worker_process._CHECK_SECONDS", 0.05)
    # With PyDLL the call holds the interpreter: no thread of the worker can do anything.
    library, seconds = ("CDLL", 3) if runner == "threads" else ("PyDLL", 98765)
    code = f"import ctypes\ndef f():\n    ctypes.{library}(None).sleep({seconds})"
    result = local_run.run(_sleeper(code, tries=2), tmp_path, RunOptions(runner=runner, workers=1))

    assert result.status is SessionState.FAILED
    assert [(failure.text, failure.attempts) for failure in result.failures] == [(LATE, 2)]


@pytest.mark.parametrize("value", ["soon", -1, float("nan"), float("inf"), 1e10])
def test_an_invalid_limit_is_refused(value: object, tmp_path: Path) -> None:
    """The run is refused before it starts, and the error has the invalid value."""
    builder = GraphBuilder("g")
    builder.app("app", component="NullBarrierApp", arguments=(Argument(name="timeout", value=value, type="Float"),))
    with pytest.raises(BadGraphError, match="parameter 'timeout' is") as caught:
        local_run.run(builder.build(), tmp_path)

    assert "parameter 'timeout' is" in str(caught.value.problems)


def test_a_function_argument_called_timeout_is_not_a_limit() -> None:
    """A function with an argument `timeout` has it as an application argument or a port."""

    def limit(**field: Any) -> float:
        fields = (Argument(name="timeout", type="Float", **field),)
        return time_limit(Template(key="a", name="a", kind=Kind.APP, arguments=fields))

    assert limit(value="2.5") == 2.5
    assert limit(value=None) == 0
    assert limit(value="x", parameter_type="ApplicationArgument") == 0
    assert limit(value="x", usage="InputPort") == 0
    with pytest.raises(BadParameterError, match="timeout"):
        limit(value="x")


@pytest.mark.parametrize(
    ("component", "fields", "expected"),
    [
        ("dlg.apps.simple.SleepApp", {}, 0.3),
        ("dlg.apps.bash_shell_app.BashShellApp", {"command": "sleep 3"}, 0.3),
        ("dlg.apps.bash_shell_app.BashShellApp", {"command": "ping -w {timeout} x"}, 0.0),
        ("dlg.apps.bash_shell_app.BashShellApp", {"command": "ping", "argumentPrefix": "--"}, 0.0),
        ("dlg.apps.pyfunc.PyFuncApp", {"func_name": "len"}, 0.0),
        ("dlg.apps.simple.DictGatherApp", {}, 0.0),
        ("dlg.apps.simple.UrlRetrieveApp", {"url": "http://x"}, 0.0),
        ("users.own.App", {}, 0.0),
    ],
)
def test_a_timeout_among_the_application_arguments_limits_attempts(
    component: str, fields: dict[str, str], expected: float
) -> None:
    """It limits the attempts of a built-in application that does not use it itself."""
    timeout = Argument(name="timeout", value=0.3, type="Float", parameter_type="ApplicationArgument")
    others = (Argument(name=name, value=value) for name, value in fields.items())
    template = Template(key="a", name="a", kind=Kind.APP, component=component, arguments=(*others, timeout))

    assert time_limit(with_time_limit(template)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inline", "threads", "processes"])
def test_every_runner_applies_a_limit_among_the_application_arguments(tmp_path: Path, kind: str) -> None:
    """The attempt is stopped with every runner."""
    builder = GraphBuilder("g")
    arguments = (
        Argument(name="sleep_time", value=600.0, type="Float", parameter_type="ApplicationArgument"),
        Argument(name="timeout", value=0.05, type="Float", parameter_type="ApplicationArgument"),
    )
    builder.app("app", component="dlg.apps.simple.SleepApp", arguments=arguments)
    result = local_run.run(builder.build(), tmp_path, RunOptions(runner=kind, workers=1))

    assert [failure.text for failure in result.failures] == [LATE]


# Interrupting the code of an application: where the exception is raised, and where it never is.


def _aborted(bench: Bench, run: Callable[[Context], None], began: threading.Event) -> AttemptResult:
    """Run one attempt that is aborted from another thread once it `began`."""
    executor = bench.build()
    stopper = threading.Thread(target=lambda: (began.wait(), executor.abort(0, 1)))
    stopper.start()
    result = bench.run(run)
    stopper.join()
    return result


def test_python_code_is_interrupted(bench: Bench) -> None:
    """A loop gets the exception, its `finally` runs, and what it wrote is removed."""
    began, cleaned = threading.Event(), threading.Event()

    def compute(ctx: Context) -> None:
        ctx.outputs[0].write(b"x" * 1_000_000)
        try:
            began.set()
            while True:
                pass
        finally:
            cleaned.set()

    result = _aborted(bench, compute, began)

    assert result.failure is not None
    assert (result.failure.kind, result.failure.retryable) == ("Interrupted", False)
    assert cleaned.is_set()
    assert not list((bench.directory / "tmp" / "shm").iterdir())
    assert "Traceback" not in bench.log()


def test_except_exception_does_not_catch_it(bench: Bench) -> None:
    """A loop that survives every `Exception` ends all the same."""
    began = threading.Event()

    def stubborn(_: Context) -> None:
        while True:
            try:
                began.set()
                while True:
                    pass
            except Exception:  # noqa: BLE001, S112 - what many loops of users do
                continue

    result = _aborted(bench, stubborn, began)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"


def test_an_attempt_is_interrupted_once(bench: Bench) -> None:
    """Code that cleans up is not interrupted again by a second abort."""
    began = threading.Event()
    caught: list[BaseException] = []

    def compute(_: Context) -> None:
        try:
            began.set()
            while True:
                pass
        except Interrupted as error:
            caught.append(error)
            assert bench.executor is not None
            bench.executor.abort(0, 1)
            caught.append(Interrupted("cleaned up"))
            raise

    result = _aborted(bench, compute, began)

    assert result.failure is not None
    assert [str(error) for error in caught] == ["", "cleaned up"]


def test_a_line_of_the_log_is_not_interrupted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception comes after the line, also if the abort comes while its file is opened; other threads go on."""
    opened = DropLog._open
    lines: list[str] = []

    def late(log: DropLog) -> FileIO:
        assert bench.executor is not None
        bench.executor.abort(0, 1)
        return opened(log)

    def compute(ctx: Context) -> None:
        try:
            ctx.log("whole")
        finally:
            lines.append(bench.log())
            other = threading.Thread(target=ctx.log, args=("of another thread",))
            other.start()
            other.join()
            ctx.log("cleaned up")

    monkeypatch.setattr(DropLog, "_open", late)
    result = bench.run(compute)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"
    assert lines[0].endswith(" whole\n")
    assert [line.split(" INFO ")[1] for line in bench.log().splitlines()] == [
        "whole",
        "of another thread",
        "cleaned up",
    ]


@pytest.mark.slow
def test_an_import_is_not_interrupted(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception comes after the import: half an import of a compiled module cannot be repeated."""
    monkeypatch.syspath_prepend(tmp_path)
    began = threading.Event()
    monkeypatch.setitem(__import__("sys").modules, "beginning", began)  # type: ignore[arg-type]
    source = "import beginning, time\nbeginning.set()\nfor _ in range(30): time.sleep(0.01)\nis_whole = True\n"
    (tmp_path / "slowly_imported.py").write_text(source)
    whole: list[bool] = []

    def load(_: Context) -> None:
        import slowly_imported  # type: ignore[import-not-found]  # noqa: PLC0415 - made above

        whole.append(slowly_imported.is_whole)
        while True:
            pass

    result = _aborted(bench, load, began)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"
    assert whole == [True]


def test_a_file_is_not_left_open(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort just when the file of an output was opened leaves neither the file nor a descriptor of it."""
    opened = FileWriter._descriptor
    found: list[int] = []

    def late(writer: FileWriter) -> int:
        found.append(opened(writer))
        assert bench.executor is not None
        bench.executor.abort(0, 1)
        return found[0]

    monkeypatch.setattr(FileWriter, "_descriptor", late)
    result = bench.run(lambda ctx: ctx.outputs[0].write(b"x" * 1_000_000) and None)

    assert result.failure is not None
    assert result.failure.kind == "Interrupted"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found[0])
    assert not list((bench.directory / "tmp" / "shm").iterdir())


@pytest.mark.slow
def test_nothing_is_raised_outside_of_the_application(bench: Bench) -> None:
    """Whenever an abort comes, the attempt returns a result, and no exception is left for what its thread does next."""
    executor = bench.build()
    chance = Random(7)
    over = threading.Event()
    attempt = [0]

    def harass() -> None:
        while not over.is_set():
            executor.abort(0, attempt[0])
            over.wait(chance.random() * 2e-4)

    stopper = threading.Thread(target=harass)
    stopper.start()
    kinds: set[str] = set()
    try:
        for number in range(1, 4000):
            attempt[0] = number
            result = bench.run(lambda _: sum(range(chance.randrange(2000))) and None, attempt=number)
            kinds.add("" if result.failure is None else result.failure.kind)
            sum(range(1000))  # what is pending would be raised here
    finally:
        over.set()
        stopper.join()

    assert kinds == {"", "Interrupted"}
