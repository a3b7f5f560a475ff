"""Levels: the axes of index spaces, their comparison, and the numbers in fields of constructs.

Every construct adds one level for its content, but a group-by adds one for each of its keys. An MPI application adds a
level for its ranks. Two group-bys that repeat the same scatter make two different levels. An instance of a node is a
tuple of indices over its levels, outermost first. Its number is that tuple in mixed radix, with the last level fastest
(row-major).
"""

import math
from typing import Any, NamedTuple

import msgspec

from dropflow.failure import Problem, Severity
from dropflow.graph.templates import Axis
from translator.logical import LogicalNode
from translator.problem_codes import ZERO_MULTIPLICITY, problem

SCATTER, LOOP, GATHER, GROUPBY = "scatter", "loop", "gather", "groupby"
MPI, SUBGRAPH, EXCLUSIVE, SERVICE = "mpi", "subgraph", "exclusive", "service"
_ON = frozenset({"1", "true", "yes", "y", "on"})
_LARGEST_COUNT = 2**63
"""Number from which a multiplicity is too large: it must fit into 64 bits with a sign."""
_LARGEST_FIELD = 2**31 - 1
"""Largest number in a field of a construct: it must fit into 32 bits with a sign."""
_SHOWN_CHARACTERS = 60
"""Characters of a value that a message shows."""
Findings = list[Problem]
"""List to which findings are added while an outline is made."""


class LevelId(NamedTuple):
    """Identity of a level: its construct, and its number among the levels of that construct."""

    construct: str
    place: int


class Level(msgspec.Struct, frozen=True):
    """One level of an index space.

    Attributes
    ----------
    construct : str
        Id of the construct, or of the MPI application, that makes the level.
    name : str
        Its name.
    kind : str
        One of the constants of this module, such as `SCATTER`.
    size : int
        Number of indices; a Python integer, so that sizes do not overflow.
    place : int
        Number among the levels of its construct; only group-bys with several keys have more than one.
    repeats : LevelId, optional
        The level of the input that a level of a group-by repeats.
    group_keys : tuple of str
        Keys of group-bys for this level: name and id of its construct, then those of the level it repeats.
    zip_with : tuple of str
        Names or ids of scatters whose copies are linked to the copies of this one, number by number.
    is_list : bool
        Whether consumers after a gather get a list even if it has only one copy (field `always_list`).
    """

    construct: str
    name: str
    kind: str
    size: int
    place: int = 0
    repeats: LevelId | None = None
    group_keys: tuple[str, ...] = ()
    zip_with: tuple[str, ...] = ()
    is_list: bool = False

    def is_zipped(self, other: "Level") -> bool:
        """Return whether one of two levels names the other in `zip_with`."""
        return not {*self.group_keys}.isdisjoint(other.zip_with) or not {*other.group_keys}.isdisjoint(self.zip_with)

    @property
    def id(self) -> LevelId:
        """Identity of the level."""
        return LevelId(self.construct, self.place)

    @property
    def is_transparent(self) -> bool:
        """Whether the level always has exactly one index, so that links ignore it."""
        return self.kind in (SUBGRAPH, EXCLUSIVE, SERVICE)

    @property
    def label(self) -> str:
        """Kind and name, for messages."""
        return f"{'group-by' if self.kind == GROUPBY else self.kind} {self.name!r}"

    @property
    def axis(self) -> Axis:
        """The level as an axis of a physical graph."""
        return Axis(construct=self.construct, name=self.name, kind=self.kind, size=self.size)


Levels = tuple[Level, ...]


class Parting(NamedTuple):
    """Comparison of two index spaces: the number of shared levels, and the positions of other levels on each side."""

    shared: int
    left: list[int]
    right: list[int]


def part(left: Levels, right: Levels) -> Parting:
    """Compare two index spaces from the outermost level inwards, leaving out transparent levels not shared."""
    shared = 0
    for level, other in zip(left, right, strict=False):
        if level.id != other.id:
            break
        shared += 1
    return Parting(
        shared,
        [position for position in range(shared, len(left)) if not left[position].is_transparent],
        [position for position in range(shared, len(right)) if not right[position].is_transparent],
    )


def strides(levels: Levels) -> tuple[int, ...]:
    """Return the stride of each level in instance numbers. Levels of size zero count as one."""
    steps: list[int] = []
    step = 1
    for level in reversed(levels):
        steps.append(step)
        step *= max(level.size, 1)
    return tuple(reversed(steps))


def spelled(levels: Levels) -> str:
    """Return the levels as text for messages."""
    visible = [f"{level.label} ({level.size})" for level in levels]
    return " > ".join(visible) or "the top level"


# Reading of numbers and switches from the fields of a logical node, with findings for invalid ones.


def is_on(value: Any) -> bool:
    """Return whether a value means yes; in old files switches are text."""
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
    number = _integer(value)
    where = pointer(node, name)
    if number is None or not 0 <= number < _LARGEST_COUNT:
        wrong = "too large" if number is not None and number > 0 else "not a non-negative integer"
        reason = "is missing" if value is None else f"is {_shown(value)}, which is {wrong}"
        findings.append(
            problem(
                "LG020", f"{name} of {node.category} {node.name!r} {reason}", where=where, hint="set it to an integer"
            )
        )
        return 1
    if number == 0:
        text = f"{name} of {node.category} {node.name!r} is zero: its content has no drops"
        findings.append(problem(ZERO_MULTIPLICITY, text, where=where))
    return number


def whole(
    node: LogicalNode, name: str, default: int, findings: Findings, *, lowest: int, highest: int = _LARGEST_FIELD
) -> int:
    """Return an integer from `lowest` to `highest`; the default, with a finding, if the field is not valid."""
    value = node.value(name)
    if value is None:
        return default
    number = _integer(value)
    if number is None:
        findings.append(_unconvertible(node, name, value, default, "whole number"))
        return default
    if not lowest <= number <= highest:
        wanted = f"at least {lowest}" if number < lowest else f"at most {highest}"
        findings.append(_replaced(node, name, value, default, wanted))
        return default
    return number


def quantity(node: LogicalNode, name: str, default: float, findings: Findings, *, highest: float = math.inf) -> float:
    """Return a number from 0 to `highest`; the default, with a finding, if the field is not valid."""
    value = node.value(name)
    if value is None:
        return default
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        findings.append(_unconvertible(node, name, value, default))
        return default
    if not (math.isfinite(number) and 0 <= number <= highest):
        wanted = "not negative and finite" if highest == math.inf else f"between 0 and {highest:g}"
        findings.append(_replaced(node, name, value, default, wanted))
        return default
    return number


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
    if isinstance(value, int) and abs(value) > _LARGEST_COUNT:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
