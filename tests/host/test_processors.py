"""The variables for libraries that compute in threads, GPUs that are claimed, and the descendants of a process."""

import itertools
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from dropflow.host.descendants import descendants_of
from dropflow.host.gpus import GPU_VARIABLE, claimed_gpus, host_gpus, restrict_gpus
from dropflow.host.processors import THREAD_VARIABLES, thread_variables, usable_cores


def test_what_the_user_has_set_stands() -> None:
    """A variable that is set is left alone; if OMP_NUM_THREADS is set, the user decides about all libraries."""
    found = thread_variables(1, {"MKL_NUM_THREADS": "7"})
    assert set(found) == set(THREAD_VARIABLES) - {"MKL_NUM_THREADS"}
    assert set(found.values()) == {"1"}
    assert thread_variables(1, {"OMP_NUM_THREADS": "3"}) == {}


def test_no_attempt_gets_more_threads_than_there_are_cores() -> None:
    """An attempt that declares more processors than this process may use runs alone, with a thread for each of them."""
    assert set(thread_variables(10_000, {}).values()) == {str(usable_cores())}
    assert set(thread_variables(0, {}).values()) == {"1"}


def test_gpus_that_two_nodes_give_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second node manager of the same host learns which GPUs the first one gives, until that ends."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(GPU_VARIABLE, "0,GPU-1a/2")
    host_gpus.cache_clear()
    with claimed_gpus() as first:
        restrict_gpus("GPU-1a/2,7")
        with claimed_gpus() as second:
            assert (first, second) == ((), ("GPU-1a/2",))
    with claimed_gpus() as third:
        assert third == ()
    host_gpus.cache_clear()


def test_children_are_found_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child counts although it seems to be older than its parent; a child of a child does, too."""
    booted, seconds = psutil.boot_time(), itertools.count()
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted - next(seconds))
        found = {each.pid for each in descendants_of(os.getpid())}
        monkeypatch.undo()
        for pid in (sleeper, shell.pid):
            psutil.Process(pid).kill()

    assert {shell.pid, sleeper} <= found
