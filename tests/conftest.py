"""Settings for all tests."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background makes them, and all processes that they start, ignore SIGINT; nohup
# does the same with SIGHUP. Some tests send these signals.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests do not assert times, and neither does Hypothesis: machines of continuous integration are sometimes slow.
settings.register_profile("dropflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", deadline=None, suppress_health_check=list(HealthCheck), max_examples=10)
# `make exhaustive` has all examples.
settings.register_profile("test", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
settings.load_profile("dropflow")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    directory = tmp_path / "small"
    directory.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("mounting a small file system needs root")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", directory], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.decode().strip()}")
    yield directory
    subprocess.run([umount, "-l", directory], check=True)
