"""The latency benchmark runs, and its report is consistent."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_the_latency_of_a_hop_is_the_sum_of_its_parts() -> None:
    """`latency.py --quick` measures all parts of every hop, and their means add up to the mean of the hop."""
    command = [sys.executable, str(ROOT / "benchmarks" / "latency.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)

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
