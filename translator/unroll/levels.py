"""Levels: the axes of index spaces, and the comparison of two index spaces.

Every construct adds one level for its content, but a group-by adds one for each of its keys. An MPI application adds a
level for its ranks. Two group-bys that repeat the same scatter make two different levels. An instance of a node is a
tuple of indices over its levels, outermost first. Its number is that tuple in mixed radix, with the last level fastest
(row-major).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from dropflow.failure import Problem, Severity
from dropflow.graph.templates import Axis
from translator.logical import LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
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
_NO_KEY = frozenset({"", "none", "-1", "null"})


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
        """Whether one of two levels names the other in `zip_with`."""
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


# MKN: from M inputs to K copies of its content, and from them to N outputs.
#
# The input application is a gather: in each context it has one instance for every M inputs, counted
# and chunked as those of a gather. Its content is repeated K times for each of these instances, and
# the output application has one instance for each. Data beside the construct that the output
# application writes are repeated N times for each of its instances, if N is more than 1; with N = 1,
# one data drop outside collects from all instances, as after a gather.
#
# So the levels of the content are those of the context, the chunks, and the K copies. The
# applications have all but the last of them.


@dataclass
class Mkn:
    """The applications and outputs of all MKN constructs of a graph, by node id.

    Attributes
    ----------
    inputs : dict
        The construct of each input application.
    apps : dict
        The construct of each input or output application.
    outputs : dict
        The construct of each data node that is repeated N times.
    copies : dict
        The level of the N outputs, by construct id.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    apps: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    copies: dict[str, Levels] = field(default_factory=dict)

    def owners(self, node: str) -> Iterator[str]:
        """Yield the construct on whose levels the levels of a node depend."""
        for table in (self.apps, self.outputs):
            if node in table:
                yield table[node]


def find_applications(mkn: Mkn, graph: LogicalGraph, home: Mapping[str, str | None], findings: Findings) -> None:
    """Find the applications of MKN constructs, and the data nodes that are repeated N times.

    Adds LG086 for outputs that cannot be repeated.
    """
    several: dict[str, str] = {}
    for construct, apps in graph.embedded.items():
        owner = graph.by_id.get(construct)
        if owner is None or owner.category != "MKN":
            continue
        count = whole(owner, "n", 1, findings, lowest=1, highest=2**63)  # LG120 judges the size
        mkn.copies[construct] = (_level(owner, SCATTER, count, 2),) if count > 1 else ()
        for app in apps:
            mkn.apps[app.id] = construct
            if app.role is Role.INPUT:
                mkn.inputs[app.id] = construct
            elif count > 1:
                several[app.id] = construct
    for link in graph.links:
        construct = several.get(link.source, "")
        if construct and link.target in home:
            target = graph.by_id[link.target]
            is_beside = target.kind is NodeKind.DATA and home[target.id] == home[construct]
            if not is_beside or mkn.outputs.setdefault(target.id, construct) != construct:
                findings.append(_not_repeatable(link, target, graph.by_id[construct], is_beside=is_beside))


def _not_repeatable(link: LogicalLink, target: LogicalNode, owner: LogicalNode, *, is_beside: bool) -> Problem:
    why = "is written by several constructs" if is_beside else "is not a data node beside the construct"
    text = f"MKN {owner.name!r} has {owner.value('n')} outputs, but {target.name!r}, which it writes, {why}"
    hint = "link its output application to a data node of its own beside the construct, or set n to 1"
    return problem("LG086", text, where=link.pointer, hint=hint)


def mkn_levels(node: LogicalNode, number: int, findings: Findings) -> Levels:
    """Return the levels that an MKN adds to those of its context: a number of chunks of M inputs, and the K copies."""
    return (_level(node, GATHER, number, 0), _level(node, SCATTER, multiplicity(node, "k", findings), 1))


def _level(node: LogicalNode, kind: str, size: int, place: int) -> Level:
    return Level(node.id, node.name, kind, size, place, group_keys=(node.name, node.id))


