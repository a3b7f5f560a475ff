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


def test_numpy_truth_values_are_accepted(tmp_path: Path) -> None:
    """A condition may return a numpy boolean."""
    code = "import numpy as np\ndef condition(x): return np.mean(x) > 0.5"

    assert branch(tmp_path, code, inputs=[("x", [0, 0])]).contents[0] is None


def test_a_field_is_used_when_no_input_is_connected(tmp_path: Path) -> None:
    """Without an input, the condition gets the parameter x, whose value is also written to the output."""
    x = Argument(name="x", value="-1", type="Integer", parameter_type="ApplicationArgument")

    assert branch(tmp_path, "def condition(x=1): return x > 0", x).values == [None, -1]


def test_text_is_passed_on_as_text(tmp_path: Path) -> None:
    """A text drop that is passed on is still a text drop."""
    got = branch(tmp_path, "def condition(x): return True", inputs=[("x", "words")])

    assert got.handles[0] is not None
    assert got.handles[0].text


def test_the_condition_may_take_several_inputs(tmp_path: Path) -> None:
    """The condition may take more inputs than x; only x is passed on."""
    got = branch(tmp_path, "def condition(x, limit): return x < limit", inputs=[("limit", 3), ("x", 2)])

    assert got.values == [2, None]


def test_a_returned_text_selects_the_port_of_that_name(tmp_path: Path) -> None:
    """If the condition returns text, the output port of that name is chosen."""
    got = branch(tmp_path, "def condition(x): return 'mid'", inputs=[("x", 1)], outputs=["low", "mid", "high"])

    assert got.values == [None, 1, None]


def test_only_one_side_of_a_branch_needs_to_be_connected(tmp_path: Path) -> None:
    """If only the false side is connected and the condition is true, that side is skipped."""
    assert branch(tmp_path, "def condition(x): return 1", inputs=[("x", 1)], outputs=["false"]).contents == [None]


@pytest.mark.parametrize(
    ("answer", "outputs", "text"),
    [
        ("'maybe'", ["true", "false"], "'maybe', which is not an output port"),
        ("__import__('numpy').ones(2)", ["true", "false"], "neither true nor false"),
        ("True", ["a", "b", "c"], "which is true and which is false"),
    ],
)
def test_return_values_that_select_no_port_are_an_error(
    tmp_path: Path, answer: str, outputs: list[str], text: str
) -> None:
    """A return value that selects no output port is an error."""
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
    """With other port names, the first output port is true and the second is false, even if only one is connected."""
    fields = (
        Argument(name="result", value=result, type="Boolean"),
        Argument(name="first", usage="OutputPort"),
        Argument(name="second", usage="OutputPort"),
    )

    got = try_app("dlg.apps.simple.SimpleBranch", tmp_path, outputs=[port], fields=fields)

    assert got.contents == [b"" if taken else None]
