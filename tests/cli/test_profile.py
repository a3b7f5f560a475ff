"""``dropflow profile``."""

from pathlib import Path

from tests.cli.answers import Command

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def test_a_run_has_a_profile(command: Command, tmp_path: Path) -> None:
    """Each application of a run has a line, and the attempts add up."""
    command("run", NESTED, "--keep", tmp_path / "run", "--runner", "inline")
    answer = command("profile", tmp_path / "run", "--output", "json", "--slowest", "2").json

    assert answer["attempts"] == sum(node["attempts"] for node in answer["nodes"]) > 0
    assert len(answer["slowest"]) == 2
    assert "attempts" in command("profile", tmp_path / "run").text


def test_a_directory_without_a_run_is_named(command: Command, tmp_path: Path) -> None:
    """The error names the directory."""
    answer = command("profile", tmp_path)

    assert answer.status != 0
    assert str(tmp_path) in answer.err
