"""Graphs that cannot be used give problems with codes and exit status 2, never a traceback or a hang."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dropflow import Graph, app
from dropflow.cli.main import main
from managers.manager_server import Service
from managers.node.manager import NodeManager
from tests.cli.answers import Command
from tests.cli.graph_documents import document, link, node
from translator.web.records import TranslationOrder
from translator.web.translation_process import SOURCE, translate


def nested(depth: int) -> bytes:
    """Return nested scatters of a thousand copies each."""
    nodes = [
        node(f"s{level}", "Scatter", parent=f"s{level - 1}" if level else "", num_of_copies=1000)
        for level in range(depth)
    ]
    return document([*nodes, node("d", "Memory", parent=f"s{depth - 1}")], [])


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "LG001"),
    "no JSON": (b"hello", "LG001"),
    "cut off": (b'{"modelData": {', "LG001"),
    "not UTF-8": (b"\xff\xfe\x00", "LG001"),
    "a number": (b"42", "LG001"),
    "another document": (b'{"name": "package.json"}', "LG001"),
    "deep objects": (b'{"a":' * 100_000, "LG001"),
    "deep lists": (b"[" * 100_000, "PG001"),
    "dangling edge": (document([node("A", "BashShellApp", command="true")], [link("A", "B")]), "LG003"),
    "unknown parent": (document([node("A", "Memory", parent="nowhere")], []), "LG004"),
    "parents in a circle": (
        document(
            [node("a", "Scatter", parent="b", num_of_copies=2), node("b", "Scatter", parent="a", num_of_copies=2)], []
        ),
        "LG005",
    ),
    "twice the same id": (document([node("A", "Memory"), node("A", "Memory")], []), "LG006"),
    "missing port": (
        document(
            [node("A", "BashShellApp", command="true"), node("d", "Memory")],
            [{"from": "A", "fromPort": "gone", "to": "d", "toPort": "d-io"}],
        ),
        "LG010",
    ),
    "negative copies": (
        document([node("s", "Scatter", num_of_copies=-1), node("d", "Memory", parent="s")], []),
        "LG020",
    ),
    "copies in words": (
        document([node("s", "Scatter", num_of_copies="many"), node("d", "Memory", parent="s")], []),
        "LG020",
    ),
    "unknown category": (document([node("A", "Teleporter")], []), "LG030"),
    "cycle": (
        document([node("A", "BashShellApp", command="true"), node("d", "Memory")], [link("A", "d"), link("d", "A")]),
        "LG050",
    ),
    "too large": (nested(4), "LG120"),
    "a broken list of drops": (b'[{"oid": "a"}]', "PG001"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_unroll_reports_the_problem(dropflow: Command, name: str) -> None:
    """`unroll --summary` lists the problem with its code, place and text; the exit status is 2."""
    data, code = BAD[name]
    done = dropflow("unroll", "-", "--summary", "--output", "json", stdin=data)
    problems = done.json["problems"]

    assert done.status == 2
    assert done.json["ok"] is False
    assert code in [found["code"] for found in problems], problems
    assert all(found["text"] for found in problems)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cut off", "cycle", "too large", "a broken list of drops"])
def test_run_reports_the_problem(dropflow: Command, name: str) -> None:
    """`run` reads graphs as `unroll` does, and refuses the same ones, as JSON and as text."""
    data, code = BAD[name]
    done = dropflow("run", "-", "--output", "json", stdin=data)
    text_answer = dropflow("run", "-", stdin=data)

    assert (done.status, text_answer.status) == (2, 2)
    assert code in json.dumps(done.json)
    assert code in text_answer.err
    assert text_answer.out == b""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "check", "unroll", "info"])
def test_a_path_that_is_not_a_file_is_bad_input(dropflow: Command, name: str, tmp_path: Path) -> None:
    """The message names the directory, or the file that does not exist."""
    for path in (tmp_path, tmp_path / "absent.graph"):
        done = dropflow(name, path, "--output", "json")

        assert done.status == 2
        assert path.name in done.out.decode()


@pytest.mark.slow
def test_two_hundred_megabytes_of_braces_are_refused(process: Command, tmp_path: Path) -> None:
    """A huge file of braces neither hangs nor fills the memory."""
    path = tmp_path / "braces.graph"
    with path.open("wb") as stream:
        for _ in range(200):
            stream.write(b"{" * 1_000_000)
    done = process("check", path, "--output", "json")

    assert done.status == 2
    assert done.json["problems"][0]["code"] == "LG001"


@pytest.mark.slow
def test_all_problems_are_reported(process: Command) -> None:
    """Each has its place in the document."""
    data = document(
        [node("A", "Teleporter"), node("s", "Scatter", num_of_copies="many"), node("d", "Memory", parent="s")],
        [link("d", "missing")],
    )
    done = process("check", "-", "--output", "json", stdin=data)
    errors = {found["code"]: found["where"] for found in done.json["problems"] if found["severity"] == "error"}

    assert {"LG003", "LG020", "LG030"} <= errors.keys()
    assert all(where.startswith("/") for where in errors.values())


@pytest.mark.slow
def test_an_unknown_class_is_refused_before_anything_runs(dropflow: Command, tmp_path: Path) -> None:
    """All unknown classes are named, and no session directory is made."""
    nodes = [node("A", "DALiuGEApp", dropclass="nowhere.Alpha"), node("B", "DALiuGEApp", dropclass="nowhere.Beta")]
    done = dropflow("run", "-", "--keep", "here", stdin=document(nodes, []))

    assert done.status == 2
    assert "nowhere.Alpha" in done.err
    assert "nowhere.Beta" in done.err
    assert not (tmp_path / "here").exists()


@pytest.mark.slow
def test_a_bad_graph_does_not_remove_earlier_results(dropflow: Command, examples: Path, tmp_path: Path) -> None:
    """The directory of --keep is cleared only when the next run begins."""
    dropflow("run", examples / "hello.graph", "--keep", "here")
    done = dropflow("run", "-", "--keep", "here", stdin=document([node("A", "DALiuGEApp", dropclass="no.Such")], []))

    assert done.status == 2
    assert (tmp_path / "here" / "files" / "hello.txt").exists()


@pytest.mark.slow
def test_a_wrong_option_is_reported_as_json(dropflow: Command) -> None:
    """A mistake on the command line has the shape of any other error."""
    done = dropflow("run", "x.graph", "--runner", "warp", "--output", "json")

    assert done.status == 2
    assert "warp" in done.json["error"]["text"]


# check, unroll, run, submit and the translator service report the same problems of a graph.


PYFUNC = "dlg.apps.pyfunc.PyFuncApp"
SameProblemsCommand = Callable[..., tuple[int, dict[str, Any]]]
Finding = tuple[str, str]


def graph(
    category: str,
    *,
    types: dict[str, str] | None = None,
    encodings: dict[str, str] | None = None,
    alone: bool = False,
    **fields: object,
) -> bytes:
    """Return a graph with a node called `wanted`, joined to a Memory node unless it is alone."""
    wanted = node("wanted", category, **fields)
    for field in wanted["fields"]:
        field["type"] = (types or {}).get(field["name"], field.get("type", "String"))
        field["encoding"] = (encodings or {}).get(field["name"], field.get("encoding", ""))
        if field["name"] not in ("dropclass", "func_name", "func_code", "base_name", "command", "io"):
            field["parameterType"] = "ApplicationArgument"
    if alone:
        return document([wanted], [])
    other = node("other", "BashShellApp", command="true") if category in DATA else node("other", "Memory")
    return document([wanted, other], [link("wanted", "other")])


@app
def list_values(count: int) -> list[int]:
    """Return numbers."""
    return list(range(count))


@app
def keep_value(value: int) -> int:
    """Return the value."""
    return value


DATA = ("File", "S3", "RDBMS", "Memory")
COMPONENTS: dict[str, tuple[bytes, str]] = {
    "S3": (graph("S3"), "DF104"),
    "database": (graph("RDBMS"), "DF104"),
    "unknown class of ours": (graph("DALiuGEApp", dropclass="dlg.apps.simple.CopyAp"), "DF103"),
    "unknown class of data": (graph("File", dropclass="dlg.data.drops.file.FileDROQ"), "DF103"),
    "no class": (graph("DALiuGEApp", dropclass="dlg.apps.simple.PythonApp"), "DF103"),
    "number in words": (graph("DALiuGEApp", dropclass="dlg.apps.simple.SleepApp", sleep_time="long"), "DF104"),
    "number in words, typed": (
        graph("DALiuGEApp", dropclass="dlg.apps.simple.SleepApp", sleep_time="long", types={"sleep_time": "Float"}),
        "DF104",
    ),
    "argument in words": (
        graph("PyFuncApp", func_name="f", func_code="def f(n): return n", n="many", types={"n": "Integer"}),
        "DF104",
    ),
    "path out of the session": (graph("File", filepath="../../x"), "DF104"),
    "unknown placeholder in a path": (graph("File", filepath="{nope}.txt"), "DF104"),
    "no command": (graph("BashShellApp", command=" "), "DF104"),
    "no function": (graph("PyFuncApp", func_name=""), "DF104"),
    "function of one word": (graph("PyFuncApp", func_name="nosuchbuiltin"), "DF104"),
    "code that is no Python": (graph("PyFuncApp", func_name="f", func_code="def f(:"), "DF104"),
    "code without the function": (graph("PyFuncApp", func_name="f", func_code="def g(): pass"), "DF104"),
    "code without a name": (graph("PyFuncApp", func_code="def f(): pass\ndef g(): pass"), "DF104"),
    "branch without condition": (
        graph("Branch", dropclass="dlg.apps.branch.Branch", func_name="c", func_code="def d(x): return x"),
        "DF104",
    ),
    "initial data that are no JSON": (
        graph("Memory", pydata="{not json", types={"pydata": "Json"}, alone=True),
        "DF104",
    ),
    "encoding that there is not": (
        graph("PyFuncApp", func_name="f", func_code="def f(): return 1", encodings={"io": "nopeenc"}),
        "DF104",
    ),
    "argument without a value": (graph("PyFuncApp", func_name="f", func_code="def f(a, b=1): return a"), "DF105"),
    "defaults that are no object": (graph("PyFuncApp", func_name="len", func_defaults="[1]"), "DF104"),
    "shared library": (graph("DynlibApp", libpath="libx.so"), "DF106"),
    "class of a module that is missing": (graph("DALiuGEApp", dropclass="no.such.Class"), "DF103"),
    "class that its module does not have": (graph("DALiuGEApp", dropclass="json.decoder.Nothing"), "DF103"),
    "module that its package does not have": (graph("DALiuGEApp", dropclass="json.nosuch.Thing"), "DF103"),
    "function of a module that is missing": (graph("PyFuncApp", func_name="nosuchmodule.f"), "DF106"),
    "function that its module does not have": (graph("PyFuncApp", func_name="json.dumpz"), "DF104"),
    "function that a compiled module does not have": (graph("PyFuncApp", func_name="math.sqroot"), "DF104"),
    "class of base_name whose module is missing": (
        graph("PythonMemberFunction", func_name="__init__", base_name="nosuchmodule.K"),
        "DF106",
    ),
    "class of base_name that its module does not have": (
        graph("PythonMemberFunction", func_name="Nope", base_name="json.Nope"),
        "DF104",
    ),
    "variable that is not set": (
        graph("DALiuGEApp", dropclass="dlg.apps.simple.SleepApp", sleep_time="$DLG_NOT_SET_HERE"),
        "DF104",
    ),
    "variable in a path": (graph("File", filepath="$DLG_NOT_SET_HERE/x"), "DF104"),
}
"""Components that cannot run here or cannot run at all, with the code of the one problem."""


def wanted(*nodes: dict[str, Any], links: tuple[tuple[str, str], ...] = (), closing: str = "") -> bytes:
    """Return a graph with these nodes; the link that starts from `closing` closes its loop."""
    drawn = [link(*ends) | {"closesLoop": ends[0] == closing, "loop_aware": "1"} for ends in links]
    return document(list(nodes), drawn)


def sleeping(name: str, **more: Any) -> dict[str, Any]:
    """Return an application that can run."""
    return node(name, "DALiuGEApp", dropclass="dlg.apps.simple.SleepApp", **more)


HUGE = 10**400
_LOOP = (
    node("l", "Loop", num_of_iter=2),
    sleeping("start", parent="l", group_start=True),
    node("outside", "Memory"),
    sleeping("middle", parent="l"),
    node("end", "Memory", parent="l", group_end=True),
)
_AROUND = (("start", "outside"), ("outside", "middle"), ("middle", "end"), ("end", "start"))
STRUCTURE: dict[str, tuple[bytes, str]] = {
    "no end of an edge": (wanted(sleeping("a"), links=(("a", "b"),)), "LG003"),
    "copies in words": (wanted(node("s", "Scatter", num_of_copies="many"), sleeping("a", parent="s")), "LG020"),
    "copies beyond all numbers": (wanted(node("s", "Scatter", num_of_copies=HUGE), sleeping("a", parent="s")), "LG020"),
    "negative copies": (wanted(node("s", "Scatter", num_of_copies=-1), sleeping("a", parent="s")), "LG020"),
    "more copies than memory": (wanted(node("s", "Scatter", num_of_copies=2**62), sleeping("a", parent="s")), "LG120"),
    "iterations beyond all numbers": (wanted(node("l", "Loop", num_of_iter=HUGE), sleeping("a", parent="l")), "LG020"),
    "unknown category": (wanted(node("a", "Nonsense")), "LG030"),
    "cycle": (wanted(sleeping("a"), node("b", "Memory"), links=(("a", "b"), ("b", "a"))), "LG050"),
    "cycle through the carry of a loop": (wanted(*_LOOP, links=_AROUND, closing="end"), "LG050"),
    "loop without end": (wanted(node("l", "Loop", num_of_iter=2), sleeping("a", parent="l")), "LG060"),
    "scatters that do not fit": (
        wanted(
            node("s", "Scatter", num_of_copies=2),
            node("t", "Scatter", num_of_copies=3),
            sleeping("a", parent="s"),
            node("b", "Memory", parent="t"),
            links=(("a", "b"),),
        ),
        "LG070",
    ),
    "content of a gather without input, in a scatter": (
        wanted(
            node("g", "Gather", num_of_inputs=2),
            node("s", "Scatter", num_of_copies=2),
            node("u", "Memory", parent="g"),
            sleeping("a", parent="s", group_start=True),
            links=(("u", "a"),),
        ),
        "LG070",
    ),
    "group-by without scatter": (
        wanted(node("d", "Memory"), node("k", "GroupBy"), sleeping("a", parent="k"), links=(("d", "k"),)),
        "LG081",
    ),
    "no graph": (b"{", "LG001"),
    "digits without end": (document([node("s", "Scatter")], []).replace(b'"s"', b"9" * 5000, 1), "LG001"),
}
"""Faults of structure, with the code of the first problem; `preview` shows also graphs that are too large."""


@pytest.fixture
def problems_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SameProblemsCommand:
    """Run a command in this process, and return its exit status and its answer."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, dict[str, Any]]:
        with pytest.raises(SystemExit, match=r"^\d+$") as ended:
            main([*map(str, arguments), "--output", "json"])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return int(str(ended.value.code or 0)), answer

    return call


