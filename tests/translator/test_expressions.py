import ast
import contextlib
import json
import math
import operator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import BadGraphError
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import load, save
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from translator.expressions import META, ExpressionError, UnknownNameError, evaluate, names_in, with_estimates
from translator.graph_sizes import graph_sizes
from translator.pipeline import examine, finish, translate

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
        ("1 ** 100", 1),
        ("(-1) ** 101", -1),
        ("0.5 ** 100", 0.5**100),
        ("2 ** -100", 2.0**-100),
        ("{t} % 3", 1),
        ("1.5e1", 15.0),
    ],
)
def test_parameters_and_functions(text: str, value: float) -> None:
    """All placeholders are read; a quotient without remainder is an integer; texts of numbers are numbers."""
    result = evaluate(text, {"n": 4, "m": 3, "t": "7"})

    assert result == value
    assert isinstance(result, type(value))


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
        ("0.1 ** -30", "too large"),
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


# Estimates as expressions of parameters and input sizes: computed for each drop, and never executed as code.


def node(key: int, category: str, name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """Return a node of a logical graph with fields."""
    listed = [
        {"name": field, "value": value, "type": "Float", "parameterType": "ComponentParameter", "usage": "NoPort"}
        for field, value in fields
    ]
    kind = {"Memory": "Data", "GlobalVariables": "GlobalVariables"}.get(category, "Application")
    return {"id": str(key), "category": category, "categoryType": kind, "name": name, "fields": listed, **more}


def source(time: Any, volume: Any = 5.0, *, n: Any = 4) -> bytes:
    """Return a logical graph: two data of 100 and 200 bytes, an application that reads both, and what it writes."""
    nodes = [
        node(1, "Memory", "a", ("data_volume", 100)),
        node(2, "Memory", "b", ("data_volume", 200)),
        node(3, "BashShellApp", "work", ("execution_time", time), ("scale", 10), ("num_cpus", 1)),
        node(4, "Memory", "out", ("data_volume", volume)),
        node(5, "GlobalVariables", "parameters", ("n", n)),
    ]
    nodes[2]["fields"].append(
        {
            "name": "command",
            "value": "true",
            "type": "String",
            "parameterType": "ApplicationArgument",
            "usage": "NoPort",
        }
    )
    links = [
        {"from": str(start), "to": str(target), "fromPort": "", "toPort": ""}
        for start, target in ((1, 3), (2, 3), (3, 4))
    ]
    model = {"modelData": {"fileType": "Graph"}, "nodeDataArray": nodes, "linkDataArray": links}
    return json.dumps(model).encode()


def weights(graph: PhysicalGraph) -> dict[str, float]:
    """Return the weight of each node with one drop."""
    return {graph.templates[row].name: graph.drop_weights[at].item() for at, row in enumerate(graph.template)}


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("0.5 * n + 2e-3 * input_bytes", 2.6),
        ("{n} * inputs", 8.0),
        ("scale * max(inputs, 1) + input_bytes / 100", 23.0),
        ("0.5 * n", 2.0),
        ("2.5", 2.5),
        (3, 3.0),
    ],
)
def test_the_time_of_an_application(time: object, expected: float) -> None:
    """Parameters, other numbers of the node, and the sizes of what it reads; plain numbers stay."""
    graph = translate(source(time)).graph
    assert weights(graph)["work"] == pytest.approx(expected)
    template = next(template for template in graph.templates if template.name == "work")
    assert template.weight == pytest.approx(expected)
    assert float(template.argument("execution_time").value) == pytest.approx(expected)  # type: ignore[union-attr]


def test_the_volume_of_data_depends_on_what_its_producer_reads() -> None:
    """Data have the inputs of their producers; what comes after is computed from that."""
    assert weights(translate(source(1.0, "0.5 * input_bytes + n")).graph)["out"] == pytest.approx(154.0)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("2 * missing + input_bytes", "'missing' has no value"),
        ("input_bytes *", "it ends too early"),
        ("input_bytes" + " + 1" * 300, "it has 1211 characters, more than 1000"),
        ("__import__('os').system('true') + inputs", "is unexpected"),
        ("0 - n", "its value is -4"),
        ("n / 0", "it divides by zero"),
    ],
)
def test_a_bad_expression_is_a_problem_with_a_code(time: str, text: str) -> None:
    """LG096 names the node and the field that cannot be computed, and the reason."""
    problems = [problem for problem in examine(source(time)).problems if problem.code == "LG096"]
    assert len(problems) == 1
    assert "execution_time of BashShellApp 'work'" in problems[0].text
    assert text in problems[0].text


