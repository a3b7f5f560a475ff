"""``dropflow fill``."""

import json
from pathlib import Path
from typing import Any

import pytest

from dropflow.graph.codec import load
from dropflow.sessions import local_run
from tests.cli.answers import Command
from tests.translator.templates import template
from translator.pipeline import translate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the template."""
    file = tmp_path / "t.graph"
    file.write_text(json.dumps(template()))
    return file


def asked(command: Command, *arguments: object) -> tuple[int, dict[str, Any]]:
    """Run a command; return its exit status and its answer."""
    answer = command(*arguments, "--output", "json")
    return answer.status, json.loads(answer.out or answer.err)


def fields(file: Path) -> dict[str, Any]:
    """Return the values of all fields of a graph file by node and name."""
    content = json.loads(file.read_text())
    return {f"{one['id']}.{f['name']}": f["value"] for one in content["nodeDataArray"] for f in one["fields"]}


def test_parameters_are_listed_with_all_that_a_form_needs(command: Command, path: Path) -> None:
    """Name, type, range, description and uses come from the graph; the graph is a template because n has no value."""
    status, answer = asked(command, "fill", path, "--list")

    assert (status, answer["template"]) == (0, True)
    first, second = answer["parameters"]
    assert (first["name"], first["type"], first["value"]) == ("n", "Integer", None)
    assert (first["minimum"], first["maximum"], first["description"]) == (1, 64, "Number of parts")
    assert first["used_in"][0] == "num_of_copies of Scatter 'name of S'"
    assert (second["name"], second["value"]) == ("who", "world")


def test_a_filled_graph_has_values_in_place_of_placeholders(command: Command, path: Path, tmp_path: Path) -> None:
    """With n = 4 the scatter has 9 copies, and texts have the value; the file notes template, values and digest."""
    out = tmp_path / "out.graph"
    status, answer = asked(command, "fill", path, "--set", "n=4", "-o", out)

    assert status == 0
    assert answer["written"] == [{"file": str(out), "values": {"n": 4, "who": "world"}}]
    values = fields(out)
    assert (values["S.num_of_copies"], values["D.pydata"], values["V.n"]) == (9, "world 4 $n", 4)
    note = json.loads(out.read_text())["modelData"]["template"]
    assert (note["name"], note["values"]) == ("t", {"n": 4, "who": "world"})
    assert note["digest"].startswith("sha256:")
    assert translate(out).graph.drops == 1 + 1 + 9


def test_a_graph_without_values_is_refused(command: Command, path: Path) -> None:
    """Exit status 2, and LG090 names the parameter."""
    status, answer = asked(command, "fill", path)

    assert status == 2
    assert [one["code"] for one in answer["problems"] if one["severity"] == "error"] == ["LG090"]
    assert "--set n=VALUE" in answer["problems"][0]["hint"]


@pytest.mark.parametrize(("value", "code"), [("99", "LG091"), ("many", "LG091")])
def test_values_out_of_range_are_refused(command: Command, path: Path, value: str, code: str) -> None:
    """A value beyond the range, or of another type, is LG091 and exit status 2."""
    status, answer = asked(command, "fill", path, "--set", f"n={value}")

    assert status == 2
    assert code in [one["code"] for one in answer["problems"]]


@pytest.mark.parametrize(("name", "text"), [("p.toml", "n = 3\nwho = 'you'\n"), ("p.json", '{"n": 3, "who": "you"}')])
def test_values_come_from_a_file(command: Command, path: Path, tmp_path: Path, name: str, text: str) -> None:
    """TOML and JSON; --set has priority."""
    (tmp_path / name).write_text(text)
    out = tmp_path / "o.graph"
    status, _ = asked(command, "fill", path, "--params", tmp_path / name, "--set", "who=me", "-o", out)

    assert status == 0
    assert (fields(out)["S.num_of_copies"], fields(out)["D.pydata"]) == (7, "me 3 $n")


def test_a_configuration_gives_values(command: Command, path: Path, tmp_path: Path) -> None:
    """The configuration sets n = 8, and is noted by its name."""
    out = tmp_path / "o.graph"
    status, _ = asked(command, "fill", path, "--config", "big", "-o", out)

    assert (status, fields(out)["S.num_of_copies"]) == (0, 17)
    assert json.loads(out.read_text())["modelData"]["template"]["configuration"] == "big"


def test_a_sweep_makes_a_graph_for_each_combination(command: Command, path: Path, tmp_path: Path) -> None:
    """Two by two values; names in the file name become values, or values are added before the suffix."""
    out = tmp_path / "run-{n}-{who}.graph"
    status, answer = asked(command, "fill", path, "--sweep", "n=1,2", "--sweep", "who=a,b", "-o", out)
    names = [Path(one["file"]).name for one in answer["written"]]

    assert status == 0
    assert names == ["run-1-a.graph", "run-1-b.graph", "run-2-a.graph", "run-2-b.graph"]
    assert [fields(tmp_path / name)["S.num_of_copies"] for name in names] == [3, 3, 5, 5]
    _, answer = asked(command, "fill", path, "--sweep", "n=1,2", "-o", tmp_path / "x.graph")
    assert [Path(one["file"]).name for one in answer["written"]] == ["x-n=1.graph", "x-n=2.graph"]


def test_a_sweep_needs_files(command: Command, path: Path) -> None:
    """Without -o, and with a text that is no sweep, the command says what to write."""
    assert asked(command, "fill", path, "--sweep", "n=1,2")[0] == 2
    status, answer = asked(command, "fill", path, "--sweep", "n", "-o", "x.graph")
    assert status == 2
    assert "n=1,2,4" in json.dumps(answer)


def test_an_unknown_parameter_is_an_error(command: Command, path: Path) -> None:
    """LG100 lists the parameters that the graph has."""
    _, answer = asked(command, "fill", path, "--set", "n=1", "--set", "nn=2")

    (found,) = [one for one in answer["problems"] if one["severity"] == "error"]
    assert found["code"] == "LG100"
    assert "n, who" in found["hint"]


def test_a_template_can_be_unrolled_with_values(command: Command, path: Path) -> None:
    """Other commands take values of parameters, too."""
    status, answer = asked(command, "unroll", path, "--set", "n=2", "--summary")

    assert (status, answer["drops"]) == (0, 7)


def test_a_session_keeps_what_it_was_made_from(path: Path, tmp_path: Path) -> None:
    """The graph in the directory of a session has the note, filled before or when it was translated."""
    graph = translate(path, settings=["n=2"]).graph
    local_run.run(graph, directory=local_run.prepare_directory(tmp_path / "run"), runner="inline")
    note = json.loads(load(tmp_path / "run" / "graph.dfg").meta["template"])

    assert (note["name"], note["values"]) == ("t", {"n": 2, "who": "world"})
    assert note["digest"].startswith("sha256:")
