"""Worker processes that end in the middle of their work, in whole runs with real processes."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil
import pytest

from dropflow import Graph
from dropflow.clock import SystemClock
from dropflow.execution.journal import read, replay
from dropflow.execution.session import Session
from dropflow.execution.statistics import SessionResult, Statistics
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import save
from dropflow.graph.physical import PhysicalGraph, without_fusion
from dropflow.graph.templates import Argument, ResourceNeeds, with_more_memory
from dropflow.host.descendants import WORKER_VARIABLE
from dropflow.host.memory import counter_files
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import DropState, SessionState
from dropflow.stopping import kill_after, stopped_after
from dropflow.testing.drawing import row
from dropflow.times.octets import TIMES_FILE, read_times
from tests.nightly import nightly

pytestmark = pytest.mark.slow


_MEMORY = "dlg.data.drops.memory.InMemoryDROP"
_FUNCTION = "dlg.apps.pyfunc.PyFuncApp"


def functions(**bodies: str) -> PhysicalGraph:
    """Return a graph of Python functions without inputs, given by the bodies of `f`, with one memory drop each."""
    builder = GraphBuilder("functions")
    for name, body in bodies.items():
        _function(builder, name, f"import ctypes, os, time\ndef f():\n    {body}", name.lower())
    return builder.build()


def _function(builder: GraphBuilder, name: str, code: str, target: str, source: str = "") -> None:
    arguments = [Argument(name="func_name", value="f"), Argument(name="func_code", value=code)]
    if source:
        arguments.append(Argument(name="x", usage="InputPort"))
    builder.app(name, component=_FUNCTION, category="PyFuncApp", arguments=tuple(arguments))
    builder.data(target, component=_MEMORY, category="Memory")
    builder.connect(name, target)
    if source:
        builder.connect(source, name, target_port="x")


_NO_HOOKS = RunHooks()


def run(graph: PhysicalGraph, directory: Path, hooks: RunHooks = _NO_HOOKS, **options: Any) -> SessionResult:
    """Run a graph in two worker processes, with checks after every step."""
    return local_run.run(graph, directory, RunOptions(**{"workers": 2, "check": True, **options}), hooks=hooks)


def contents(directory: Path) -> dict[str, bytes]:
    """Return the results of a run by their file names."""
    return {path.name: path.read_bytes() for path in (directory / "results").iterdir()}


def attempts(graph: PhysicalGraph, directory: Path) -> dict[str, int]:
    """Return the number of the last attempt of each application that had more than one."""
    drops = replay(graph, directory / "journal.dfj").core.drops
    return {graph.templates[graph.template[drop]].name: number for drop, number in drops.attempts.items()}


def commits(directory: Path) -> Counter[int]:
    """Return how often the journal has a content of each drop."""
    _, entries = read(directory / "journal.dfj")
    return Counter(drop for entry in entries for drop in entry.contents)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("ctypes.string_at(0)", "killed by signal 11 (SIGSEGV)"),
        ("os._exit(3)", "ended with status 3"),
        pytest.param("os.abort()", "killed by signal 6 (SIGABRT)", marks=pytest.mark.exhaustive),
        pytest.param("os.kill(os.getpid(), 9)", "killed by signal 9 (SIGKILL)", marks=pytest.mark.exhaustive),
    ],
)
def test_an_application_that_ends_its_workers_fails_alone(body: str, reason: str, tmp_path: Path) -> None:
    """It is named with how often and how; each of a hundred others completes, at its first or second attempt."""
    graph = functions(**{f"FINE{number}": f"return {number}" for number in range(100)}, CULPRIT=body)
    result = run(graph, tmp_path, infrastructure_retries=2)
    (failure,) = result.failures

    assert result.states == {"COMPLETED": 200, "ERROR": 2, "SKIPPED": 0}
    assert failure.text.startswith("application 'CULPRIT' ended its worker process 3 times; the last time, ")
    assert reason in failure.text
    assert " of memory" in failure.text
    assert (failure.code, failure.attempts, result.infrastructure_faults) == ("DF202", 3, 3)
    assert Path(failure.log).read_text().count(reason) == 3
    assert len(contents(tmp_path)) == 100
    assert set(commits(tmp_path).values()) == {1}
    # Results that were lost with the first process are computed again; afterwards the culprit had its own.
    again = attempts(graph, tmp_path)
    assert again.pop("CULPRIT") == 3
    assert set(again.values()) <= {2}


def test_an_application_that_ends_its_worker_once_finishes(tmp_path: Path) -> None:
    """Without a try left, an attempt is repeated whose worker was ended, and the session says so in a note."""
    graph = functions(
        ONCE=f"os.path.exists({str(tmp_path / 'mark')!r}) or (open({str(tmp_path / 'mark')!r}, 'w'), "
        "os._exit(3)); return 1"
    )
    result = run(graph, local_run.prepare_directory(tmp_path / "run"))

    assert (result.status, result.notes) == (SessionState.FINISHED, ("1 infrastructure fault",))
    assert attempts(graph, tmp_path / "run") == {"ONCE": 2}


def test_a_worker_that_dies_after_an_attempt_is_blamed_on_it(tmp_path: Path) -> None:
    """An application whose thread ends the process later is repeated in a worker of its own, and others complete."""
    later = "import threading; threading.Timer(0.005, os._exit, (4,)).start(); return 1"
    graph = functions(LATER=later, **{f"FINE{number}": f"time.sleep(0.002); return {number}" for number in range(50)})
    result = run(graph, tmp_path)

    assert result.status is SessionState.FINISHED
    assert len(contents(tmp_path)) == 51
    assert set(commits(tmp_path).values()) == {1}


@pytest.mark.parametrize("runner", ["inline", "threads"])
def test_other_runners_have_no_infrastructure_faults(runner: str, tmp_path: Path) -> None:
    """In threads and inline an exception is a failure of the application, as before."""
    result = local_run.run(functions(FAILS="raise MemoryError"), tmp_path, RunOptions(runner=runner))

    assert (result.failures[0].attempts, result.infrastructure_faults, result.notes) == (1, 0, ())


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_CPU"])
def test_a_process_limit_is_told_by_its_effect(limit: str, tmp_path: Path) -> None:
    """Memory over the limit is a MemoryError of the application; time over the limit ends the process, by SIGXCPU."""
    bodies = {
        "RLIMIT_AS": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 31)); bytes(1 << 32)",
        "RLIMIT_CPU": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 9)); [0 for _ in iter(int, 1)]",
    }
    result = run(functions(GREEDY=bodies[limit]), tmp_path, infrastructure_retries=0)
    (failure,) = result.failures

    assert (failure.code, failure.kind) == (
        ("DF207", "MemoryError") if limit == "RLIMIT_AS" else ("DF202", failure.kind)
    )
    assert ("MemoryError" if limit == "RLIMIT_AS" else "SIGXCPU") in failure.text


def _pairs(count: int) -> PhysicalGraph:
    """Return `count` pairs of functions: the first writes up to 200 kB, the second a number made from that."""
    builder = GraphBuilder("pairs")
    for number in range(count):
        make = f"import time\ndef f():\n    time.sleep(0.004)\n    return '{number} ' * {number % 20} * 2000"
        _function(builder, f"MAKE{number}", make, f"text{number}")
        _function(builder, f"TAKE{number}", "def f(x):\n    return len(x)", f"length{number}", f"text{number}")
    return builder.build()


class _Killer:
    """Kills a random worker of this process at a random moment after each progress of a session."""

    def __init__(self, seed: int) -> None:
        self.killed = 0
        self._chance = random.Random(seed)
        self._progress, self._over = threading.Event(), threading.Event()
        self._settled = 0
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._progress.set()
        self._thread.join()

    def note(self, statistics: Statistics) -> None:
        """Take the statistics of the session."""
        if statistics.settled >= self._settled + 20:
            self._settled = statistics.settled
            self._progress.set()

    def _work(self) -> None:
        while self._progress.wait() and not self._over.wait(self._chance.uniform(0, 0.05)):
            self._progress.clear()
            try:
                workers = [child for child in psutil.Process().children() if WORKER_VARIABLE in child.environ()]
                self._chance.choice(workers).kill()
            except (psutil.Error, IndexError):
                continue
            self.killed += 1


@pytest.mark.parametrize("seed", [0, *nightly(1)])
def test_random_kills_change_nothing(seed: int, tmp_path: Path) -> None:
    """While random workers are killed at random moments, hundreds of applications give what they give without."""
    graph = _pairs(200)
    with _Killer(seed) as killer:
        result = run(graph, local_run.prepare_directory(tmp_path / "run"), RunHooks(on_statistics=killer.note))
    local_run.run(graph, local_run.prepare_directory(tmp_path / "undisturbed"), RunOptions(runner="inline"))

    assert killer.killed, "a fast machine leaves little time, but some"
    assert result.status is SessionState.FINISHED, result.failures[:3]
    assert contents(tmp_path / "run") == contents(tmp_path / "undisturbed")
    assert commits(tmp_path / "run") == dict.fromkeys((row for row in range(graph.drops) if not _is_app(graph, row)), 1)
    assert result.infrastructure_faults <= killer.killed, "only one attempt is blamed for each death"


def _is_app(graph: PhysicalGraph, row: int) -> bool:
    return bool(graph.templates[graph.template[row]].kind)


def test_a_stopped_worker_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stays stopped is killed; its attempt is repeated, and the session finishes."""
    monkeypatch.setattr("dropflow.runners.worker_process._STOPPED_SECONDS", 0.2)
    monkeypatch.setattr("dropflow.runners.worker_process._CHECK_SECONDS", 0.05)
    mark = tmp_path / "mark"
    once = f"os.path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w'), os.kill(os.getpid(), {int(signal.SIGSTOP)}))"
    graph = functions(STOPPED=f"{once}; return 1", **{f"FINE{number}": "return 2" for number in range(50)})
    result = run(graph, local_run.prepare_directory(tmp_path / "run"))

    assert (result.status, result.infrastructure_faults) == (SessionState.FINISHED, 1)
    assert attempts(graph, tmp_path / "run")["STOPPED"] == 2