def test_an_expression_without_a_value_for_one_drop_is_a_problem() -> None:
    """What only the sizes of a drop show is found when the graph is unrolled."""
    with pytest.raises(
        BadGraphError, match=r"'1 / \( inputs - 2 \)', which cannot be computed for 2 inputs of 300 bytes"
    ):
        translate(source("1 / (inputs - 2)"))


def test_graph_sizes_have_computed_estimates() -> None:
    """Work, volume and the critical path are those of the expressions."""
    checked = examine(source("0.01 * input_bytes", "2 * input_bytes"))
    assert checked.logical is not None
    assert checked.outline is not None
    made = graph_sizes(checked.logical, checked.outline)
    assert (made.work, made.volume, made.critical_path) == pytest.approx((3.0, 900.0, 3.0))


def test_a_file_keeps_the_expressions(tmp_path: Path) -> None:
    """A graph that was saved has the same weights when it is translated again."""
    graph = translate(source("0.01 * input_bytes")).graph
    save(graph, tmp_path / "graph.dfg")
    assert load(tmp_path / "graph.dfg").weight is None
    assert weights(finish(examine(tmp_path / "graph.dfg")).graph) == weights(graph)


_TEXTS = ("input_bytes", "2 * inputs", "input_bytes + 3", "min(input_bytes, 7) * inputs", "inputs ** 2")


def slowly(graph: PhysicalGraph, texts: dict[str, str]) -> list[float]:
    """Return the weight of each drop, one by one, by recursion."""
    before = graph.predecessors

    def reads(drop: int) -> list[int]:
        inputs = before.neighbour[before.ptr[drop] : before.ptr[drop + 1]].tolist()
        if graph.templates[graph.template[drop]].kind is Kind.APP:
            return list(inputs)
        return [read for app in inputs for read in reads(app)]

    def weight(drop: int) -> float:
        template = graph.templates[graph.template[drop]]
        if template.key not in texts:
            return template.weight
        sizes = [weight(read) for read in reads(drop)]
        return float(evaluate(texts[template.key], {"input_bytes": float(sum(sizes)), "inputs": float(len(sizes))}))

    return [weight(drop) for drop in range(graph.drops)]


@st.composite
def estimated(draw: st.DrawFn) -> tuple[PhysicalGraph, dict[str, str]]:
    """Draw a graph of layers, and expressions for some of its nodes."""
    builder, data, texts = GraphBuilder("layers"), ["d0"], dict[str, str]()
    builder.data("d0", weight=3.0)
    for number in range(1, draw(st.integers(1, 5)) + 1):
        builder.app(f"A{number}", weight=2.0)
        for origin in draw(st.lists(st.sampled_from(data), max_size=3, unique=True)):
            builder.connect(origin, f"A{number}")
        builder.data(f"d{number}", weight=float(number)).connect(f"A{number}", f"d{number}")
        data.append(f"d{number}")
        for name in (f"A{number}", f"d{number}"):
            if draw(st.booleans()):
                texts[name] = draw(st.sampled_from(_TEXTS))
    return builder.build(), texts


@given(estimated())
def test_weights_are_those_of_a_recursion(drawn: tuple[PhysicalGraph, dict[str, str]]) -> None:
    """The computation by levels gives what a recursion over single drops gives."""
    graph, texts = drawn
    keyed = {template.key: texts[template.name] for template in graph.templates if template.name in texts}
    noted = replace(graph, meta={META: json.dumps(keyed)})
    try:
        expected = slowly(graph, keyed)
    except ExpressionError:  # it grows beyond all bounds
        with pytest.raises(BadGraphError, match="too large"):
            with_estimates(noted)
        return
    assert np.allclose(with_estimates(noted).drop_weights, expected)


@pytest.mark.parametrize("note", ["", "{", "5", "null", '{"A": 5}', "[1]"])
def test_a_note_of_estimates_that_cannot_be_read_is_none(note: str) -> None:
    """A graph file of another program may have any note: its weights stay those of its templates."""
    graph = replace(GraphBuilder().app("A", weight=3).build(), meta={META: note})

    assert with_estimates(graph).drop_weights.tolist() == [3]
