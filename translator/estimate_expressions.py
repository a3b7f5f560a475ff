"""Estimates as expressions: the execution time of an application, or the volume of data, from the sizes of inputs.

``execution_time = "0.5 * n + 2e-9 * input_bytes"`` uses parameters of the graph, other numbers of the node, and what is
known of each instance: `INPUT_NAMES`. `settled_estimate` puts in the parameters, `take_estimates` takes the expressions
out of the logical graph, and `with_estimates` computes them for each drop of the physical graph, in the order of its
edges. Expressions are read by `translator.expressions`, and never executed as code.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.errors import BadGraphError
from dropflow.failure import Problem, Severity
from dropflow.graph.order import levels
from dropflow.graph.physical import Adjacency, IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind
from translator.expressions import (
    ExpressionError,
    NoValueError,
    UnknownNameError,
    evaluate,
    replace_names,
    uses_names,
)
from translator.logical import Field, LogicalGraph, LogicalNode, NodeKind
from translator.problem_codes import problem

INPUT_NAMES = ("input_bytes", "inputs")
"""Names in estimates: the bytes that an application reads, and how many data drops that are. For data, what their
producers read."""

META = "estimates"
"""Note of a physical graph: JSON of the expressions by the key of their node."""

_FIELDS: Mapping[NodeKind, str] = {NodeKind.DATA: "data_volume", NodeKind.APP: "execution_time"}
_INPUT_NAME = re.compile(rf"\b(?:{'|'.join(INPUT_NAMES)})\b")
_OPERATOR = re.compile(r"[-+*/%(]")
_SAMPLE = {"input_bytes": 1e6, "inputs": 2}
_DEFAULT = 1.0
_HINT = (
    "write numbers, parameters, numbers of this node, input_bytes, inputs, + - * / // % **, parentheses, "
    "min, max, ceil, floor or round"
)

_Floats = npt.NDArray[np.float64]


def is_estimate(node: LogicalNode, field: Field) -> bool:
    """Return whether a field is the execution time of an application or the volume of data."""
    return not field.is_port and _FIELDS.get(node.kind) == field.name


def is_expression(node: LogicalNode, field: Field, variables: Mapping[str, Any]) -> bool:
    """Return whether a field is an estimate that is written as an expression: with an operator, or a known name."""
    text = field.effective
    if not is_estimate(node, field) or not isinstance(text, str) or _is_number(text):
        return False
    return bool(_OPERATOR.search(text) or _INPUT_NAME.search(text)) or text.strip() in {*variables, *_numbers(node)}


def _numbers(node: LogicalNode) -> dict[str, Any]:
    """Return the fields of a node that are numbers, by name."""
    return {one.name: one.effective for one in node.fields if not is_estimate(node, one) and _is_number(one.effective)}


def settled_estimate(
    node: LogicalNode, field: Field, variables: Mapping[str, Any], used: set[str], problems: list[Problem]
) -> Any:
    """Return an estimate that is written as text: a number, or an expression of `INPUT_NAMES` alone.

    LG096 is added if it is neither; then the default is returned. It is a warning if the text has no name that is
    known: old graphs have such texts.

    Parameters
    ----------
    variables : mapping of str to Any
        Values of the parameters of the graph.
    used : set of str
        Names of parameters that the graph uses; those of the expression are added.
    """
    text = str(field.effective)
    values = {**_numbers(node), **variables}
    is_known = bool(_INPUT_NAME.search(text))

    def value_of(name: str) -> str | None:
        if name in INPUT_NAMES:
            return None
        nonlocal is_known
        if not _is_number(values.get(name)):
            raise UnknownNameError(name)
        is_known = True
        used.update({name} & variables.keys())
        return repr(float(values[name]))

    try:
        reduced = replace_names(text, value_of)
        if uses_names(reduced, INPUT_NAMES):
            _try(reduced)
            return reduced
        return _not_negative(evaluate(reduced, {}))
    except ExpressionError as error:
        what = f"{field.name} of {node.category} {node.name!r} is {text!r:.60}, which cannot be computed: {error}"
        severity = Severity.ERROR if is_known else Severity.WARNING
        problems.append(problem("LG096", what, where=field.pointer or node.pointer, hint=_HINT, severity=severity))
        return _DEFAULT


def _not_negative(value: float) -> float:
    if value < 0:
        raise ExpressionError(f"its value is {value:g}, and must not be negative")
    return value


def _try(expression: str) -> None:
    """Raise ExpressionError if a text is no expression; one without a value for these sizes is one."""
    try:
        evaluate(expression, _SAMPLE)
    except NoValueError:
        return


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False


def take_estimates(graph: LogicalGraph) -> tuple[LogicalGraph, dict[str, str]]:
    """Return the graph with a number in place of each expression, and the expressions by the key of their node."""
    found: dict[str, str] = {}
    nodes = list(graph.nodes)
    for at, node in enumerate(graph.nodes):
        name = _FIELDS.get(node.kind)
        for place, field in enumerate(node.fields):
            text = field.effective
            if field.name == name and isinstance(text, str) and uses_names(text, INPUT_NAMES):
                found[node.key or node.id] = text
                fields = list(node.fields)
                fields[place] = msgspec.structs.replace(field, value=_DEFAULT)
                nodes[at] = msgspec.structs.replace(node, fields=tuple(fields))
    return (msgspec.structs.replace(graph, nodes=tuple(nodes)), found) if found else (graph, found)


def with_estimates(graph: PhysicalGraph, expressions: Mapping[str, str] | None = None) -> PhysicalGraph:
    """Return the graph with the weight of each drop, and in each template the mean of its drops.

    Parameters
    ----------
    graph : PhysicalGraph
        The graph. If no estimate depends on inputs, it is returned as it is.
    expressions : mapping of str to str, optional
        Expressions of `INPUT_NAMES` by the key of their node; by default those of the note of the graph.

    Raises
    ------
    BadGraphError
        LG096: an expression has no value for one of the drops, or a negative one.
    """
    if expressions is None:
        expressions = json.loads(graph.meta.get(META, "{}"))
    texts = {row: expressions[one.key] for row, one in enumerate(graph.templates) if one.key in expressions}
    if not texts or not graph.drops:
        return graph
    sizes = _Sizes(graph)
    rows = np.flatnonzero(np.isin(graph.template, list(texts)))
    level = levels(graph)[rows]
    order = np.lexsort((graph.template[rows], level))
    rows, level = rows[order], level[order]
    ends = np.flatnonzero(np.diff(level) != 0) + 1
    for group in np.split(rows, ends):
        read, count = sizes.of(group)
        for row in np.unique(graph.template[group]).tolist():
            mine = graph.template[group] == row
            sizes.weight[group[mine]] = _values(graph, row, texts[row], read[mine], count[mine])
    weight = sizes.weight
    weight.flags.writeable = False
    return replace(graph, weight=weight, templates=_with_means(graph, texts, weight))


class _Sizes:
    """Weights of drops as far as they are known, and the bytes and the number of their inputs."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self.weight: _Floats = graph.drop_weights.copy()
        self._before = graph.predecessors
        self._is_app = (graph.kinds == np.uint8(Kind.APP))[graph.template]

    def of(self, drops: npt.NDArray[Any]) -> tuple[_Floats, _Floats]:
        """Return the bytes, and the number, of what applications read, and of what the producers of data read."""
        read, count = np.zeros(len(drops)), np.zeros(len(drops))
        is_app = self._is_app[drops]
        read[is_app], count[is_app] = self._read(drops[is_app])
        owner, producers = _neighbours(self._before, drops[~is_app])
        sums = self._read(producers)
        for column, values in zip((read, count), sums, strict=True):
            column[~is_app] = np.bincount(owner, weights=values, minlength=int((~is_app).sum()))
        return read, count

    def _read(self, apps: npt.NDArray[Any]) -> tuple[_Floats, _Floats]:
        owner, data = _neighbours(self._before, apps)
        read: _Floats = np.bincount(owner, weights=self.weight[data], minlength=len(apps)).astype(np.float64)
        return read, np.bincount(owner, minlength=len(apps)).astype(np.float64)