def test_a_timeout_is_a_failure_of_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code that holds the interpreter past its timeout: the worker is killed, and one try is used up."""
    monkeypatch.setattr("dropflow.runners.worker_process._OVERDUE_SECONDS", 0.2)
    monkeypatch.setattr("dropflow.runners.worker_process._CHECK_SECONDS", 0.05)
    builder = GraphBuilder("hang")
    code = "import ctypes\ndef f():\n    ctypes.PyDLL(None).usleep(60_000_000)"
    arguments = (
        Argument(name="func_name", value="f"),
        Argument(name="func_code", value=code),
        Argument(name="timeout", value="0.2", type="Float", parameter_type="ComponentParameter"),
    )
    builder.app("HANG", component=_FUNCTION, category="PyFuncApp", arguments=arguments, tries=2)
    builder.data("none", component=_MEMORY, category="Memory").connect("HANG", "none")
    result = run(builder.build(), tmp_path)
    (failure,) = result.failures

    assert (failure.code, failure.attempts, result.infrastructure_faults) == ("DF110", 2, 0)


_BEYOND = """
import sys, dask.array as da, dropflow.dask
with dropflow.dask.scheduler(runner=sys.argv[1], workers=2):
    x = da.random.default_rng(1).random((120, 625_000), chunks=(1, 625_000))
    print(round(float(((x - x.mean(axis=0)) ** 2).mean().compute()), 2))
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group whose processes may use 300 MB together."""
    own = counter_files()
    if not own:
        pytest.skip("there is no control group with a count of kills")
    group = own[0].parent / f"dropflow-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.max" if own[0].name == "memory.events" else "memory.limit_in_bytes")).write_text("300M")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group can be made: {error}")
    yield group
    group.rmdir()


def _inside(group: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a control group."""
    inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
    return subprocess.run(inside, capture_output=True, check=False, text=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("runner", ["processes", "threads"])
def test_contents_beyond_the_memory_of_a_control_group_go_to_the_disk(small_group: Path, runner: str) -> None:
    """Arrays of 600 MB that are needed twice, in a group of 600 MB: right, and the kernel kills no process."""
    pytest.importorskip("dask.array")
    limit = next(one for name in ("memory.max", "memory.limit_in_bytes") if (one := small_group / name).exists())
    limit.write_text("600M")
    done = _inside(small_group, sys.executable, "-c", _BEYOND, runner)
    counts = [re.search(r"oom_kill (\d+)", one.read_text()) for one in [small_group / counter_files()[0].name]]

    assert done.stdout == "0.08\n", done.stderr
    assert [count and count[1] for count in counts] == ["0"]


def test_the_oom_killer_is_named(small_group: Path, tmp_path: Path) -> None:
    """Of an application that uses up the memory of its control group, the reason names the OOM killer."""
    save(functions(GREEDY="x = []\n    while True: x.append(bytes(1 << 20) + b'x' * (1 << 20))"), tmp_path / "g.dfg")
    options = ("--workers", "1", "--infrastructure-retries", "1")
    command = (sys.executable, "-m", "dropflow", "run", str(tmp_path / "g.dfg"), "--keep", str(tmp_path / "run"))
    answer = msgspec.json.decode(_inside(small_group, *command, "--output", "json", *options).stdout)

    assert answer["status"] == "FAILED", answer
    text = answer["failures"][0]["text"]
    assert "had too little memory 2 times" in text
    assert "killed by the kernel's OOM killer" in text
    assert small_group.name in answer["failures"][0]["hint"]
    assert answer["infrastructure_faults"] == 2


def test_memory_grows_by_a_factor_up_to_what_there_is() -> None:
    """What declares none gets all at once."""
    declared = ResourceNeeds(1, 3.0)
    found = [with_more_memory(declared, faults, 2.0, 10.0).memory for faults in range(4)]

    assert found == [3.0, 6.0, 10.0, 10.0]
    assert with_more_memory(ResourceNeeds(), 1, 2.0, 10.0).memory == 10.0
    assert with_more_memory(declared, 3, 0.0, 10.0) == declared


@pytest.mark.parametrize("runner", ["inline", "threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_an_attempt_with_too_little_memory_is_repeated_with_more(runner: str, tmp_path: Path) -> None:
    """With --retry-memory it runs again with all memory, as its log says, and fails if that is too little, too."""
    (tmp_path / "tries").mkdir()
    once = f"try: os.mkdir('{tmp_path}/tries/1')\n    except OSError: return 7\n    raise MemoryError"
    graph = functions(ONCE=once, EVER="raise MemoryError")
    result = run(graph, tmp_path / "run", runner=runner, retry_memory=2.0)

    (failure,) = result.failures
    assert attempts(graph, tmp_path / "run") == {"ONCE": 2, "EVER": 2}
    assert (failure.name, failure.code, result.infrastructure_faults) == ("EVER", "DF207", 2)
    (log,) = (tmp_path / "run" / "logs").glob("*ONCE*.log")
    assert re.search(r"it has .* of memory, because an earlier attempt had too little", log.read_text())


def test_a_command_that_the_oom_killer_ends_is_repeated_with_more_memory(small_group: Path, tmp_path: Path) -> None:
    """The kernel ends the largest process, which is the command and not its worker: it is told apart from a kill."""
    with Graph("greedy") as graph:
        graph.command("head -c 900M /dev/zero | tail -c 900M > {text}; exit ${PIPESTATUS[1]}", outputs="text")
    save(graph.translate().graph, tmp_path / "g.dfg")
    command = (sys.executable, "-m", "dropflow", "run", str(tmp_path / "g.dfg"), "--keep", str(tmp_path / "run"))
    done = _inside(small_group, *command, "--output", "json", "--retry-memory", "2x", "--workers", "1")
    answer = msgspec.json.decode(done.stdout)
    (failure,) = answer["failures"]

    assert (failure["code"], failure["attempts"], answer["infrastructure_faults"]) == ("DF207", 2, 1)
    assert "the command was ended by the kernel's OOM killer" in failure["text"]


# Cancelling a run: Python functions, programs and compiled code in real worker processes and threads.


_CANCEL_FUNCTION = """
def f():
    import ctypes, os, time
    try:
        with open("{files}/began", "w") as file:
            file.write(str(os.getpid()))
        os.rename("{files}/began", "{files}/has-begun")
        {body}
    finally:
        open("{files}/cleaned", "w").close()
"""
_PATIENCE = 60.0


def _cancel_function(body: str, directory: Path) -> PhysicalGraph:
    builder = GraphBuilder("long")
    code = _CANCEL_FUNCTION.format(body=body, files=directory / "files")
    arguments = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    builder.app("long", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=arguments)
    builder.data("out", component="dlg.data.drops.memory.InMemoryDROP", category="Memory")
    builder.connect("long", "out")
    return builder.build()


def _program(command: str) -> PhysicalGraph:
    builder = GraphBuilder("long")
    arguments = (Argument(name="command", value=command, parameter_type="ComponentParameter"),)
    builder.app("long", component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=arguments)
    builder.data("out", component="dlg.data.drops.memory.InMemoryDROP", category="Memory")
    builder.connect("long", "out")
    return builder.build()


def _cancelled(graph: PhysicalGraph, directory: Path, grace: float, runner: str = "processes") -> SessionResult:
    """Run a graph, and cancel it once its application has begun."""
    asked: list[float] = []
    clock, pause = SystemClock(), threading.Event()

    def cancel(session: Session) -> None:
        deadline = clock.monotonic() + _PATIENCE
        while not (directory / "files" / "has-begun").exists() and clock.monotonic() < deadline:
            pause.wait(0.01)
        asked.append(clock.monotonic())
        session.cancel("enough", grace)

    def watch(session: Session) -> None:
        threading.Thread(target=cancel, args=[session], daemon=True).start()

    result = local_run.run(graph, directory, RunOptions(runner=runner, workers=1), hooks=RunHooks(on_session=watch))
    assert clock.monotonic() - asked[0] < _PATIENCE, "the run ended by its own time"
    assert result.status is SessionState.CANCELLED
    assert result.states["CANCELLED"] == 2
    return result


@pytest.mark.parametrize("body", ["while True: pass", "time.sleep(98765)"], ids=["computes", "sleeps"])
def test_a_python_function_is_interrupted(body: str, tmp_path: Path) -> None:
    """Its `finally` runs, long before the grace period is over."""
    _cancelled(_cancel_function(body, tmp_path), tmp_path, grace=10_000.0)

    assert (tmp_path / "files" / "cleaned").exists()


@pytest.mark.parametrize("runner", ["threads", "inline"])
def test_a_python_function_in_this_process_is_interrupted(runner: str, tmp_path: Path) -> None:
    """Threads of this process get the exception too."""
    _cancelled(_cancel_function("while True: pass", tmp_path), tmp_path, grace=10_000.0, runner=runner)

    assert (tmp_path / "files" / "cleaned").exists()


@pytest.mark.parametrize("call", ["PyDLL(None).sleep(98765)", "CDLL(None).sem_wait(ctypes.create_string_buffer(64))"])
def test_compiled_code_is_killed_after_the_grace_period(call: str, tmp_path: Path) -> None:
    """Whether it holds the interpreter or not, it sees no exception, so its worker process is killed."""
    loop = f"while True: ctypes.{call}" if call.startswith("Py") else f"ctypes.{call}"
    _cancelled(_cancel_function(loop, tmp_path), tmp_path, grace=0.5)

    assert not psutil.pid_exists(int((tmp_path / "files" / "has-begun").read_text()))


def test_code_that_catches_the_exception_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    """A function that swallows everything does not keep its session from ending."""
    body = """
        while True:
            try:
                while True: pass
            except BaseException:
                pass
"""
    _cancelled(_cancel_function(body, tmp_path), tmp_path, grace=0.2)

    assert not (tmp_path / "files" / "cleaned").exists()
    assert kill_after(0.2) < stopped_after(0.2)


def test_programs_that_ignore_sigterm_are_killed_with_their_group(tmp_path: Path) -> None:
    """SIGTERM reaches all processes of a shell tree, and after the grace period SIGKILL does."""
    trap = "trap 'echo TERM >> terms' TERM"
    deaf = f"{trap}; echo $BASHPID >> pids; [ -e go ] && mv go has-begun; while :; do sleep 0.05; done"
    _cancelled(_program(f"touch go; ( ( {deaf} ) & {deaf} ) & {deaf}"), tmp_path, grace=1.0)
    pids = [int(line) for line in (tmp_path / "files" / "pids").read_text().split()]

    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert "TERM" in (tmp_path / "files" / "terms").read_text()


def test_programs_clean_up_at_sigterm(tmp_path: Path) -> None:
    """A program that ends by itself is not killed, and the shell around it neither."""
    command = "trap 'echo done > cleaned; exit' TERM; touch has-begun; while :; do sleep 0.05; done"
    _cancelled(_program(command), tmp_path, grace=10_000.0)

    assert (tmp_path / "files" / "cleaned").read_text() == "done\n"


def test_a_stopped_worker_is_killed(tmp_path: Path) -> None:
    """A worker process that was stopped by SIGSTOP cannot react; it is killed after the grace period."""
    stop = "os.kill(os.getpid(), 19); time.sleep(98765)"
    _cancelled(_cancel_function(stop, tmp_path), tmp_path, grace=0.3)


# Chains of applications in real worker processes: one worker, faults of the right application, limits of each.


_STEP = "import os, time, signal\ndef f(x=b''):\n    {}\n    return bytes(x) + b'%d ' % os.getpid()"
_DIE_ONCE = "if not os.path.exists('died'): open('died', 'w').close(); os.kill(os.getpid(), signal.SIGKILL)"


def drawn(**fields: tuple[str, float]) -> PhysicalGraph:
    """Return chains of four functions that append their process to what they get.

    Parameters
    ----------
    **fields : tuple of str and float
        By the name of an application: what it does first, and how long an attempt may take.
    """
    builder = GraphBuilder("drawing")
    for chain in ("A", "B", "C"):
        for number in range(4):
            name, (first, limit) = f"{chain}{number}", fields.get(f"{chain}{number}", ("pass", 0.0))
            arguments = (
                Argument(name="func_name", value="f"),
                Argument(name="func_code", value=_STEP.format(first)),
                Argument(name="timeout", value=limit),
                Argument(name="x", usage="InputPort", encoding="binary"),
                Argument(name="y", usage="OutputPort", encoding="binary"),
            )
            builder.app(name, component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=arguments)
            builder.data(f"d{name}", component=_MEMORY, category="Memory")
            builder.connect(name, f"d{name}", source_port="y")
            if number:
                builder.connect(f"d{chain}{number - 1}", name, target_port="x")
    return builder.build()


def test_chains_in_worker_processes(tmp_path: Path) -> None:
    """A chain stays in one worker; each drop has its time and state; faults and limits are those of one application.

    The worker of the second chain dies in its third application, which then runs alone; so the two before it, whose
    results were not sent, run again. In the third chain an application takes longer than it may.
    """
    graph = drawn(B2=(_DIE_ONCE, 0.0), C1=("time.sleep(60)", 0.5))
    result = local_run.run(graph, tmp_path / "fused", RunOptions(workers=2, check=True))
    processes = {name.split("_")[1]: body.split() for name, body in contents(tmp_path / "fused").items()}
    drops = replay(graph, tmp_path / "fused" / "journal.dfj").core.drops
    times = read_times(tmp_path / "fused" / TIMES_FILE)

    assert result.status is SessionState.FAILED
    assert [(failure.drop, failure.code) for failure in result.failures] == [("drawing_C1_0", "DF110")]
    assert len(set(processes["dA3"])) == 1
    assert len(processes["dB3"]) == 4
    assert result.infrastructure_faults == 1
    assert drops.faults == {row(graph, "B2"): 1}
    states = [drops.state(row(graph, f"C{number}")) for number in range(4)]
    assert states == [DropState.COMPLETED, *[DropState.ERROR] * 3]
    done = times[times["attempt"] > 0]
    assert {row(graph, f"A{number}") for number in range(4)} <= set(done["drop"].tolist())
    assert (times["queued"] >= 0).all()


def test_the_same_without_chains(tmp_path: Path) -> None:
    """A graph with the note against chains has the same results."""
    graph = drawn(B2=(_DIE_ONCE, 0.0))
    result = local_run.run(without_fusion(graph), tmp_path / "apart", RunOptions(workers=2, check=True))

    assert result.status is SessionState.FINISHED
    assert [len(body.split()) for body in contents(tmp_path / "apart").values()] == [4, 4, 4]
