"""Commands of the translator in pipes, and the bytes that they write."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.slow

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def _dropflow(*arguments: object, stdin: bytes = b"", **environment: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "dropflow", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env=os.environ | environment,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_commands_can_be_piped() -> None:
    """``fill | unroll | partition | map`` gives a list of drops, each with its node, and nothing else."""
    filled = _dropflow("fill", NESTED, "--set", "Rows.num_of_copies=3", "-o", "-")
    unrolled = _dropflow("unroll", "-", "-o", "-", stdin=filled)
    parted = _dropflow("partition", "-", "-k", 2, "-o", "-", stdin=unrolled)
    drops = msgspec.json.decode(_dropflow("map", "-", "--nodes", "one,two", "-o", "-", stdin=parted))

    assert {drop["node"] for drop in drops[:-1]} == {"one", "two"}
    assert len(drops) - 1 == len(msgspec.json.decode(unrolled)) - 1


def test_output_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Neither the order of hashes nor the time is in a graph: two processes write the same bytes."""
    written = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}.dfg"
        _dropflow("partition", NESTED, "-k", 3, "-o", file, PYTHONHASHSEED=seed)
        written.append(file.read_bytes())

    assert written[0] == written[1]
