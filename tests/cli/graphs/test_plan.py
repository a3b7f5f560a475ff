"""``dropflow unroll``, ``partition``, ``map`` and ``schedule``, also in pipes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dropflow.api.node_records import Load, NodeInfo
from dropflow.graph.codec import load, save
from dropflow.graph.text_ids import oids
from managers.manager_server import Service
from tests.cli.answers import Command
from tests.fake_manager import FakeManager
from tests.graph.shapes import exclusive_and_mpi

NESTED = Path(__file__).resolve().parents[3] / "examples" / "nested-scatter-gather.graph"


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


# Commands of the translator in pipes, and the bytes that they write.


@pytest.mark.slow
def test_commands_can_be_piped(dropflow: Command) -> None:
    """``fill | unroll | partition | map`` gives a list of drops, each with its node, and nothing else."""
    filled = dropflow("fill", NESTED, "--set", "Rows.num_of_copies=3", "-o", "-").out
    unrolled = dropflow("unroll", "-", "-o", "-", stdin=filled).out
    parted = dropflow("partition", "-", "-k", 2, "-o", "-", stdin=unrolled).out
    drops = msgspec.json.decode(dropflow("map", "-", "--nodes", "one,two", "-o", "-", stdin=parted).out)

    assert {drop["node"] for drop in drops[:-1]} == {"one", "two"}
    assert len(drops) - 1 == len(msgspec.json.decode(unrolled)) - 1


@pytest.mark.slow
def test_output_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Neither the order of hashes nor the time is in a graph: two processes write the same bytes."""
    written = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}.dfg"
        command = [sys.executable, "-m", "dropflow", "partition", NESTED, "-k", "3", "-o", file]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        written.append(file.read_bytes())

    assert written[0] == written[1]


# ``dropflow partition``, ``dropflow map`` and ``dropflow schedule``.


MACHINES = """
[links]
bandwidth = "128 MiB/s"
latency = "0 s"
[[nodes]]
name = "a"
cores = 2
[[nodes]]
name = "b"
speed = 2.0
"""


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    """Return a file that describes two unequal nodes."""
    file = tmp_path / "m.toml"
    file.write_text(MACHINES)
    return file


def test_the_answer_has_the_quality_of_the_plan(command: Command, tmp_path: Path) -> None:
    """It has exactly these keys; the parts are in the file."""
    answer = command("partition", NESTED, "-k", 3, "-a", "blocks", "-o", tmp_path / "g.dfg", "--output", "json")

    assert list(answer.json) == [
        *("ok", "algorithm", "parts", "nodes_used", "cut_bytes", "bytes_moved", "imbalance"),
        *("makespan_s", "lower_bound_s", "seconds"),
    ]
    assert (answer.json["ok"], answer.json["algorithm"], answer.json["parts"]) == (True, "blocks", 3)
    assert answer.json["makespan_s"] >= answer.json["lower_bound_s"] > 0
    assert load(tmp_path / "g.dfg").parts == 3


def test_details_are_added_on_request(command: Command) -> None:
    """With --details there are loads and drops of each part, cut edges and the parallelism."""
    answer = command("partition", NESTED, "-n", 3, "-a", "blocks", "--details", "--output", "json")

    assert (len(answer.json["loads"]), sum(answer.json["part_drops"])) == (3, 67)
    assert 0 < answer.json["cut_edges"] < answer.json["edges"]
    assert answer.json["dop"] >= 1
    assert answer.json["bytes_between_islands"] == 0
    assert answer.json["lower_bound_s"] <= answer.json["bound_with_moves_s"] <= answer.json["makespan_s"] * 1.000001


@pytest.mark.parametrize("parts", [1, 4])
def test_drops_in_json_have_node_and_priority(command: Command, tmp_path: Path, parts: int) -> None:
    """Each drop has a placeholder as its node, and each application a priority; the file can be planned again."""
    target = tmp_path / "out.json"
    command("partition", NESTED, "-k", parts, "-o", target)
    drops = json.loads(target.read_text())[:-1]

    assert {drop["node"] for drop in drops} <= {f"#{number}" for number in range(parts)}
    assert all(("priority" in drop) == (drop["categoryType"] == "Application") for drop in drops)
    again = command("schedule", target, *(("-k", 1) if parts == 1 else ()), "--output", "json")
    assert again.json["ok"]


def test_an_unknown_partitioner_is_bad_input(command: Command) -> None:
    """The hint lists the known ones."""
    answer = command("partition", NESTED, "-n", 2, "-a", "magic")

    assert answer.status == 2
    assert "PT002" in answer.err
    assert "metis" in answer.err


@pytest.mark.slow
def test_a_file_of_machines_gives_the_number_of_parts(command: Command, machines: Path) -> None:
    """There is a part for each node, and the reason of auto is in the table."""
    answer = command("partition", NESTED, "--nodes", machines, "--output", "json")
    table = command("partition", NESTED, "--nodes", machines)

    assert answer.json["parts"] == 2
    assert "is best for time" in table.out.decode()