@pytest.fixture(scope="module")
def node_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node manager."""
    with closing(NodeManager("n", root=tmp_path_factory.mktemp("n"), runner="threads", workers=1)) as manager:
        served = Service(manager, token=None)
        served.start()
        yield served.url
        served.close()


def found(answer: dict[str, Any], severity: str = "error") -> list[Finding]:
    """Return code and text of the problems of a severity."""
    return [(one["code"], one["text"]) for one in answer["problems"] if one["severity"] == severity]


def translated(content: bytes, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return state and report of a translation by the worker of the service."""
    folder.mkdir()
    (folder / SOURCE).write_bytes(content)
    report = translate(TranslationOrder(name="g", created=0.0), folder, lambda _: None)
    return report.state, {
        "problems": [
            {"code": problem.code, "text": problem.text, "severity": problem.severity} for problem in report.problems
        ]
    }


@pytest.mark.parametrize("kind", STRUCTURE)
def test_faults_of_structure_are_one_answer_of_all_commands(
    problems_of: SameProblemsCommand, tmp_path: Path, node_url: str, kind: str
) -> None:
    """Every command and the service refuse the graph with the same problems, and exit status 2."""
    content, code = STRUCTURE[kind]
    path = tmp_path / "g.graph"
    path.write_bytes(content)
    status, said = problems_of("check", path)
    expected = sorted(found(said))

    assert (status, code in [one for one, _ in expected]) == (2, True), expected
    for arguments in (
        ("unroll", path, "--summary"),
        ("partition", path, "-k", "2"),
        ("run", path),
        ("submit", path, "--to", node_url),
        *([] if code == "LG120" else [("info", path)]),
    ):
        status, answer = problems_of(*arguments)
        assert (status, sorted(found(answer))) == (2, expected), arguments
    state, report = translated(content, tmp_path / "service")  # its limits are its own, and so are their texts
    assert (state, sorted(one for one, _ in found(report))) == ("refused", [one for one, _ in expected])


