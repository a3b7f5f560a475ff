"""``dropflow check``."""

from pathlib import Path

from tests.cli.answers import Command

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def test_a_good_graph_is_usable(command: Command) -> None:
    """The format of the file is named."""
    answer = command("check", NESTED)

    assert (answer.status, answer.text) == (0, "usable (OJS-id): 0 errors, 0 warnings\n")


def test_a_problem_has_its_code_and_place(command: Command, broken: Path) -> None:
    """The exit status is 2."""
    answer = command("check", broken)

    assert answer.status == 2
    assert "error LG003 /linkDataArray/0: " in answer.text
    assert "not usable (OJS-id): 1 error" in answer.text


def test_the_json_answer_lists_the_problems(command: Command, broken: Path) -> None:
    """There is one object, and each problem has its code, place, text and hint."""
    answer = command("check", broken, "--output", "json")

    assert answer.status == 2
    assert (answer.json["ok"], answer.json["format"]) == (False, "OJS-id")
    assert {"code", "severity", "where", "text", "hint"} == set(answer.json["problems"][0])
