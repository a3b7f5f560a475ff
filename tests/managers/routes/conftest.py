"""DALiuGE's own client, for the tests of its paths."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def daliuge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with daliuge-common and nothing else. Tests that use it are skipped if it cannot be installed.

    The client works without the forty dependencies of the distribution.
    """
    place = tmp_path_factory.mktemp("daliuge")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run(
            [*pip, "--target", str(place), "daliuge-common"], check=False, capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        pytest.skip("daliuge-common could not be installed in time")
    if done.returncode:
        pytest.skip(f"daliuge-common cannot be installed: {done.stderr[-300:]}")
    return place
