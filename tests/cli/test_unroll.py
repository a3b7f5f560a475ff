"""``dropflow unroll``."""

import json
from pathlib import Path

import pytest

from dropflow.graph.codec import load
from dropflow.graph.text_ids import oids
from tests.cli.answers import Command

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"


def test_the_summary_has_exactly_the_documented_keys(command: Command) -> None:
    """In this graph no two drops are joined at two ports, so edges and connections are equal."""
    answer = command("unroll", NESTED, "--summary", "--output", "json")

    assert answer.status == 0
    counts = {"ok": True, "format": "OJS-id", "drops": 67, "data_drops": 39, "app_drops": 28}
    counts |= {"edges": 77, "connections": 77}
    assert {key: answer.json[key] for key in counts} == counts
    assert set(answer.json) == {*counts, "problems"}


def test_the_summary_of_a_bad_graph_has_the_same_shape(command: Command, broken: Path) -> None:
    """The object has the format of the file and the problems."""
    answer = command("unroll", broken, "--summary", "--output", "json")

    assert (answer.status, answer.json["ok"], answer.json["format"]) == (2, False, "OJS-id")
    assert [found["code"] for found in answer.json["problems"]] == ["LG003"]


@pytest.mark.parametrize("name", ["graph.dfg", "graph.json"])
def test_a_graph_can_be_written_and_read_again(command: Command, tmp_path: Path, name: str) -> None:
    """The suffix of the file gives the format, and both formats keep the graph."""
    written = command("unroll", NESTED, "-o", tmp_path / name, "--output", "json")
    read = command("info", tmp_path / name, "--output", "json")

    assert (tmp_path / name).read_bytes().startswith(b"[") == name.endswith("json")
    assert all(read.json[key] == written.json[key] for key in ("drops", "data_drops", "app_drops", "connections"))


def test_the_graph_goes_to_standard_output(command: Command) -> None:
    """Without a file, the answer is the physical graph."""
    answer = command("unroll", NESTED)

    assert answer.status == 0
    assert len([drop for drop in json.loads(answer.out) if drop]) == 67


@pytest.mark.parametrize(("verb", "counted"), [("unroll", "drops"), ("translate", "parts")])
def test_an_answer_in_json_is_one_object_with_the_graph(command: Command, verb: str, counted: str) -> None:
    """Without -o, it has the list of drops beside the counts, on one line; -o - prints the list alone."""
    answer = command(verb, NESTED, "--output", "json")
    alone = command(verb, NESTED, "--output", "json", "-o", "-")

    assert (answer.status, answer.json["ok"], answer.out.count(b"\n")) == (0, True, 1)
    assert counted in answer.json
    assert answer.json["graph"] == json.loads(alone.out)
    assert isinstance(command(verb, NESTED, "--output", "json", "--format", "dot").json["graph"], str)

    refused = command(verb, NESTED, "--output", "json", "--format", "dfg")
    assert (refused.status, refused.json["ok"]) == (2, False)
    assert "-o" in refused.json["error"]["hint"]


def test_the_prefix_begins_every_id(command: Command, tmp_path: Path) -> None:
    """--prefix is the first part of the drops' text ids."""
    command("unroll", NESTED, "--prefix", "night7", "-o", tmp_path / "g.dfg")
    graph = load(tmp_path / "g.dfg")

    assert all(name.startswith("night7_") for name in oids(graph, range(graph.drops)))


@pytest.mark.parametrize("target", ["", "missing/g.dfg"])
def test_a_target_that_cannot_be_written_is_bad_input(command: Command, tmp_path: Path, target: str) -> None:
    """The message names the directory that is the target, or that does not exist."""
    answer = command("unroll", NESTED, "-o", tmp_path / target)

    assert answer.status == 2
    assert str(tmp_path) in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "start"), [("g.dot", b"digraph "), ("g.graphml", b"<?xml "), ("g.csv", b"oid,kind,")])
@pytest.mark.parametrize(
    "arguments", [["unroll"], ["partition", "-k", 2, "-a", "blocks"], ["map", "--nodes", "a,b", "-a", "blocks"]]
)
def test_graphs_are_written_for_other_programs(
    command: Command, tmp_path: Path, name: str, start: bytes, arguments: list[object]
) -> None:
    """The suffix selects DOT, GraphML or CSV; the edges of a CSV table are in a file beside it."""
    verb, *options = arguments
    others = ["g.edges.csv"] if name == "g.csv" else []
    answer = command(verb, NESTED, *options, "-o", tmp_path / name)
    content = (tmp_path / name).read_bytes()

    assert answer.status == 0
    assert content.startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, *others])
    assert sum((tmp_path / other).read_bytes().count(b"\r\n") for other in others) == 78 * len(others)
    if name == "g.dot":
        assert content.count(b"subgraph") == (0 if verb == "unroll" else 2)
        assert (b"on b" in content) == (verb == "map")


def test_formats_of_one_file_go_to_standard_output(command: Command, tmp_path: Path) -> None:
    """DOT and GraphML take the place of the answer; CSV needs two files, and neither may be a directory."""
    assert command("unroll", NESTED, "--format", "dot").out.startswith(b"digraph ")
    assert command("unroll", NESTED, "--format", "graphml", "-o", "-").out.endswith(b"</graphml>\n")
    refused = command("unroll", NESTED, "--format", "csv")
    assert (refused.status, "CSV is two tables" in refused.err) == (2, True)
    (tmp_path / "g.edges.csv").mkdir()
    refused = command("unroll", NESTED, "-o", tmp_path / "g.csv")
    assert (refused.status, "g.edges.csv" in refused.err) == (2, True)


@pytest.mark.parametrize("arguments", [["unroll"], ["partition", "-n", 2], ["map", "--nodes", "a,b"]])
@pytest.mark.parametrize("name", ["graph.txt", "graph", "graph.dfg.bak"])
def test_an_unknown_suffix_is_bad_input(command: Command, tmp_path: Path, name: str, arguments: list[object]) -> None:
    """The known suffixes are listed; with --format any name is possible."""
    verb, *options = arguments
    refused = command(verb, NESTED, *options, "-o", tmp_path / name)
    assert refused.status == 2
    assert ".dfg, .json, .pg, .pgt, .dot, .graphml, .csv" in refused.err
    assert list(tmp_path.iterdir()) == []

    assert command(verb, NESTED, *options, "-o", tmp_path / name, "--format", "json").status == 0
    assert (tmp_path / name).read_bytes().startswith(b"[")
