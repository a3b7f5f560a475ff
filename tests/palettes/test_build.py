"""Palettes of one's own code: from signatures and docstrings, from doxygen comments, and of a new package."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import palettes
from dropflow.apps.needs import registered_components
from dropflow.apps.registry import app_for
from dropflow.builder.components import components_of
from dropflow.cli.main import commands
from dropflow.data.registry import store_for
from dropflow.errors import AppError, MissingDependencyError
from dropflow.failure import Severity
from dropflow.graph.components import Component
from dropflow.graph.templates import Argument, Kind, Template
from dropflow.testing import Given, try_app
from palettes.build import built_files, components
from palettes.doxygen import described_nodes
from tests.eagle_rules import wrong_nodes
from translator.formats import read_logical

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
    return {field["name"]: (field["value"], field["type"], field["usage"]) for field in node["fields"]}


def reasons(told: list[str], source: Path) -> list[tuple[str, str]]:
    """Return the text of the line that each reason names, and the reason."""
    lines = source.read_text(encoding="utf-8").splitlines()
    parts = [entry.removeprefix(f"{source}:").partition(": ") for entry in told]
    return [(lines[int(line) - 1].strip(), reason) for line, _, reason in parts]


def test_types_defaults_and_docstrings_become_fields_and_ports(tmp_path: Path) -> None:
    """An argument without a default is a port, one with a default a field; settings and descriptions are there."""
    node = built(CODE, tmp_path)[0]["fit"]
    described = fields(node)

    assert node["description"] == "Fit fringes."
    assert described["visibilities"] == ("", "Json", "InputPort")
    assert described["order"] == (2, "Integer", "NoPort")
    assert described["window"] == ("box", "Select", "NoPort")
    assert described["taper"] == ("", "Float", "NoPort")
    assert described["delay"] == ("", "Float", "OutputPort")
    assert described["n_tries"][0] == 3
    assert described["memory"][0] == "1 GB"
    assert (
        next(field["description"] for field in node["fields"] if field["name"] == "order") == "Order of the polynomial."
    )


def test_a_link_that_leads_nowhere_is_no_source_file(tmp_path: Path) -> None:
    """Editors lock a file by such a link beside it, with the ending of the file; a directory may have one, too."""
    (tmp_path / "own.c").write_bytes(DESCRIBED.read_bytes())
    (tmp_path / ".#own.c").symlink_to("user@host.1234")
    (tmp_path / "vendored.c").mkdir()

    assert described_nodes(tmp_path).nodes == described_nodes(tmp_path / "own.c").nodes


def test_a_path_to_write_is_an_output(tmp_path: Path) -> None:
    """An argument annotated as a path of an output is an output port with the encoding path, and nothing else."""
    ports = [field for field in built(CODE, tmp_path)[0]["plot"]["fields"] if field["usage"] != "NoPort"]

    assert [(port["name"], port["usage"], port["encoding"]) for port in ports] == [
        ("model", "InputPort", "pickle"),
        ("picture", "OutputPort", "path"),
    ]


def test_the_node_of_a_function_in_a_file_runs_where_the_file_is_not(tmp_path: Path) -> None:
    """The node has the source of the function and of what it uses."""
    node = built(CODE, tmp_path)[0]["fit"]
    own = {field["name"]: field["value"] for field in node["fields"] if field["usage"] == "NoPort"}
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


def test_any_default_is_taken_or_left_blank(tmp_path: Path) -> None:
    """Also an array, which has no truth value, and a choice that is 0."""
    code = tmp_path / "own.py"
    code.write_text(
        "from typing import Literal\nimport numpy as np\n"
        "def smooth(values: list, weights=np.ones(3), axis: Literal[1, 0] = 0): return values\n"
    )
    nodes, told = built(code, tmp_path)
    described = fields(nodes["smooth"])

    assert described["weights"] == ("", "Object", "NoPort")
    assert described["axis"] == (0, "Select", "NoPort")
    assert [entry.partition(": ")[2] for entry in told] == [
        "smooth has a default of weights that no field can have: it is left blank"
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
    described = fields(nodes["Doubler"])

    assert set(nodes) == {"Doubler", "Scatter/Doubler"}
    assert nodes["Doubler"]["description"] == "Doubles each number."
    assert described["unit"] == ("m/s", "Select", "NoPort")
    assert described["numbers"] == ("", "Object", "InputPort")
    assert described["dropclass"][0] == "dlg.apps.dynlib.DynlibApp"
    (unit,) = [field for field in nodes["Doubler"]["fields"] if field["name"] == "unit"]
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
    environment = {**os.environ, "PYTHONPATH": str(directory / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
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


def test_packages_that_end_the_process_are_told_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with tests are not imported, and the others are told; the modules beside them are drawn."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (
        ("ended", ""),
        ("ended/bad", "raise SystemExit(3)"),
        ("ended/good", 'def double(x: int) -> int:\n    """Return the double."""\n    return 2 * x\n'),
        ("ended/tests", "open(__file__ + '.ran', 'w')"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    found = components_of("ended")

    assert list(found.components) == ["ended.good.double"]
    assert found.told == ("ended.bad: cannot be imported: SystemExit: 3",)
    assert not (tmp_path / "ended" / "tests" / "__init__.py.ran").exists()


# The palettes: fresh, complete, and in the form that EAGLE reads.


ROOT = Path(palettes.__file__).parents[1]
NAMES = ("builtin.palette", "template.palette", "radio.palette")


@cache
def palette_files() -> dict[str, bytes]:
    """The palettes, built once for all tests."""
    return built_files()


def palette(name: str) -> dict[str, Any]:
    """A built palette, parsed."""
    document: dict[str, Any] = json.loads(palette_files()[name])
    return document


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_palette_is_fresh(name: str) -> None:
    """The file is what the definitions say: run ``dropflow palette build`` after changing one."""
    assert (ROOT / "palettes" / name).read_bytes() == palette_files()[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_palette_has_what_eagle_needs(name: str) -> None:
    """Its type is Palette, nodes have ids and no positions, and fields have all their attributes."""
    document = palette(name)
    nodes = document["nodeDataArray"]
    fields = [field for node in nodes for field in node["fields"] + node["inputAppFields"]]
    wanted = {"id", "name", "value", "defaultValue", "type", "parameterType", "usage", "encoding", "options"}

    assert document["modelData"]["fileType"] == "Palette"
    assert document["modelData"]["numLGNodes"] == len(nodes)
    assert document["linkDataArray"] == []
    assert not [node["name"] for node in nodes if "parentId" in node or "x" in node]
    assert not [field["name"] for field in fields if wanted - field.keys()]


@pytest.mark.parametrize("name", NAMES)
def test_identities_are_unique(name: str) -> None:
    """No two nodes and no two fields of a palette have the same id."""
    nodes = palette(name)["nodeDataArray"]
    ids = [node["id"] for node in nodes]
    ids += [field["id"] for node in nodes for field in node["fields"] + node["inputAppFields"]]

    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("component", components(), ids=lambda component: component.dropclass)
def test_every_component_is_in_a_palette_with_all_it_has(component: Component) -> None:
    """Each parameter and each port of a definition is a field of its node."""
    nodes = [node for name in NAMES for node in palette(name)["nodeDataArray"] if node["name"] == component.name]
    wanted = {parameter.name for parameter in component.parameters} | {port.name for port in component.ports}
    names = {field["name"] for field in nodes[0]["fields"]}

    assert len(nodes) == 1
    assert wanted | {"dropclass"} <= names


@pytest.mark.parametrize("component", components(), ids=lambda component: component.dropclass)
def test_the_class_of_every_component_exists(component: Component) -> None:
    """What the palette offers can be run: the class name leads to a class with this definition."""
    fillings = {"command": "true", "func_name": "f", "func_code": "def f(x=0): return x", "base_name": "builtins"}
    fillings |= {
        "dirname": "d",
        "url": "http://localhost/",
        "image": "x",
        "Bucket": "x",
        "dbtable": "x",
        "libpath": "x",
    }
    arguments = tuple(
        Argument(name=parameter.name, value=fillings.get(parameter.name, parameter.default))
        for parameter in component.parameters
    )
    template = Template(
        key="k",
        name=component.name,
        kind=component.kind,
        component=component.dropclass,
        category=component.category,
        arguments=arguments,
    )
    made = app_for(template) if component.kind is Kind.APP else store_for(template)

    assert made is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_palette_is_refused_as_a_graph(name: str) -> None:
    """Running a palette gives an error that names it as one."""
    reading = read_logical(built_files()[name], name=name)

    assert reading.graph is None
    assert "palette" in reading.problems[0].text


def test_a_graph_of_every_component_is_read_without_fault() -> None:
    """Dragging every component of both palettes into a graph gives a graph that can be read."""
    document = palette(NAMES[0])
    document["modelData"]["fileType"] = "Graph"
    document["nodeDataArray"] += palette(NAMES[1])["nodeDataArray"]
    reading = read_logical(json.dumps(document).encode(), name="everything")

    assert reading.graph is not None
    assert [finding for finding in reading.problems if finding.severity is Severity.ERROR] == []


def test_the_template_palette_offers_what_people_know() -> None:
    """The fifteen entries of DALiuGE's template palette are there."""
    offered = {node["category"] for node in palette("template.palette")["nodeDataArray"]}
    constructs = {"Scatter", "Gather", "GroupBy", "Loop", "SubGraph", "Comment", "GlobalVariables"}
    compiled = {"Docker", "DynlibApp", "DynlibProcApp", "Mpi"}

    assert constructs | compiled | {"BashShellApp", "DALiuGEApp", "Data", "PyFuncApp"} <= offered
