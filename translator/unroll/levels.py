"""Levels: the axes of index spaces, and the comparison of two index spaces.

Every construct adds one level for its content (a group-by one for each of its keys), and an MPI application one for
itself. Two group-bys that repeat the same scatter make two different levels. An instance of a node is a tuple of
indices over its levels, outermost first. Its number is that tuple in mixed radix, with the last level fastest
(row-major).
"""

from typing import NamedTuple

import msgspec

from dropflow.graph.templates import Axis

__all__ = [
    "EXCLUSIVE",
    "GATHER",
    "GROUPBY",
    "LOOP",
    "MPI",
    "SCATTER",
    "SERVICE",
    "SUBGRAPH",
    "Level",
    "LevelId",
    "Levels",
    "Parting",
]

SCATTER, LOOP, GATHER, GROUPBY = "scatter", "loop", "gather", "groupby"
MPI, SUBGRAPH, EXCLUSIVE, SERVICE = "mpi", "subgraph", "exclusive", "service"


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
        Names or ids of scatters whose copies are linked to those of this one, number by number.
    """

    construct: str
    name: str
    kind: str
    size: int
    place: int = 0
    repeats: LevelId | None = None
    group_keys: tuple[str, ...] = ()
    zip_with: tuple[str, ...] = ()

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
    """Comparison of two index spaces: the number of shared levels, and the positions of the others on each side."""

    shared: int
    left: list[int]
    right: list[int]


def part(left: Levels, right: Levels) -> Parting:
    """Compare two index spaces from the outermost level inwards, leaving out transparent levels not shared."""
    shared = 0
    for one, other in zip(left, right, strict=False):
        if one.id != other.id:
            break
        shared += 1
    return Parting(
        shared,
        [position for position in range(shared, len(left)) if not left[position].is_transparent],
        [position for position in range(shared, len(right)) if not right[position].is_transparent],
    )


def strides(levels: Levels) -> tuple[int, ...]:
    """Return the stride of each level in instance numbers. Levels of size zero count as one."""
    found: list[int] = []
    step = 1
    for level in reversed(levels):
        found.append(step)
        step *= max(level.size, 1)
    return tuple(reversed(found))


def spelled(levels: Levels) -> str:
    """Return the levels as text for messages."""
    visible = [f"{level.label} ({level.size})" for level in levels]
    return " > ".join(visible) or "the top level"
