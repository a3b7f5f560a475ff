"""How many threads libraries use in attempts, and who decides that."""

import ctypes
import os
from pathlib import Path

import pytest

from dropflow import Graph, app
from dropflow.runners.capacity import THREAD_VARIABLES, thread_variables

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


def test_what_the_user_has_set_stands() -> None:
    """A variable that is set is left alone; if OMP_NUM_THREADS is set, the user decides about all libraries."""
    found = thread_variables(1, {"MKL_NUM_THREADS": "7"})
    assert set(found) == set(THREAD_VARIABLES) - {"MKL_NUM_THREADS"}
    assert set(found.values()) == {"1"}
    assert thread_variables(1, {"OMP_NUM_THREADS": "3"}) == {}


def test_no_attempt_gets_more_threads_than_there_are_cores() -> None:
    """An attempt that declares more processors than this process may use runs alone, with a thread for each of them."""
    assert set(thread_variables(10_000, {}).values()) == {str(_CORES)}
    assert set(thread_variables(0, {}).values()) == {"1"}


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
