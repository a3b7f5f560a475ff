"""The daemon and its child processes, with small programs that print what managers print."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial

import psutil
import pytest

from dropflow.api.auth import AccessRules
from dropflow.api.bottle_app import make_app
from dropflow.api.http_client import ClientRequest, HttpTransport
from dropflow.api.routes import Limits, StreamSlots
from dropflow.api.serving import RestServer
from dropflow.errors import ConflictError, NotFoundError, UsageError, WorldError
from managers import child_processes
from managers.child_processes import ChildProcess, ChildProcesses
from managers.daemon import Daemon, Kind, command_of, daemon_routes

_READY = """
import json, os, sys
print(json.dumps({"ready": True, "role": sys.argv[1], "url": "http://127.0.0.1:1", "argv": sys.argv[3:]}), flush=True)
os.read(int(sys.argv[2]), 1)
"""
_IGNORING = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _READY
_REFUSING = """
import json
print(json.dumps({"ok": False, "error": {"text": "the port is taken", "hint": "choose another"}}), flush=True)
"""


def _fake(program: str) -> Callable[[Kind, Sequence[str], int], list[str]]:
    return lambda kind, options, parent: [sys.executable, "-c", program, kind, str(parent), *options]


def _until(ready: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if ready():
            return
        pause.wait(0.01)
    raise AssertionError("the condition is still false")


def _runs(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon whose managers print that they are ready and do nothing else."""
    made = Daemon("d", command=_fake(_READY))
    yield made
    made.close()


def test_a_started_manager_is_ready_and_a_stopped_one_is_gone(daemon: Daemon) -> None:
    """`start` returns when the process has printed that it is ready, `stop` when it has ended."""
    started = daemon.start("node")

    assert (started.state, started.url) == ("ready", "http://127.0.0.1:1")
    assert _runs(started.pid)

    assert daemon.stop("node").state == "stopped"
    assert not _runs(started.pid)
    assert daemon.manager("node").pid is None


def test_starting_and_stopping_twice_are_conflicts(daemon: Daemon) -> None:
    """A daemon has at most one manager of each kind."""
    with pytest.raises(ConflictError, match="island manager does not run"):
        daemon.stop("island")
    daemon.start("island")
    with pytest.raises(ConflictError, match="runs already, as process"):
        daemon.start("island")
    with pytest.raises(NotFoundError, match="no manager 'queen'"):
        daemon.start("queen")


def test_a_manager_that_ends_by_itself_is_failed_until_it_is_started(daemon: Daemon) -> None:
    """It is not restarted automatically; its state has the reason, and it can be started again."""
    pid = daemon.start("master").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    _until(lambda: daemon.manager("master").state == "failed")
    assert daemon.manager("master").text == "it was killed by SIGKILL"
    assert daemon.start("master").state == "ready"


def test_a_signal_without_a_name_ends_one_manager_only(daemon: Daemon) -> None:
    """A real-time signal, which Python does not name, is the reason of the failure, and the manager starts again."""
    pid = daemon.start("node").pid
    assert pid is not None
    os.kill(pid, signal.SIGRTMIN + 2)
    _until(lambda: not _runs(pid))
    _until(lambda: daemon.manager("node").state != "ready")

    assert daemon.manager("node").text == f"it was killed by signal {signal.SIGRTMIN + 2}"
    assert daemon.start("node").state == "ready"


def test_the_end_of_a_manager_is_noticed_while_its_output_is_open() -> None:
    """A process that the manager started, and that outlives it, keeps the pipe open."""
    program = "import os, subprocess\nos.set_inheritable(1, True)\nsubprocess.Popen(['sleep', '98761'])\n" + _READY
    daemon = Daemon("d", command=_fake(program))
    pid = daemon.start("master").pid
    assert pid is not None
    left = psutil.Process(pid).children()
    os.kill(pid, signal.SIGKILL)

    _until(lambda: daemon.manager("master").state == "failed")
    daemon.close()
    for each in left:
        each.kill()


def test_the_error_of_a_manager_that_cannot_start() -> None:
    """The error has the text and hint that the manager printed, and the manager is failed."""
    daemon = Daemon("d", command=_fake(_REFUSING))

    with pytest.raises(WorldError, match="the port is taken") as refused:
        daemon.start("node")

    assert refused.value.hint == "choose another"
    assert daemon.manager("node").state == "failed"
    daemon.close()


