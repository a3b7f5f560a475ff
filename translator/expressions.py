"""Arithmetic in the values of a graph, such as ``{n} * 2``, and in estimates: parsed here, never executed as code.

An expression has numbers, placeholders (``{n}``, ``~n``, ``~{n}``, ``$n``, ``${n}``), the operators ``+``, ``-``,
``*``, ``/``, ``//``, ``%`` and ``**``, parentheses, and the functions ``min``, ``max``, ``ceil``, ``floor`` and
``round``. Sizes are limited, so that no expression takes long or much memory.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
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
from translator.logical import Field, LogicalGraph, LogicalNode, NodeKind
from translator.problem_codes import problem

Number = int | float

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<braces>[~$]?\{(?P<inner>[A-Za-z_][\w.]*)\})"
    r"|(?P<sigil>[~$](?P<plain>[A-Za-z_]\w*))"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|//|[-+*/%(),]))"
)
_PLACEHOLDER = re.compile(r"[~$]?\{([A-Za-z_][\w.]*)\}|[~$]([A-Za-z_]\w*)")
_LONGEST_TEXT = 1000
"""Characters of an expression."""
_DEEPEST_LEVEL = 40
"""Levels of parentheses, signs and powers in an expression: the parser is recursive."""
_LARGEST_VALUE = 2**63
"""Magnitude from which a value is too large: it must fit into 64 bits with a sign."""
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
}
_ONE_VALUE = frozenset({"ceil", "floor", "round"})
INPUT_NAMES = ("input_bytes", "inputs")
"""Names in estimates: the bytes that an application reads, and how many data drops that are. For data, what their
producers read."""
META = "estimates"
"""Note of a physical graph: JSON of the expressions by the key of their node."""
_FIELDS: Mapping[NodeKind, str] = {NodeKind.DATA: "data_volume", NodeKind.APP: "execution_time"}
_INPUT_NAME = re.compile(rf"\b(?:{'|'.join(INPUT_NAMES)})\b")
_OPERATOR = re.compile(r"[-+*/%(]")
_SAMPLE = {"input_bytes": 1e6, "inputs": 2}
_DEFAULT_ESTIMATE = 1.0
"""The value of a field with an estimate that cannot be computed."""
_HINT = (
    "write numbers, parameters, numbers of this node, input_bytes, inputs, + - * / // % **, parentheses, "
    "min, max, ceil, floor or round"
)
_Floats = npt.NDArray[np.float64]


class ExpressionError(Exception):
    """The text is not an expression, or has no value. The message is the reason."""


class NoValueError(ExpressionError):
    """The text is an expression, which has no value for these values of its names."""


class UnknownNameError(ExpressionError):
    """The expression names a parameter that has no value. `name` is that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} has no value")
        self.name = name


def names_in(text: str) -> list[str]:
    """Return the names of the placeholders in a text, each once, in their order."""
    return list(dict.fromkeys(match[1] or match[2] for match in _PLACEHOLDER.finditer(text)))


def evaluate(text: str, values: Mapping[str, Any]) -> Number:
    """Return the value of an expression.

    Parameters
    ----------
    text : str
        The expression.
    values : mapping of str to Any
        Values of parameters; numbers, or texts of numbers.

    Raises
    ------
    UnknownNameError
        A parameter has no value.
    ExpressionError
        The text is not an expression, or its value is not a number of ordinary size.
    """
    parser = _Parser(_tokens(text), values)
    value = parser.sum(0)
    if parser.kind != "end":
        raise ExpressionError(f"{parser.token!r} is unexpected")
    return value


def replace_names(text: str, value_of: Callable[[str], str | None]) -> str:
    """Return an expression with texts in place of names.

    Parameters
    ----------
    value_of : callable
        Returns the text of a number for a name, or None if the name stays.

    Raises
    ------
    ExpressionError
        The text has a sign that no expression has, or is too long. `value_of` may raise it, too.
    """
    parts = []
    for kind, token, is_name in _named(text):
        value = value_of(token) if is_name else None
        if value is None:
            parts.append(f"{{{token}}}" if kind == "parameter" else token)
        else:
            parts.append(f"({value})" if value.startswith("-") else value)
    return " ".join(parts)


