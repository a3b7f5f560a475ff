"""Palettes of one's own code: from signatures and docstrings, from doxygen comments, and of a new package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dropflow.apps.needs import registered_components
from dropflow.builder.components import components_of
from dropflow.cli.main import commands
from dropflow.errors import AppError, MissingDependencyError
from dropflow.testing import Given, try_app
from tests.eagle_rules import wrong_nodes

HERE = Path(__file__).parent
CODE = HERE / "fringes.py"
DESCRIBED = HERE / "described.c"


def built(code: object, into: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Build a palette, and return its nodes by name and what could not be drawn."""
    target = into / "own.palette"
    ran = CliRunner().invoke(commands, ["palette", "build", str(code), "-o", str(target), "--output", "json"])
    nodes = json.loads(target.read_bytes())["nodeDataArray"]
    assert wrong_nodes(nodes) == []
    assert [node["name"] for node in nodes if not node["description"]] == []
    return {node["name"]: node for node in nodes}, json.loads(ran.stdout)["left_out"]


def fields(node: dict[str, Any]) -> dict[str, tuple[Any, str, str]]:
    """Value, type and usage of each field."""
    return {one["name"]: (one["value"], one["type"], one["usage"]) for one in node["fields"]}


def reasons(told: list[str], source: Path) -> list[tuple[str, str]]:
    """Return the text of the line that each reason names, and the reason."""
    lines = source.read_text(encoding="utf-8").splitlines()
    parts = [one.removeprefix(f"{source}:").partition(": ") for one in told]
    return [(lines[int(line) - 1].strip(), reason) for line, _, reason in parts]


def test_types_defaults_and_docstrings_become_fields_and_ports(tmp_path: Path) -> None:
    """An argument without a default is a port, one with a default a field; settings and descriptions are there."""
    node = built(CODE, tmp_path)[0]["fit"]
    found = fields(node)

    assert node["description"] == "Fit fringes."
    assert found["visibilities"] == ("", "Json", "InputPort")
    assert found["order"] == (2, "Integer", "NoPort")
    assert found["window"] == ("box", "Select", "NoPort")
    assert found["taper"] == ("", "Float", "NoPort")
    assert found["delay"] == ("", "Float", "OutputPort")
    assert found["n_tries"][0] == 3
    assert found["memory"][0] == "1 GB"
    assert next(one["description"] for one in node["fields"] if one["name"] == "order") == "Order of the polynomial."


def test_a_path_to_write_is_an_output(tmp_path: Path) -> None:
    """An argument annotated as a path of an output is an output port with the encoding path, and nothing else."""
    ports = [one for one in built(CODE, tmp_path)[0]["plot"]["fields"] if one["usage"] != "NoPort"]

    assert [(one["name"], one["usage"], one["encoding"]) for one in ports] == [
        ("model", "InputPort", "pickle"),
        ("picture", "OutputPort", "path"),
    ]


def test_the_node_of_a_function_in_a_file_runs_where_the_file_is_not(tmp_path: Path) -> None:
    """The node has the source of the function and of what it uses."""
    node = built(CODE, tmp_path)[0]["fit"]
    own = {one["name"]: one["value"] for one in node["fields"] if one["usage"] == "NoPort"}
    got = try_app(
        own.pop("dropclass"), tmp_path, inputs=[Given("visibilities", [1.0, 2.0])], outputs=["delay"], fields=own
    )

    assert got.values == [14.0]


def test_what_cannot_be_drawn_is_told_with_its_line(tmp_path: Path) -> None:
    """Each function or class that is no node, or only in part, is named with file, line and reason."""
    nodes, told = built(CODE, tmp_path)

    assert set(nodes) == {"fit", "plot", "many"}
    assert [(line, reason.partition(" ")[0]) for line, reason in reasons(told, CODE)] == [
        ("class Model:", "Model"),
        ("def configure(func_name: str) -> str:", "configure"),
        ("async def later() -> int:", "later"),
        ("def many(*values: float, by: Callable[..., Any] = max) -> float:", "many"),
        ("def many(*values: float, by: Callable[..., Any] = max) -> float:", "many"),
    ]


def test_classes_of_a_module_are_constructors_and_methods(tmp_path: Path) -> None:
    """A constructor gives its object, a method takes and gives it, and a static method is a function."""
    nodes, _ = built("tests.palettes.fringes", tmp_path)

    assert fields(nodes["Model"])["self"] == ("", "Object.Model", "OutputPort")
    assert fields(nodes["Model"])["func_name"][0] == "tests.palettes.fringes.Model.__init__"
    assert fields(nodes["Model.predict"])["self"] == ("", "Object.Model", "InputOutput")
    assert nodes["Model.names"]["category"] == "PyFuncApp"
    assert fields(nodes["fit"])["func_code"][0] == ""
    assert fields(nodes["fit"])["func_name"][0] == "tests.palettes.fringes.fit"


def test_doxygen_comments_become_nodes(tmp_path: Path) -> None:
    """A marked comment gives a node with its fields, those that its category needs, and the construct that it wants."""
    nodes, told = built(DESCRIBED, tmp_path)
    found = fields(nodes["Doubler"])

    assert set(nodes) == {"Doubler", "Scatter/Doubler"}
    assert nodes["Doubler"]["description"] == "Doubles each number."
    assert found["unit"] == ("m/s", "Select", "NoPort")
    assert found["numbers"] == ("", "Object", "InputPort")
    assert found["dropclass"][0] == "dlg.apps.dynlib.DynlibApp"
    (unit,) = [one for one in nodes["Doubler"]["fields"] if one["name"] == "unit"]
    assert (unit["description"], unit["options"], unit["positional"]) == ("The unit, such as m/s", ["m/s", "c"], True)
    assert [line.split()[:2] for line, _ in reasons(told, DESCRIBED)] == [
        ["*", r"\param[in]"],
        ["*", r"\param[in]"],
        ["/**", r"\brief"],
    ]


@pytest.mark.slow
def test_a_new_package_works_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It installs, its own test passes, its palette has its component, and a node knows what it registers."""
    pytest.importorskip("setuptools", reason="setuptools, which builds the package, is not installed")
    directory = tmp_path / "my-fringes"
    assert CliRunner().invoke(commands, ["palette", "init", str(directory)]).exit_code == 0
    # What an editable installation does, without a download: metadata beside the source, and its directory on the path.
    setup = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info"]
    subprocess.run(setup, cwd=directory, capture_output=True, check=True)
    monkeypatch.syspath_prepend(str(directory / "src"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(directory / "src")}
    tested = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert tested.returncode == 0, tested.stdout
    assert "my-fringes: scale" in registered_components()
    assert list(components_of("my-fringes").components) == ["my_fringes.scale"]
    assert CliRunner().invoke(commands, ["palette", "init", str(directory)]).exit_code == 2


def test_code_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    """A package that is not installed, and a file that raises, are errors that name them."""
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")

    with pytest.raises(MissingDependencyError, match="no module no_such_package"):
        components_of("no_such_package")
    with pytest.raises(AppError, match=r"broken\.py cannot be imported: ZeroDivisionError"):
        components_of(str(broken))
