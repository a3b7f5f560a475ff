"""``dropflow explain``: why a drop is in its state."""

from pathlib import Path

import numpy as np
import pytest

from dropflow import Graph, app, glob
from dropflow.cli.understand.explain import chain_lines
from dropflow.execution.journal import replay
from dropflow.graph.codec import load
from dropflow.graph.templates import Kind
from dropflow.graph.text_ids import oid
from dropflow.states import DropState
from dropflow.testing.drawing import draw, row
from tests.cli.answers import Command
from tests.fake_manager import FakeManager


@pytest.fixture
def strict_run(dropflow: Command, examples: Path, tmp_path: Path) -> Path:
    """A run that failed because its gather tolerates too few failures."""
    graph = examples / "error-threshold.graph"
    dropflow("run", graph, "--set", "Collect.input_error_threshold=0", "--keep", "run", "--runner", "inline")
    return tmp_path / "run"


def _drop(dropflow: Command, run: Path, name: str) -> str:
    """Return the text id of the only drop of a logical node."""
    keys = {node["name"]: node for node in dropflow("info", run / "graph.dfg", "--output", "json").json["nodes"]}
    assert keys[name]["drops"] == 1
    unrolled = dropflow("unroll", run / "graph.dfg", "-o", "-", "--format", "json")
    drops = [drop for drop in unrolled.json if drop.get("name") == name]
    return str(drops[0]["oid"])


@pytest.mark.slow
def test_an_error_is_traced_to_its_root_cause(dropflow: Command, strict_run: Path) -> None:
    """A drop in error because of another one names that drop and its error, from the journal alone."""
    report = _drop(dropflow, strict_run, "Report")
    answer = dropflow("explain", strict_run, report, "--output", "json").json

    assert (answer["session"], answer["state"]) == ("FAILED", "ERROR")
    assert any("the error started at" in reason for reason in answer["reasons"])
    assert any(reason.startswith("DF105 ") for reason in answer["reasons"])


@pytest.mark.slow
def test_a_result_knows_how_much_of_its_data_is_missing(dropflow: Command, examples: Path, tmp_path: Path) -> None:
    """A gather has tolerated two failures of ten: run and explain have the share, explain also which drops failed."""
    done = dropflow(
        "run", examples / "error-threshold.graph", "--keep", "run", "--runner", "inline", "--output", "json"
    )
    (lacking,) = done.json["incomplete"]
    reasons = dropflow("explain", tmp_path / "run", lacking["drop"], "--output", "json").json["reasons"]
    again = dropflow("resume", tmp_path / "run")
    copy = tmp_path / "elsewhere.txt"
    copy.write_bytes((tmp_path / "run" / "files" / "report.txt").read_bytes())
    found = dropflow("explain", copy, "--output", "json").json
    copy.write_text("another")
    unknown = dropflow("explain", copy, "--in", tmp_path)

    assert lacking["fraction"] == 0.8
    assert found["drop"] == lacking["drop"]
    assert "no result has the content of" in unknown.err
    assert any("made from 80 % of its data" in line and "that was tolerated" in line for line in reasons)
    assert "is made from 80 % of its data" in again.out.decode()


@pytest.mark.slow
def test_errors_and_skips_among_inputs_are_counted_apart(dropflow: Command, strict_run: Path) -> None:
    """An application that did not run because of its inputs reports how many failed, and how many it tolerates."""
    answer = dropflow("explain", strict_run, _drop(dropflow, strict_run, "Collect"), "--output", "json").json

    assert "of its 10 inputs 2 failed and 0 were skipped; it tolerates 0 % of failed inputs" in answer["reasons"]


@pytest.mark.slow
def test_drops_that_failed_alike_are_counted(ask: Command, manager: FakeManager) -> None:
    """A failure that other drops have, too, but for its numbers, is named with their number."""
    manager.fail("running", 1, "antenna 1 flagged: 18 drops")
    manager.fail("running", 2, "antenna 2 flagged: 18 drops")
    answer = ask("explain", "running", manager.drop("running", "fan_a_0-1").oid, "--output", "json")

    assert "1 other drop failed alike: antenna {n} flagged: 18 drops" in answer.json["reasons"]


@pytest.mark.slow
def test_the_end_of_an_id_is_enough_if_it_is_unique(dropflow: Command, strict_run: Path) -> None:
    """If it is not, the message names some drops that fit."""
    report = _drop(dropflow, strict_run, "Report")
    done, several = (dropflow("explain", strict_run, end) for end in (report[-16:], "_0-3"))

    assert (done.status, several.status) == (0, 2)
    assert done.out.decode().splitlines()[0] == report
    assert "drops end in '_0-3'" in several.err


@pytest.mark.slow
def test_a_directory_without_a_run_is_bad_input(dropflow: Command, tmp_path: Path) -> None:
    """The message says that there is none, also if the directory is given by its name, as a session is."""
    (tmp_path / "plain").mkdir()

    for arguments in (("explain", tmp_path, "x"), ("explain", "plain", "x"), ("times", "plain")):
        done = dropflow(*arguments)

        assert done.status == 2
        assert done.err.startswith("error DF107")
        assert "no run" in done.err


@pytest.mark.slow
def test_a_drop_of_a_session_is_explained_by_its_node(ask: Command, manager: FakeManager) -> None:
    """The reasons are those that the node reports, then the error of the root cause."""
    drop = manager.drop("failed", "fan_a_0-0")
    answer = ask("explain", "failed", drop.oid, "--output", "json")

    assert (answer.json["drop"], answer.json["state"]) == (drop.oid, "ERROR")
    assert answer.json["reasons"][: len(drop.reasons)] == list(drop.reasons)
    assert "DF105 no value 1" in answer.json["reasons"]


