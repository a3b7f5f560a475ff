"""The commands about graphs, called in this process."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dropflow.cli import graph_files
from dropflow.cli.main import main
from dropflow.graph.text_ids import oids
from dropflow.graph_file import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NESTED = EXAMPLES / "nested-scatter-gather.graph"
Command = Callable[..., "Answer"]


class Answer:
    """What a command left: its status and its two streams."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out = out
        self.text = out.decode(errors="replace")
        self.err = err.decode()

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Call ``dropflow`` with arguments."""

    def call(*arguments: object) -> Answer:
        with pytest.raises(SystemExit, match=r"^\d+$") as ended:
            main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Answer(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A graph with an edge that leads nowhere."""
    path = tmp_path / "broken.graph"
    document = json.loads(NESTED.read_bytes())
    document["linkDataArray"][0]["to"] = "nowhere"
    path.write_text(json.dumps(document))
    return path


def test_check_finds_nothing_in_a_good_graph(command: Command) -> None:
    """A good graph is usable, and its family is named."""
    answer = command("check", NESTED)

    assert (answer.status, answer.text) == (0, "usable (OJS-id): 0 errors, 0 warnings\n")


def test_check_tells_what_is_wrong_and_what_to_do(command: Command, broken: Path) -> None:
    """The finding has its code, its place in the file and a hint."""
    answer = command("check", broken)

    assert answer.status == 2
    assert "error LG003 /linkDataArray/0: " in answer.text
    assert "not usable (OJS-id): 1 error" in answer.text


def test_check_answers_json(command: Command, broken: Path) -> None:
    """One object with the findings, and nothing beside it."""
    answer = command("check", broken, "--output", "json")

    assert answer.status == 2
    assert (answer.json["ok"], answer.json["format"]) == (False, "OJS-id")
    assert {"code", "severity", "where", "text", "hint"} == set(answer.json["problems"][0])


def test_quiet_complains_on_standard_error_only(command: Command, broken: Path) -> None:
    """Quiet is silent when all is well, and leaves standard output alone when it is not."""
    assert command("check", NESTED, "--output", "quiet").err == ""
    answer = command("check", broken, "--output", "quiet")

    assert (answer.status, answer.out) == (2, b"")
    assert "LG003" in answer.err


def test_the_environment_chooses_the_output(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """DROPFLOW_OUTPUT stands in for --output, also for mistakes on the command line."""
    monkeypatch.setenv("DROPFLOW_OUTPUT", "json")

    assert command("check", NESTED).json["ok"] is True
    assert command("check").json["ok"] is False


def test_the_summary_has_exactly_what_it_promises(command: Command) -> None:
    """`unroll --summary --output json` answers one object with these keys; no two drops of this graph join twice."""
    answer = command("unroll", NESTED, "--summary", "--output", "json")

    assert answer.status == 0
    counts = {"ok": True, "format": "OJS-id", "drops": 67, "data_drops": 39, "app_drops": 28}
    counts |= {"edges": 77, "connections": 77}
    assert {key: answer.json[key] for key in counts} == counts
    assert set(answer.json) == {*counts, "problems"}


def test_the_summary_of_a_bad_graph_has_the_same_shape(command: Command, broken: Path) -> None:
    """What cannot be translated is told in the same object, with the family of the file."""
    answer = command("unroll", broken, "--summary", "--output", "json")

    assert (answer.status, answer.json["ok"], answer.json["format"]) == (2, False, "OJS-id")
    assert [found["code"] for found in answer.json["problems"]] == ["LG003"]


@pytest.mark.parametrize("name", ["graph.dfg", "graph.json"])
def test_a_graph_can_be_written_and_read_again(command: Command, tmp_path: Path, name: str) -> None:
    """The name of the file chooses the format, and both formats keep the graph."""
    written = command("unroll", NESTED, "-o", tmp_path / name, "--output", "json")
    read = command("info", tmp_path / name, "--output", "json")

    assert (tmp_path / name).read_bytes().startswith(b"[") == name.endswith("json")
    assert all(read.json[key] == written.json[key] for key in ("drops", "data_drops", "app_drops", "edges"))


def test_standard_output_carries_the_graph_alone(command: Command) -> None:
    """Without a file, the answer of unroll is the physical graph."""
    answer = command("unroll", NESTED)

    assert answer.status == 0
    assert len([drop for drop in json.loads(answer.out) if drop]) == 67


def test_the_prefix_begins_every_id(command: Command, tmp_path: Path) -> None:
    """--prefix is the first part of the drops' text ids."""
    command("unroll", NESTED, "--prefix", "night7", "-o", tmp_path / "g.dfg")
    graph = load(tmp_path / "g.dfg")

    assert all(name.startswith("night7_") for name in oids(graph, range(graph.drops)))


@pytest.mark.parametrize("target", ["", "missing/g.dfg"])
def test_a_place_that_cannot_be_written_is_refused(command: Command, tmp_path: Path, target: str) -> None:
    """A directory as target, or one that is not there, is told by name."""
    answer = command("unroll", NESTED, "-o", tmp_path / target)

    assert answer.status == 2
    assert str(tmp_path) in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["unroll"], ["partition", "-n", 2], ["map", "--nodes", "a,b"]])