def test_neither_parts_nor_machines_is_bad_input(command: Command) -> None:
    """The hint names both options."""
    answer = command("partition", NESTED)

    assert answer.status == 2
    assert "-k N" in answer.err


def test_a_node_that_is_named_twice_is_bad_input(command: Command) -> None:
    """Names of nodes are unique: parts of two of one name would go to one."""
    answer = command("partition", NESTED, "--nodes", "a,b,a")

    assert answer.status == 2
    assert "names a node more than once" in answer.err


@pytest.mark.parametrize("nodes", ["0", "0x4", "4x", "4x0", "-3", "100000"])
def test_a_number_that_is_no_number_of_nodes_is_bad_input(command: Command, nodes: str) -> None:
    """It is not taken for the name of a node."""
    answer = command("partition", NESTED, "--nodes", nodes)

    assert answer.status == 2
    assert f"--nodes {nodes} is not a number of nodes" in answer.err


def test_wrong_machines_are_bad_input(command: Command, tmp_path: Path) -> None:
    """All problems of the file are listed."""
    (tmp_path / "m.toml").write_text('[[nodes]]\ncores = 0\nname = "a"\n[[nodes]]\nname = "a"\n')
    answer = command("partition", NESTED, "--nodes", tmp_path / "m.toml")

    assert answer.status == 2
    assert "nodes[0].cores" in answer.err
    assert "nodes[1].name" in answer.err


def test_a_deadline_that_cannot_be_kept(command: Command) -> None:
    """The error has the time of the best plan."""
    answer = command("partition", NESTED, "-k", 2, "--deadline", "0.001")

    assert answer.status == 2
    assert "PT011" in answer.err


@pytest.mark.slow
def test_compare_shows_all_algorithms(command: Command) -> None:
    """There is a line for each; what `auto` found is at most what HEFT needs."""
    answer = command("partition", NESTED, "-k", 3, "--compare", "--output", "json")
    table = command("partition", NESTED, "-k", 3, "--compare")

    times = {one["algorithm"]: one["makespan_s"] for one in answer.json["plans"]}
    assert times["auto"] <= times["heft"]
    assert {"metis", "heft", "min_parts", "blocks", "breadth_first", "none"} <= times.keys()
    assert "completion s" in table.out.decode()


@pytest.mark.slow
def test_schedule_writes_a_trace_and_a_picture(command: Command, machines: Path, tmp_path: Path) -> None:
    """The trace has an event for each application, in microseconds; the picture a box; as JSON there is the answer."""
    shared = ("schedule", NESTED, "--nodes", machines)
    answer = json.loads(command(*shared, "--format", "json").out)
    command(*shared, "--format", "trace", "-o", tmp_path / "t.json")
    command(*shared, "-o", tmp_path / "t.svg")

    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    apps = [event for event in events if event.get("cat") == "application"]
    assert max(event["ts"] + event["dur"] for event in apps) == pytest.approx(answer["makespan_s"] * 1e6)
    picture = (tmp_path / "t.svg").read_text()
    assert picture.count("<rect") == len(apps)
    assert picture.endswith("</svg>\n")


def test_a_plan_that_breaks_a_constraint_is_reported(command: Command, tmp_path: Path) -> None:
    """With fewer nodes than ExclusiveForceNodes the answer names them; with enough it has no such field."""
    save(exclusive_and_mpi(2), tmp_path / "g.dfg")
    broken = command("partition", tmp_path / "g.dfg", "-k", 1, "--output", "json")
    table = command("partition", tmp_path / "g.dfg", "-k", 1)
    kept = command("partition", tmp_path / "g.dfg", "-k", 4, "--output", "json")

    assert broken.json["violations"] == ["2 of 2 copies of 'X' share a node with other drops"]
    assert "not kept     2 of 2 copies of 'X'" in table.out.decode()
    assert "violations" not in kept.json


def test_schedule_needs_a_directory_that_exists(command: Command, tmp_path: Path) -> None:
    """A wrong file name costs no planning."""
    answer = command("schedule", NESTED, "-k", 2, "-o", tmp_path / "none" / "t.svg")

    assert answer.status == 2
    assert "no such directory" in answer.err


def test_map_assigns_each_part_to_a_node(command: Command, tmp_path: Path) -> None:
    """A graph without parts gets one per node; the nodes are in the file."""
    answer = command(
        *("map", NESTED, "--nodes", "one, two", "-a", "metis", "-o", tmp_path / "g.dfg", "--output", "json")
    )

    assert answer.json["places"] == ["one", "two"]
    assert load(tmp_path / "g.dfg").places == ("one", "two")


def test_map_takes_a_file_of_machines(command: Command, machines: Path) -> None:
    """The names of the nodes are those of the file."""
    answer = command("map", NESTED, "--nodes", machines, "-a", "heft", "--output", "json")

    assert answer.json["places"] == ["a", "b"]


