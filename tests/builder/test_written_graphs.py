"""Graphs that are written in Python, saved and loaded: EAGLE's rules, the layout, and numbers of drops and edges."""

import concurrent.futures
import importlib
import json
import math
import os
import subprocess
import sys
import urllib.parse as wrapping
from collections.abc import Callable
from itertools import combinations
from math import hypot
from math import sqrt as root
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import dropflow
from dropflow import Graph, app
from dropflow.builder.draft import placed
from dropflow.builder.functions import code_of, import_path
from dropflow.errors import UsageError
from dropflow.failure import Severity
from tests.builder.random_builders import WrittenGraph, written_graphs
from tests.eagle_rules import far_edges, near_nodes, wrong_edges, wrong_nodes

_FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.slow
@_FEW
@given(written_graphs())
def test_a_saved_graph_has_the_drops_that_were_written(written: WrittenGraph) -> None:
    """Loaded and unrolled, a graph has as many drops and edges as multiplication says, in both schemas of EAGLE."""
    for schema in ("OJS", "V4"):
        translation = dropflow.translate(written.graph.document(schema), name="random")

        assert (translation.graph.drops, translation.graph.edges) == (written.drops, written.edges)
        assert [problem for problem in translation.problems if problem.severity is Severity.ERROR] == []


@pytest.mark.slow
@_FEW
@given(written_graphs())
def test_a_saved_graph_keeps_the_rules_of_eagle(written: WrittenGraph) -> None:
    """Fields, ids and edges are as EAGLE demands, and no two nodes overlap."""
    content = json.loads(written.graph.document())

    assert wrong_nodes(content["nodeDataArray"]) == []
    assert wrong_edges(content) == []
    assert near_nodes(content["nodeDataArray"]) == []
    assert min(node["x"] for node in content["nodeDataArray"]) > 0
    assert content["modelData"]["shortDescription"]
    assert content["modelData"]["numLGNodes"] == len(content["nodeDataArray"])


def _numbers(count: int) -> list[int]:
    return list(range(count))


def _double(number: int) -> int:
    return 2 * number


def _total(numbers: list[int], more: int = 0) -> int:
    return sum(numbers) + more


@pytest.mark.slow
def test_a_function_that_collects_is_the_output_application_of_its_scatter(tmp_path: Path) -> None:
    """EAGLE warns of no edge, in nested scatters neither; a second function, or one after the first, stays beside."""
    with dropflow.Graph("collects") as graph:
        with graph.each(graph.call(_numbers, 3), copies=3, name="Outer") as outer:
            with graph.each(graph.call(_numbers, 3), copies=3, name="Inner") as inner:
                doubled = graph.call(_double, inner)
            inner_sum = graph.call(_total, doubled, more=outer)
        both = graph.call(_total, inner_sum)
    assert far_edges(json.loads(graph.document())) == []
    assert graph.run(directory=tmp_path / "run").value(both) == 21

    with graph:
        later = graph.call(_total, inner_sum, more=both)
    content = json.loads(graph.document())
    assert {node["name"]: node["outputApplicationName"] for node in content["nodeDataArray"] if node["isGroup"]} == {
        "Outer": "Total 2",
        "Inner": "Total",
    }
    assert len(far_edges(content)) == 1
    assert max(node["x"] for node in content["nodeDataArray"]) < 5000
    assert graph.run(directory=tmp_path / "later").value(later) == 42


@pytest.mark.slow
@_FEW
@given(written_graphs())
def test_constructs_enclose_their_nodes(written: WrittenGraph) -> None:
    """The circle of a construct contains the circles of its nodes, and those of nodes beside each other are apart."""
    drawing = written.graph.drawing
    drawn = placed(drawing)
    shown = [node for node in drawing.nodes if node.owner is None]
    for node in shown:
        own = drawn[node.id]
        if node.inside is not None:
            outer = drawn[node.inside.id]
            assert hypot(own.x - outer.x, own.y - outer.y) + own.radius < outer.radius
    for one, other in combinations(shown, 2):
        if one.inside is other.inside:
            first, second = drawn[one.id], drawn[other.id]
            assert hypot(first.x - second.x, first.y - second.y) > first.radius + second.radius


