"""Applications that make, split and combine arrays."""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dropflow.graph.templates import Argument
from dropflow.testing.attempts import FAILED, Attempted, Given, try_app

SIMPLE = "dlg.apps.simple."


def npy(array: Any) -> bytes:
    """Content in numpy's format."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def arrays(got: Attempted) -> list[Any]:
    """The outputs as arrays."""
    return [np.load(io.BytesIO(content or b"")) for content in got.contents]


@pytest.mark.parametrize("integer", [True, False])
def test_random_numbers_are_in_range(tmp_path: Path, *, integer: bool) -> None:
    """All numbers lie between low and high, and are whole if they should be."""
    fields = {"size": 500, "low": 5, "high": 8, "integer": integer}

    (got,) = try_app(f"{SIMPLE}RandomArrayApp", tmp_path, outputs=["a"], fields=fields).values

    assert got.shape == (500,)
    assert got.min() >= 5
    assert got.max() < 8
    assert (got == got.astype(int)).all() == integer


def test_a_seed_makes_numbers_repeatable_but_not_equal_everywhere(tmp_path: Path) -> None:
    """A copy of a scatter draws the same numbers in each run; different copies draw different numbers."""
    app, fields = f"{SIMPLE}RandomArrayApp", {"seed": 1, "integer": False}
    first, again, other = (
        try_app(app, tmp_path, outputs=["a"], fields=fields, index=index).values[0] for index in ((0,), (0,), (1,))
    )

    assert (first == again).all()
    assert (first != other).any()


def test_an_empty_range_is_refused(tmp_path: Path) -> None:
    """An error is raised unless high is above low."""
    assert "not above low" in try_app(f"{SIMPLE}RandomArrayApp", tmp_path, fields={"low": 5, "high": 5}).failure.text


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from(["mean", "median"]),
)
def test_averages_are_of_all_numbers(tmp_path: Path, lists: list[list[int]], method: str) -> None:
    """One-dimensional arrays are averaged together, as if they were one."""
    inputs = [Given("a", np.array(each)) for each in lists]

    (got,) = try_app(
        f"{SIMPLE}AverageArraysApp", tmp_path, inputs=inputs, outputs=["o"], fields={"method": method}
    ).values

    together = sorted(sum(lists, []))  # noqa: RUF017 - slow and obvious
    middle = (together[(len(together) - 1) // 2] + together[len(together) // 2]) / 2
    assert got == pytest.approx(middle if method == "median" else sum(together) / len(together))


def test_averages_of_numbers_tables_and_lost_inputs(tmp_path: Path) -> None:
    """Numbers count as arrays of one, tables are averaged by rows, and lost inputs are left out."""
    app = f"{SIMPLE}AverageArraysApp"
    table = npy([[1, 2], [3, 4]])

    assert try_app(
        app, tmp_path, inputs=[Given("a", 1.0), Given("a", FAILED), Given("a", 2)], outputs=["o"]
    ).values == [1.5]
    (row,) = try_app(app, tmp_path, inputs=[Given("a", table), Given("a", [[5, 9]])], outputs=["o"]).values
    assert row.tolist() == [3.0, 5.0]


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([], "no input is connected"),
        ([[]], "all arrays are empty"),
        ([[1], [[1]]], "shapes (1,), (1, 1)"),
        (["x"], "holds str of <U1, not numbers"),
        ([b""], "holds no numbers: it is empty"),
        ([np.ma.array([1.0, 9.0], mask=[False, True])], "its mask would be lost"),
    ],
)
def test_inputs_that_cannot_be_averaged_are_an_error(tmp_path: Path, contents: list[Any], text: str) -> None:
    """The failure has the reason why there is no average."""
    got = try_app(f"{SIMPLE}AverageArraysApp", tmp_path, inputs=[Given("a", content) for content in contents])

    assert text in got.failure.text


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers()), st.integers(1, 6), st.sampled_from(["numbers", "text", "mixed", "array", "lines"]))
def test_a_scatter_loses_nothing_and_keeps_the_order(tmp_path: Path, values: list[int], count: int, kind: str) -> None:
    """The pieces, put together, are the input; no two differ by more than one in length."""
    whole: Any = {
        "numbers": values,
        "text": [str(value) for value in values],
        "mixed": [{"v": value} for value in values],
        "array": np.array(values, dtype=object).astype(str),
        "lines": "\n".join(str(value) for value in values),
    }[kind]

    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=[Given("in", whole)], outputs=["out"] * count).values

    joined = [element for piece in got for element in piece]
    assert joined == list(whole.splitlines() if kind == "lines" else whole)
    assert max(map(len, got)) - min(map(len, got)) <= 1


def test_a_scatter_of_whole_numbers_with_nan_gives_arrays(tmp_path: Path) -> None:
    """Not a number is not equal to itself, and an array has it unchanged."""
    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=[Given("in", [1, math.nan])], outputs=["out"] * 2)

    assert [(type(piece), repr(piece.tolist())) for piece in got.values] == [
        (np.ndarray, "[1.0]"),
        (np.ndarray, "[nan]"),
    ]


@pytest.mark.parametrize(
    "values",
    [[1.5, 2**60 + 1], [2**63, -1], [True, 2], [[0.5], [2**60 + 1]], [10**400, 1], ["a\0", "b"]],
    ids=["large", "beyond int64", "truth", "nested", "beyond floats", "text with NUL"],
)
def test_a_scatter_changes_no_value_of_a_list(tmp_path: Path, values: list[Any]) -> None:
    """What an array of numpy cannot hold stays a list: no number is rounded, and no truth value becomes a number."""
    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=[Given("in", values)], outputs=["out"] * 2).values

    assert [repr(piece) for piece in got] == [repr(values[:1]), repr(values[1:])]


def test_a_scatter_with_two_output_ports_splits_each_input_separately(tmp_path: Path) -> None:
    """Each output port gets all pieces of the input of the same name."""
    inputs = [Given("a", [1, 2]), Given("b", ["x", "y"])]

    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=inputs, outputs=["b", "a", "b", "a"]).values

    assert [piece.tolist() for piece in got] == [["x"], [1], ["y"], [2]]


def test_element_mode_writes_one_value_to_each_output(tmp_path: Path) -> None:
    """With 'element' each output gets one value; too few are an error."""
    app, fields = f"{SIMPLE}GenericScatterApp", {"element": True}

    assert try_app(app, tmp_path, inputs=[Given("in", [4, 5])], outputs=["o"] * 2, fields=fields).values == [4, 5]
    failure = try_app(app, tmp_path, inputs=[Given("in", [4])], outputs=["o"] * 2, fields=fields).failure
    assert "fewer elements than there are outputs (2)" in failure.text


def test_the_pieces_of_a_masked_array_have_its_mask(tmp_path: Path) -> None:
    """Elements that are masked before a scatter are masked in its pieces."""
    masked = np.ma.array([1, 2, 3, 4], mask=[False, True, False, True])
    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=[Given("in", masked)], outputs=["o"] * 2)

    assert [pickle.loads(content).tolist() for content in got.contents] == [[1, None], [3, None]]


@pytest.mark.parametrize(("content", "text"), [({"a": 1}, "cannot be split"), (5, "cannot be split")])
def test_inputs_that_cannot_be_scattered_are_an_error(tmp_path: Path, content: Any, text: str) -> None:
    """The failure names what was found."""
    got = try_app(f"{SIMPLE}GenericScatterApp", tmp_path, inputs=[Given("in", content)], outputs=["o"])

    assert text in got.failure.text


def test_npy_pieces_follow_input_and_axis(tmp_path: Path) -> None:
    """Piece k of input i is along the i-th axis, at output i * copies + k."""
    one, two = np.arange(6).reshape(2, 3), np.arange(8).reshape(2, 4)
    axes = (Argument(name="scatter_axes", value="[0, 1]", type="String"),)

    got = try_app(
        f"{SIMPLE}GenericNpyScatterApp",
        tmp_path,
        inputs=[Given("a", npy(one)), Given("b", npy(two))],
        outputs=["o"] * 4,
        fields=axes,
    )

    wanted = [one[:1], one[1:], two[:, :2], two[:, 2:]]
    assert all(
        (made == part).all() and made.shape == part.shape for made, part in zip(arrays(got), wanted, strict=True)
    )


@pytest.mark.parametrize(
    ("axes", "outputs", "text"),
    [
        ("[0, 1]", 2, "2 axes for 1 inputs"),
        ("[3]", 2, "there is no axis 3"),
        ("x", 2, "expected JSON"),
    ],
)
def test_axes_that_do_not_fit_are_an_error(tmp_path: Path, axes: str, outputs: int, text: str) -> None:
    """The failure names what does not fit."""
    fields = (Argument(name="scatter_axes", value=axes),)

    got = try_app(
        f"{SIMPLE}GenericNpyScatterApp",
        tmp_path,
        inputs=[Given("a", npy([1, 2]))],
        outputs=["o"] * outputs,
        fields=fields,
    )

    assert text in got.failure.text


def test_inputs_that_cannot_have_equally_many_outputs_are_an_error(tmp_path: Path) -> None:
    """The failure names both numbers."""
    inputs = [Given("a", npy([1, 2])), Given("b", npy([3, 4]))]
    fields = (Argument(name="scatter_axes", value="[0, 0]"),)

    got = try_app(f"{SIMPLE}GenericNpyScatterApp", tmp_path, inputs=inputs, outputs=["o"] * 3, fields=fields)

    assert "3 outputs cannot share 2 inputs evenly" in got.failure.text


@pytest.mark.parametrize("name", ["GenericScatterApp", "GenericNpyScatterApp"])
def test_a_scatter_of_no_copies_writes_nothing(tmp_path: Path, name: str) -> None:
    """Its application runs, as that of any other scatter does: zero copies are no error (LG021)."""
    fields = (Argument(name="num_of_copies", value=0, type="Integer"),)

    got = try_app(f"{SIMPLE}{name}", tmp_path, inputs=[Given("a", npy([1, 2]))], fields=fields)

    assert got.contents == []


@pytest.mark.parametrize(
    ("function", "axes", "wanted"),
    [
        ("sum", "", 23),
        ("prod", "", 720),
        ("max", "0", [5, 6]),
        ("min", "[1]", [1, 1]),
        ("add", "", [[6, 3], [4, 10]]),
        ("Multiply", "", [[5, 2], [3, 24]]),
        ("maximum", "", [[5, 2], [3, 6]]),
        ("minimum", "", [[1, 1], [1, 4]]),
    ],
)
def test_npy_gathers_reduce_or_combine_their_inputs(tmp_path: Path, function: str, axes: str, wanted: Any) -> None:
    """Reductions reduce each array and combine the results; the others combine element by element."""
    fields = (Argument(name="function", value=function), Argument(name="reduce_axes", value=axes, type="Json"))
    inputs = [Given("a", npy([[1, 2], [3, 4]])), Given("a", FAILED), Given("a", [[5, 1], [1, 6]])]

    got = try_app(f"{SIMPLE}GenericNpyGatherApp", tmp_path, inputs=inputs, outputs=["o"], fields=fields)

    assert arrays(got)[0].tolist() == wanted


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([[1, 2], [1, 2, 3]], "does not fit the others"),
        ([], "no input is connected"),
        ([b"\x93NUMPY cut"], "not a whole npy array"),
    ],
)
def test_inputs_that_cannot_be_gathered_are_an_error(tmp_path: Path, contents: list[Any], text: str) -> None:
    """The failure names the input that does not fit."""
    fields = {"function": "add"}

    got = try_app(
        f"{SIMPLE}GenericNpyGatherApp", tmp_path, inputs=[Given("a", each) for each in contents], fields=fields
    )

    assert text in got.failure.text
