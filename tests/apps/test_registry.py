"""Finding the application behind a class name, without importing it, and the names of runners."""

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

import dropflow
from dropflow.apps.app_interface import App
from dropflow.apps.check import MissingName, find_absent, names_of
from dropflow.apps.needs import check
from dropflow.apps.registry import APPLICATIONS, app_class, app_components, app_for
from dropflow.errors import BadGraphError, BadParameterError, LinkError, MissingDependencyError, UnknownComponentError
from dropflow.failure import Severity
from dropflow.graph.templates import Argument, Kind, Link, Template
from dropflow.runners.runner_choice import RunnerChoice, parse_runner
from tests.corpus import corpus_files, needs_corpus
from tests.nightly import nightly
from translator.pipeline import examine


def node(component: str, category: str = "", *fields: Argument) -> Template:
    """An application node called wanted."""
    return Template(key="k", name="wanted", kind=Kind.APP, component=component, category=category, arguments=fields)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_application_is_found_under_every_name_it_has(name: str) -> None:
    """The table has the class of each definition, under its name and its older names."""
    found = app_class(node(f"dlg.apps.simple.{name}"))

    assert found.component.name == name
    assert found.component.kind is Kind.APP
    for each in (found.component.dropclass, *found.component.aliases):
        assert app_class(node(each)) is found


@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_application_describes_itself(name: str) -> None:
    """Each definition, parameter and port has a description; defaults are of their parameter's type."""
    component = app_class(node(name)).component

    assert component.description.endswith(".")
    assert all(parameter.description for parameter in component.parameters)
    assert all(port.description for port in component.ports)
    names = [parameter.name for parameter in component.parameters]
    assert len(names) == len(set(names))


def test_every_application_is_in_the_palette() -> None:
    """`app_components` has one definition for each application."""
    assert [component.name for component in app_components()] == list(APPLICATIONS)


@pytest.mark.parametrize(
    ("component", "category", "name"),
    [
        ("dlg.apps.pyfunc.PyFuncApp", "PyFuncApp", "PyFuncApp"),
        ("dlg.apps.pyfunc.PyFuncApp", "PythonMemberFunction", "PythonMemberFunction"),
        ("dfms.apps.pyfunc.PyFuncApp", "PythonApp", "PyFuncApp"),
        ("apps.pyfunc.PyFuncApp", "Component", "PyFuncApp"),
        ("dlg.apps.bash_shell_app.BashShellApp", "BashShellApp", "BashShellApp"),
        ("dlg.apps.crc.CRCStreamApp", "", "CRCApp"),
        ("dlg.apps.scp.ScpApp", "DALiuGEApp", "CopyApp"),
        ("", "DynlibProcApp", "DynlibProcApp"),
        ("dlg.apps.branch.Branch", "Branch", "Branch"),
        ("dlg.apps.simple.SimpleBranch", "PythonApp", "SimpleBranch"),
        ("dropflow.apps.GroupByApp", "", "GroupByApp"),
        ("PythonApp", "BashShellApp", "BashShellApp"),
        ("", "PyFuncApp", "PyFuncApp"),
        ("", "Branch", "Branch"),
        (" dlg.apps.simple.CopyApp ", "", "CopyApp"),
    ],
)
def test_old_class_names_and_placeholders_are_resolved(component: str, category: str, name: str) -> None:
    """Older package names, blank classes and placeholders are resolved to the right application."""
    assert app_class(node(component, category)).component.name == name


def test_a_function_or_command_decides_the_kind_of_a_placeholder() -> None:
    """A placeholder with a func_name is a Python function, one with a command a shell command."""
    assert app_class(node("PythonApp", "", Argument(name="func_name", value="len"))).component.name == "PyFuncApp"
    assert app_class(node("", "", Argument(name="command", value="ls"))).component.name == "BashShellApp"


def test_a_function_with_the_port_self_is_a_member_function() -> None:
    """Nodes of DALiuGE's class for functions are members if they have the port self."""
    target = Argument(name="self", usage="InputPort")

    assert app_class(node("dlg.apps.pyfunc.PyFuncApp", "PythonApp", target)).component.name == "PythonMemberFunction"