def _neighbours(edges: Adjacency, drops: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], IntColumn]:
    """Return the neighbours of drops one after another, and the position in `drops` that each belongs to."""
    first, counts = edges.ptr[drops], edges.ptr[drops + 1] - edges.ptr[drops]
    owner = np.repeat(np.arange(len(drops)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, edges.neighbour[np.repeat(first, counts) + within]


def _values(graph: PhysicalGraph, row: int, text: str, read: _Floats, count: _Floats) -> _Floats:
    """Return the values of an expression; each pair of sizes is computed once."""
    pairs, place = np.unique(np.stack([read, count], axis=1), axis=0, return_inverse=True)
    return np.array([_value(graph, row, text, *pair) for pair in pairs.tolist()])[place.reshape(-1)]


def _value(graph: PhysicalGraph, row: int, text: str, read: float, count: float) -> float:
    try:
        return float(_not_negative(evaluate(text, {"input_bytes": read, "inputs": count})))
    except ExpressionError as error:
        template = graph.templates[row]
        name = _FIELDS[NodeKind.APP if template.kind is Kind.APP else NodeKind.DATA]
        what = f"{name} of {template.name!r} is {text!r:.60}, which cannot be computed for {count:g} inputs"
        found = problem("LG096", f"{what} of {read:g} bytes: {error}", where=template.key, hint=_HINT)
        raise BadGraphError(found.text, problems=(found,)) from error


def _with_means(graph: PhysicalGraph, rows: Collection[int], weight: _Floats) -> tuple[Any, ...]:
    """Return the templates, with the mean of their drops in the weight and in the field."""
    sums = np.bincount(graph.template, weights=weight, minlength=len(graph.templates))
    counts = np.bincount(graph.template, minlength=len(graph.templates))

    def changed() -> Iterator[Any]:
        for row, template in enumerate(graph.templates):
            if row not in rows or not counts[row]:
                yield template
                continue
            mean = float(sums[row] / counts[row])
            name = _FIELDS[NodeKind.APP if template.kind is Kind.APP else NodeKind.DATA]
            arguments = tuple(
                msgspec.structs.replace(one, value=mean) if one.name == name and not one.is_port else one
                for one in template.arguments
            )
            yield msgspec.structs.replace(template, weight=mean, arguments=arguments)

    return tuple(changed())
