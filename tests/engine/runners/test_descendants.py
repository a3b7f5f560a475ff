"""Finding the descendants of a process."""

import itertools
import os
import subprocess

import psutil
import pytest

from dropflow.runners.descendants import descendants_of


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