@pytest.mark.parametrize("component", ["", "PythonApp", "dlg.apps.simple.PythonApp", "test.graphsRepository"])
def test_a_node_without_a_class_is_refused(component: str) -> None:
    """A node without class, function or command is an error that names the node."""
    with pytest.raises(UnknownComponentError, match="'wanted' has no class"):
        app_class(node(component, "DALiuGEApp"))


@pytest.mark.parametrize(
    ("component", "category"),
    [
        ("dlg.apps.dynlib.DynlibObject", "DynlibObject"),
        ("dlg.apps.plasma.MSStreamingPlasmaProducer", ""),
        ("dlg.apps.subgraph.SubGraphLocal", ""),
    ],
)
def test_missing_applications_of_daliuge_have_an_alternative(component: str, category: str) -> None:
    """The error for an application of DALiuGE that is not available names an alternative."""
    with pytest.raises(MissingDependencyError, match="does not support") as caught:
        app_class(node(component, category))

    assert caught.value.hint


@pytest.mark.parametrize(
    ("component", "hint"),
    [
        ("dlg.apps.simple.CopyAp", "did you mean 'dlg.apps.simple.CopyApp'"),
        ("nopackage.apps.MyApp", "'nopackage' is not installed: install nopackage"),
        ("json.decoder.Nothing", "has no 'Nothing'"),
        ("json.dumps", "func_name json.dumps"),
        ("json.JSONDecoder", "not a subclass of dropflow.App"),
        ("flagging", "no such application"),
    ],
)
def test_unknown_classes_are_an_error(component: str, hint: str) -> None:
    """The error names node and class, and has what is missing or a similar name."""
    with pytest.raises(UnknownComponentError, match=f"'wanted' has the unknown class '{component}'") as caught:
        app_class(node(component))

    assert hint in caught.value.hint


def test_applications_of_users_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph can name any importable subclass of App; a broken module gives an error with the reason."""
    (tmp_path / "users_own_apps.py").write_text(
        "from dropflow import App\n\n\nclass MyApp(App):\n    def run(self, context):\n        pass\n"
    )
    (tmp_path / "users_broken_apps.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert isinstance(app_for(node("users_own_apps.MyApp")), App)
    with pytest.raises(UnknownComponentError, match=r"unknown class 'users_broken_apps\.MyApp'") as caught:
        app_class(node("users_broken_apps.MyApp"))
    assert "ZeroDivisionError" in caught.value.hint
    sys.modules.pop("users_own_apps", None)


def test_check_finds_all_problems() -> None:
    """All unknown classes and bad parameters, of data and applications, are reported together and in order."""
    nodes = (
        node("dlg.apps.simple.RandomArrayApp", "", Argument(name="size", value="many")),
        node("dlg.apps.simple.CopyApp"),
        node("nowhere.App"),
        node("dlg.apps.pyfunc.PyFuncApp", "", Argument(name="func_code", value="def f(")),
        Template(key="d", name="lost", kind=Kind.DATA, component="dlg.data.drops.s3_drop.S3DROP"),
    )

    problems = check(nodes, ())

    assert [problem.code for problem in problems] == ["DF104", "DF104", "DF103", "DF104"]
    assert {problem.severity for problem in problems} == {Severity.ERROR}
    assert check(nodes[1:2], ()) == []


# The registry of applications knows the classes in graphs of the community.


FILES = {path.name: path for path in corpus_files()}


def parts(name: str) -> tuple[tuple[Template, ...], tuple[Link, ...]]:
    """The nodes and links of a graph of the corpus; none if it cannot be used."""
    checked = examine(FILES[name])
    found = checked.outline or checked.graph
    return (tuple(found.templates), tuple(found.links)) if found is not None else ((), ())


def runs_clean() -> list[str]:
    """The graphs that DALiuGE's engine runs without an error."""
    if not FILES:
        return []
    table = next(iter(FILES.values())).parents[1] / "daliuge-6.7-runs.csv"
    with table.open(encoding="utf-8", newline="") as rows:
        return [row["file"] for row in csv.DictReader(rows) if row["runs_clean"] == "yes"]


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("step", [5, *nightly(1)])
def test_every_class_in_the_corpus_is_known_or_refused_with_a_hint(step: int) -> None:
    """Every class in a real graph is known, or its problem names the node and has a hint."""
    for name in [*FILES][::step]:
        nodes, links = parts(name)
        known = {node.app_name or node.name for node in nodes} | {node.name for node in nodes}
        for problem in check(nodes, links):
            assert problem.code in {"DF103", "DF104", "DF105", "DF106"}, name
            assert problem.where in known, (name, problem)
            assert problem.text, name
            assert problem.hint, (name, problem)