def test_the_same_calls_make_the_same_file(tmp_path: Path) -> None:
    """Ids follow from names, so that a script that is run again writes the same bytes."""

    def make(name: str) -> bytes:
        graph = dropflow.Graph("same", "Made twice.")
        graph.command("echo {word} > {out}", word="hello", outputs="out")
        return graph.save(tmp_path / name).read_bytes()

    assert make("one.graph") == make("two.graph")


# The code of functions in graphs: what is written with a function, and what is refused.


LIMIT = 3
TABLE = {"a": [1, 2.5, None]}
OPEN = {"file": object()}


def helper(x: float) -> float:
    """Return the root, but at most LIMIT."""
    return min(root(x), LIMIT)


@app
def decorated(x: float) -> float:
    """Return the helper's value."""
    return helper(x)


def uses_all(x: "np.ndarray", scale: float = math.pi) -> list[Any]:
    """Use imports, other functions, constants, and itself."""
    # A comment stays.
    found = [decorated(float(one)) * scale for one in np.atleast_1d(x)]
    return found if len(found) < len(TABLE) + 1 else uses_all(np.array(x[0]))


def test_the_code_of_a_function_runs_by_itself() -> None:
    """Its module has the imports, functions and constants that it uses, under their names."""
    code = code_of(uses_all)
    there: dict[str, Any] = {}
    exec(compile(code, "code", "exec", dont_inherit=True), there)  # noqa: S102 - our own code

    assert there["uses_all"](np.array([4.0])) == uses_all(np.array([4.0])) == [2 * math.pi]
    assert "import numpy as np\n" in code
    assert "from math import sqrt as root\n" in code
    assert "LIMIT = 3\n" in code
    assert "# A comment stays." in code
    assert "OPEN" not in code


def uses_modules() -> list[Any]:
    """Use modules of packages, and what is not a module of its package under this name."""
    return [concurrent.futures.Future().done(), wrapping.quote("b c"), os.path.sep]


def _halved(value: float) -> float:
    return value / 2


def _changed(value: float, change: Callable[[float], float] = _halved) -> float:
    return change(value)


def changes_twice(value: float) -> float:
    """Use a function, and another one that has it as the default of an argument."""
    return _halved(_changed(value))


def test_a_function_can_be_the_default_of_an_argument() -> None:
    """It is defined before the function whose default it is, whatever else uses it."""
    space: dict[str, Any] = {}
    exec(compile(code_of(changes_twice), "code", "exec", dont_inherit=True), space)  # noqa: S102 - our own code

    assert space["changes_twice"](8.0) == changes_twice(8.0) == 2.0


if True:

    def indented(value: int) -> list[str]:
        """Return texts over several lines."""
        return [
            """one
    two
      three""",
            f"""{value}
    {value
    =}""",
    # A comment.
            "four\
    five",
        ]  # fmt: skip


def test_texts_of_an_indented_function_stay_as_they_are() -> None:
    """The function loses the indentation of its place in the file, and its texts over several lines keep theirs."""
    code = code_of(indented)
    space: dict[str, Any] = {}
    exec(compile(code, "code", "exec", dont_inherit=True), space)  # noqa: S102 - our own code

    assert space["indented"](1) == indented(1)
    assert "\ndef indented" in f"\n{code}"
    assert "\n    return [\n" in code


def test_the_code_of_a_function_imports_modules_of_packages() -> None:
    """A package does not import all of its modules, so the package alone is not enough in another process."""
    code = code_of(uses_modules)
    program = f"{code}\nprint(uses_modules())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("[False, 'b%20c', '/']\n", "")
    assert "import urllib.parse as wrapping" in code
    assert "import os\n" in code
    assert "posixpath" not in code


