"""Global variables, and their placeholders in values: ``{x}``, and with `tilde` also ``~x`` and ``~{x}``.

As a whole value, ``~x``, ``~{x}``, ``$x`` and ``${x}`` are placeholders in any case.
"""

import re
from collections.abc import Mapping
from typing import Any

from dropflow.engine.parameters import Unusable, convert_field, is_empty
from dropflow.problems import Problem, Severity
from translator.logical import LogicalGraph, NodeKind
from translator.problem_codes import problem

__all__ = ["find_variables", "placeholder_name", "substitute", "unresolved"]

_BRACES = re.compile(r"\{([A-Za-z_][\w.]*)\}")
_TILDE = re.compile(r"~(?:\{([A-Za-z_][\w.]*)\}|([A-Za-z_][\w.]*))")
_WHOLE = re.compile(r"\s*(?:[~$]?\{([A-Za-z_][\w.]*)\}|[~$]([A-Za-z_][\w.]*))\s*")


def find_variables(graph: LogicalGraph, given: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Return the value of every global variable by name.

    Parameters
    ----------
    graph : LogicalGraph
        Its variables are the typed fields of nodes of kind ``globals``.
    given : mapping of str to Any
        Values from the user. A variable that is also in the graph has the type of the graph.
    problems : list of Problem
        Gets ``LG091`` for a value that does not fit its type, and ``LG090`` for variables that refer to each other in a
        cycle.
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
    """Return `value` with the placeholders in all its texts replaced by values of variables.

    A text that is a single placeholder becomes the value of the variable, with its type. Braces around other text are
    not changed: commands and code have them.

    Parameters
    ----------
    value : Any
        Any JSON value; keys of objects are not changed.
    variables : mapping of str to Any
        Values by name.
    used : set of str
        Gets the names of the variables that were used.
    tilde : bool, optional
        Also replace ``~x`` and ``~{x}``.
    """
    if isinstance(value, str):
        return _in_text(value, variables, used, tilde=tilde)
    if isinstance(value, list):
        return [substitute(item, variables, used, tilde=tilde) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, variables, used, tilde=tilde) for key, item in value.items()}
    return value


def placeholder_name(value: Any) -> str:
    """Return the name in a value that is a single placeholder; empty for any other value."""
    whole = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    return _name(whole) if whole else ""


def unresolved(value: Any) -> bool:
    """Whether `value` is a single placeholder."""
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
    """Resolve variables in the values of variables; each round resolves one more level."""
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
        text = f"the global variables {', '.join(circle)} refer to each other in a cycle"
        problems.append(problem("LG090", text, where="", hint="give one of them a plain value"))
    return variables


def _names_one(value: Any, variables: Mapping[str, Any]) -> bool:
    return isinstance(value, str) and any(match[1] in variables for match in _BRACES.finditer(value))
