"""``dropflow explain --origin``."""

from pathlib import Path

from tests.cli.answers import Command

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_run_has_a_signature(command: Command, tmp_path: Path) -> None:
    """Two runs of one graph are the same at all levels; another value changes the parameters and the contents."""
    for name, value in (("a", "World"), ("b", "World"), ("c", "Moon")):
        keep = ("--keep", tmp_path / name, "--runner", "inline", "--set", f"Greet.greet={value}")
        command("run", _EXAMPLES / "hello.graph", *keep)
    one, two, other = (
        command("explain", tmp_path / name, "--origin", "--output", "json").json["signature"]
        for name in ("a", "b", "c")
    )

    assert one == two
    assert {level for level in one if one[level] != other[level]} == {"parameters", "contents"}
    assert one["software"].keys() == {"dropflow", "Python"}
    answer = command("diff", tmp_path / "a", tmp_path / "c").text
    assert "graph: same" in answer
    assert "contents: different" in answer


def test_a_drop_of_a_session_has_an_origin(ask: Command) -> None:
    """Its logical nodes and a page of its drops; a drop that is unknown is refused."""
    answer = ask("explain", "finished", "data 0", "--origin", "--limit", "2")

    assert answer.status == 0
    assert "upstream of it: 2 drops; roots: 1" in answer.text
    assert "drops 1 to 2 of 3:" in answer.text
    assert "no drop 'none'" in ask("explain", "finished", "none", "--origin").err