def uses_object() -> object:
    """Use something that cannot be written."""
    return OPEN["file"]


def uses_nothing() -> object:
    """Use a name that does not exist."""
    return missing_name  # type: ignore[name-defined]  # noqa: F821 - on purpose


def _closure() -> Callable[[], int]:
    inner = 3

    def function() -> int:
        return inner

    return function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (uses_object, "uses the global 'OPEN', a dict that cannot be written"),
        (uses_nothing, "uses 'missing_name', which is not defined"),
        (_closure(), "uses inner of the function around it"),
        (lambda x: x, "is a lambda"),
    ],
)
def test_code_that_would_not_run_elsewhere_is_refused(function: Any, message: str) -> None:
    """When the graph is written, and not when it runs on another machine."""
    with pytest.raises(UsageError, match=message):
        code_of(function)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("scale = 2", "scale = 3"),
        ("def scale(x): return x", "def scale(x): return -x"),
        ("def abs(x): return -x\nscale = 1", "scale = 1"),
        ("abs = 1\ndef scale(x): return abs", "abs = 2\ndef scale(x): return abs"),
    ],
)
def test_names_that_two_modules_use_differently_are_refused(
    ours: str, theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code in a graph is one module: with the value of either, the other function would give wrong results."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "our_names.py").write_text(
        f"from their_names import found\n{ours}\ndef made(): return abs(0), scale, found()\n"
    )
    (tmp_path / "their_names.py").write_text(f"{theirs}\ndef found(): return abs(0), scale\n")
    module = importlib.import_module("our_names")
    for name in ("our_names", "their_names"):
        monkeypatch.delitem(sys.modules, name)

    with pytest.raises(UsageError, match=r"uses another '(scale|abs)' than a function of another module"):
        code_of(module.made)


def test_a_function_that_two_modules_have_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a function is the function, if all that it uses is the same, too."""
    monkeypatch.syspath_prepend(tmp_path)
    both = "factor = 2\ndef scale(x): return factor * scale(x - 1) if x else half(1)\ndef half(x): return x / factor\n"
    (tmp_path / "our_copy.py").write_text(
        f"{both}from their_copy import found\ndef made(): return scale(1) + found()\n"
    )
    (tmp_path / "their_copy.py").write_text(f"{both}def found(): return scale(2)\n")
    module = importlib.import_module("our_copy")
    for name in ("our_copy", "their_copy"):
        monkeypatch.delitem(sys.modules, name)
    code = code_of(module.made)
    space: dict[str, Any] = {}
    exec(compile(code, "code", "exec", dont_inherit=True), space)  # noqa: S102 - our own code

    assert code.count("def scale") == 1
    assert space["made"]() == module.made() == 3.0


def test_functions_of_modules_are_imported() -> None:
    """Functions written in C, and classes, are named by their path; a local one has none."""
    assert import_path(math.hypot) == "math.hypot"
    assert import_path(len) == "len"
    with pytest.raises(UsageError, match="cannot be imported by its name"):
        import_path(_closure())


def test_a_graph_calls_imported_functions(tmp_path: Path) -> None:
    """Without code in the graph."""
    with Graph("imported") as graph:
        found = graph.call(math.hypot, 3.0, 4.0)
    node = next(one for one in graph.drawing.nodes if one.kind == "app")

    assert node.fields["func_name"].value == "math.hypot"
    assert "func_code" not in node.fields
    assert graph.run(runner="inline", directory=tmp_path / "run").value(found) == 5.0


@app
def shows(count: int) -> str:
    """Return the count as text."""
    return f"{count}"


def test_a_placeholder_in_code_is_refused() -> None:
    """Filling the graph would replace it, and change the function."""
    with Graph("placeholder") as graph:
        shows(graph.parameter("count", 2))

    with pytest.raises(UsageError, match=r"has \{count\}, which is a placeholder of the parameter 'count'"):
        graph.document()
