"""The benchmarks of latency, recovery and streams run, and their reports are complete and consistent."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


ROOT = Path(__file__).resolve().parents[2]


def test_the_latency_of_a_hop_is_the_sum_of_its_parts() -> None:
    """`latency.py --quick` measures all parts of every hop, and their means add up to the mean of the hop."""
    command = [sys.executable, str(ROOT / "benchmarks" / "latency.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)

    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["latency"]
    for place, parts in (
        ("one_node", ("receive", "submit", "start")),
        ("two_nodes", ("send", "wire", "receive", "submit", "start")),
    ):
        (chain,) = report[place]
        whole = chain["completion_to_start"]
        assert chain["hops"] == 49
        assert all(0 <= chain[part]["median_us"] <= whole["p99_us"] for part in parts)
        assert 0 < whole["median_us"] <= chain["start_to_start"]["median_us"]
        assert whole["mean_us"] == pytest.approx(sum(chain[part]["mean_us"] for part in parts), abs=len(parts))


# The benchmark of recovery runs, and its report is complete.


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


# The benchmark of streams runs, and its report is complete.


def test_streams_are_measured_on_one_node_and_on_two() -> None:
    """`streams.py --quick` reports all variants, and all records and bytes arrive."""
    command = [sys.executable, str(ROOT / "benchmarks" / "streams.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (sizes,) = report["throughput"].values()
    ways = {f"{way}_{place}_MB_s" for way in ("stream", "whole") for place in ("one_node", "two_nodes")}
    assert sizes.keys() == ways | {"fetch_MB_s", "bare_MB_s", "ratio_to_bare"}
    assert all(each > 0 for each in sizes.values())
    for place in ("one_node", "two_nodes"):
        times = report["latency"][place]
        assert times["records"] == 50
        assert 0 < times["median_us"] <= times["p99_us"]
