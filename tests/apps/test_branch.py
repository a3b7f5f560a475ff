"""Branches."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from dropflow.graph.templates import Argument
from dropflow.testing.attempts import Attempted, Given, try_app

BRANCH = "dlg.apps.simple.Branch"


def branch(
    directory: Path, code: str, *fields: Argument, inputs: Any = (), outputs: Any = ("true", "false")
) -> Attempted:
    """Run a Branch with this condition."""
    given = [Given(port, content) for port, content in inputs]
    arguments = (Argument(name="func_code", value=code), *fields)
    return try_app(BRANCH, directory, inputs=given, outputs=outputs, fields=arguments)


@pytest.mark.parametrize(("x", "taken"), [(5, 0), (-5, 1)])
def test_the_input_goes_to_one_output_and_the_other_is_skipped(tmp_path: Path, x: int, taken: int) -> None:
    """The input x arrives, byte for byte, at the output that the condition chooses."""
    got = branch(tmp_path, "def condition(x): return x > 0", inputs=[("x", x)])

    assert got.contents[taken] == pickle.dumps(x, protocol=5)
    assert got.contents[1 - taken] is None
    assert len(got.result.skipped) == 1


def test_numpy_truth_values(tmp_path: Path) -> None:
    """What numpy calls true is true."""
    code = "import numpy as np\ndef condition(x): return np.mean(x) > 0.5"

    assert branch(tmp_path, code, inputs=[("x", [0, 0])]).contents[0] is None


def test_a_field_serves_when_nothing_is_connected(tmp_path: Path) -> None:
    """Without data the parameter x is judged, and its value passed on."""
    x = Argument(name="x", value="-1", type="Integer", parameter_type="ApplicationArgument")

    assert branch(tmp_path, "def condition(x=1): return x > 0", x).values == [None, -1]


def test_text_stays_text(tmp_path: Path) -> None:
    """A text drop that is passed on is still a text drop."""
    got = branch(tmp_path, "def condition(x): return True", inputs=[("x", "words")])

    assert got.handles[0] is not None
    assert got.handles[0].text


def test_other_inputs_decide_too(tmp_path: Path) -> None:
    """The condition may take more inputs than x; x is what is passed on."""
    got = branch(tmp_path, "def condition(x, limit): return x < limit", inputs=[("limit", 3), ("x", 2)])

    assert got.values == [2, None]


def test_text_chooses_among_many_ports(tmp_path: Path) -> None:
    """A condition that returns text chooses the port of that name."""
    got = branch(tmp_path, "def condition(x): return 'mid'", inputs=[("x", 1)], outputs=["low", "mid", "high"])

    assert got.values == [None, 1, None]


def test_a_single_way_may_be_connected(tmp_path: Path) -> None:
    """With only the false side connected, a true answer skips it."""
    assert branch(tmp_path, "def condition(x): return 1", inputs=[("x", 1)], outputs=["false"]).contents == [None]


@pytest.mark.parametrize(
    ("answer", "outputs", "text"),
    [
        ("'maybe'", ["true", "false"], "'maybe', which is not an output port"),
        ("__import__('numpy').ones(2)", ["true", "false"], "neither true nor false"),
        ("True", ["a", "b", "c"], "which is true and which is false"),
    ],
)
def test_return_values_that_choose_nothing(tmp_path: Path, answer: str, outputs: list[str], text: str) -> None:
    """An answer that names no way is an error."""
    got = branch(tmp_path, f"def condition(): return {answer}", outputs=outputs)

    assert text in got.failure.text


@pytest.mark.parametrize(("result", "taken"), [("true", 0), ("False", 1), ("", 0)])
@pytest.mark.parametrize("ports", [("Y", "N"), ("true", "false"), ("left", "right")])
def test_the_older_branch_uses_a_constant(tmp_path: Path, result: str, taken: int, ports: tuple[str, str]) -> None:
    """SimpleBranch skips one of two outputs, by the names of their ports or by their order."""
    fields = (Argument(name="result", value=result, type="Boolean"),)

    got = try_app("dlg.apps.simple.SimpleBranch", tmp_path, outputs=ports, fields=fields)

    assert got.contents[taken] == b""
    assert got.contents[1 - taken] is None


@pytest.mark.parametrize(
    ("port", "result", "taken"), [("first", "true", True), ("second", "true", False), ("second", "0", True)]
)
def test_the_order_of_the_fields_distinguishes_the_outputs(tmp_path: Path, port: str, result: str, taken: bool) -> None:  # noqa: FBT001 - a result
    """With other names the node's first output port is true and its second false, also if only one is connected."""
    fields = (
        Argument(name="result", value=result, type="Boolean"),
        Argument(name="first", usage="OutputPort"),
        Argument(name="second", usage="OutputPort"),
    )

    got = try_app("dlg.apps.simple.SimpleBranch", tmp_path, outputs=[port], fields=fields)

    assert got.contents == [b"" if taken else None]
