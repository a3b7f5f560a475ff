"""What tiling changes in a plan: the units and wires of arrays and their applications."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from dropflow.graph.templates import Argument, Kind, Template
from translator.logical import LogicalNode
from translator.problem_codes import problem
from translator.unroll.array_nodes import ARRAY, ArrayNode
from translator.unroll.layout import Layout
from translator.unroll.levels import CHUNK, Level, Levels
from translator.unroll.tile_map import AxisPairs, Tiles, same
from translator.unroll.values import Findings, pointer
from translator.unroll.wires import Unit, Wire

__all__ = ["TILING", "ArrayDraft", "identity"]

TILING = "tiling"
"""Field in which the translator tells an application the chunks of its arrays."""


@dataclass
class ArrayDraft:
    """The units and wires of a plan while its arrays are tiled.

    Attributes
    ----------
    layout : Layout
        Constructs and levels.
    units : dict
        All units by id; changed in place.
    arrays : dict
        The arrays that can be used, by id.
    findings : list of Problem
        Findings are added.
    wires : list of Wire
        The wires of the tiled graph so far.
    """

    layout: Layout
    units: dict[str, Unit]
    arrays: dict[str, ArrayNode]
    findings: Findings
    wires: list[Wire] = field(default_factory=list)

    @cached_property
    def _taken(self) -> set[str]:
        """Ids of units and keys of templates."""
        return {unit.template.key for unit in self.units.values()} | self.units.keys()

    def report(self, code: str, node: LogicalNode, name: str, text: str, hint: str) -> None:
        """Add a finding at a field of a node."""
        self.findings.append(problem(code, text, where=pointer(node, name), hint=hint))

    def report_wire(self, wire: Wire, text: str, hint: str) -> None:
        """Add a finding about an edge that arrays cannot have."""
        self.findings.append(problem("LG134", text, where=wire.pointer, hint=hint))

    def counts(self, unit: str) -> tuple[int, ...]:
        """Return the number of chunks along each axis of a unit."""
        return tuple(level.size for level in self.units[unit].levels if level.kind == CHUNK)

    def tile(self, unit: str, counts: Sequence[int], **changes: Any) -> None:
        """Give a unit an instance for each chunk; `changes` are those of its template."""
        old = self.units[unit]
        self.units[unit] = _tiled(old, old.template.key, old.template.name, counts, **changes)

    def add_step(self, app: str, suffix: str, name: str, counts: Sequence[int]) -> str:
        """Add a further step of an application, with its fields, and return the id of the unit.

        Parameters
        ----------
        app : str
            The application.
        suffix, name : str
            What its key ends with, and its name.
        counts : sequence of int
            Number of chunks along each axis.
        """
        return self._add(app, self.units[app].template, suffix=suffix, name=name, counts=counts, inside=(), changes={})

    def add_app(
        self, like: str, suffix: str, name: str, component: str, counts: Sequence[int] = (), *, inside: Levels = ()
    ) -> str:
        """Add an application of ours in the same constructs as another unit, and return its id.

        Parameters
        ----------
        like : str
            The other unit.
        suffix, name, counts
            As in `add_step`.
        component : str
            Its class.
        inside : tuple of Level
            More levels between the constructs and the chunks.
        """
        template = Template(key="", name="", kind=Kind.APP, component=component, category="DALiuGEApp")
        return self._add(like, template, suffix=suffix, name=name, counts=counts, inside=inside, changes={})

    def add_data(
        self, like: str, suffix: str, name: str, counts: Sequence[int] = (), *, inside: Levels = (), **changes: Any
    ) -> str:
        """Add data in the same constructs as another unit, and return its id; see `add_app`.

        Its template is that of chunks in memory, with `changes`.
        """
        template = Template(key="", name="", kind=Kind.DATA, component=ARRAY, category="Memory")
        return self._add(like, template, suffix=suffix, name=name, counts=counts, inside=inside, changes=changes)

    def _add(
        self,
        like: str,
        template: Template,
        *,
        suffix: str,
        name: str,
        counts: Sequence[int],
        inside: Levels,
        changes: Mapping[str, Any],
    ) -> str:
        old = self.units[like]
        made = stem = f"{old.template.key}-{suffix}"
        number = 1
        while made in self._taken:
            number += 1
            made = f"{stem}-{number}"
        self._taken.add(made)
        around = (*(level for level in old.levels if level.kind != CHUNK), *inside)
        settings = {"artificial": True, "origin": old.node, "app_name": "", **changes}
        self.units[made] = _tiled(Unit(template, around, old.node), made, name, counts, **settings)
        return made

    def tell(self, unit: str, tiling: Mapping[str, Any]) -> None:
        """Tell an application about its arrays, in the field `TILING`."""
        old = self.units[unit]
        kept = tuple(one for one in old.template.arguments if one.name != TILING)
        arguments = (*kept, Argument(name=TILING, type="Json", value=dict(tiling)))
        template = msgspec.structs.replace(old.template, arguments=arguments)
        self.units[unit] = msgspec.structs.replace(old, template=template)

    def join(
        self, source: str, target: str, pairs: Sequence[AxisPairs], like: Wire | None = None, **ports: str
    ) -> None:
        """Add a wire between chunks; `like` is the wire of the logical graph that it stands for."""
        tiles = Tiles(self.counts(source), self.counts(target), tuple(pairs))
        plain = like or Wire(source=source, target=target, pointer=self._pointer(source))
        self.wires.append(msgspec.structs.replace(plain, source=source, target=target, tiles=tiles, **ports))

    def connect(self, source: str, target: str, **more: Any) -> None:
        """Add an ordinary wire: chunks of one end only are collected, or broadcast to."""
        self.wires.append(Wire(source=source, target=target, pointer=self._pointer(source), **more))

    def _pointer(self, unit: str) -> str:
        return self.layout.graph.by_id[self.units[unit].node].pointer


def identity(counts: Sequence[int]) -> list[AxisPairs]:
    """Join each chunk with the one of the same index."""
    return [same(count, axis, axis) for axis, count in enumerate(counts)]


def _tiled(old: Unit, key: str, name: str, counts: Sequence[int], **changes: Any) -> Unit:
    levels = (*old.levels, *(Level(key, name, CHUNK, count, axis) for axis, count in enumerate(counts)))
    axes = tuple(level.axis for level in levels)
    return Unit(msgspec.structs.replace(old.template, key=key, name=name, axes=axes, **changes), levels, old.node)