@pytest.mark.parametrize(("width", "code"), [(3, "LG070"), ("{x}", "LG090"), ("many", "LG020")])
def test_what_follows_from_an_error_is_not_reported(
    problems_of: SameProblemsCommand, tmp_path: Path, width: object, code: str
) -> None:
    """Not the argument at an edge that cannot be drawn, and only one problem of a number of copies."""
    nodes = [
        node("s", "Scatter", num_of_copies=2),
        node("t", "Scatter", num_of_copies=width),
        node("a", "Memory", parent="s"),
        node("b", "PyFuncApp", parent="t", func_name="f", func_code="def f(io): return io"),
    ]
    nodes[1]["fields"][1]["type"] = "Integer"
    path = tmp_path / "g.graph"
    path.write_bytes(wanted(*nodes, links=(("a", "b"),)))

    problems = [(found["code"], found["where"]) for found in problems_of("check", path)[1]["problems"]]
    assert code in dict(problems)
    assert "DF105" not in dict(problems)
    assert len({where for _, where in problems}) == len(problems)


def test_an_edge_out_of_a_gather_without_input_is_an_ordinary_edge(
    problems_of: SameProblemsCommand, tmp_path: Path
) -> None:
    """A gather or MKN that nothing enters has one instance, which feeds the start of a loop and other applications."""
    for category in ("Gather", "MKN"):
        path = tmp_path / "g.graph"
        path.write_bytes(
            wanted(
                node("g", category, num_of_inputs=2, m=2, k=1, n=1),
                node("u", "Memory", parent="g"),
                sleeping("after", group_start=True),
                node("l", "Loop", num_of_iter=2),
                sleeping("start", parent="l", group_start=True),
                node("end", "Memory", parent="l", group_end=True),
                links=(("u", "after"), ("u", "start"), ("start", "end"), ("end", "start")),
                closing="end",
            )
        )
        status, answer = problems_of("unroll", path, "--summary")

        assert (status, answer["drops"], answer["edges"]) == (0, 6, 5), answer
        assert found(answer) == []


