"""The benchmark of streams runs, and its report is complete."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

ROOT = Path(__file__).resolve().parents[2]


def test_streams_are_measured_on_one_node_and_on_two() -> None:
    """`streams.py --quick` reports all variants, and all records and bytes arrive."""
    command = [sys.executable, str(ROOT / "benchmarks" / "streams.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)

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
