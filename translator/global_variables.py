"""Global variables, and the places in values that name them: ``{x}``, and ``~x`` or ``~{x}`` if asked for."""

import re
from collections.abc import Mapping
from typing import Any

from dropflow.engine.parameters import Unusable, convert_field, is_empty
from translator.logical import LogicalGraph, NodeKind
from translator.problems import Problem, Severity, problem

__all__ = ["find_variables", "substitute", "unresolved"]

_BRACES = re.compile(r"\{([A-Za-z_][\w.]*)\}")
_TILDE = re.compile(r"~(?:\{([A-Za-z_][\w.]*)\}|([A-Za-z_][\w.]*))")
_WHOLE = re.compile(r"\s*(?:~?\{[A-Za-z_][\w.]*\}|~[A-Za-z_][\w.]*)\s*")


def find_variables(graph: LogicalGraph, given: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Name and value of every global variable.

    Parameters
    ----------
    graph : LogicalGraph
        Fields of its nodes of kind ``globals`` are its variables; each has a type.
    given : mapping of str to Any
        What the user set; a variable that the graph has too keeps the graph's type.
    problems : list of Problem
        Receives ``LG091`` for a value that does not fit its type, and ``LG090`` for variables that refer to each
        other in a circle.
    """
    variables: dict[str, Any] = dict(given)
    for node in graph.nodes:
        if node.kind is not NodeKind.GLOBALS:
            continue
        for field in node.fields:
            value = given.get(field.name, field.effective)
            try:
                variables[field.name] = value if is_empty(value, field.type) else _typed(value, field.type)
            except Unusable as complaint:
                variables[field.name] = value
                text = f"the global variable {field.name!r} is {value!r:.60}, expected {complaint}"
                severity = Severity.ERROR if field.name in given else Severity.WARNING
                problems.append(problem("LG091", text, where=field.pointer, severity=severity))
    return _expanded(variables, problems)


def substitute(value: Any, variables: Mapping[str, Any], used: set[str], *, tilde: bool = False) -> Any:
    """`value` with the values of variables in place of their names, in all texts of it.

    A text that is nothing but one placeholder becomes the variable's value with its type. Braces around anything
    that is no variable stay: commands and code are full of them.

    Parameters
    ----------
    value : Any
        Any JSON value; names of its objects are left alone.
    variables : mapping of str to Any
        Values by name.
    used : set of str
        Receives the names that occurred.
    tilde : bool, optional
        Also look for ``~x`` and ``~{x}``.
    """
    if isinstance(value, str):
        return _in_text(value, variables, used, tilde=tilde)
    if isinstance(value, list):
        return [substitute(item, variables, used, tilde=tilde) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, variables, used, tilde=tilde) for key, item in value.items()}
    return value


def unresolved(value: Any) -> bool:
    """Whether `value` is nothing but one placeholder."""
    return isinstance(value, str) and _WHOLE.fullmatch(value) is not None


def _in_text(text: str, variables: Mapping[str, Any], used: set[str], *, tilde: bool) -> Any:
    for pattern in (_TILDE, _BRACES) if tilde else (_BRACES,):
        whole = pattern.fullmatch(text.strip())
        name = _name(whole) if whole else ""
        if name in variables:
            used.add(name)
            return variables[name]

        def value_of(match: re.Match[str]) -> str:
            name = _name(match)
            if name not in variables:
                return match[0]
            used.add(name)
            return _as_text(variables[name])

        text = pattern.sub(value_of, text)
    return text


def _name(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def _typed(value: Any, type_: str) -> Any:
    plain = isinstance(value, str) and (value.lstrip().startswith("$") or _BRACES.search(value))
    return value if plain else convert_field(value, type_)


def _expanded(variables: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Variables whose values name other variables, resolved; each round resolves one more level."""
    for _ in range(len(variables)):
        open_ones = {name: value for name, value in variables.items() if _names_one(value, variables)}
        if not open_ones:
            return variables
        variables = variables | {
            name: substitute(value, {k: v for k, v in variables.items() if k not in open_ones}, set())
            for name, value in open_ones.items()
        }
    circle = sorted(name for name, value in variables.items() if _names_one(value, variables))
    if circle:
        text = f"the global variables {', '.join(circle)} refer to each other in a circle"
        problems.append(problem("LG090", text, where="", hint="give one of them a plain value"))
    return variables


def _names_one(value: Any, variables: Mapping[str, Any]) -> bool:
    return isinstance(value, str) and any(match[1] in variables for match in _BRACES.finditer(value))