@pytest.mark.slow
def test_a_name_that_a_session_does_not_have_is_answered_with_near_ones(ask: Command, manager: FakeManager) -> None:
    """The answer has the names of nodes that begin so."""
    name = manager.drop("failed", "fan_a_0-0").name
    refused = ask("explain", "failed", f"{name} 999")

    assert f"did you mean '{name} 0' to" in refused.err


@pytest.mark.slow
def test_a_manager_that_does_not_answer_is_named(dropflow: Command, tmp_path: Path) -> None:
    """The origin of a file may be there, and the answer says where else was not searched."""
    copy = tmp_path / "copy.txt"
    copy.write_text("another")
    unknown = dropflow("explain", copy, "--to", "http://127.0.0.1:9")

    assert "the sessions of http://127.0.0.1:9 could not be searched: " in unknown.err
    assert "the search was in no directory: " in unknown.err


@pytest.mark.slow
def test_files_of_this_directory_are_known_beside_a_manager(ask: Command, tmp_path: Path, examples: Path) -> None:
    """A manager in the environment hides no run that is here, and the path of a content is that of its file."""
    assert ask("run", examples / "hello.graph", "--keep", "out", "--runner", "inline").status == 0
    (made,) = (tmp_path / "out" / "files").iterdir()
    copy = tmp_path / "copy.txt"
    copy.write_bytes(made.read_bytes())

    assert f"its content is {made}\n" in ask("explain", "./out", "Greeting").out.decode()
    assert f"{copy} is " in ask("explain", copy).err


@app
def length(text: str) -> int:
    """Return the number of characters."""
    return len(text)


@pytest.mark.slow
def test_the_file_of_one_of_many_inputs_is_named(dropflow: Command, tmp_path: Path) -> None:
    """The explanation of a copy, and the origin of what was made from it, name the file, not the pattern."""
    for number in range(12):
        (tmp_path / f"{number:02}.txt").write_text("x" * number)
    with Graph("files") as graph, graph.each(glob(tmp_path / "*.txt"), name="Text") as text:
        length(text).save("length-{humanKey}.txt")
    assert graph.run(directory=tmp_path / "run", runner="inline").ok
    copy = dropflow("explain", tmp_path / "run", "*.txt 3")
    origin = dropflow("explain", tmp_path / "run", "Length data 3", "--origin")

    assert f"its content is {tmp_path / '03.txt'}" in copy.out.decode()
    assert f"{tmp_path / '03.txt'}" in origin.out.decode()


@pytest.mark.slow
def test_a_copied_result_finds_its_session(ask: Command, tmp_path: Path) -> None:
    """By size and checksum, among the sessions of a manager."""
    ask("fetch", "finished", "-o", tmp_path / "here")
    copy = next(path for path in sorted((tmp_path / "here").rglob("*")) if path.is_file())
    answer = ask("explain", copy, "--output", "json")

    assert answer.json["state"] == "COMPLETED"
    assert "it has the same size and CRC-32" in answer.err


@pytest.mark.slow
def test_a_drop_that_ran_again_is_explained_by_the_loss(command: Command, examples: Path, tmp_path: Path) -> None:
    """After ``resume``, the reasons name the content that was lost or released, and what needed it."""
    directory = tmp_path / "run"
    command("run", examples / "imaging.graph", "--runner", "threads", "--keep", directory)
    journal = directory / "journal.dfj"
    journal.write_bytes(journal.read_bytes()[:-300])
    resumed = command("resume", directory, "--runner", "threads", "--output", "json")
    graph = load(directory / "graph.dfg")
    known = replay(graph, journal).known
    assert known is not None
    data = next(drop for drop in known.reset if graph.kinds[graph.template[drop]] == Kind.DATA)
    explained = command("explain", directory, oid(graph, data), "--output", "json")

    assert resumed.json["status"] == "FINISHED"
    assert "its content was released after its last consumer, and" in "\n".join(explained.json["reasons"])


# What a waiting drop waits for, down to the root.


def test_a_chain_ends_at_a_drop_that_waits_for_no_other() -> None:
    """Each drop between is named with its state, and the root has the reasons why it is not settled."""
    graph = draw("A -> x -> B -> y -> C")
    states = np.zeros(graph.drops, dtype=np.uint8)
    states[row(graph, "A")] = DropState.WRITING
    lines = chain_lines(graph, row(graph, "C"), states, lambda drop: (f"reason of {drop}",))

    assert [line.split()[0] for line in lines[1:-1]] == ["y", "B", "x", "A"]
    assert lines[-2].endswith("is WRITING")
    assert lines[-1] == f"  it is not settled: reason of {row(graph, 'A')}"


def test_a_drop_that_waits_for_no_other_has_no_chain() -> None:
    """Nor has one that is settled."""
    graph = draw("A -> x -> B")
    states = np.zeros(graph.drops, dtype=np.uint8)

    assert chain_lines(graph, row(graph, "A"), states, lambda _: ()) == ()
    states[row(graph, "B")] = DropState.ERROR
    assert chain_lines(graph, row(graph, "B"), states, lambda _: ()) == ()


def test_a_long_chain_is_shortened_in_the_middle() -> None:
    """Its beginning and its end are shown, and how many are left out."""
    graph = draw(" -> ".join(f"A{at} -> x{at}" for at in range(20)))
    states = np.zeros(graph.drops, dtype=np.uint8)
    lines = chain_lines(graph, row(graph, "x19"), states, lambda _: (), silent=("n1",))

    assert len(lines) == 12
    assert lines[7] == "  and so on, over 30 more drops"
    assert lines[-1].startswith("  n1 did not answer")