@pytest.mark.parametrize(
    ("program", "why"),
    [("raise SystemExit(3)", "status 3"), ("print('hello')", "it printed 'hello'")],
    ids=["exit", "chat"],
)
def test_anything_but_a_ready_line_is_a_failure(program: str, why: str) -> None:
    """A process that ends or prints something else is an error."""
    daemon = Daemon("d", command=_fake(program))

    with pytest.raises(WorldError, match=why):
        daemon.start("node")
    assert daemon.manager("node").pid is None


@pytest.mark.slow
def test_a_process_that_is_not_ready_in_time_is_killed() -> None:
    """The error names how long it was waited for."""
    program = "import threading; threading.Event().wait(600)"
    daemon = Daemon("d", command=_fake(program), start_seconds=0.2, stop_seconds=5.0)

    with pytest.raises(WorldError, match=r"not ready within \d"):
        daemon.start("node")
    assert daemon.manager("node").state == "failed"
    assert not [child for child in psutil.Process().children() if program in child.cmdline()]


@pytest.mark.slow
def test_a_process_that_ignores_sigterm_is_killed() -> None:
    """`stop` sends SIGKILL after the time limit."""
    daemon = Daemon("d", command=_fake(_IGNORING), stop_seconds=0.2)
    pid = daemon.start("node").pid

    daemon.stop("node")

    assert not _runs(pid)


@pytest.mark.slow
def test_all_managers_end_with_the_daemon(daemon: Daemon) -> None:
    """`close` leaves no process, and nothing can be started after it."""
    pids = [daemon.start(kind).pid for kind in ("node", "island", "master")]

    daemon.close()
    daemon.close()

    assert not any(_runs(pid) for pid in pids)
    with pytest.raises(ConflictError, match="stopping"):
        daemon.start("node")


def test_children_of_an_island_are_urls() -> None:
    """A name without a port gets the port of nodes; a name that looks like an option is refused."""
    seen: list[Sequence[str]] = []

    def command(kind: Kind, options: Sequence[str], parent: int) -> list[str]:
        seen.append(options)
        return _fake(_READY)(kind, options, parent)

    daemon = Daemon("d", command=command, options={"island": ("--port", "0")})
    daemon.start("island", nodes=("h1", "h2:81", "http://h3:9"))
    daemon.close()

    nodes = ("--nodes", "http://h1:8000", "--nodes", "http://h2:81", "--nodes", "http://h3:9")
    assert tuple(seen[0]) == ("--port", "0", *nodes)
    fresh = Daemon("d")
    for wrong in ("--no-auth", "a b", "", "a,b"):
        with pytest.raises(UsageError, match="not addresses of nodes"):
            fresh.start("island", nodes=(wrong,))
    with pytest.raises(UsageError, match="has no children"):
        fresh.start("node", nodes=("h",))
    fresh.close()


def test_the_command_of_a_manager() -> None:
    """Managers run in the daemon's interpreter and end when its pipe closes."""
    assert command_of("node", ["--port", "0"], 7)[1:] == [
        *("-m", "dropflow", "node", "--output", "json", "--watch-parent", "7", "--port", "0")
    ]


def test_daliuges_paths_and_ours_do_the_same(daemon: Daemon) -> None:
    """DALiuGE's paths answer with process numbers, ours with records."""
    streams = StreamSlots(4)
    app = make_app(daemon_routes(daemon), AccessRules(token=None), Limits())
    server = RestServer(app, streams=streams, stream_limit=4, open_to_all=True)
    server.start()
    try:
        http = HttpTransport(server.url, token=None, secret=None, timeout=60.0)
        start = http.ask(ClientRequest("POST", "/managers/node/start"))
        pid = daemon.manager("node").pid
        assert start == (200, f'{{"pid":{pid}}}'.encode())
        assert (
            http.ask(ClientRequest("GET", "/managers"))[1] == f'{{"master":null,"island":null,"node":{pid}}}'.encode()
        )
        assert b'"state":"ready"' in http.ask(ClientRequest("GET", "/api/v1/managers/node"))[1]
        with pytest.raises(ConflictError, match="runs already"):
            http.ask(ClientRequest("POST", "/api/v1/managers/node/start", body=[b'{"nodes": []}']))
        http.ask(ClientRequest("POST", "/managers/node/stop"))
        assert daemon.manager("node").state == "stopped"
        with pytest.raises(NotFoundError, match="queen"):
            http.ask(ClientRequest("GET", "/managers/queen"))
        http.close()
    finally:
        server.close()


