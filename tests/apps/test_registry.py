"""Finding the application behind a class name."""

import sys
from pathlib import Path

import pytest

from dropflow.apps.api import App
from dropflow.apps.component_findings import check
from dropflow.apps.registry import APPLICATIONS, app_class, app_components, app_for
from dropflow.errors import MissingDependencyError, UnknownComponentError
from dropflow.failure import Severity
from dropflow.graph.templates import Argument, Kind, Template


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
        "from dropflow.apps.api import App\n\n\nclass MyApp(App):\n    def run(self, context):\n        pass\n"
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