@needs_corpus
@pytest.mark.parametrize("name", runs_clean())
def test_graphs_that_run_in_daliuge_are_accepted(name: str) -> None:
    """A graph that DALiuGE runs without an error has no class or parameter that we refuse."""
    assert check(*parts(name)) == []


# Looking for what a graph names, without importing or running it.


BINDINGS = {
    "a = 1": {"a"},
    "a, (b, *c) = x": {"a", "b", "c"},
    "a: int = 1": {"a"},
    "def f(x):\n    y = 1": {"f"},
    "class C:\n    z = 1": {"C"},
    "import os.path, sys as s\nfrom re import match as m, sub": {"os", "s", "m", "sub"},
    "try:\n    a = 1\nexcept E as e:\n    b = 2\nelse:\n    c = 3": {"a", "b", "c", "e"},
    "if x:\n    def f(): pass\nelse:\n    f = None": {"f"},
    "for i in x:\n    with y as z:\n        pass": {"i", "z"},
    "(n := 3)": {"n"},
    "def f():\n    global g\n    g = 1": {"f", "g"},
    "match x:\n    case [a, *b]: pass\n    case {'k': c, **d}: pass": {"a", "b", "c", "d"},
    "x = lambda q: q": {"x"},
}


@pytest.mark.parametrize("source", BINDINGS)
def test_the_names_that_a_source_binds(source: str) -> None:
    """All ways to bind a name at the top level count, and nothing inside functions and classes does."""
    names = names_of(source)

    assert names is not None
    assert names.bound == BINDINGS[source]


@pytest.mark.parametrize(
    "source",
    ["exec('a = 1')", "globals()['a'] = 1", "from os import *", "import sys\nsys.modules[__name__].a = 1", "def f(:"],
)
def test_what_only_running_can_tell_is_not_guessed(source: str) -> None:
    """A source that makes names while it runs, or cannot be parsed, has no list of names."""
    assert names_of(source) is None


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("json.dumps", None),
        ("json.dumpz", ("json", "dumpz")),
        ("json.decoder.JSONDecoder", None),
        ("json.nosuch.f", ("json", "nosuch")),
        ("os.path.join", None),
        ("xml.etree.ElementTree.parse", None),
        ("math.sqrt", None),
        ("math.sqroot", ("math", "sqroot")),
        ("numpy.whatever", None),  # numpy answers for names of its own accord
        ("nosuchpackage.f", ("nosuchpackage", "")),
        ("no-name.f", ("no-name", "")),
        (".f", ("", "")),
    ],
)
def test_a_name_is_absent_only_where_that_is_certain(name: str, absent: tuple[str, str] | None) -> None:
    """The first part that is missing is named; what only importing can tell counts as there."""
    found = find_absent(name.split("."))

    assert (found and (found.module, found.name)) == absent


def test_packages_of_users_are_looked_into_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules inside packages are found below packages that would fail when imported; a change is seen."""
    package = tmp_path / "looked_into"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "inner.py").write_text("def f(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert find_absent(["looked_into", "inner", "f"]) is None
    assert find_absent(["looked_into", "inner", "grown_up"]) == MissingName("looked_into.inner", "grown_up", ("f",))
    (package / "inner.py").write_text("def f(): pass\ndef grown_up(): pass\n")
    assert find_absent(["looked_into", "inner", "grown_up"]) is None
    assert "looked_into" not in sys.modules


# The names of runners, and what is refused before anything runs.


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_OWN = """
from dropflow.runners.executor import LocalExecutor
from dropflow.runners.in_process import InlineRunner

