"""``dropflow partition``, ``dropflow map`` and ``dropflow schedule``."""

import json
from pathlib import Path

import pytest

from dropflow.api.records import Load, NodeInfo
from dropflow.graph.codec import load, save
from dropflow.testing.fake_manager import FakeManager
from managers.service import Service
from tests.cli.answers import Command
from tests.graph.constrained import exclusive_and_mpi

NESTED = Path(__file__).resolve().parents[2] / "examples" / "nested-scatter-gather.graph"

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


def test_compare_shows_all_algorithms(command: Command) -> None:
    """There is a line for each; what `auto` found is at most what HEFT needs."""
    answer = command("partition", NESTED, "-k", 3, "--compare", "--output", "json")
    table = command("partition", NESTED, "-k", 3, "--compare")

    times = {one["algorithm"]: one["makespan_s"] for one in answer.json["plans"]}
    assert times["auto"] <= times["heft"]
    assert {"metis", "heft", "min_parts", "blocks", "breadth_first", "none"} <= times.keys()
    assert "completion s" in table.out.decode()


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
    assert "dropflow run --keep" in answer.err


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


def test_a_manager_without_nodes_is_bad_input(ask: Command, service: Service, manager: FakeManager) -> None:
    """The error has the address, and what to do."""
    for name in ("node-1", "node-2"):
        manager.set_node(NodeInfo(name=name, state="lost"))
    answer = ask("partition", NESTED, "--nodes", service.url)

    assert answer.status == 2
    assert "no node is alive at this manager" in answer.err
    assert service.url in answer.err


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
