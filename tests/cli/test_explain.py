"""``dropflow explain``: the end of a run, told drop by drop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Dropflow = Callable[..., Any]


@pytest.fixture
def strict_run(dropflow: Dropflow, examples: Path, tmp_path: Path) -> Path:
    """A run that failed because its gather tolerates too little."""
    graph = examples / "error-threshold.graph"
    dropflow("run", graph, "--set", "Collect.input_error_threshold=0", "--keep", "run", "--runner", "inline")
    return tmp_path / "run"


def _drop(dropflow: Dropflow, run: Path, name: str) -> str:
    """Text id of the only drop of a logical node."""
    keys = {node["name"]: node for node in dropflow("info", run / "graph.dfg", "--output", "json").json["nodes"]}
    assert keys[name]["drops"] == 1
    unrolled = dropflow("unroll", run / "graph.dfg", "-o", "-", "--format", "json")
    drops = [drop for drop in unrolled.json if drop.get("name") == name]
    return str(drops[0]["oid"])


def test_an_error_is_traced_to_its_root(dropflow: Dropflow, strict_run: Path) -> None:
    """A drop that failed because of another one names that one and its reason, from the journal alone."""
    report = _drop(dropflow, strict_run, "Report")
    answer = dropflow("explain", strict_run, report, "--output", "json").json

    assert (answer["session"], answer["state"]) == ("FAILED", "ERROR")
    assert any("the error started at" in reason for reason in answer["reasons"])
    assert any(reason.startswith("DF105 ") for reason in answer["reasons"])


def test_errors_and_skips_among_inputs_are_counted_apart(dropflow: Dropflow, strict_run: Path) -> None:
    """An application that did not run because of its inputs says how many failed, and what it tolerates."""
    answer = dropflow("explain", strict_run, _drop(dropflow, strict_run, "Collect"), "--output", "json").json

    assert "of its 10 inputs 2 failed and 0 were skipped; it tolerates 0 % of failed inputs" in answer["reasons"]


def test_the_end_of_an_id_is_enough(dropflow: Dropflow, strict_run: Path) -> None:
    """Nobody has to type a whole id where its end tells."""
    report = _drop(dropflow, strict_run, "Report")
    done = dropflow("explain", strict_run, report[-16:])

    assert done.status == 0
    assert done.out.decode().splitlines()[0] == report


def test_an_ending_of_many_drops_is_refused(dropflow: Dropflow, strict_run: Path) -> None:
    """Which drop is meant must be clear; some that fit are named."""
    done = dropflow("explain", strict_run, "_0-3")

    assert done.status == 2
    assert "drops end in '_0-3'" in done.err


def test_a_directory_without_a_run_is_refused(dropflow: Dropflow, tmp_path: Path) -> None:
    """A place where nothing ran is told as such."""
    done = dropflow("explain", tmp_path, "x")

    assert done.status == 2
    assert "graph.dfg" in done.err