made = []

def make(spec, workers):
    made.append((spec.session, workers))
    return InlineRunner(LocalExecutor(spec))
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("threads", RunnerChoice("threads")),
        ("dask", RunnerChoice("dask")),
        ("dask=tcp://host:8786", RunnerChoice("dask", "tcp://host:8786")),
        ("ray=auto", RunnerChoice("ray", "auto")),
        ("ray=auto,contents=s3://bucket/x,y=1", RunnerChoice("ray", "auto", "s3://bucket/x,y=1")),
        ("dask,contents=memory://x", RunnerChoice("dask", "", "memory://x")),
        ("package.module:make", RunnerChoice("custom", "package.module:make")),
    ],
)
def test_a_runner_has_a_name_an_address_or_a_function(text: str, expected: RunnerChoice) -> None:
    """These are all forms."""
    assert parse_runner(text) == expected


@pytest.mark.parametrize("text", ["", "dusk", "dask=", "threads=4", "a:b:c", "a-b:c", ":make", "module:"])
def test_other_names_are_refused_with_all_that_there_are(text: str) -> None:
    """The error lists the runners."""
    with pytest.raises(BadParameterError, match="there is no runner") as caught:
        parse_runner(text)

    assert "inline, threads, processes, dask, ray" in caught.value.hint


@pytest.mark.parametrize("text", ["threads,contents=s3://x", "ray=auto,contents=", "dask,contents=/directory"])
def test_contents_need_an_engine_and_a_url(text: str) -> None:
    """The error has an example."""
    with pytest.raises(BadParameterError, match="no URL for contents, or cannot use one") as caught:
        parse_runner(text)

    assert "contents=s3://" in caught.value.hint


def test_streams_are_refused_before_anything_runs(tmp_path: Path) -> None:
    """An engine has no streams: the error names the application and its data, and nothing is left behind."""
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("distributed is not installed")
    with pytest.raises(BadGraphError, match=r"reads 'Samples' while it is written.* runner 'dask' has no streams"):
        dropflow.run(EXAMPLES / "live-receiver.graph", runner="dask", directory=tmp_path / "run")

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("kind", "extra"), [("dask", "dask-runner"), ("ray", "ray")])
def test_a_missing_package_is_named(kind: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=f"--runner {kind} needs the package") as caught:
        dropflow.run(EXAMPLES / "hello.graph", runner=kind, directory=tmp_path / "run")

    assert caught.value.hint == f"pip install 'dropflow[{extra}]' in the environment that has dropflow"


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The session ends with the address and what to do."""
    engine = pytest.importorskip("dropflow.runners.dask_engine")
    monkeypatch.setattr(engine, "_DASK_CONNECT_SECONDS", 0.2)
    with pytest.raises(LinkError, match="no Dask scheduler that answers") as caught:
        dropflow.run(EXAMPLES / "hello.graph", runner="dask=tcp://127.0.0.1:1", directory=tmp_path / "run")

    assert caught.value.where == "tcp://127.0.0.1:1"
    assert "dask scheduler" in caught.value.hint


@pytest.mark.slow
def test_a_runner_of_ones_own_is_made_by_a_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The function gets what executors are built from, and the number of workers. It runs the graph."""
    (tmp_path / "own_runner.py").write_text(_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = dropflow.run(
        EXAMPLES / "nested-scatter-gather.graph", runner="own_runner:make", workers=3, directory=tmp_path / "run"
    )

    assert result.ok
    assert importlib.import_module("own_runner").made == [("run", 3)]
    with pytest.raises(BadParameterError, match=r"the function of the runner 'os:system' failed: TypeError"):
        dropflow.run(EXAMPLES / "hello.graph", runner="os:system", directory=tmp_path / "failed")
    with pytest.raises(BadParameterError, match=r"cannot be imported: .*No module named 'absent_runner'"):
        dropflow.run(EXAMPLES / "hello.graph", runner="absent_runner:make", directory=tmp_path / "other")
