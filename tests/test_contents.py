"""Contents in whole graphs, nested constructs, and user code that raises or returns anything."""

import json
import os
import signal
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

import dropflow
from dropflow.errors import AppError, BadGraphError
from dropflow.execution.journal import replay
from dropflow.execution.statistics import SessionResult
from dropflow.graph import codec
from dropflow.graph.build import GraphBuilder
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.states import SessionState
from tests.drawn_graphs import app, construct, data, draw, function
from tests.translator.documents import field, link, node, port
from translator.pipeline import Translation, translate


def run(source: Path | bytes, directory: Path, *, runner: str = "inline") -> SessionResult:
    """Translate and run a graph."""
    graph = translate(source, name="g").graph
    return local_run.run(
        graph, local_run.prepare_directory(directory, overwrite=True), RunOptions(runner=runner, workers=2)
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


# Results of nested constructs, from the graph file to the content.


def joined(path: Path, *links: dict[str, Any]) -> Path:
    """Return a graph file with more links."""
    content = json.loads(path.read_bytes())
    content["linkDataArray"] += links
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def ran(source: Path, directory: Path) -> Translation:
    """Translate and run a graph, which must finish."""
    made = translate(source, name="g")
    result = local_run.run(
        made.graph, local_run.prepare_directory(directory, overwrite=True), RunOptions(runner="inline")
    )
    assert result.status is SessionState.FINISHED
    return made


def groupby(name: str, key: str = "", inside: str = "") -> dict[str, Any]:
    """Return a group-by."""
    around = {"parentId": inside} if inside else {}
    return node(name, "GroupBy", field("group_key", key), isGroup=True, **{"name": name, **around})


@pytest.mark.parametrize(
    ("key", "groups"),
    [("", ["00 10", "01 11"]), ("Inner", ["00 10", "01 11"]), ("Outer", ["00 01", "10 11"])],
)
def test_nested_group_bys_group_by_their_keys(tmp_path: Path, key: str, groups: list[str]) -> None:
    """With nested group-bys of one scatter, a third one groups by the level in its key, or by the innermost."""
    both = function(
        "Both", "def Both(input, other):\n    return f'{other}{input[0][0]}'\n", inside="Inner", group_start=True
    )
    both["fields"].append(port("Both.other", "other", "InputPort", parameterType="ApplicationArgument"))
    nodes = [
        function("Make", "def Make():\n    return [[0], [1]]\n"),
        data("made"),
        construct("Split", "Scatter", size=2, dropclass="dlg.apps.simple.GenericScatterApp", element=True),
        data("piece", inside="Split"),
        groupby("Outer"),
        function("Take", "def Take(input):\n    return input[0][0]\n", inside="Outer", group_start=True),
        data("taken", inside="Outer"),
        groupby("Inner", inside="Outer"),
        both,
        data("pair", inside="Inner"),
        groupby("Groups", key),
        function(
            "Text",
            "def Text(input):\n    return ' '.join(input)\n",
            inside="Groups",
            group_start=True,
            encoding="utf-8",
        ),
        data("text", inside="Groups"),
    ]
    path = draw(
        tmp_path / "g.graph", nodes, "Make > made > Split > piece", "Take > taken", "Both > pair", "Text > text"
    )
    ends = (("piece", "Outer"), ("piece", "Inner"), ("pair", "Groups"))
    joined(path, link("taken", "taken.io", "Both", "Both.other"), *(link(a, f"{a}.io", b, "") for a, b in ends))

    assert [found.code for found in ran(path, tmp_path / "run").problems if found.code > "LG080"] == ["LG084"]
    assert [file.read_text() for file in sorted((tmp_path / "run" / "results").iterdir())] == groups


def test_a_loop_reads_its_own_output_from_the_second_iteration_on(tmp_path: Path) -> None:
    """Entry and carry edge end at one port, and neither is loop-aware: the application gets one value per iteration."""
    nodes = [
        function("Make", "def Make():\n    return 'a'\n"),
        data("made"),
        construct("Turn", "Loop", size=3),
        function("Add", "def Add(input):\n    return input + 'b'\n", inside="Turn"),
        data("value", inside="Turn"),
        function("Text", "def Text(input):\n    return input\n", encoding="utf-8"),
        data("text"),
    ]
    path = draw(tmp_path / "g.graph", nodes, "Make > made > Add > value", "Text > text")
    joined(
        path,
        link("value", "value.io", "Add", "Add.input", closesLoop=True),
        link("value", "value.io", "Text", "Text.input", loop_aware="1"),
    )

    assert [found.code for found in ran(path, tmp_path / "run").problems] == ["LG063"]
    assert [file.read_text() for file in (tmp_path / "run" / "results").iterdir()] == ["abbb"]


@pytest.mark.parametrize(("aware", "groups"), [("1", ["['abbb']"] * 2), ("0", ["['ab', 'abb', 'abbb']"] * 2)])
def test_a_group_by_takes_the_last_iteration_through_a_loop_aware_edge(
    tmp_path: Path, aware: str, groups: list[str]
) -> None:
    """With a loop in each copy of a scatter, a group has the last iteration, or all if the edge is not loop-aware."""
    nodes = [
        construct("Split", "Scatter", size=2),
        function("Make", "def Make():\n    return 'a'\n", inside="Split"),
        data("made", inside="Split"),
        construct("Turn", "Loop", size=3, inside="Split"),
        function("Add", "def Add(input):\n    return input + 'b'\n", inside="Turn"),
        data("value", inside="Turn"),
        groupby("Groups", "Split"),
        function(
            "Text",
            "def Text(input):\n    return repr(input)\n",
            inside="Groups",
            group_start=True,
            encoding="utf-8",
        ),
        data("text", inside="Groups"),
    ]
    path = draw(tmp_path / "g.graph", nodes, "Make > made > Add > value", "Text > text")
    joined(
        path,
        link("value", "value.io", "Add", "Add.input", closesLoop=True),
        link("value", "value.io", "Groups", "", loop_aware=aware),
    )

    ran(path, tmp_path / "run")
    assert [file.read_text() for file in sorted((tmp_path / "run" / "results").iterdir())] == groups


# User code that raises or returns anything: the session ends, and reports the drop.


MEMORY = "dlg.data.drops.memory.InMemoryDROP"
FILE = "dlg.data.drops.file.FileDROP"
BROKEN = """
class Broken(Exception):
    def __str__(self):
        raise SystemExit(9)
    __repr__ = __str__
"""
RAISED = {
    "broken": (BROKEN + "def f():\n    raise Broken", "its text is not available: __str__ raised SystemExit"),
    "surrogate": ("def f():\n    raise ValueError('\\udcff')", r"ValueError: \udcff"),
    "huge": ("def f():\n    raise ValueError('x' * 30_000_000)", "characters left out"),
    "exit": ("import sys\ndef f():\n    sys.exit('\\ud800')", "sys.exit"),
    "interrupt": ("def f():\n    raise KeyboardInterrupt('mine')", "KeyboardInterrupt: mine"),
    "generator": ("def f():\n    raise GeneratorExit", "GeneratorExit"),
    "base": ("class Own(BaseException):\n    pass\ndef f():\n    raise Own('own')", "Own: own"),
    "deep": ("def f():\n    f()", "RecursionError"),
    "group": ("def f():\n    raise ExceptionGroup('all', [ValueError('\\udcff'), TypeError()])", "ExceptionGroup: all"),
    "unpicklable": (
        "def f():\n    error = ValueError('held')\n    error.hold = (x for x in [])\n    raise error",
        "held",
    ),
    "module": ("def f():\n    raise ModuleNotFoundError('gone', name=5)", "gone"),
    "reduce": (
        "class Odd:\n    def __reduce__(self):\n        raise SystemExit\ndef f():\n    return Odd()",
        "sys.exit()",
    ),
    "fine": ("def f():\n    return 1", ""),
}


def _function(builder: GraphBuilder, name: str, code: str, *, component: str = MEMORY, path: str = "") -> None:
    fields = (Argument(name="func_name", value="f"), Argument(name="func_code", value=code))
    builder.app(name, component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=fields)
    named = (Argument(name="filepath", value=path),) if path else ()
    builder.data(f"{name}-out", component=component, category="Memory", arguments=named)
    builder.connect(name, f"{name}-out")


@pytest.fixture
def _ctrl_c_cancels() -> Iterator[None]:
    """Ignore SIGINT, as the command line does with a handler of its own."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.slow
@pytest.mark.usefixtures("_ctrl_c_cancels")
@pytest.mark.parametrize("runner", ["inline", "threads", "processes"])
def test_everything_that_user_code_raises_fails_its_attempt(runner: str, tmp_path: Path) -> None:
    """In each runner, every such attempt fails with its own reason, others complete, and the journal can be read."""
    builder = GraphBuilder("hostile")
    for name, (code, _) in RAISED.items():
        _function(builder, name, code)
    graph = builder.build()
    result = local_run.run(graph, tmp_path, RunOptions(runner=runner, workers=1))
    texts = {failure.name: failure.text for failure in result.failures}

    assert result.status is SessionState.FAILED
    assert texts.keys() == RAISED.keys() - {"fine"}
    assert [name for name in texts if RAISED[name][1] not in texts[name]] == []
    assert replay(graph, tmp_path / "journal.dfj").core.status is SessionState.FAILED
    assert msgspec.json.decode((tmp_path / "summary.json").read_bytes())["status"] == "FAILED"


@pytest.mark.parametrize(
    ("path", "said"), [("a\0b", "has a NUL character"), ("a\udcffb", "cannot be written in UTF-8")]
)
@pytest.mark.parametrize("where", ["field", "port"])
def test_a_path_that_cannot_be_written_is_reported(path: str, said: str, where: str, tmp_path: Path) -> None:
    """A path in a field is refused before the run; a path that an application computes fails its attempt."""
    if where == "field":
        builder = GraphBuilder("path")
        _function(builder, "one", "def f():\n    return 1", component=FILE, path=path)
        with pytest.raises(BadGraphError, match="DF104") as caught:
            local_run.run(builder.build(), tmp_path)
        assert said in str(caught.value.problems[0])
        return
    result = local_run.run(_named_by_input(path), tmp_path, RunOptions(runner="threads"))

    assert result.status is SessionState.FAILED
    assert said in result.failures[0].text


def _named_by_input(path: str) -> PhysicalGraph:
    """Return an application whose input is the name of the file that it writes."""
    builder = GraphBuilder("path")
    code = f"def name():\n    return {path.encode('unicode_escape').decode()!r}.encode().decode('unicode_escape')"
    fields = (
        Argument(name="func_name", value="name"),
        Argument(name="func_code", value=code),
        Argument(name="out", usage="OutputPort", encoding="pickle"),
    )
    builder.app("name", component="dlg.apps.pyfunc.PyFuncApp", category="PyFuncApp", arguments=fields)
    builder.data("named", component=MEMORY, category="Memory")
    fields = (
        Argument(name="out", usage="OutputPort", encoding="path"),
        Argument(name="command", value="touch {out}"),
    )
    builder.app("write", component="dlg.apps.bash_shell_app.BashShellApp", category="BashShellApp", arguments=fields)
    builder.data("written", component=FILE, category="File")
    builder.connect("name", "named", source_port="out")
    builder.connect("named", "write", target_port="out")
    builder.connect("write", "written", source_port="out")
    return builder.build()


@pytest.mark.parametrize("method", ["__init__", "parameters", "run"])
@pytest.mark.parametrize("raised", ["Broken()", "SystemExit(3)", "ValueError('\\udcff')"])
def test_the_class_of_a_user_may_raise_anywhere(
    method: str, raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in the constructor is refused before the run; one in `run` fails the attempt."""
    module = f"hostile_{method.strip('_')}_{abs(hash(raised))}"
    source = f"""
        from dropflow.apps.app_interface import App
        {{}}
        class Hostile(App):
            component = None
            parameters = property(lambda self: self.meet("parameters"))
            def meet(self, method):
                if method == {method!r}:
                    raise {raised}
            def __init__(self, template):
                self.template = template
                self.meet("__init__")
            def run(self, context):
                self.meet("run")
    """
    (tmp_path / f"{module}.py").write_text(dedent(source).replace("{}", BROKEN))
    monkeypatch.syspath_prepend(tmp_path)
    builder = GraphBuilder("hostile")
    builder.app("one", component=f"{module}.Hostile", category="PythonApp")
    builder.data("out", component=MEMORY, category="Memory")
    builder.connect("one", "out")
    if method == "run":
        result = local_run.run(builder.build(), tmp_path / "session", RunOptions(runner="threads"))
        assert result.status is SessionState.FAILED
        return
    with pytest.raises(BadGraphError, match="cannot be made"):
        local_run.run(builder.build(), tmp_path / "session")