# Child processes, with real programs.


_CHILD_PROCESSES_READY = """
import os, sys
print('{"ready": true, "url": "http://127.0.0.1:%s"}' % sys.argv[2], flush=True)
os.read(int(sys.argv[1]), 1)
"""
_SILENT = "import os, sys; os.read(int(sys.argv[1]), 1)"


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    """The child processes of this process: none."""
    made = ChildProcesses()
    yield made
    made.close()


def _start(children: ChildProcesses, program: str, name: str = "n1", seen: list[object] | None = None) -> ChildProcess:
    def changed(process: ChildProcess) -> None:
        if seen is not None:
            seen.append((process.name, process.url, process.status))

    def command(parent: int) -> list[str]:
        return [sys.executable, "-c", program, str(parent), name[-1]]

    return children.call(partial(children.launch, "node", name, command, changed))


def test_many_processes_need_one_thread(children: ChildProcesses) -> None:
    """One thread starts, awaits and stops all of them, and a change is reported before a wait for it returns."""
    before = threading.active_count()
    seen: list[object] = []

    processes = [_start(children, _CHILD_PROCESSES_READY, f"n{number}", seen) for number in range(4)]
    urls = [children.wait_ready(process, 120) for process in processes]
    assert threading.active_count() <= before  # one of another test may have ended
    children.stop(*processes)

    assert urls == [f"http://127.0.0.1:{number}" for number in range(4)]
    assert {(process.name, process.url, None) for process in processes} < set(seen)
    assert {(process.name, process.url, -15) for process in processes} < set(seen)


def test_a_process_ends_with_the_pipe_of_its_parent() -> None:
    """Closing stops all processes and closes all file descriptors."""
    opened = psutil.Process().num_fds()
    other = ChildProcesses()
    process = _start(other, _CHILD_PROCESSES_READY)
    other.wait_ready(process, 120)

    other.close()
    other.close()

    assert process.status == -15
    assert psutil.Process().num_fds() == opened
    with pytest.raises(WorldError, match="child processes have been stopped"):
        other.call(lambda: None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_is_refused_after_the_thread_has_ended() -> None:
    """No call waits for a thread that a fault has ended: neither a later one, nor one that it has not begun."""
    children = ChildProcesses()
    waiting: Future[None] = Future()
    children._calls.put(None)
    children._calls.put((waiting, lambda: None))
    os.write(children._wake_writer, b"x")
    children._thread.join()

    for call in (waiting.result, lambda: children.call(lambda: None)):
        with pytest.raises(WorldError, match="child processes have been stopped"):
            call()
    children.close()


def test_a_readable_descriptor_ends_the_wait_for_ready_lines() -> None:
    """`wait_ready` raises CancelledError for processes that are starting or start later."""
    reader, writer = os.pipe()
    children = ChildProcesses(cancel=reader)
    first = _start(children, _SILENT)

    os.write(writer, b"x")

    with pytest.raises(CancelledError, match=r"^$"):
        children.wait_ready(first, 120)
    with pytest.raises(CancelledError, match=r"^$"):
        children.wait_ready(_start(children, _SILENT), 120)
    children.close()
    os.close(reader)
    os.close(writer)


@pytest.mark.slow
def test_a_process_that_is_busy_with_its_start_is_waited_for(
    children: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a loaded machine a start takes longer than usual; a process that does nothing is given up after that time."""
    monkeypatch.setattr(child_processes, "_MOST_WAITS", 120)  # that machine may be this one
    busy = "import time\nend = time.monotonic() + 0.7\nwhile time.monotonic() < end: pass\n" + _CHILD_PROCESSES_READY

    assert children.wait_ready(_start(children, busy), 0.5) == "http://127.0.0.1:1"
    with pytest.raises(WorldError, match="not ready within"):
        children.wait_ready(_start(children, _SILENT), 0.5)


def test_a_missing_program_is_an_error(children: ChildProcesses) -> None:
    """Starting it is a WorldError."""
    with pytest.raises(WorldError, match="node cannot be started: No such file"):
        children.call(partial(children.launch, "node", "n1", lambda _: ["/nowhere/at-all"], lambda _: None))