def test_map_needs_a_node_for_each_part(command: Command, tmp_path: Path) -> None:
    """Existing parts are not merged."""
    command("partition", NESTED, "-n", 3, "-a", "blocks", "-o", tmp_path / "g.dfg")
    answer = command("map", tmp_path / "g.dfg", "--nodes", "one,two")

    assert answer.status == 2
    assert "3 parts cannot be placed on 2 nodes" in answer.err


@pytest.mark.slow
def test_plans_use_what_a_run_has_measured(command: Command, tmp_path: Path) -> None:
    """With --profile, times are those of a run, and not the estimates of the graph."""
    command("run", NESTED, "--keep", tmp_path / "run", "--runner", "inline")
    estimated = command("partition", NESTED, "-k", 2, "--output", "json").json
    measured = command("partition", NESTED, "-k", 2, "--profile", tmp_path / "run", "--output", "json").json

    assert 0 < measured["lower_bound_s"] < estimated["lower_bound_s"]


def test_a_profile_without_a_run_is_refused(command: Command, tmp_path: Path) -> None:
    """The error names the directory and what to give."""
    answer = command("partition", NESTED, "-k", 2, "--profile", tmp_path)

    assert answer.status != 0
    assert str(tmp_path) in answer.err
    assert "the argument of --keep" in answer.err


@pytest.mark.slow
def test_the_machines_may_be_those_of_a_manager(ask: Command, service: Service, manager: FakeManager) -> None:
    """They are planned for as they are now: a busy one gets less, and one that is lost is told and gets nothing."""
    for name, use in (("node-1", 0.0), ("node-2", 100.0)):
        manager.set_node(NodeInfo(name=name, host=name, load=Load(cores=2, workers=2, processor=use)))
    manager.set_node(NodeInfo(name="node-3", state="lost", text="silent for 20 s"))
    answer = ask("partition", NESTED, "--nodes", service.url, "--details", "--output", "json")
    mapped = ask("map", NESTED, "--nodes", service.url, "--output", "json")
    shown = ask("schedule", NESTED, "--nodes", service.url)

    assert answer.json["parts"] == 2
    assert answer.json["part_drops"][0] > answer.json["part_drops"][1] > 0
    assert mapped.json["places"] == ["node-1", "node-2"]
    assert "node node-3 is lost: silent for 20 s" in shown.err


@pytest.mark.slow
def test_a_manager_without_nodes_is_bad_input(ask: Command, service: Service, manager: FakeManager) -> None:
    """The error has the address, and what to do."""
    for name in ("node-1", "node-2"):
        manager.set_node(NodeInfo(name=name, state="lost"))
    answer = ask("partition", NESTED, "--nodes", service.url)

    assert answer.status == 2
    assert "no node is alive at this manager" in answer.err
    assert service.url in answer.err


@pytest.mark.slow
def test_translate_does_all_steps(command: Command, machines: Path, tmp_path: Path) -> None:
    """A logical graph becomes a placed one, as by `unroll`, `partition` and `map` one after the other."""
    steps, whole = tmp_path / "steps.dfg", tmp_path / "whole.dfg"
    command("partition", NESTED, "--nodes", machines, "-o", tmp_path / "parts.dfg")
    command("map", tmp_path / "parts.dfg", "--nodes", machines, "-o", steps)
    answer = command("translate", NESTED, "--nodes", machines, "-o", whole, "--output", "json")

    assert whole.read_bytes() == steps.read_bytes()
    assert answer.json["places"] == ["a", "b"]
    assert answer.json["nodes_used"] == load(whole).parts


def test_translate_writes_to_standard_output(command: Command) -> None:
    """Without a file the graph is the answer, in one part."""
    drops = json.loads(command("translate", NESTED).out)[:-1]

    assert {drop["node"] for drop in drops} == {"#0"}


def test_translate_keeps_the_parts_of_a_graph(command: Command, tmp_path: Path) -> None:
    """A graph with parts is not planned again."""
    command("partition", NESTED, "-k", 3, "-a", "blocks", "-o", tmp_path / "g.dfg")
    answer = command("translate", tmp_path / "g.dfg", "-k", 2, "-o", tmp_path / "h.dfg", "--output", "json")

    assert (answer.json["algorithm"], answer.json["parts"]) == ("an earlier command", 3)
    assert load(tmp_path / "h.dfg").part.tolist() == load(tmp_path / "g.dfg").part.tolist()


def test_more_parts_than_drops_are_not_counted(command: Command) -> None:
    """Of 1,000 parts for 67 drops, a warning says that there are 67, and so do the answer and its imbalance."""
    answer = command("partition", NESTED, "-k", 1000, "-a", "heft", "--output", "json")

    assert answer.json["parts"] == 67
    assert answer.json["imbalance"] < 6700
