"""Settings for all tests."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background has them, and all processes that they start, ignore Ctrl-C; nohup does
# the same to hang-ups. Tests that send them need them heard.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests assert no times, and neither does Hypothesis: the machines of a continuous integration are slow when they like.
settings.register_profile("dropflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