def uses_names(text: str, names: Collection[str]) -> bool:
    """Return whether a text is made of the signs of expressions, and uses one of some names."""
    try:
        return any(is_name and token in names for _, token, is_name in _named(text))
    except ExpressionError:
        return False


def _named(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the kind of each token, the token, and whether it is the name of a value."""
    tokens = _tokens(text)
    for (kind, token), (_, following) in zip(tokens, [*tokens, ("", "")][1:], strict=True):
        is_function = kind == "name" and token in _FUNCTIONS and following == "("
        yield kind, token, kind in ("parameter", "name") and not is_function


def _tokens(text: str) -> list[tuple[str, str]]:
    if len(text) > _LONGEST_TEXT:
        raise ExpressionError(f"it has {len(text)} characters, more than {_LONGEST_TEXT}")
    tokens, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise ExpressionError(f"{text[place:].strip()[:20]!r} is unexpected")
        kind = match.lastgroup or ""
        if kind in ("braces", "inner"):
            tokens.append(("parameter", match["inner"]))
        elif kind in ("sigil", "plain"):
            tokens.append(("parameter", match["plain"]))
        else:
            tokens.append((kind, match[kind]))
        place = match.end()
    return tokens


class _Parser:
    """A recursive descent over the tokens; each method returns the value of what it has read."""

    def __init__(self, tokens: list[tuple[str, str]], values: Mapping[str, Any]) -> None:
        self._tokens = tokens
        self._values = values
        self._place = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else "end"

    @property
    def token(self) -> str:
        return self._tokens[self._place][1] if self._place < len(self._tokens) else ""

    def _take(self, *signs: str) -> str:
        """Take the next token if it is one of these signs; empty if not."""
        token = self.token
        if self.kind != "sign" or token not in signs:
            return ""
        self._place += 1
        return token

    def sum(self, depth: int) -> Number:
        if depth > _DEEPEST_LEVEL:
            raise ExpressionError(f"it is nested deeper than {_DEEPEST_LEVEL} levels")
        value = self._product(depth)
        while sign := self._take("+", "-"):
            other = self._product(depth)
            value = _bounded(value + other if sign == "+" else value - other)
        return value

    def _product(self, depth: int) -> Number:
        value = self._signed(depth)
        while sign := self._take("*", "/", "//", "%"):
            other = self._signed(depth)
            if sign != "*" and not other:
                raise NoValueError("it divides by zero")
            value = _bounded(_OPERATIONS[sign](value, other))
        return value

    def _signed(self, depth: int) -> Number:
        if depth > _DEEPEST_LEVEL:
            raise ExpressionError(f"it is nested deeper than {_DEEPEST_LEVEL} levels")
        negative = False
        while sign := self._take("+", "-"):
            negative ^= sign == "-"
        value = self._power(depth)
        return -value if negative else value

    def _power(self, depth: int) -> Number:
        base = self._atom(depth)
        if not self._take("**"):
            return base
        exponent = self._signed(depth + 1)
        if base and exponent * math.log2(abs(base)) > 64:
            raise NoValueError("its value is too large")
        if (base < 0 and not float(exponent).is_integer()) or (not base and exponent < 0):
            raise NoValueError("a power in it is not a number")
        return _bounded(base**exponent)

    def _atom(self, depth: int) -> Number:
        kind, token = self.kind, self.token
        self._place += 1
        if kind == "number":
            return _number(token)
        if kind == "parameter":
            return self._parameter(token)
        if kind == "name" and token in _FUNCTIONS and self._take("("):
            return self._call(token, depth)
        if kind == "name":
            return self._parameter(token)
        if (kind, token) == ("sign", "("):
            value = self.sum(depth + 1)
            self._close()
            return value
        raise ExpressionError("it ends too early" if kind == "end" else f"{token!r} is unexpected")

    def _call(self, name: str, depth: int) -> Number:
        arguments = [self.sum(depth + 1)]
        while self._take(","):
            arguments.append(self.sum(depth + 1))
        self._close()
        if name in _ONE_VALUE and len(arguments) > 1:
            raise ExpressionError(f"{name} takes one value")
        return _FUNCTIONS[name](arguments) if name not in _ONE_VALUE else _FUNCTIONS[name](arguments[0])

    def _close(self) -> None:
        if not self._take(")"):
            raise ExpressionError("a parenthesis is not closed")

    def _parameter(self, name: str) -> Number:
        value = self._values.get(name)
        if value is None or value == "":
            raise UnknownNameError(name)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ExpressionError(f"{name!r} is {value!r:.60}, not a number")
        if isinstance(value, str):
            try:
                return _number(value.strip())
            except (ValueError, ExpressionError):
                raise ExpressionError(f"{name!r} is {value!r:.60}, not a number") from None
        return _bounded(value)


_OPERATIONS: Mapping[str, Callable[[Number, Number], Number]] = {
    "*": lambda left, right: left * right,
    "/": lambda left, right: left // right if _is_whole(left, right) else left / right,
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
}


def _is_whole(left: Number, right: Number) -> bool:
    """Return whether a quotient is an integer that no float has to represent."""
    return isinstance(left, int) and isinstance(right, int) and left % right == 0


def _number(text: str) -> Number:
    try:
        return _bounded(int(text))
    except ValueError:
        return _bounded(float(text))


def _bounded(value: Number) -> Number:
    if abs(value) >= _LARGEST_VALUE or not math.isfinite(value):  # in this order: huge integers have no float
        raise NoValueError("its value is too large")
    return value


# Estimates as expressions: the execution time of an application, or the volume of data, from the sizes of inputs.
#
# ``execution_time = "0.5 * n + 2e-9 * input_bytes"`` uses parameters of the graph, other numbers of the node, and what
# is known of each instance: `INPUT_NAMES`. `settled_estimate` puts in the parameters, `take_estimates` takes the
# expressions out of the logical graph, and `with_estimates` computes them for each drop of the physical graph, in the
# order of its edges. Expressions are never executed as code.


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
    return {
        field.name: field.effective
        for field in node.fields
        if not is_estimate(node, field) and _is_number(field.effective)
    }


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
        return _DEFAULT_ESTIMATE


def _not_negative(value: float) -> float:
    if value < 0:
        raise ExpressionError(f"its value is {value:g}, and must not be negative")
    return value


def _try(expression: str) -> None:
    """Raise ExpressionError if a text is not an expression; one without a value for these sizes is one."""
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
    expressions: dict[str, str] = {}
    nodes = list(graph.nodes)
    for at, node in enumerate(graph.nodes):
        name = _FIELDS.get(node.kind)
        for place, field in enumerate(node.fields):
            text = field.effective
            if field.name == name and isinstance(text, str) and uses_names(text, INPUT_NAMES):
                expressions[node.key or node.id] = text
                fields = list(node.fields)
                fields[place] = msgspec.structs.replace(field, value=_DEFAULT_ESTIMATE)
                nodes[at] = msgspec.structs.replace(node, fields=tuple(fields))
    return (msgspec.structs.replace(graph, nodes=tuple(nodes)), expressions) if expressions else (graph, expressions)


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
        expressions = _noted(graph)
    texts = {
        row: expressions[template.key] for row, template in enumerate(graph.templates) if template.key in expressions
    }
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


def _noted(graph: PhysicalGraph) -> Mapping[str, str]:
    """Return the expressions in the note of a graph; a note that cannot be read is like none."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(graph.meta.get(META, "{}"), type=dict[str, str])
    return {}


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
        finding = problem("LG096", f"{what} of {read:g} bytes: {error}", where=template.key, hint=_HINT)
        raise BadGraphError(finding.text, problems=(finding,)) from error


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
                msgspec.structs.replace(argument, value=mean)
                if argument.name == name and not argument.is_port
                else argument
                for argument in template.arguments
            )
            yield msgspec.structs.replace(template, weight=mean, arguments=arguments)

    return tuple(changed())
