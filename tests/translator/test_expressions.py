import ast
import contextlib
import math
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translator.expressions import ExpressionError, UnknownNameError, evaluate, names_in

_OPERATIONS: dict[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def slow(node: ast.AST) -> float:
    """Return the value of a parsed sum, difference or product, by Python's own parser."""
    if isinstance(node, ast.Expression):
        return slow(node.body)
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -slow(node.operand)
    assert isinstance(node, ast.BinOp)
    return float(_OPERATIONS[type(node.op)](slow(node.left), slow(node.right)))


def texts() -> st.SearchStrategy[str]:
    """Expressions of small numbers, signs and parentheses."""
    numbers = st.integers(0, 20).map(str)
    return st.recursive(
        numbers,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+-*"), inner).map(" ".join),
            inner.map(lambda text: f"({text})"),
            inner.map(lambda text: f"-({text})"),
        ),
        max_leaves=8,
    )


@given(texts())
def test_values_are_those_of_python(text: str) -> None:
    """Precedence, order and parentheses are Python's."""
    assert evaluate(text, {}) == slow(ast.parse(text, mode="eval"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{n}", 4),
        ("~n * 2", 8),
        ("~{n} + $m", 7),
        ("${n} // {m}", 1),
        ("{n} / 2", 2),
        ("{n} / {m}", 4 / 3),
        ("ceil({n} / {m})", 2),
        ("max(1, {n} - 10)", 1),
        ("min({n}, {m}, 9) ** 2", 9),
        ("-2 ** 2", -4),
        ("{t} % 3", 1),
        ("1.5e1", 15.0),
    ],
)
def test_parameters_and_functions(text: str, value: float) -> None:
    """All placeholders are read; a quotient without remainder is an integer; texts of numbers are numbers."""
    found = evaluate(text, {"n": 4, "m": 3, "t": "7"})

    assert found == value
    assert isinstance(found, type(value))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 +", "ends too early"),
        ("1 2", "'2' is unexpected"),
        ("(1", "not closed"),
        ("__import__('os')", "unexpected"),
        ("n.real", "unexpected"),
        ("[1]", "unexpected"),
        ("1 / 0", "divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("10 ** 30", "too large"),
        ("(-8) ** 0.5", "not a number"),
        ("(" * 100 + "1" + ")" * 100, "nested deeper"),
        ("2" + "**1" * 300, "nested deeper"),
        ("1+" * 2000 + "1", "more than 1000"),
        ("{word} + 1", "not a number"),
        ("ceil(1, 2)", "takes one value"),
    ],
)
def test_what_is_no_arithmetic_is_refused(text: str, why: str) -> None:
    """Code, huge numbers and mistakes give an error with a reason, in no time."""
    with pytest.raises(ExpressionError, match=why.replace("(", r"\(")):
        evaluate(text, {"n": 1, "word": "x"})


def test_a_parameter_without_value_is_named() -> None:
    """The name is in the error."""
    with pytest.raises(UnknownNameError, match="'k' has no value") as caught:
        evaluate("{k} + 1", {"n": 1})
    assert caught.value.name == "k"


@given(st.text(max_size=60))
def test_any_text_is_a_number_or_an_error(text: str) -> None:
    """Nothing else is raised."""
    with contextlib.suppress(ExpressionError):
        assert math.isfinite(evaluate(text, {}))


def test_names_in_a_text() -> None:
    """Each name once, in order."""
    assert names_in("{b} ~a $c ${b} {a} 5") == ["b", "a", "c"]