@pytest.mark.parametrize("kind", COMPONENTS)
def test_what_cannot_run_is_an_error_here_and_a_warning_of_a_translation(
    problems_of: SameProblemsCommand, tmp_path: Path, node_url: str, kind: str
) -> None:
    """`run`, `check --here` and the node of a submission refuse it; where the graph is translated it is a warning.

    Code and text are the same everywhere, and each is reported once.
    """
    content, code = COMPONENTS[kind]
    path = tmp_path / "g.graph"
    path.write_bytes(content)
    status, said = problems_of("run", path)

    assert (status, [one for one, _ in found(said)]) == (2, [code])
    for arguments in (("check", path, "--here"), ("submit", path, "--to", node_url)):
        status, answer = problems_of(*arguments)
        assert (status, found(answer)) == (2, found(said)), arguments
    for arguments in (("check", path), ("unroll", path, "--summary")):
        status, answer = problems_of(*arguments)
        assert (status, found(answer), found(answer, "warning")) == (0, [], found(said)), arguments
    for arguments in (("partition", path, "-k", "1"), ("info", path)):
        assert problems_of(*arguments)[0] == 0, arguments
    state, report = translated(content, tmp_path / "service")
    assert (state, found(report), found(report, "warning")) == ("done", [], found(said))


@pytest.mark.parametrize(("copies", "settings", "code"), [(-1, (), "LG020"), ("{n}", ("--set", "n=-1"), "LG091")])
def test_a_negative_number_of_copies_is_one_error(
    problems_of: SameProblemsCommand, tmp_path: Path, copies: object, settings: tuple[str, ...], code: str
) -> None:
    """Not also one of the application of the construct, nor one of each field that uses a parameter."""
    with Graph("copies", "Copies.") as graph:
        count = graph.parameter("n", 5, minimum=1)
        with graph.each(list_values(3), copies=count) as one:
            keep_value(one)
    made = json.loads(graph.save(tmp_path / "copies.graph").read_text())
    for one_node in made["nodeDataArray"]:
        for field in [*one_node["fields"], *one_node.get("inputAppFields", ())]:
            if field["name"] == "num_of_copies":
                field["value"] = copies
    (tmp_path / "copies.graph").write_text(json.dumps(made))

    for verb in ("check", "unroll", "run"):
        status, answer = problems_of(verb, tmp_path / "copies.graph", *settings)
        errors = [found["code"] for found in answer["problems"] if found["severity"] == "error"]
        assert (verb, status, errors) == (verb, 2, [code])
        assert "DF104" not in [found["code"] for found in answer["problems"]]