@pytest.mark.parametrize("name", ["graph.txt", "graph", "graph.dfg.bak"])
def test_an_unknown_suffix_is_refused(command: Command, tmp_path: Path, name: str, arguments: list[object]) -> None:
    """No format is guessed: the known suffixes are listed, and --format takes any name."""
    verb, *options = arguments
    refused = command(verb, NESTED, *options, "-o", tmp_path / name)
    assert refused.status == 2
    assert ".dfg, .json, .pg, .pgt" in refused.err
    assert list(tmp_path.iterdir()) == []

    assert command(verb, NESTED, *options, "-o", tmp_path / name, "--format", "json").status == 0
    assert (tmp_path / name).read_bytes().startswith(b"[")


def test_partition_says_how_good_it_is(command: Command, tmp_path: Path) -> None:
    """Parts, cut edges and loads are told, and the parts are in the file."""
    answer = command("partition", NESTED, "-n", 3, "-a", "blocks", "-o", tmp_path / "g.dfg", "--output", "json")

    assert (answer.json["parts"], len(answer.json["loads"]), sum(answer.json["part_drops"])) == (3, 3, 67)
    assert 0 < answer.json["cut_edges"] < answer.json["edges"]
    assert load(tmp_path / "g.dfg").parts == 3


def test_an_unknown_partitioner_is_refused_with_the_known_ones(command: Command) -> None:
    """The names that would do are in the hint."""
    answer = command("partition", NESTED, "-n", 2, "-a", "mysarkar")

    assert answer.status == 2
    assert "PT002" in answer.err
    assert "metis" in answer.err


def test_map_puts_each_part_on_a_node(command: Command, tmp_path: Path) -> None:
    """A graph without parts gets one per node; the nodes are in the file."""
    answer = command("map", NESTED, "--nodes", "one, two", "-o", tmp_path / "g.dfg", "--output", "json")

    assert answer.json["places"] == ["one", "two"]
    assert load(tmp_path / "g.dfg").places == ("one", "two")


def test_map_refuses_too_few_nodes(command: Command, tmp_path: Path) -> None:
    """Parts that were made before are not merged behind the user's back."""
    command("partition", NESTED, "-n", 3, "-o", tmp_path / "g.dfg")
    answer = command("map", tmp_path / "g.dfg", "--nodes", "one,two")

    assert answer.status == 2
    assert "3 parts cannot be placed on 2 nodes" in answer.err


def test_info_shows_each_logical_node_with_its_shape(command: Command) -> None:
    """A node inside two scatters has a two-dimensional index space."""
    lines = command("info", NESTED).text.splitlines()

    assert [line for line in lines if "Squared" in line and "3 x 4" in line and " 12 " in line]


def test_a_damaged_container_is_refused(command: Command, tmp_path: Path) -> None:
    """One flipped byte is noticed, and told in one sentence."""
    command("unroll", NESTED, "-o", tmp_path / "g.dfg")
    content = bytearray((tmp_path / "g.dfg").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "g.dfg").write_bytes(content)
    answer = command("info", tmp_path / "g.dfg")

    assert (answer.status, len(answer.err.splitlines()) <= 3) == (2, True)
    assert "DF102" in answer.err


def test_version_names_the_libraries(command: Command) -> None:
    """A bug report needs them."""
    assert command("version", "--output", "json").json["libraries"].keys() >= {"numpy", "msgspec", "pymetis"}


def test_palettes_are_built_and_checked(command: Command, tmp_path: Path) -> None:
    """Missing files are told by --check and written without it."""
    stale = command("palette", "build", "--check", "--into", tmp_path, "--output", "json")
    assert (stale.status, len(stale.json["stale"])) == (1, 2)
    command("palette", "build", "--into", tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"builtin.palette", "template.palette"}
    assert command("palette", "build", "--check", "--into", tmp_path).status == 0


@pytest.mark.parametrize("debug", [False, True])
def test_a_bug_is_told_as_one(command: Command, monkeypatch: pytest.MonkeyPatch, *, debug: bool) -> None:
    """An unexpected exception is no traceback: it says that it is a bug and how to report it; --debug shows it."""
    monkeypatch.setattr(graph_files, "examine", lambda *_, **__: 1 // 0)
    answer = command("check", NESTED, *["--debug"] * debug)

    assert answer.status == 70
    assert "DF900: internal error: " in answer.err
    assert "please report it" in answer.err
    assert ("Traceback" in answer.err) == debug


@pytest.mark.parametrize("form", ["json", "dfg"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, form: str) -> None:
    """Piping into ``head`` ends quietly: no traceback, and nothing about a broken pipe."""
    dropflow = f"{sys.executable} -m dropflow unroll {NESTED} --set Rows.num_of_copies=2000 --format {form}"
    shell = ["bash", "-c", f"{dropflow} | head -c 9 >/dev/null; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert (done.stdout.strip(), done.stderr) == ("141", "")
