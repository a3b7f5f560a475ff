"""A slow, obvious unroller to compare with: every instance is a dict, every pair of instances is looked at.

Written from the text of the recommended semantics (spec 3.11) alone. It knows nothing of strides, of counters or of
the modules it checks; it needs a graph without mistakes, and small sizes.

A level is called by the constructs that it is made of: `S` for the copies of scatter S, `K:S` for a group-by K that
repeats it, `K2:K:S` for a group-by K2 that repeats that.
"""

from itertools import combinations, product
from math import prod
from typing import Any

import msgspec

from translator.logical import LogicalGraph, LogicalLink, NodeKind

Instance = tuple[tuple[str, int], ...]
"""Indices of one instance by level name, outermost first."""


class Oracle:
    """Drops and edges of a logical graph, by comparing all instances."""

    def __init__(self, graph: LogicalGraph) -> None:
        self.nodes = {node.id: node for node in graph.nodes}
        self.links = graph.links
        self._content: dict[str, list[tuple[str, str, int]]] = {}

    def home(self, name: str) -> str | None:
        """The construct around a node."""
        node = self.nodes[name]
        if node.embedded_in is None:
            return node.parent
        construct = self.nodes[node.embedded_in]
        return construct.id if construct.category in ("Gather", "GroupBy") else construct.parent

    def constructs(self, name: str) -> list[str]:
        """All constructs around a node, outermost first."""
        home = self.home(name)
        return [] if home is None else [*self.constructs(home), home]

    def content(self, construct: str) -> list[tuple[str, str, int]]:
        """Levels (name, kind, size) of the content of a construct; computed once."""
        if construct not in self._content:
            self._content[construct] = self._levels_within(construct)
        return self._content[construct]

    def _levels_within(self, construct: str) -> list[tuple[str, str, int]]:
        node = self.nodes[construct]
        around = self.levels(construct)
        if node.category == "Scatter":
            return [*around, (construct, "scatter", int(node.value("num_of_copies")))]
        if node.category == "Loop":
            return [*around, (construct, "loop", int(node.value("num_of_iter")))]
        if node.category == "Gather":
            fullest = max((self.inputs(construct, link) for link in self.entering(construct)), default=0)
            width = int(node.value("num_of_inputs") or 0) or max(fullest, 1)
            size = 1 if not node.value("num_of_inputs") else (fullest + width - 1) // width
            return [*around, (construct, "gather", size)]
        keys = self.keys(construct)
        return [*around, *((f"{construct}:{name}", "groupby", size) for name, _, size in keys)]

    def levels(self, name: str) -> list[tuple[str, str, int]]:
        """Levels of the context of a node."""
        home = self.home(name)
        return [] if home is None else self.content(home)

    def instances(self, name: str) -> list[Instance]:
        """Every instance of a node."""
        levels = self.levels(name)
        return [
            tuple(zip((level for level, _, _ in levels), index, strict=True))
            for index in product(*(range(size) for _, _, size in levels))
        ]

    def entering(self, construct: str) -> list[LogicalLink]:
        """Links that come into a gather or group-by from outside."""
        return [link for link in self.links if self.entered(link) == construct]

    def entered(self, link: LogicalLink) -> str | None:
        """The gather or group-by that a link enters."""
        target = self.nodes[link.target]
        construct = target.id if target.kind is NodeKind.CONSTRUCT else target.embedded_in
        if construct is None or self.nodes[construct].category not in ("Gather", "GroupBy"):
            return None
        return None if construct in self.constructs(link.source) else construct

    def keys(self, construct: str) -> list[tuple[str, str, int]]:
        """Levels around the input of a group-by that distinguish its groups."""
        rest = self.own(self.entering(construct)[0].source, construct)
        wanted = [key for key in str(self.nodes[construct].value("group_key") or "").split(",") if key]
        if not wanted:
            return [level for level in rest if level[1] in ("scatter", "groupby")][-1:]
        selected = [self.answering(key, rest) for key in wanted]
        assert all(len(levels) == 1 for levels in selected), "a key must name one level"
        return [level for level in rest if [level] in selected]

    def own(self, name: str, other: str) -> list[tuple[str, str, int]]:
        """Levels of a node that another node does not have."""
        return [level for level in self.levels(name) if level not in self.levels(other)]

    @staticmethod
    def answering(key: str, levels: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
        """Levels that are of a construct, or repeat one of it."""
        return [level for level in levels if key in level[0].split(":")]

    def gathered(self, construct: str, link: LogicalLink) -> list[list[Instance]]:
        """The inputs of a gather from one link, in order, for every instance of its context."""
        stepped = self.loops_in_step(construct, link)
        groups = []
        for place in self.instances(construct):
            here = dict(place)
            here |= {level: here[other] for level, other in stepped}
            groups.append(
                [
                    source
                    for source in self.instances(link.source)
                    if all(here.get(name, index) == index for name, index in source)
                ]
            )
        return groups

    def loops_in_step(self, construct: str, link: LogicalLink) -> list[tuple[str, str]]:
        """Loops of the input and of a gather that run in step."""
        rests = self.own(link.source, construct), self.own(construct, link.source)
        left, right = ([level for level in rest if level[1] == "loop"] for rest in rests)
        return self.in_step(left, right)

    def inputs(self, construct: str, link: LogicalLink) -> int:
        """Number of inputs of each instance of a gather's context from one link, also if there are no contexts."""
        stepped = {level for level, _ in self.loops_in_step(construct, link)}
        return prod(size for name, _, size in self.own(link.source, construct) if name not in stepped)

    def fed_by_carries(self, link: LogicalLink) -> set[str]:
        """Loops whose carries end on the same port as a link."""
        carries = [
            other
            for other in self.links
            if other.closes_loop and link.target_port and other.target == link.target
            if other.target_port == link.target_port
        ]
        return {self.common_loops(carry)[-1] for carry in carries}

    def common_loops(self, link: LogicalLink) -> list[str]:
        """Loops around both ends of a link, outermost first."""
        right = self.levels(link.target)
        return [level[0] for level in self.levels(link.source) if level[1] == "loop" and level in right]

    def drops(self) -> set[tuple[str, Instance]]:
        """Every drop as (name, indices); a group-by without application is an application itself, with its data."""
        instances: set[tuple[str, Instance]] = set()
        for node in self.nodes.values():
            if node.kind in (NodeKind.DATA, NodeKind.APP):
                instances |= {(node.id, instance) for instance in self.instances(node.id)}
            elif node.category == "GroupBy":
                instances |= {
                    (name, group) for name in (node.id, f"{node.id}-grp-data") for group in self.groups(node.id)
                }
        return instances

    def groups(self, construct: str) -> list[Instance]:
        """Every group of a group-by."""
        levels = self.content(construct)
        return [
            tuple(zip((level for level, _, _ in levels), index, strict=True))
            for index in product(*(range(size) for _, _, size in levels))
        ]

    def edges(self) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Every edge as a pair of drops; edges between drops of the same kind stay as they are."""
        pairs: set[tuple[tuple[str, Instance], tuple[str, Instance]]] = set()
        for link in self.links:
            entered = self.entered(link)
            if entered is None:
                pairs |= self.ordinary(link)
            elif self.nodes[entered].category == "Gather":
                pairs |= self.into_gather(entered, link)
            else:
                pairs |= self.into_groups(entered, link)
        for node in self.nodes.values():
            if node.category == "GroupBy":
                pairs |= self.out_of_groups(node.id)
        return pairs

    def ordinary(self, link: LogicalLink) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Same indices on the levels that both ends have; step-locked loops; last and first iterations; carries."""
        left, right, stepped, last, first = self.ends(link)
        shared = {name for name, _, _ in self.levels(link.source)} - {name for name, _, _ in left}
        later = self.fed_by_carries(link) - {other for _, other in stepped}
        first |= {name: 0 for name, _, _ in right if name in later}
        carried = self.common_loops(link)[-1:] if link.closes_loop else []
        pairs = set()
        sources = [(instance, dict(instance)) for instance in self.instances(link.source)]
        targets = [(instance, dict(instance)) for instance in self.instances(link.target)]
        for (source, here), (target, there) in product(sources, targets):
            if (
                all(there[name] == here[name] + (name in carried) for name in shared)
                and all(here[level] == there[other] for level, other in stepped)
                and all(here[name] == index for name, index in last.items())
                and all(there[name] == index for name, index in first.items())
            ):
                pairs.add(((link.source, source), (link.target, target)))
        return pairs

    @staticmethod
    def in_step(left: list[tuple[str, str, int]], right: list[tuple[str, str, int]]) -> list[tuple[str, str]]:
        """Loops that run in step: the first way to give every level of the shorter side a loop of equal size."""
        if not left or not right:
            return []
        short, long = (left, right) if len(left) <= len(right) else (right, left)
        for chosen in combinations(long, len(short)):
            pairs = list(zip(short, chosen, strict=True))
            if all(level[1] == other[1] == "loop" and level[2] == other[2] for level, other in pairs):
                return [(level[0], other[0]) if short is left else (other[0], level[0]) for level, other in pairs]
        return []

    def ends(self, link: LogicalLink) -> tuple[Any, ...]:
        """Levels that only one end of a link has, loops in step among them, iterations that it leaves and enters."""
        left, right = self.own(link.source, link.target), self.own(link.target, link.source)
        last = {name: size - 1 for name, kind, size in left if link.loop_aware and kind == "loop"}
        first = {name: 0 for name, kind, _ in right if link.loop_aware and kind == "loop"}
        free = [level for level in left if level[0] not in last], [level for level in right if level[0] not in first]
        return left, right, self.in_step(*free), last, first

    def legal(self, link: LogicalLink) -> bool:
        """Whether a link has a meaning: without chosen iterations and loops in step, one end has no level left."""
        left, right, stepped, last, first = self.ends(link)
        left = [name for name, _, _ in left if name not in last]
        right = [name for name, _, _ in right if name not in first]
        return not left or not right or bool(stepped)

    def into_gather(self, gather: str, link: LogicalLink) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Each context takes its inputs in order, `width` at a time."""
        width = int(self.nodes[gather].value("num_of_inputs") or 0)
        pairs = set()
        for place, group in zip(self.instances(gather), self.gathered(gather, link), strict=True):
            for number, source in enumerate(group):
                chunk = number // width if width else 0
                pairs.add(((link.source, source), (link.target, (*place, (gather, chunk)))))
        return pairs

    def into_groups(self, groupby: str, link: LogicalLink) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Each input belongs to the group that its indices on the keys name; one iteration if loop-aware."""
        keys = [name for name, _, _ in self.keys(groupby)]
        _, _, _, last, first = self.ends(msgspec.structs.replace(link, target=groupby))
        last = {name: index for name, index in last.items() if name not in keys}
        pairs = set()
        for source in self.instances(link.source):
            here = dict(source)
            for place in self.instances(groupby):
                if (
                    all(here.get(name, index) == index for name, index in place)
                    and all(here[name] == index for name, index in last.items())
                    and all(dict(place)[name] == index for name, index in first.items())
                ):
                    group = (*place, *((f"{groupby}:{name}", here[name]) for name in keys))
                    pairs.add(((link.source, source), (link.target, group)))
        return pairs

    def out_of_groups(self, groupby: str) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """From each group to its data, and on to what begins its content."""
        data = f"{groupby}-grp-data"
        children = [
            node
            for node in self.nodes.values()
            if node.kind in (NodeKind.DATA, NodeKind.APP) and self.home(node.id) == groupby
        ]
        starts = [node for node in children if node.value("group_start")]
        starts = starts or [node for node in children if all(link.target != node.id for link in self.links)]
        pairs = set()
        for group in self.groups(groupby):
            pairs.add(((groupby, group), (data, group)))
            for start in starts:
                source = data if start.kind is NodeKind.APP else groupby
                pairs.add(((source, group), (start.id, group)))
        return pairs
