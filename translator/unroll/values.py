"""Reading of numbers and switches from the fields of a logical node, with findings for invalid ones."""

import math
from typing import Any

from dropflow.problems import Problem, Severity
from translator.logical import LogicalNode
from translator.problem_codes import problem

__all__ = ["Findings", "is_on", "multiplicity", "pointer", "quantity", "whole"]

_ON = frozenset({"1", "true", "yes", "y", "on"})
_LARGEST = 2**63
_LARGEST_FIELD = 2**31 - 1
_SHOWN = 60

Findings = list[Problem]
"""List to which findings are added while a plan is made."""


def is_on(value: Any) -> bool:
    """Whether a value means yes; in old files switches are text."""
    if isinstance(value, str):
        return value.strip().casefold() in _ON
    return bool(value)


def pointer(node: LogicalNode, name: str) -> str:
    """Return the JSON pointer of a field, or of the node if it has no such field."""
    field = node.by_name.get(name)
    return node.pointer if field is None else field.pointer or node.pointer


def multiplicity(node: LogicalNode, name: str, findings: Findings) -> int:
    """Return the number of repetitions of a construct; 1, with a finding, if its field is not valid."""
    value = node.value(name)
    found = _integer(value)
    where = pointer(node, name)
    if found is None or not 0 <= found < _LARGEST:
        wrong = "too large" if found is not None and found > 0 else "not a non-negative integer"
        said = "is missing" if value is None else f"is {_shown(value)}, which is {wrong}"
        findings.append(
            problem(
                "LG020", f"{name} of {node.category} {node.name!r} {said}", where=where, hint="set it to an integer"
            )
        )
        return 1
    if found == 0:
        text = f"{name} of {node.category} {node.name!r} is zero: its content has no drops"
        findings.append(problem("LG021", text, where=where))
    return found


def whole(
    node: LogicalNode, name: str, default: int, findings: Findings, *, lowest: int, highest: int = _LARGEST_FIELD
) -> int:
    """Return an integer from `lowest` to `highest`; the default, with a finding, if the field is not valid."""
    value = node.value(name)
    if value is None:
        return default
    found = _integer(value)
    if found is None:
        findings.append(_unconvertible(node, name, value, default, "whole number"))
        return default
    if not lowest <= found <= highest:
        wanted = f"at least {lowest}" if found < lowest else f"at most {highest}"
        findings.append(_replaced(node, name, value, default, wanted))
        return default
    return found


def quantity(node: LogicalNode, name: str, default: float, findings: Findings, *, highest: float = math.inf) -> float:
    """Return a number from 0 to `highest`; the default, with a finding, if the field is not valid."""
    value = node.value(name)
    if value is None:
        return default
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        findings.append(_unconvertible(node, name, value, default))
        return default
    if not (math.isfinite(found) and 0 <= found <= highest):
        wanted = "not negative and finite" if highest == math.inf else f"between 0 and {highest:g}"
        findings.append(_replaced(node, name, value, default, wanted))
        return default
    return found


def _integer(value: Any) -> int | None:
    """Return the value as an integer if it is one in any form: 3, 3.0, "3", " 3.0 "."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value) if not isinstance(value, float) or value.is_integer() else None
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and number.is_integer() else None


def _unconvertible(node: LogicalNode, name: str, value: Any, default: float, wanted: str = "number") -> Problem:
    return problem(
        "LG091",
        f"{name} of {node.name!r} is {_shown(value)}, which is not a {wanted}; {default:g} is used",
        where=pointer(node, name),
        hint=f"set it to a {wanted}",
        severity=Severity.WARNING,
    )


def _replaced(node: LogicalNode, name: str, value: Any, default: float, wanted: str) -> Problem:
    return problem(
        "LG093",
        f"{name} of {node.name!r} is {_shown(value)}, not {wanted}; {default:g} is used",
        where=pointer(node, name),
    )


def _shown(value: Any) -> str:
    """Return a value for messages, truncated if it is long."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
