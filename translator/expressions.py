"""Arithmetic over parameters in the values of a graph, such as ``{n} * 2``: parsed here, and never executed as code.

An expression has numbers, placeholders (``{n}``, ``~n``, ``~{n}``, ``$n``, ``${n}``), the operators ``+``, ``-``,
``*``, ``/``, ``//``, ``%`` and ``**``, parentheses, and the functions ``min``, ``max``, ``ceil``, ``floor`` and
``round``. Sizes are limited, so that no expression takes long or much memory.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

Number = int | float

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<braces>[~$]?\{(?P<inner>[A-Za-z_][\w.]*)\})"
    r"|(?P<sigil>[~$](?P<plain>[A-Za-z_]\w*))"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|//|[-+*/%(),]))"
)
_PLACEHOLDER = re.compile(r"[~$]?\{([A-Za-z_][\w.]*)\}|[~$]([A-Za-z_]\w*)")
_LONGEST = 1000
_DEEPEST = 40
_LARGEST = 2**63
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
}
_ONE_VALUE = frozenset({"ceil", "floor", "round"})


class ExpressionError(Exception):
    """The text is no expression, or has no value. Its text says why."""


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
        The text is no expression, or its value is not a number of ordinary size.
    """
    if len(text) > _LONGEST:
        raise ExpressionError(f"it has {len(text)} characters, more than {_LONGEST}")
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
        The text has a sign that no expression has. `value_of` may raise it, too.
    """
    found = []
    for kind, token, is_name in _named(text):
        value = value_of(token) if is_name else None
        if value is None:
            found.append(f"{{{token}}}" if kind == "parameter" else token)
        else:
            found.append(f"({value})" if value.startswith("-") else value)
    return " ".join(found)


def uses_names(text: str, names: Collection[str]) -> bool:
    """Return whether a text is made of the signs of expressions, and uses one of some names."""
    try:
        return any(is_name and token in names for _, token, is_name in _named(text))
    except ExpressionError:
        return False


def _named(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the kind of each token, the token, and whether it is the name of a value."""
    tokens = _tokens(text) if len(text) <= _LONGEST else []
    for (kind, token), (_, following) in zip(tokens, [*tokens, ("", "")][1:], strict=True):
        is_function = kind == "name" and token in _FUNCTIONS and following == "("
        yield kind, token, kind in ("parameter", "name") and not is_function


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise ExpressionError(f"{text[place:].strip()[:20]!r} is unexpected")
        kind = match.lastgroup or ""
        if kind in ("braces", "inner"):
            found.append(("parameter", match["inner"]))
        elif kind in ("sigil", "plain"):
            found.append(("parameter", match["plain"]))
        else:
            found.append((kind, match[kind]))
        place = match.end()
    return found


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
        if depth > _DEEPEST:
            raise ExpressionError(f"it is nested deeper than {_DEEPEST} levels")
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
        if depth > _DEEPEST:
            raise ExpressionError(f"it is nested deeper than {_DEEPEST} levels")
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
        if abs(exponent) * max(math.log2(abs(base)) if base else 0.0, 1.0) > 64:  # noqa: PLR2004 - bits of a number
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
    "*": lambda one, other: one * other,
    "/": lambda one, other: one // other if _is_whole(one, other) else one / other,
    "//": lambda one, other: one // other,
    "%": lambda one, other: one % other,
}


def _is_whole(one: Number, other: Number) -> bool:
    """Whether a quotient is an integer that no float has to represent."""
    return isinstance(one, int) and isinstance(other, int) and one % other == 0


def _number(text: str) -> Number:
    try:
        return _bounded(int(text))
    except ValueError:
        return _bounded(float(text))


def _bounded(value: Number) -> Number:
    if abs(value) >= _LARGEST or not math.isfinite(value):  # in this order: huge integers have no float
        raise NoValueError("its value is too large")
    return value
