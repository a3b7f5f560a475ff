"""The benchmark of recovery runs, and its report is complete."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

ROOT = Path(__file__).resolve().parents[2]


def test_the_loss_of_a_node_is_measured() -> None:
    """`recovery.py --quick` kills a node; the result stays the same, and no fewer steps run again than have to."""
    command = [sys.executable, str(ROOT / "benchmarks" / "recovery.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (loss,) = report["loss"]
    assert loss["same_result"] is True
    assert (loss["drops"], loss["steps"]) == (400, 200)
    assert 0 < loss["fewest"] <= loss["ran_again"] < loss["steps"]
    assert loss["kill_to_detected_s"] > 0
    assert loss["detected_to_planned_s"] <= loss["detected_to_continued_s"] <= loss["detected_to_end_s"]
    (ready,) = report["readiness"]
    assert all(ready["cpu_s"][name] > 0 for name in ("ready", "unready", "bare"))
    assert ready["to_bare"]["cpu_ratio"]["median"] > 0
    assert [row["drops"] for row in report["decision"]] == [1000, 10000]
    assert all(row["us_per_drop"] > 0 for row in report["decision"])
    assert {name: report[name]["available"] for name in ("dask", "ray")} == {"dask": False, "ray": False}
