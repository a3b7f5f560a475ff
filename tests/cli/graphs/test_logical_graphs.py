"""``dropflow diff``, ``fill``, ``info`` and ``check``."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dropflow import Graph, app
from dropflow.graph.codec import load
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.version import __version__
from tests.cli.answers import Command
from tests.corpus import corpus_files, needs_corpus
from tests.translator.documents import document, field, link, node, port, wide
from tests.translator.templates import template
from translator.differences import differences
from translator.formats import read_logical
from translator.pipeline import translate


def write(path: Path, content: Any) -> Path:
    """Write a graph file."""
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def asked(command: Command, *arguments: object) -> tuple[int, dict[str, Any]]:
    """Run a command; return its exit status and its answer."""
    answer = command(*arguments, "--output", "json")
    return answer.status, json.loads(answer.out or answer.err)


def texts(command: Command, tmp_path: Path, one: Any, other: Any) -> list[str]:
    """Return the differences of two documents in words."""
    _, answer = asked(command, "diff", write(tmp_path / "a.graph", one), write(tmp_path / "b.graph", other))
    return [found["text"] for found in answer["differences"]]


def test_graphs_that_mean_the_same_have_no_differences(command: Command, tmp_path: Path) -> None:
    """Order, layout and spelling of numbers make no difference; exit status 0."""
    other = copy.deepcopy(wide())
    other["nodeDataArray"].reverse()
    other["nodeDataArray"][0]["x"] = 17
    other["nodeDataArray"][-1]["fields"][1]["value"] = "5"
    status, answer = asked(command, "diff", write(tmp_path / "a.graph", wide()), write(tmp_path / "b.graph", other))

    assert (status, answer["same"], answer["differences"]) == (0, True, [])


def test_differences_are_told_in_words_and_values(command: Command, tmp_path: Path) -> None:
    """A changed value, a removed and an added node, and their edges; exit status 1."""
    other = copy.deepcopy(wide())
    other["nodeDataArray"][1]["fields"][0]["value"] = 4
    gone = other["nodeDataArray"].pop(0)
    other["linkDataArray"] = [one for one in other["linkDataArray"] if one["from"] != gone["id"]]
    other["nodeDataArray"].append(node("new", "Memory", port("n", "io", "InputOutput"), parentId="L"))
    found = texts(command, tmp_path, wide(), other)

    assert "name of S.num_of_copies changed from 3 to 4" in found
    assert "Memory 'name of D' was removed" in found
    assert "Memory 'name of new' was added in 'name of L'" in found
    assert "the edge name of D.io -> name of S/Split.whole was removed" in found
    assert sum("num_of_copies" in text for text in found) == 1


def test_renamed_ids_are_matched_by_name(command: Command, tmp_path: Path) -> None:
    """A copy of a graph with other ids means the same, except for what was changed."""
    text = json.dumps(wide()).replace('"D"', '"other"')
    assert texts(command, tmp_path, wide(), json.loads(text)) == []


@needs_corpus
@pytest.mark.parametrize("path", corpus_files()[:40], ids=lambda path: path.name)
def test_no_graph_differs_from_itself(path: Path) -> None:
    """Of every graph of the community the comparison with itself is empty."""
    graph = read_logical(path.read_bytes(), name="g").graph
    assert graph is None or differences(graph, graph) == ()


def test_what_cannot_be_read_is_not_compared(command: Command, tmp_path: Path) -> None:
    """Exit status 2 with the problem."""
    status, answer = asked(command, "diff", write(tmp_path / "a", []), write(tmp_path / "b", wide()))
    assert (status, answer["ok"]) == (2, False)


@pytest.mark.parametrize("family", ["OJS-id", "V4"])
def test_fill_writes_current_families(command: Command, tmp_path: Path, family: str) -> None:
    """The new file is of the family, and means the same."""
    path = write(tmp_path / "a.graph", wide())
    status, answer = asked(command, "fill", path, "--family", family, "-o", tmp_path / "b.graph")

    assert (status, answer["written"][0]["values"]) == (0, {})
    assert asked(command, "check", tmp_path / "b.graph")[1]["format"] == family
    assert asked(command, "diff", path, tmp_path / "b.graph")[1]["same"]


@app(memory="lots")
def hog(count: int) -> int:
    """Return its argument."""
    return count


def test_a_memory_that_is_no_size_is_found(command: Command, tmp_path: Path) -> None:
    """It is a warning: the graph can run, and no memory is kept free for it."""
    with Graph("m") as graph:
        hog(1).save("x.txt")
    graph.save(tmp_path / "m.graph")
    found = command("check", "--here", tmp_path / "m.graph")

    assert found.status == 0
    assert "memory 'lots' is not a size, so no memory is kept free for it" in found.out.decode()


def test_info_of_a_logical_graph_shows_counts_and_times(command: Command, tmp_path: Path) -> None:
    """Counts are those of unroll, also as a table with a bar for each part of the time."""
    path = write(tmp_path / "a.graph", wide())
    status, answer = asked(command, "info", path)
    _, unrolled = asked(command, "unroll", path, "--summary")

    assert status == 0
    assert (answer["drops"], answer["connections"]) == (unrolled["drops"], unrolled["connections"])
    assert answer["preview"]["phases"][0]["start"] == 0
    assert "applications that run, by time" in command("info", path).text


def broken() -> dict[str, Any]:
    """Return a graph with every finding that can be corrected."""
    return document(
        [
            node("D", "Memory", port("d", "io", "InputOutput"), field("data_volume", "5", type="Float")),
            node("L", "Loop", field("num_of_iter", "3", type="Integer")),
            node(
                "W",
                "Component",
                port("w1", "x", "InputPort"),
                port("w2", "y", "OutputPort"),
                field("dropclass", "dlg.apps.simple.CopyApp"),
                field("group_start", value=True),
                parentId="L",
            ),
            node("E", "Memory", port("e", "io", "InputOutput"), field("group_end", value=True), parentId="L"),
            node("C", "DALiuGEApp", port("c", "x", "InputPort"), field("dropclass", "dlg.apps.simple.CopyApp")),
        ],
        [
            link("D", "d", "W", "w1"),
            link("W", "w2", "E", "e"),
            link("E", "e", "W", "w1"),
            link("D", "d", "C", "c", loop_aware="1"),
            link("D", "d", "C", "c", loop_aware="1"),
        ],
    )


def test_findings_with_one_correction_are_corrected(command: Command, tmp_path: Path) -> None:
    """Categories, numbers, repeated edges and marks are corrected in the file; the drops and edges stay the same."""
    path = write(tmp_path / "a.graph", broken())
    before = asked(command, "unroll", path, "--summary")[1]
    status, answer = asked(command, "check", path, "--fix")

    assert status == 0
    assert {one["code"] for one in answer["fixed"]} == {"LG031", "LG042", "LG061", "LG062", "LG063", "LG094"}
    assert '+            "closesLoop": true' in answer["diff"]
    assert {one["code"] for one in answer["problems"]}.isdisjoint(one["code"] for one in answer["fixed"])
    after = asked(command, "unroll", path, "--summary")[1]
    assert (after["drops"], after["edges"]) == (before["drops"], before["edges"])
    assert asked(command, "check", path, "--fix")[1]["fixed"] == []


@pytest.mark.parametrize("arguments", [("check", "--fix"), ("unroll", "-o", "written.dfg")])
def test_a_file_behind_a_link_is_written_and_the_link_stays(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """As a shell writes it: the graph of a link is corrected, and not a copy of it."""
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.graph", broken())
    (tmp_path / "link.graph").symlink_to(path)
    (tmp_path / "real.dfg").touch()
    (tmp_path / "written.dfg").symlink_to("real.dfg")
    before = {name: (tmp_path / name).read_bytes() for name in ("a.graph", "real.dfg")}
    asked(command, "check", path, "--fix", "-o", "b.graph")

    asked(command, arguments[0], "link.graph" if "--fix" in arguments else "b.graph", *arguments[1:])
    assert (tmp_path / "link.graph").is_symlink()
    assert (tmp_path / "written.dfg").is_symlink()
    changed = {name for name, content in before.items() if (tmp_path / name).read_bytes() != content}
    assert changed == {"a.graph" if "--fix" in arguments else "real.dfg"}


def test_a_correction_can_go_to_another_file(command: Command, tmp_path: Path) -> None:
    """With -o the graph itself is unchanged."""
    path = write(tmp_path / "a.graph", broken())
    asked(command, "check", path, "--fix", "-o", tmp_path / "b.graph")

    assert json.loads(path.read_text()) == broken()
    assert asked(command, "diff", path, tmp_path / "b.graph")[0] == 1


NESTED = Path(__file__).resolve().parents[3] / "examples" / "nested-scatter-gather.graph"


def test_info_shows_each_logical_node_with_its_shape(command: Command) -> None:
    """A node inside two scatters has a two-dimensional index space."""
    lines = command("info", NESTED).text.splitlines()

    assert [line for line in lines if "Squared" in line and "3 x 4" in line and " 12 " in line]


def test_a_damaged_graph_file_is_bad_input(command: Command, tmp_path: Path) -> None:
    """One flipped byte is noticed; the message is short."""
    command("unroll", NESTED, "-o", tmp_path / "g.dfg")
    content = bytearray((tmp_path / "g.dfg").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "g.dfg").write_bytes(content)
    answer = command("info", tmp_path / "g.dfg")

    assert (answer.status, len(answer.err.splitlines()) <= 3) == (2, True)
    assert "DF102" in answer.err


def test_version_lists_the_libraries(command: Command) -> None:
    """The first line has the version of dropflow, and the others those of the libraries."""
    first, *others = command("--version").text.splitlines()

    assert first.startswith(f"dropflow {__version__}, Python ")
    assert {line.split()[0] for line in others} >= {"numpy", "msgspec", "pymetis"}


@pytest.mark.slow
def test_palettes_are_built_and_checked(command: Command, tmp_path: Path) -> None:
    """--check lists missing files, and without it they are written."""
    stale = command("palette", "build", "--check", "--into", tmp_path, "--output", "json")
    assert (stale.status, len(stale.json["stale"])) == (1, 3)
    command("palette", "build", "--into", tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"builtin.palette", "radio.palette", "template.palette"}
    assert command("palette", "build", "--check", "--into", tmp_path).status == 0


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


# ``dropflow fill``.


@pytest.fixture
def fill_path(tmp_path: Path) -> Path:
    """The file of the template."""
    file = tmp_path / "t.graph"
    file.write_text(json.dumps(template()))
    return file


def fields(file: Path) -> dict[str, Any]:
    """Return the values of all fields of a graph file by node and name."""
    content = json.loads(file.read_text())
    return {f"{one['id']}.{f['name']}": f["value"] for one in content["nodeDataArray"] for f in one["fields"]}


def test_parameters_are_listed_with_all_that_a_form_needs(command: Command, fill_path: Path) -> None:
    """Name, type, range, description and uses come from the graph; the graph is a template because n has no value."""
    status, answer = asked(command, "fill", fill_path, "--list")

    assert (status, answer["template"]) == (0, True)
    first, second = answer["parameters"]
    assert (first["name"], first["type"], first["value"]) == ("n", "Integer", None)
    assert (first["minimum"], first["maximum"], first["description"]) == (1, 64, "Number of parts")
    assert first["used_in"][0] == "num_of_copies of Scatter 'name of S'"
    assert (second["name"], second["value"]) == ("who", "world")


def test_a_filled_graph_has_values_in_place_of_placeholders(command: Command, fill_path: Path, tmp_path: Path) -> None:
    """With n = 4 the scatter has 9 copies, and texts have the value; the file notes template, values and digest."""
    out = tmp_path / "out.graph"
    status, answer = asked(command, "fill", fill_path, "--set", "n=4", "-o", out)

    assert status == 0
    assert answer["written"] == [{"file": str(out), "values": {"n": 4, "who": "world"}}]
    values = fields(out)
    assert (values["S.num_of_copies"], values["D.pydata"], values["V.n"]) == (9, "world 4 $n", 4)
    note = json.loads(out.read_text())["modelData"]["template"]
    assert (note["name"], note["values"]) == ("t", {"n": 4, "who": "world"})
    assert note["digest"].startswith("sha256:")
    assert translate(out).graph.drops == 1 + 1 + 9


def test_a_graph_without_values_is_refused(command: Command, fill_path: Path) -> None:
    """Exit status 2, and LG090 names the parameter."""
    status, answer = asked(command, "fill", fill_path)

    assert status == 2
    assert [one["code"] for one in answer["problems"] if one["severity"] == "error"] == ["LG090"]
    assert "--set n=VALUE" in answer["problems"][0]["hint"]


@pytest.mark.parametrize(("value", "code"), [("99", "LG091"), ("many", "LG091")])
def test_values_out_of_range_are_refused(command: Command, fill_path: Path, value: str, code: str) -> None:
    """A value beyond the range, or of another type, is LG091 and exit status 2."""
    status, answer = asked(command, "fill", fill_path, "--set", f"n={value}")

    assert status == 2
    assert code in [one["code"] for one in answer["problems"]]


def test_an_option_whose_file_is_not_there_is_named(command: Command, fill_path: Path, tmp_path: Path) -> None:
    """The error has the option, the file and what to do, with exit status 2."""
    absent = tmp_path / "none.toml"
    for option, given in (("--params", ("check", fill_path)), ("--key", ("sessions", "--to", "http://127.0.0.1:1"))):
        answer = command(*given, option, absent, "--output", "json")
        error = answer.json["error"]

        assert (answer.status, error["code"], error["where"]) == (2, "DF102", str(absent))
        assert option in error["text"] + error["hint"]
        assert error["hint"]


@pytest.mark.parametrize(("name", "text"), [("p.toml", "n = 3\nwho = 'you'\n"), ("p.json", '{"n": 3, "who": "you"}')])
def test_values_come_from_a_file(command: Command, fill_path: Path, tmp_path: Path, name: str, text: str) -> None:
    """TOML and JSON; --set has priority."""
    (tmp_path / name).write_text(text)
    out = tmp_path / "o.graph"
    status, _ = asked(command, "fill", fill_path, "--params", tmp_path / name, "--set", "who=me", "-o", out)

    assert status == 0
    assert (fields(out)["S.num_of_copies"], fields(out)["D.pydata"]) == (7, "me 3 $n")


@pytest.mark.parametrize(
    ("name", "text"), [("p.toml", "n = -inf"), ("p.json", '{"n": [NaN]}'), ("p.json", '{"n": 1e999}')]
)
def test_values_of_a_file_are_finite(command: Command, fill_path: Path, tmp_path: Path, name: str, text: str) -> None:
    """JSON has no infinity: it would become null."""
    (tmp_path / name).write_text(text)
    status, answer = asked(command, "fill", fill_path, "--params", tmp_path / name)

    assert status == 2
    assert "is not a finite number" in answer["error"]["text"]


def test_a_configuration_gives_values(command: Command, fill_path: Path, tmp_path: Path) -> None:
    """The configuration sets n = 8, and is noted by its name."""
    out = tmp_path / "o.graph"
    status, _ = asked(command, "fill", fill_path, "--config", "big", "-o", out)

    assert (status, fields(out)["S.num_of_copies"]) == (0, 17)
    assert json.loads(out.read_text())["modelData"]["template"]["configuration"] == "big"


def test_a_sweep_makes_a_graph_for_each_combination(command: Command, fill_path: Path, tmp_path: Path) -> None:
    """Two by two values; names in the file name become values, or values are added before the suffix."""
    out = tmp_path / "run-{n}-{who}.graph"
    status, answer = asked(command, "fill", fill_path, "--sweep", "n=1,2", "--sweep", "who=a,b", "-o", out)
    names = [Path(one["file"]).name for one in answer["written"]]

    assert status == 0
    assert names == ["run-1-a.graph", "run-1-b.graph", "run-2-a.graph", "run-2-b.graph"]
    assert [fields(tmp_path / name)["S.num_of_copies"] for name in names] == [3, 3, 5, 5]
    _, answer = asked(command, "fill", fill_path, "--sweep", "n=1,2", "-o", tmp_path / "x.graph")
    assert [Path(one["file"]).name for one in answer["written"]] == ["x-n=1.graph", "x-n=2.graph"]


@pytest.mark.parametrize(
    ("name", "values"), [("run-{n}.graph", ("n=1,2", "who=a,b")), ("x.graph", ("n=1,1",)), ("{who}", ("who=a/b,a_b",))]
)
def test_a_sweep_writes_no_file_twice(
    command: Command, fill_path: Path, tmp_path: Path, name: str, values: tuple[str, ...]
) -> None:
    """Where two graphs would have one name, nothing is written: the second would take the place of the first."""
    sweeps = (word for value in values for word in ("--sweep", value))
    status, answer = asked(command, "fill", fill_path, *sweeps, "-o", tmp_path / "out" / name)

    assert (status, answer["error"]["text"]) == (2, "several graphs of the sweep would be written to one file")
    assert not (tmp_path / "out").exists()


def test_a_sweep_needs_files(command: Command, fill_path: Path) -> None:
    """Without -o, and with a text that is no sweep, the command says what to write."""
    assert asked(command, "fill", fill_path, "--sweep", "n=1,2")[0] == 2
    status, answer = asked(command, "fill", fill_path, "--sweep", "n", "-o", "x.graph")
    assert status == 2
    assert "n=1,2,4" in json.dumps(answer)


def test_an_unknown_parameter_is_an_error(command: Command, fill_path: Path) -> None:
    """LG100 lists the parameters that the graph has."""
    _, answer = asked(command, "fill", fill_path, "--set", "n=1", "--set", "nn=2")

    (found,) = [one for one in answer["problems"] if one["severity"] == "error"]
    assert found["code"] == "LG100"
    assert "n, who" in found["hint"]


def test_a_template_can_be_unrolled_with_values(command: Command, fill_path: Path) -> None:
    """Other commands take values of parameters, too."""
    status, answer = asked(command, "unroll", fill_path, "--set", "n=2", "--summary")

    assert (status, answer["drops"]) == (0, 7)


def test_a_session_keeps_what_it_was_made_from(fill_path: Path, tmp_path: Path) -> None:
    """The graph in the directory of a session has the note, filled before or when it was translated."""
    graph = translate(fill_path, settings=["n=2"]).graph
    local_run.run(graph, local_run.prepare_directory(tmp_path / "run"), RunOptions(runner="inline"))
    note = json.loads(load(tmp_path / "run" / "graph.dfg").meta["template"])

    assert (note["name"], note["values"]) == ("t", {"n": 2, "who": "world"})
    assert note["digest"].startswith("sha256:")
