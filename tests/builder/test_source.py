"""The code of functions in graphs: what is written with a function, and what is refused."""

import math
from collections.abc import Callable
from math import sqrt as root
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropflow import Graph, app
from dropflow.builder.functions import code_of, import_path
from dropflow.errors import UsageError

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
