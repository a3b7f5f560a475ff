"""Compare the coverage of packages with their floors: ``python tests/coverage_floors.py``, after ``coverage combine``.

It is the coverage of the tests without the marker ``slow`` (``make coverage``). A floor is three points below the
measured value of its time, since threads and processes take different branches in each run. Raise it when the coverage
of a package has grown.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Percent of lines and branches.
FLOORS: Mapping[str, int] = {
    "dropflow": 79,
    "dropflow.apps": 83,
    "dropflow.builder": 83,
    "dropflow.cli": 64,
    "dropflow.dask": 84,
    "dropflow.dask_tasks": 81,
    "dropflow.data": 85,
    "dropflow.execution": 90,
    "dropflow.reuse": 74,
    "dropflow.runners": 59,
    "dropflow.sessions": 87,
    "dropflow.submission": 89,
    "dropflow.times": 94,
    "dropflow.graph": 94,
    "dropflow.host": 80,
    "dropflow.preview": 73,
    "dropflow.api": 91,
    "dropflow.web": 87,
    "managers": 78,
    "managers.links": 90,
    "managers.node": 70,
    "managers.composite": 85,
    "managers.jobs": 53,
    "managers.recovery": 94,
    "managers.routes": 83,
    "managers.web": 84,
    "palettes": 88,
    "translator": 86,
    "translator.formats": 95,
    "translator.plan": 86,
    "translator.unroll": 95,
    "translator.web": 67,
}


def percentages(files: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the covered percentage of lines and branches of each package with a floor.

    Parameters
    ----------
    files : mapping
        What ``coverage json`` reports of each file.
    """
    found = {}
    for package in FLOORS:
        directory = package.replace(".", "/") + "/"
        summaries = [each["summary"] for path, each in files.items() if path.startswith(directory)]
        parts = sum(each["num_statements"] + each["num_branches"] for each in summaries)
        covered = sum(each["covered_lines"] + each["covered_branches"] for each in summaries)
        found[package] = 100 * covered / parts if parts else 0.0
    return found


def _report() -> Mapping[str, Mapping[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", path], check=True)
        found: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["files"]
        return found


def main() -> int:
    """Print the coverage of each package, and return 1 if one is below its floor."""
    found = percentages(_report())
    for package, percentage in found.items():
        mark = "" if percentage >= FLOORS[package] else "   below its floor"
        print(f"{package:20} {percentage:6.1f} %   floor {FLOORS[package]} %{mark}")  # noqa: T201 - the result
    return int(any(percentage < FLOORS[package] for package, percentage in found.items()))


if __name__ == "__main__":
    sys.exit(main())
