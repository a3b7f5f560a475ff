"""Settings for all tests."""

import gc
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.browser import open_browser

# A shell that starts the tests in the background makes them, and all processes that they start, ignore SIGINT; nohup
# does the same with SIGHUP. Some tests send these signals.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Processes that the tests start need no threads for linear algebra: starting them is a third of the import of numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Until all tests are collected there is no garbage, and looking for it is a sixth of the time.
gc.disable()

# Tests do not assert times, and neither does Hypothesis: machines of continuous integration are sometimes slow.
settings.register_profile("dropflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", deadline=None, suppress_health_check=list(HealthCheck), max_examples=10)
# The same examples in each run, so that a change fails for what it changes; `make exhaustive` has others, and more.
settings.register_profile(
    "test", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30, derandomize=True
)
settings.load_profile("dropflow")
_OWN_SETTINGS = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps the settings of a property; it has no public function that tells them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test have more examples than its profile, but for `make exhaustive`: settings of its own precede that."""
    profile = settings.default
    if settings.get_current_profile_name() == "dropflow" or profile is None:
        return
    for item in items:
        # A property has its settings in itself, a state machine in its class.
        for holder, name in (
            (getattr(item, "function", None), _OWN_SETTINGS),
            (getattr(item, "cls", None), "settings"),
        ):
            own = getattr(holder, name, None)
            if isinstance(own, settings) and own.max_examples > profile.max_examples:
                setattr(holder, name, settings(own, max_examples=profile.max_examples))


def pytest_collection_finish() -> None:
    """Leave the thousands of collected tests out of garbage collections, which would take half a second each."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _leave_modules_out_of_later_collections() -> Iterator[None]:
    """Remove the garbage of a module, and leave what stays out of later collections, which would take a second each."""
    yield
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show why tests failed that passed when `make test` ran them again; pytest shows their names only."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"FAILED AT FIRST: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of a module."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without records of managers and without a key."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    for name in ("DROPFLOW_URL", "DROPFLOW_TOKEN", "DROPFLOW_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


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