# Group-bys: the corner turn. The levels of the content are those of the keys; a group has the other
# levels, row-major.
#
# A key names exactly one level around the input that is not around the group-by: by the id or name of
# its construct or, if that is a group-by, of the construct whose level it repeats. The default is the
# innermost level of a scatter or group-by. Groups are ordered by their indices as numbers.
#
# `translator.unroll.link_maps` has the index map of the link into a group-by.


def group_keys(node: LogicalNode, context: Levels, sources: Sequence[Levels], findings: Findings) -> Levels:
    """Return the levels of the input that distinguish the groups, in their nesting order.

    Parameters
    ----------
    node : LogicalNode
        The group-by.
    context : tuple of Level
        Levels of its context.
    sources : sequence of tuples of Level
        Index spaces of the sources of links into it; there should be exactly one.
    findings : list of Problem
        LG080 to LG084 are added.
    """
    if len(sources) != 1:
        text = f"group-by {node.name!r} has {len(sources)} inputs, not one"
        findings.append(problem("LG082", text, where=node.pointer, hint="link exactly one data node to it"))
    if not sources:
        return ()
    parting = part(sources[0], context)
    shared, around = sources[0][: parting.shared], tuple(sources[0][level] for level in parting.left)
    _warn_of_repetition(node, [context[level] for level in parting.right], findings)
    groupable = tuple(level for level in around if level.kind in (SCATTER, GROUPBY))
    if not groupable:
        text = f"the input of group-by {node.name!r} is in no scatter, except those around the group-by"
        findings.append(problem("LG081", text, where=node.pointer, hint="group data that are inside a scatter"))
        return ()
    wanted = _wanted(node.value("group_key"))
    if not wanted:
        return groupable[-1:]
    chosen: set[Level] = set()
    for key in wanted:
        named = tuple(level for level in around if key in level.group_keys)
        if len(named) == 1:
            chosen.update(named)
        elif named:
            text = f"key {key!r} of group-by {node.name!r} names several levels of its input: {spelled(named)}"
            hint = _keys_of(named, around) or "no key selects only one of them; without a key the innermost is used"
            findings.append(problem("LG083", text, where=pointer(node, "group_key"), hint=hint))
        else:
            text = f"key {key!r} of group-by {node.name!r} {_why_not(key, shared, around)}"
            hint = _keys_of(around, around)
            findings.append(problem("LG080", text, where=pointer(node, "group_key"), hint=hint))
    return tuple(level for level in around if level in chosen)


def _wanted(value: Any) -> list[str]:
    """Return the keys in the field: one, several separated by commas, or a list."""
    parts = value if isinstance(value, list) else str("" if value is None else value).split(",")
    return [key for part in parts if (key := str(part).strip()).casefold() not in _NO_KEY]


def _keys_of(levels: Levels, around: Levels) -> str:
    """Return a hint with a key for each level: the first of its names that selects only this level."""
    keys = []
    for level in levels:
        alone = (
            name
            for name in level.group_keys
            if _wanted(name) == [name] and sum(name in other.group_keys for other in around) == 1
        )
        keys += [repr(name) for name in alone][:1]
    return f"write {' or '.join(keys)}" if keys else ""


def _why_not(key: str, shared: Levels, around: Levels) -> str:
    """Return why no level can be grouped by a key."""
    if any(key in level.group_keys for level in shared):
        return "is around both the group-by and its input, so that it does not distinguish groups"
    return f"names no level of its input, which is in {spelled((*shared, *around))}"


def _warn_of_repetition(node: LogicalNode, repeating: Sequence[Level], findings: Findings) -> None:
    """Add LG084 if other group-bys are around a group-by but not around its input."""
    names = list(dict.fromkeys(repr(level.name) for level in repeating if level.kind == GROUPBY))
    if names:
        outer = " and ".join(names)
        text = f"group-by {node.name!r} is in group-by {outer}, but its input is outside"
        hint = f"each group of {outer} groups the same data again; if that is not intended, link data inside {outer}"
        findings.append(problem("LG084", text, where=node.pointer, hint=hint))
