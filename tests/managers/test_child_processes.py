"""Child processes, with real programs."""

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial

import psutil
import pytest

from dropflow.errors import WorldError
from managers.child_processes import ChildProcess, ChildProcesses

_READY = """
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

    processes = [_start(children, _READY, f"n{number}", seen) for number in range(4)]
    urls = [children.wait_ready(process, 30) for process in processes]
    assert threading.active_count() == before
    children.stop(*processes)

    assert urls == [f"http://127.0.0.1:{number}" for number in range(4)]
    assert {(process.name, process.url, None) for process in processes} < set(seen)
    assert {(process.name, process.url, -15) for process in processes} < set(seen)


def test_a_process_ends_with_the_pipe_of_its_parent() -> None:
    """Closing stops all processes and closes all file descriptors."""
    opened = psutil.Process().num_fds()
    other = ChildProcesses()
    process = _start(other, _READY)
    other.wait_ready(process, 30)

    other.close()
    other.close()

    assert process.status == -15
    assert psutil.Process().num_fds() == opened
    with pytest.raises(WorldError, match="child processes have been stopped"):
        other.call(lambda: None)


def test_a_readable_descriptor_ends_the_wait_for_ready_lines() -> None:
    """`wait_ready` raises CancelledError for processes that are starting or start later."""
    reader, writer = os.pipe()
    children = ChildProcesses(cancel=reader)
    first = _start(children, _SILENT)

    os.write(writer, b"x")

    with pytest.raises(CancelledError, match=r"^$"):
        children.wait_ready(first, 30)
    with pytest.raises(CancelledError, match=r"^$"):
        children.wait_ready(_start(children, _SILENT), 30)
    children.close()
    os.close(reader)
    os.close(writer)


@pytest.mark.slow
def test_a_process_that_is_busy_with_its_start_is_waited_for(children: ChildProcesses) -> None:
    """On a loaded machine a start takes longer than usual; a process that does nothing is given up after that time."""
    busy = "import time\nwhile time.process_time() < 0.7: pass\n" + _READY

    assert children.wait_ready(_start(children, busy), 0.5) == "http://127.0.0.1:1"
    with pytest.raises(WorldError, match="not ready within"):
        children.wait_ready(_start(children, _SILENT), 0.5)


def test_a_missing_program_is_an_error(children: ChildProcesses) -> None:
    """Starting it is a WorldError."""
    with pytest.raises(WorldError, match="node cannot be started: No such file"):
        children.call(partial(children.launch, "node", "n1", lambda _: ["/nowhere/at-all"], lambda _: None))
