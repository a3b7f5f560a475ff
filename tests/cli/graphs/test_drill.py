"""``dropflow drill``: graphs and runs on simulated nodes that fail."""

from pathlib import Path

import pytest

from tests.cli.answers import Command

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "imaging.graph"


@pytest.mark.slow
def test_the_answer_has_ends_repeated_work_copies_and_changes(dropflow: Command) -> None:
    """JSON has what the table has: the distribution beside the plan, and what would change it."""
    faults = ("--lose", "any", "--slow", "#1=0.5", "--walltime", "10m")

    found = dropflow("drill", EXAMPLE, "--nodes", "3x4", *faults, "--seeds", 4, "--output", "json").json

    assert found["undisturbed_s"] == pytest.approx(found["planned_s"], rel=0.1)
    assert found["planned_s"] < found["end_s"]["least"] <= found["end_s"]["median"] <= found["end_s"]["most"]
    assert (found["seeds"], found["ended"], found["in_time"], found["cores"]) == (4, 4, 4, 12)
    assert [one["change"] for one in found["changes"]] == ["a copy of each content", "a node like #2"]
    assert found["single_copies"][0]["recompute_s"] > 0


@pytest.mark.slow
def test_a_run_is_drilled_with_its_times_and_shown_on_a_page(dropflow: Command, tmp_path: Path) -> None:
    """The graph and the times of a run are taken from its directory; the page has the picture, and no scripts."""
    assert dropflow("run", EXAMPLE, "--keep", "measured").status == 0
    faults = ("--lose", "#1@50%", "--protect", "1s")

    answer = dropflow("drill", "measured", "--nodes", "2x2", *faults, "--seeds", 2, "-o", "drill.html")

    assert answer.status == 0
    page = (tmp_path / "drill.html").read_text()
    assert page.count("<svg") == 1
    assert "<script" not in page
    assert "What would change" in page
    assert "not worked out with --protect" in page


@pytest.mark.slow
def test_a_graph_on_standard_input_or_without_a_suffix_is_no_session(dropflow: Command, tmp_path: Path) -> None:
    """GRAPH is a file of any name, or - for standard input, as for other commands."""
    (tmp_path / "graph").write_bytes(EXAMPLE.read_bytes())

    for name in ("graph", "-"):
        answer = dropflow("drill", name, "--nodes", 2, "--seeds", 1, "--output", "json", stdin=EXAMPLE.read_bytes())
        assert answer.json["seeds"] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--lose", "x@50%"), "there is no node 'x'"),
        (("--lose", "#1@soon"), "neither a share nor a duration"),
        (("--cut", "#0"), "names no two groups"),
        (("--slow", "#0=-1"), "gives no speed"),
        (("-o", "drill.csv"), "the form of the file is not known"),
    ],
)
def test_wrong_faults_are_refused(dropflow: Command, arguments: tuple[str, str], text: str) -> None:
    """The error names the option and how to write it; nothing is simulated."""
    answer = dropflow("drill", EXAMPLE, "--nodes", 2, *arguments)

    assert answer.status == 2
    assert text in answer.err
