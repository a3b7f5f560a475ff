"""Contents in whole graphs, from the graph file to the result."""

import json
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import dropflow
from dropflow.engine.statistics import SessionResult
from dropflow.errors import AppError
from dropflow.graph import codec
from dropflow.graph.daliuge_write import write_pg
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.drawn_graphs import app, construct, data, draw, function
from translator.pipeline import translate


def run(source: Path | bytes, directory: Path, *, runner: str = "inline") -> SessionResult:
    """Translate and run a graph."""
    graph = translate(source, name="g").graph
    return local_run.run(
        graph, directory=local_run.prepare_directory(directory, overwrite=True), runner=runner, workers=2
    )


def written(directory: Path, name: str = "out.txt") -> str:
    """Return the text of a file in the session directory."""
    return (directory / "files" / name).read_text(encoding="utf-8")


@pytest.fixture
def gathering(tmp_path: Path) -> Path:
    """Return a graph of 375 pieces, gathered with a threshold of 18.4 %, where 69 (18.4 %) fail."""
    bad = "def Check(input):\n    if input[0] < 69:\n        raise ValueError('bad')\n    return input[0]\n"
    nodes = [
        function("Make", "def Make():\n    return [[i] for i in range(375)]\n"),
        data("made"),
        construct("Split", "Scatter", size=375, dropclass="dlg.apps.simple.GenericScatterApp", element=True),
        data("piece", inside="Split"),
        function("Check", bad, inside="Split"),
        data("checked", inside="Split"),
        construct("Collect", "Gather", dropclass="dlg.apps.simple.ArrayGatherApp", input_error_threshold=18.4),
        data("all"),
        function("Count", "def Count(input):\n    return str(len(input))\n", encoding="utf-8"),
        data("count", "File", filepath="out.txt"),
    ]
    chain = "Make > made > Split > piece > Check > checked > Collect > all > Count > count"
    return draw(tmp_path / "g.graph", nodes, chain)


@pytest.mark.parametrize("form", ["logical", "physical", "container"])
def test_a_share_of_errors_that_equals_the_threshold_is_tolerated(gathering: Path, tmp_path: Path, form: str) -> None:
    """A share of errors that equals the threshold is tolerated, in every format of a graph."""
    source: Path | bytes = gathering
    graph = translate(gathering, name="g").graph
    if form == "physical":
        stream = BytesIO()
        write_pg(graph, stream)
        source = stream.getvalue()
    elif form == "container":
        source = b"".join(codec.dump(graph))

    assert run(source, tmp_path / "run").status is SessionState.FINISHED
    assert written(tmp_path / "run") == "306"


def bash(name: str, command: str) -> dict[str, Any]:
    """Return a node with a shell command."""
    return app(name, "dlg.apps.bash_shell_app.BashShellApp", command=command)


@pytest.mark.parametrize("runner", ["inline", "processes"])
def test_a_fifo_is_not_accepted_as_output(tmp_path: Path, runner: str) -> None:
    """A FIFO that a graph names as output is not replaced, and one that a program makes is not accepted as content.

    The session ends with an error for each, and nothing waits for a reader or writer.
    """
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    nodes = [
        bash("Named", "echo hello > %o0"),
        data("named", "File", filepath=str(fifo)),
        bash("Made", "mkfifo %o0"),
        data("made", "File", filepath="made.txt"),
        bash("Kept", "mkfifo %o0"),
        data("kept"),
    ]
    graph = draw(tmp_path / "g.graph", nodes, "Named > named", "Made > made", "Kept > kept")
    result = run(graph, tmp_path / "run", runner=runner)

    assert result.status is SessionState.FAILED
    assert sorted(failure.text.split(",")[0] for failure in result.failures) == [
        f"{fifo} is a FIFO (named pipe)",
        *["the program left a FIFO (named pipe) at the path of its output"] * 2,
    ]
    assert fifo.is_fifo()


def test_a_fifo_can_be_read_by_path_only(tmp_path: Path) -> None:
    """A function that takes the value of a FIFO fails without waiting; a program with its path reads it."""
    os.mkfifo(tmp_path / "fifo")
    nodes = [
        data("fifo", "File", filepath=str(tmp_path / "fifo")),
        function("Value", "def Value(input):\n    return 1\n"),
        data("value"),
        bash("Both", "(echo hello > %i0 &) ; cat %i0 > %o0"),
        data("both", "File", filepath="out.txt"),
    ]
    result = run(draw(tmp_path / "g.graph", nodes, "fifo > Value > value", "fifo > Both > both"), tmp_path / "run")

    (failure,) = result.failures
    assert failure.text == f"{tmp_path / 'fifo'} is a FIFO (named pipe), which may have no end and cannot be read twice"
    assert written(tmp_path / "run") == "hello\n"


MAKE = "def Make():\n    return [dict(n=number) for number in range({copies})]\n"
SHOW = "def Show(input):\n    return repr(input)\n"


