"""How the end of a worker process is told, and what shows that the kernel killed it."""

import ctypes
import errno
import os
import signal
from pathlib import Path

import pytest

from dropflow import Graph, app
from dropflow.failure import Failure
from dropflow.host.processors import THREAD_VARIABLES
from dropflow.runners import worker_process
from dropflow.runners.worker_messages import Marker
from dropflow.runners.worker_process import OomKiller, WorkerEnd, WorkerProcess


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (WorkerEnd(3), "ended with status 3"),
        (WorkerEnd(-signal.SIGSEGV), "was killed by signal 11 (SIGSEGV)"),
        (WorkerEnd(-40), "was killed by signal 40"),
        (
            WorkerEnd(-9, peak=12_000, is_peak_exact=True),
            "was killed by signal 9 (SIGKILL), after using 12.0 kB of memory",
        ),
        (WorkerEnd(-9, peak=1_200_000_000), "was killed by signal 9 (SIGKILL), after using at most 1.2 GB of memory"),
        (WorkerEnd(-9, by_oom_killer=True), "was killed by the kernel's OOM killer (SIGKILL)"),
        (WorkerEnd(-9, is_over=False), "was killed and does not end, because it waits for the kernel"),
        (WorkerEnd(1, output="no module"), "ended with status 1; it printed last: no module"),
    ],
)
def test_the_end_of_a_worker_is_told(end: WorkerEnd, text: str) -> None:
    """Signal by its name, exit status, peak memory, OOM killer, and the end of the output."""
    failure = Failure.of(end.error())

    assert end.text == text
    code = "DF207" if end.by_oom_killer else "DF202"
    assert (failure.text, failure.code) == (f"the worker process {text}", code)
    assert failure.infrastructure
    assert not failure.is_innocent


@pytest.mark.parametrize(
    ("end", "hint"),
    [
        (WorkerEnd(0), "code of the application ended the process"),
        (WorkerEnd(-signal.SIGBUS), "a crash in compiled code"),
        (WorkerEnd(-signal.SIGKILL), "another program killed it, or the kernel"),
        (WorkerEnd(-signal.SIGKILL, by_oom_killer=True), "--workers"),
        (WorkerEnd(-signal.SIGKILL, is_over=False), "a file system or a device does not answer"),
        (WorkerEnd(-signal.SIGTERM), "another program, or the application itself, sent the signal"),
    ],
)
def test_the_hint_follows_the_reason(end: WorkerEnd, hint: str) -> None:
    """Each kind of end has a hint of its own."""
    assert hint in end.error().hint


def _count(path: Path, number: int) -> None:
    path.write_text(f"low 0\noom 7\noom_kill {number}\noom_group_kill 0\n")


def test_a_kill_that_the_control_group_counts_is_told_once(tmp_path: Path) -> None:
    """If the count grows by one, one process was killed by the OOM killer, and the next one was not."""
    counter = tmp_path / "memory.events"
    _count(counter, 3)
    killer = OomKiller([counter], kernel_log=tmp_path / "none")
    before = killer.has_killed(1)
    _count(counter, 4)

    assert [before, killer.has_killed(2), killer.has_killed(3)] == [False, True, False]


def test_a_kill_of_another_process_is_forgotten(tmp_path: Path) -> None:
    """A kill that was counted two checks ago is not the end of a worker that dies now; a later one is."""
    counter = tmp_path / "memory.events"
    _count(counter, 0)
    killer = OomKiller([counter], kernel_log=tmp_path / "none")
    _count(counter, 1)
    killer.check()
    killer.check()
    other = killer.has_killed(1)
    _count(counter, 2)
    killer.check()

    assert [other, killer.has_killed(2)] == [False, True]


def test_a_kill_in_the_log_of_the_kernel_names_its_process(tmp_path: Path) -> None:
    """A record about this process counts; records about others, and those before the watch began, do not."""
    log = tmp_path / "kmsg"
    log.write_text("3,1,2,-;Out of memory: Killed process 41 (python)\n")
    killer = OomKiller((), kernel_log=log)
    with log.open("a") as stream:
        stream.write("3,1,2,-;Memory cgroup out of memory: Killed process 42 (python) total-vm:8kB\n")
    found = [killer.has_killed(pid) for pid in (41, 4)]
    with log.open("a") as stream:
        stream.write("3,1,2,-;Memory cgroup out of memory: Killed process 43 (python) total-vm:8kB\n")
    found.append(killer.has_killed(43))
    killer.close()

    assert found == [False, False, True]


def test_without_counters_and_log_nothing_is_claimed(tmp_path: Path) -> None:
    """Where neither can be read, a kill is a kill."""
    killer = OomKiller([tmp_path / "gone"], kernel_log=tmp_path / "none")
    killer.check()

    assert not killer.has_killed(os.getpid())
    killer.close()


# How many threads libraries use in attempts, and who decides that.


_CORES = len(os.sched_getaffinity(0))


def _blas_threads() -> int:
    """Return the threads of NumPy's OpenBLAS in this process; 0 if it uses another library."""
    import numpy as np  # noqa: F401, PLC0415 - loads the library

    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(library, name):
                return int(getattr(library, name)())
    return 0


@app
def narrow() -> tuple[str, int]:
    """Return what libraries may use in an attempt that declares one processor."""
    return os.environ["OMP_NUM_THREADS"], _blas_threads()


@app(num_cpus=2)
def wide(before: tuple[str, int]) -> tuple[str, int]:
    """Return the same in an attempt that declares two."""
    return os.environ["OMP_NUM_THREADS"], _blas_threads() or before[1]


@app
def narrow_again(before: tuple[str, int]) -> tuple[str, int]:
    """Return the same in a later attempt that declares one processor."""
    return os.environ["OMP_NUM_THREADS"], _blas_threads() or before[1]


@pytest.mark.slow
def test_libraries_use_as_many_threads_as_the_attempt_declares_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker processes start with one thread for each library. One that runs an attempt of two processors has two."""
    pytest.importorskip("threadpoolctl")
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with Graph("threads") as graph:
        first = narrow().set(persist=True)
        second = wide(first).set(persist=True)
        third = narrow_again(second)
    found = graph.run(runner="processes", workers=2, directory=tmp_path / "run")
    threads = min(2, _CORES)
    blas = found.value(first)[1]
    assert blas in (0, 1)
    assert found.value(first) == found.value(third) == ("1", blas)
    assert found.value(second) == (str(threads), threads if blas else 0)


@pytest.mark.parametrize("runner", ["inline", "threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_commands_use_as_many_threads_as_their_node_declares_processors(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell command has the variables also where dropflow leaves the environment of its process alone."""
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    with Graph("threads") as graph:
        found = graph.command(
            "echo $OMP_NUM_THREADS $MKL_NUM_THREADS > {text}", outputs="text", settings={"num_cpus": 2}
        )
    run = graph.run(runner=runner, workers=2, directory=tmp_path / "run")
    assert run.value(found) == f"{min(2, _CORES)} 7\n"
    assert "OMP_NUM_THREADS" not in os.environ


def test_the_shared_page_of_a_worker_has_its_place_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses the start of a worker. A write to a hole in a mapped file ends the process by SIGBUS."""
    mapped = []

    class Mapped(Marker):
        def __init__(self, descriptor: int) -> None:
            mapped.append(os.fstat(descriptor))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(worker_process, "Marker", Mapped)
    with pytest.raises(OSError, match="No space"):
        WorkerProcess(0)

    assert mapped[0].st_size == Marker.SIZE
    assert mapped[0].st_blocks > 0
