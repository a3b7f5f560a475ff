"""``dropflow partition`` and ``dropflow map``."""

from pathlib import Path

from dropflow.graph_file import load
from tests.cli.answers import Command

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def test_the_answer_has_the_quality_of_the_partition(command: Command, tmp_path: Path) -> None:
    """It has the number of parts, cut edges and loads; the parts are in the file."""
    answer = command("partition", NESTED, "-n", 3, "-a", "blocks", "-o", tmp_path / "g.dfg", "--output", "json")

    assert (answer.json["parts"], len(answer.json["loads"]), sum(answer.json["part_drops"])) == (3, 3, 67)
    assert 0 < answer.json["cut_edges"] < answer.json["edges"]
    assert load(tmp_path / "g.dfg").parts == 3


def test_an_unknown_partitioner_is_bad_input(command: Command) -> None:
    """The hint lists the known ones."""
    answer = command("partition", NESTED, "-n", 2, "-a", "magic")

    assert answer.status == 2
    assert "PT002" in answer.err
    assert "metis" in answer.err


def test_map_assigns_each_part_to_a_node(command: Command, tmp_path: Path) -> None:
    """A graph without parts gets one per node; the nodes are in the file."""
    answer = command("map", NESTED, "--nodes", "one, two", "-o", tmp_path / "g.dfg", "--output", "json")

    assert answer.json["places"] == ["one", "two"]
    assert load(tmp_path / "g.dfg").places == ("one", "two")


def test_map_needs_a_node_for_each_part(command: Command, tmp_path: Path) -> None:
    """Existing parts are not merged."""
    command("partition", NESTED, "-n", 3, "-o", tmp_path / "g.dfg")
    answer = command("map", tmp_path / "g.dfg", "--nodes", "one,two")

    assert answer.status == 2
    assert "3 parts cannot be placed on 2 nodes" in answer.err