def split(copies: int) -> list[dict[str, Any]]:
    """Return a scatter of this many pieces, called ``piece``."""
    return [
        function("Make", MAKE.format(copies=copies)),
        data("made"),
        construct("Split", "Scatter", size=copies, dropclass="dlg.apps.simple.GenericScatterApp", element=True),
        data("piece", inside="Split"),
    ]


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("form", ["logical", "physical"])
def test_a_function_that_gathers_gets_all_inputs(tmp_path: Path, copies: int, form: str) -> None:
    """A PyFuncApp in a Gather gets a list of all inputs, in order, also with a scatter of one copy."""
    gather = {"dropclass": "dlg.apps.pyfunc.PyFuncApp", "func_name": "Show", "func_code": SHOW, "encoding": "utf-8"}
    nodes = [*split(copies), construct("Collect", "Gather", **gather), data("shown", "File", filepath="out.txt")]
    source: Path | bytes = draw(tmp_path / "g.graph", nodes, "Make > made > Split > piece > Collect > shown")
    if form == "physical":
        stream = BytesIO()
        write_pg(translate(source, name="g").graph, stream)
        source = stream.getvalue()
    run(source, tmp_path / "run")

    assert written(tmp_path / "run") == repr([{"n": number} for number in range(copies)])


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("encoding", ["pickle", "npy", "json", "eval"])
def test_all_values_of_a_drop_with_several_producers_are_read(tmp_path: Path, copies: int, encoding: str) -> None:
    """If the copies of a scatter write one drop outside of it, its value is a list in the order of the copies."""
    nodes = [
        *split(copies),
        function("Work", "def Work(input):\n    return input['n'] + 1\n", inside="Split", encoding=encoding),
        data("all"),
        function(
            "Show", "def Show(input):\n    return repr([int(one) for one in input])\n", reads=encoding, encoding="utf-8"
        ),
        data("shown", "File", filepath="out.txt"),
    ]
    chain = "Make > made > Split > piece > Work > all > Show > shown"
    run(draw(tmp_path / "g.graph", nodes, chain), tmp_path / "run", runner="threads")

    assert written(tmp_path / "run") == repr([number + 1 for number in range(copies)])


@pytest.mark.parametrize("runner", ["inline", "threads", "processes"])
def test_several_producers_at_one_port_give_a_list(tmp_path: Path, runner: str) -> None:
    """With two producers of one drop, or two drops at one port, the consumer gets both values in order."""
    nodes = [
        function("First", "def First():\n    return 'A'\n"),
        function("Second", "def Second():\n    return 'B'\n"),
        data("both"),
        data("one"),
        data("two"),
        function("Show", SHOW, encoding="utf-8"),
        function("Ports", SHOW.replace("Show", "Ports"), encoding="utf-8"),
        data("shown", "File", filepath="out.txt"),
        data("ports", "File", filepath="ports.txt"),
    ]
    chains = ["First > both", "Second > both > Show > shown", "First > one > Ports > ports", "Second > two > Ports"]
    run(draw(tmp_path / "g.graph", nodes, *chains), tmp_path / "run", runner=runner)

    assert written(tmp_path / "run") == "['A', 'B']"
    assert written(tmp_path / "run", "ports.txt") == "['A', 'B']"


@pytest.mark.parametrize(("content", "ok"), [("'same'", True), ("str(input)", False)])
def test_a_file_that_several_drops_write_is_kept_whole(tmp_path: Path, content: str, *, ok: bool) -> None:
    """The translation warns. Drops with equal contents complete; of different ones, one is kept and the others fail."""
    nodes = [
        *split(3),
        function("Write", f"def Write(input):\n    return {content}\n", inside="Split", encoding="utf-8"),
        data("file", "File", inside="Split", filepath="out.txt"),
    ]
    graph = draw(tmp_path / "g.graph", nodes, "Make > made > Split > piece > Write > file")
    result = run(graph, tmp_path / "run", runner="threads")

    assert [found.code for found in translate(graph).problems if found.severity.value == "warning"] == ["LG085"]
    assert result.status is (SessionState.FINISHED if ok else SessionState.FAILED)
    assert (result.states["ERROR"] == 0) == ok
    assert len(result.failures) == (0 if ok else 2)
    assert all("out.txt has been written by g_file_0-" in failure.text for failure in result.failures)
    assert written(tmp_path / "run") in ("same", *(str({"n": number}) for number in range(3)))


def test_a_loop_replaces_the_file_of_its_last_iteration(tmp_path: Path) -> None:
    """An iteration may replace the file of the iteration before it."""
    nodes = [
        data("begin"),
        construct("Loop", "Loop", size=4),
        function(
            "Step",
            "def Step(input=''):\n    return (input or '') + 'x'\n",
            inside="Loop",
            encoding="utf-8",
            reads="utf-8",
        ),
        data("state", "File", inside="Loop", filepath="out.txt"),
    ]
    graph = draw(tmp_path / "g.graph", nodes, "begin > Step > state")
    document = json.loads(graph.read_text())
    document["linkDataArray"][0]["loop_aware"] = "1"
    document["linkDataArray"].append(
        {"from": "state", "fromPort": "state.io", "to": "Step", "toPort": "Step.input", "closesLoop": True}
    )
    graph.write_text(json.dumps(document))

    assert [found.code for found in translate(graph).problems if found.severity.value == "warning"] == []
    assert run(graph, tmp_path / "run").status is SessionState.FINISHED
    assert written(tmp_path / "run") == "xxxx"


def test_text_of_a_command_is_text(tmp_path: Path) -> None:
    """Without an encoding, what a command has written is a str; other bytes are an error, and can be read."""
    shell = "dlg.apps.bash_shell_app.BashShellApp"
    nodes = [
        *(app("Say", shell, command="echo hélló > %o0"), data("said", "File")),
        *(app("Memory", shell, command="echo hello > %o0"), data("kept")),
        *(app("Noise", shell, command="printf '\\377\\376' > %o0"), data("noise", "File")),
        *(app("Nothing", shell, command="true > %o0"), data("nothing", "File")),
    ]
    graph = draw(tmp_path / "g.graph", nodes, "Say > said", "Memory > kept", "Noise > noise", "Nothing > nothing")

    ended = dropflow.run(graph, directory=tmp_path / "run", runner="inline")

    assert ended.content("said").value() == "hélló\n"
    assert ended.content("kept").value() == "hello\n"
    assert ended.content("nothing").value() is None
    with pytest.raises(AppError, match="is not in encoding 'utf-8'"):
        ended.content("noise").value()
    assert ended.content("noise").read() == b"\xff\xfe"
