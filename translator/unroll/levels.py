"""Levels: the axes of an index space, and what two spaces share.

Every construct gives its content one level (a group-by one for each of its keys), an MPI application gives itself one.
A level is a position in an index space: two group-bys that repeat the same scatter make two different levels.
An instance of a node is a tuple of indices over its levels, outermost first, and its number is that tuple read in
mixed radix: the last level counts fastest (row-major).
"""

from math import prod
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
    "SUBGRAPH",
    "Level",
    "LevelId",
    "Levels",
    "Parting",
]

SCATTER, LOOP, GATHER, GROUPBY = "scatter", "loop", "gather", "groupby"
MPI, SUBGRAPH, EXCLUSIVE = "mpi", "subgraph", "exclusive"


class LevelId(NamedTuple):
    """What tells a level from all others: its construct, and which of the levels of that construct it is."""

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
        One of the words of this module.
    size : int
        Number of indices; a Python integer, so that predictions cannot overflow.
    place : int
        Which of the levels of its construct it is; only group-bys with several keys have more than one.
    repeats : LevelId, optional
        The level of its input that a level of a group-by repeats.
    answers_to : tuple of str
        What the key of a group-by may call it: name and id of its construct, then those of the level it repeats.
    """

    construct: str
    name: str
    kind: str
    size: int
    place: int = 0
    repeats: LevelId | None = None
    answers_to: tuple[str, ...] = ()

    @property
    def id(self) -> LevelId:
        """What tells it from all other levels."""
        return LevelId(self.construct, self.place)

    @property
    def is_transparent(self) -> bool:
        """Whether the level never has more than one index, so that it constrains no link."""
        return self.kind in (SUBGRAPH, EXCLUSIVE)

    @property
    def label(self) -> str:
        """What it is called in messages: its kind and its name."""
        return f"{'group-by' if self.kind == GROUPBY else self.kind} {self.name!r}"

    @property
    def axis(self) -> Axis:
        """The level as physical graphs describe it."""
        return Axis(construct=self.construct, name=self.name, kind=self.kind, size=self.size)


Levels = tuple[Level, ...]


class Parting(NamedTuple):
    """Where the levels of two nodes part: so many are shared; the rests are positions in the one and in the other."""

    shared: int
    left: list[int]
    right: list[int]


def part(left: Levels, right: Levels) -> Parting:
    """Compare two index spaces from the outermost level inwards; transparent levels are left out of the rests."""
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


def instances(levels: Levels) -> int:
    """Number of instances of a node with these levels."""
    return prod(level.size for level in levels)


def strides(levels: Levels) -> tuple[int, ...]:
    """By how much an instance number grows with each index; levels of size zero count as one, where nothing exists."""
    found: list[int] = []
    step = 1
    for level in reversed(levels):
        found.append(step)
        step *= max(level.size, 1)
    return tuple(reversed(found))


def spelled(levels: Levels) -> str:
    """The levels in words, for messages."""
    visible = [f"{level.label} ({level.size})" for level in levels]
    return " > ".join(visible) or "the top level"
