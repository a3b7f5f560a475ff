"""Cancelling a run: Python functions, programs and compiled code in real worker processes and threads."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from dropflow.clock import SystemClock
from dropflow.engine.session import Session
from dropflow.engine.statistics import SessionResult
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.sessions import local_run
from dropflow.states import SessionState
from dropflow.stopping import kill_after, stopped_after

pytestmark = pytest.mark.slow

_FUNCTION = """
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


def _function(body: str, directory: Path) -> PhysicalGraph:
    builder = GraphBuilder("long")
    code = _FUNCTION.format(body=body, files=directory / "files")
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

    result = local_run.run(graph, directory=directory, runner=runner, workers=1, on_session=watch)
    assert clock.monotonic() - asked[0] < _PATIENCE, "the run ended by its own time"
    assert result.status is SessionState.CANCELLED
    assert result.states["CANCELLED"] == 2
    return result


@pytest.mark.parametrize("body", ["while True: pass", "time.sleep(98765)"], ids=["computes", "sleeps"])
def test_a_python_function_is_interrupted(body: str, tmp_path: Path) -> None:
    """Its `finally` runs, long before the grace period is over."""
    _cancelled(_function(body, tmp_path), tmp_path, grace=10_000.0)

    assert (tmp_path / "files" / "cleaned").exists()


@pytest.mark.parametrize("runner", ["threads", "inline"])
def test_a_python_function_in_this_process_is_interrupted(runner: str, tmp_path: Path) -> None:
    """Threads of this process get the exception too."""
    _cancelled(_function("while True: pass", tmp_path), tmp_path, grace=10_000.0, runner=runner)

    assert (tmp_path / "files" / "cleaned").exists()


@pytest.mark.parametrize("call", ["PyDLL(None).sleep(98765)", "CDLL(None).sem_wait(ctypes.create_string_buffer(64))"])
def test_compiled_code_is_killed_after_the_grace_period(call: str, tmp_path: Path) -> None:
    """Whether it holds the interpreter or not, it sees no exception, so its worker process is killed."""
    loop = f"while True: ctypes.{call}" if call.startswith("Py") else f"ctypes.{call}"
    _cancelled(_function(loop, tmp_path), tmp_path, grace=0.5)

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
    _cancelled(_function(body, tmp_path), tmp_path, grace=0.2)

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

    def stop() -> None:
        begun = tmp_path / "files" / "has-begun"
        while not begun.exists():
            threading.Event().wait(0.005)
        os.kill(int(begun.read_text()), signal.SIGSTOP)

    threading.Thread(target=stop, daemon=True).start()
    _cancelled(_function("time.sleep(98765)", tmp_path), tmp_path, grace=0.3)