@pytest.mark.slow
def test_a_bad_call_on_a_branch_is_not_an_error(problems_of: SameProblemsCommand, tmp_path: Path) -> None:
    """A function that lacks an argument may be skipped by a branch; then the graph runs."""
    fields = {"func_name": "f", "func_code": "def f(a): return a", "dropclass": PYFUNC}
    nodes = [
        node("branch", "Branch", dropclass="dlg.apps.simple.Branch", func_name="c", func_code="def c(): return False"),
        node("data", "Memory"),
        node("wanted", "PyFuncApp", **fields),
    ]
    nodes[0]["fields"].append({"id": "branch-true", "name": "true", "usage": "OutputPort", "type": "Object"})
    nodes[2]["fields"][0]["type"] = "Event"
    links = [link("branch", "data") | {"fromPort": "branch-true"}, link("data", "wanted")]
    path = tmp_path / "g.graph"
    path.write_bytes(document(nodes, links))

    assert problems_of("check", path)[0] == 0
    status, answer = problems_of("run", path)
    assert (status, answer["states"]["SKIPPED"]) == (0, 2)


def test_problems_of_components_and_of_the_translation_are_reported_together(
    problems_of: SameProblemsCommand, tmp_path: Path
) -> None:
    """A wrong multiplicity, an unknown class and a missing command are three problems, each once."""
    path = tmp_path / "g.graph"
    path.write_bytes(
        document(
            [
                node("s", "Scatter", num_of_copies="many"),
                node("a", "DALiuGEApp", parent="s", dropclass="dlg.apps.simple.Nothing"),
                node("b", "BashShellApp"),
            ],
            [],
        )
    )
    answers = [problems_of(*arguments) for arguments in (("run", path), ("check", path), ("unroll", path, "--summary"))]

    assert [status for status, _ in answers] == [2, 2, 2]
    assert sorted(code for code, _ in found(answers[0][1])) == ["DF103", "DF104", "LG020"]
    for _, answer in answers[1:]:
        assert [code for code, _ in found(answer)] == ["LG020"]
        assert sorted(code for code, _ in found(answer, "warning")) == ["DF103", "DF104"]


def test_checking_and_translating_run_no_code_of_a_graph(
    problems_of: SameProblemsCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No module of a class or function, no func_code, and no pickle among the defaults is executed."""
    import base64  # noqa: PLC0415
    import pickle  # noqa: PLC0415

    (tmp_path / "bomb_of_a_user.py").write_text("raise SystemExit('executed')\ndef f(): pass\nclass Boom: pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    class Armed:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return SystemExit, ("executed",)

    armed = base64.b64encode(pickle.dumps(Armed())).decode()
    path = tmp_path / "g.graph"
    path.write_bytes(
        document(
            [
                node("a", "DALiuGEApp", dropclass="bomb_of_a_user.Boom"),
                node("b", "PyFuncApp", func_name="bomb_of_a_user.f"),
                node("c", "PyFuncApp", func_name="g", func_code="raise SystemExit('executed')\ndef g(): pass"),
                node("d", "PyFuncApp", func_name="len", func_defaults=json.dumps({"obj": armed})),
            ],
            [],
        )
    )

    assert problems_of("check", path)[0] == 0
    assert problems_of("unroll", path, "--summary")[0] == 0
    assert translated(path.read_bytes(), tmp_path / "service")[0] == "done"
