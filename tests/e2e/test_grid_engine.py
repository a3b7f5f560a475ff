"""`dropflow launch sge` with a real Grid Engine: a queue master and two hosts in network namespaces. It needs root."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dropflow.graph.codec import save
from tests.e2e.launched import Launched, running_grid_engine
from tests.recovery_graphs import files

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(300)]


@pytest.fixture
def grid_engine(tmp_path: Path) -> Iterator[Launched]:
    """A Grid Engine with two hosts, for one test."""
    with running_grid_engine(tmp_path) as launched:
        yield launched


def test_a_session_goes_on_in_another_job(grid_engine: Launched) -> None:
    """A job on two hosts is deleted, and another job goes on with what is left."""
    marks = grid_engine.home / "marks"
    save(files(marks, 1), grid_engine.home / "g.dfg")
    with grid_engine.started("g.dfg", "--nodes", 2, "--", "-pe", "hosts", 2) as launched:
        grid_engine.until(f"cat {marks} 2>&1", "FIRST")
        grid_engine.shell("qdel $(qstat | awk 'NR > 2 {print $1}')")
        _, notes = launched.communicate(timeout=200)
    first = marks.read_text().split()
    answer = grid_engine.shell(
        "dropflow launch sge dropflow-jobs/* --nodes 2 --output json -o results -- -pe hosts 2 2>&-"
    )
    again = json.loads(answer)
    then = marks.read_text().split()[len(first) :]

    assert launched.returncode in (1, 4), notes
    assert (again["status"], again["nodes"]) == ("FINISHED", ["node-0", "node-1"])
    assert (grid_engine.home / "results" / "files" / "sums.txt").exists()
    assert "SOURCE" not in then  # what was completed is kept
    assert grid_engine.nothing_is_left()
    assert grid_engine.becomes("qstat | wc -l", "0")


def test_what_grid_engine_refuses_and_ends(grid_engine: Launched) -> None:
    """A refused job, several hosts without a parallel environment, and a job that was deleted end in words."""
    refused = grid_engine.shell("dropflow launch sge examples/hello.graph -- -q nowhere", status=2)
    left = list((grid_engine.home / "dropflow-jobs").iterdir())
    many = grid_engine.shell("dropflow launch sge examples/hello.graph --nodes 3 -- -pe hosts 3", status=2)
    alone = grid_engine.shell("dropflow launch sge examples/hello.graph --nodes 2; cat dropflow-jobs/*/output")
    one = grid_engine.shell("dropflow launch sge examples/hello.graph")
    marks = grid_engine.home / "marks"
    save(files(marks, 600), grid_engine.home / "g.dfg")
    with grid_engine.started("g.dfg") as launched:
        grid_engine.until(f"cat {marks}", "SOURCE")
        grid_engine.shell("qdel $(qstat | awk 'NR > 2 {print $1}')")
        _, notes = launched.communicate(timeout=200)

    assert ("error DF118" in refused, 'unknown queue "nowhere"' in refused, left) == (True, True, [])
    assert "error DF118" in many
    assert ("error DF230" in alone, "several hosts need a parallel environment: -- -pe NAME 2" in alone) == (True, True)
    assert "FINISHED" in one
    assert launched.returncode == 1
    assert "goes on with the session" in notes
    assert grid_engine.nothing_is_left()
