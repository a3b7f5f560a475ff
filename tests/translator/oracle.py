"""A slow, obvious unroller to compare with: every instance is a dict, every pair of instances is looked at.

Written from the text of the recommended semantics (spec 3.11) alone. It knows nothing of strides, of counters or of
the modules it checks; it needs a graph without mistakes, and small sizes.
"""

from itertools import combinations, product

from translator.logical import LogicalGraph, LogicalLink, NodeKind

__all__ = ["Oracle"]

Instance = tuple[tuple[str, int], ...]
"""Indices of one instance by level name, outermost first."""


class Oracle:
    """Drops and edges of a logical graph, by looking at everything."""

    def __init__(self, graph: LogicalGraph) -> None:
        self.nodes = {node.id: node for node in graph.nodes}
        self.links = graph.links
        self._content: dict[str, list[tuple[str, str, int]]] = {}

    def home(self, name: str) -> str | None:
        """The construct that a node stands in."""
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
        """Levels (name, kind, size) of what stands in a construct; looked at once."""
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
            groups = [group for link in self.entering(construct) for group in self.gathered(construct, link)]
            fullest = max(map(len, groups), default=0)
            width = int(node.value("num_of_inputs") or 0) or max(fullest, 1)
            size = 1 if not node.value("num_of_inputs") else (fullest + width - 1) // width
            return [*around, (construct, "gather", size)]
        keys = self.keys(construct)
        return [*around, *((f"{construct}:{name}", "groupby", size) for name, _, size in keys)]

    def levels(self, name: str) -> list[tuple[str, str, int]]:
        """Levels of the place where a node stands."""
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
        """Levels around the input of a group-by that tell the groups apart."""
        source = self.entering(construct)[0].source
        shared = self.shared(self.levels(source), self.levels(construct))
        rest = self.levels(source)[shared:]
        wanted = [key for key in str(self.nodes[construct].value("group_key") or "").split(",") if key]
        if not wanted:
            return [level for level in rest if level[1] in ("scatter", "groupby")][-1:]
        return [level for level in rest if level[0].split(":")[-1] in wanted or level[0].split(":")[0] in wanted]

    @staticmethod
    def shared(left: list[tuple[str, str, int]], right: list[tuple[str, str, int]]) -> int:
        """How many outermost levels are the same."""
        number = 0
        while number < min(len(left), len(right)) and left[number] == right[number]:
            number += 1
        return number

    def gathered(self, construct: str, link: LogicalLink) -> list[list[Instance]]:
        """The inputs of a gather from one link, in order, for every instance of its context."""
        inner, outer = self.levels(link.source), self.levels(construct)
        shared = self.shared(inner, outer)
        loops = [[level for level in rest[shared:] if level[1] == "loop"] for rest in (inner, outer)]
        stepped = self.in_step(*loops)
        groups = []
        for place in self.instances(construct):
            here = dict(place)
            here |= {one: here[other] for one, other in stepped}
            groups.append(
                [
                    source
                    for source in self.instances(link.source)
                    if all(here.get(name, index) == index for name, index in source)
                ]
            )
        return groups

    @staticmethod
    def only(
        link: LogicalLink, levels: list[tuple[str, str, int]], elsewhere: set[str], *, last: bool
    ) -> dict[str, int]:
        """The iteration that a loop-aware link sees of every loop it leaves or enters."""
        if not link.loop_aware:
            return {}
        return {
            name: size - 1 if last else 0 for name, kind, size in levels if kind == "loop" and name not in elsewhere
        }

    def drops(self) -> set[tuple[str, Instance]]:
        """Every drop as (name, indices); a group-by without application is an application itself, with its data."""
        found: set[tuple[str, Instance]] = set()
        for node in self.nodes.values():
            if node.kind in (NodeKind.DATA, NodeKind.APP):
                found |= {(node.id, instance) for instance in self.instances(node.id)}
            elif node.category == "GroupBy":
                found |= {(name, group) for name in (node.id, f"{node.id}-grp-data") for group in self.groups(node.id)}
        return found

    def groups(self, construct: str) -> list[Instance]:
        """Every group of a group-by."""
        levels = self.content(construct)
        return [
            tuple(zip((level for level, _, _ in levels), index, strict=True))
            for index in product(*(range(size) for _, _, size in levels))
        ]

    def edges(self) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Every edge as a pair of drops; edges between drops of the same kind stay as they are."""
        found: set[tuple[tuple[str, Instance], tuple[str, Instance]]] = set()
        for link in self.links:
            entered = self.entered(link)
            if entered is None:
                found |= self.ordinary(link)
            elif self.nodes[entered].category == "Gather":
                found |= self.into_gather(entered, link)
            else:
                found |= self.into_groups(entered, link)
        for node in self.nodes.values():
            if node.category == "GroupBy":
                found |= self.out_of_groups(node.id)
        return found

    def ordinary(self, link: LogicalLink) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Same indices on the levels that both ends have; step-locked loops; last and first iterations; carries."""
        left, right = self.levels(link.source), self.levels(link.target)
        shared = {name for name, _, _ in left[: self.shared(left, right)]}
        stepped = self.in_step(
            [level for level in left if level[0] not in shared], [level for level in right if level[0] not in shared]
        )
        names = {name for pair in stepped for name in pair}
        last = self.only(link, left, shared | names, last=True)
        first = self.only(link, right, shared | names, last=False)
        carried = [name for name, kind, _ in left if kind == "loop" and name in shared][-1:] if link.closes_loop else []
        found = set()
        sources = [(instance, dict(instance)) for instance in self.instances(link.source)]
        targets = [(instance, dict(instance)) for instance in self.instances(link.target)]
        for (source, here), (target, there) in product(sources, targets):
            if (
                all(there[name] == here[name] + (name in carried) for name in shared)
                and all(here[one] == there[other] for one, other in stepped)
                and all(here[name] == index for name, index in last.items())
                and all(there[name] == index for name, index in first.items())
            ):
                found.add(((link.source, source), (link.target, target)))
        return found

    @staticmethod
    def in_step(left: list[tuple[str, str, int]], right: list[tuple[str, str, int]]) -> list[tuple[str, str]]:
        """Loops that run in step: the first way to give every level of the shorter side a loop of equal size."""
        if not left or not right:
            return []
        short, long = (left, right) if len(left) <= len(right) else (right, left)
        for chosen in combinations(long, len(short)):
            pairs = list(zip(short, chosen, strict=True))
            if all(one[1] == other[1] == "loop" and one[2] == other[2] for one, other in pairs):
                return [(one[0], other[0]) if short is left else (other[0], one[0]) for one, other in pairs]
        return []

    def legal(self, source: str, target: str) -> bool:
        """Whether a link between two nodes has a meaning: after pairing, one side has nothing left."""
        left, right = self.levels(source), self.levels(target)
        shared = self.shared(left, right)
        return not left[shared:] or not right[shared:] or bool(self.in_step(left[shared:], right[shared:]))

    def into_gather(self, gather: str, link: LogicalLink) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Each context takes its inputs in order, `width` at a time."""
        width = int(self.nodes[gather].value("num_of_inputs") or 0)
        found = set()
        for place, group in zip(self.instances(gather), self.gathered(gather, link), strict=True):
            for number, source in enumerate(group):
                chunk = number // width if width else 0
                found.add(((link.source, source), (link.target, (*place, (gather, chunk)))))
        return found

    def into_groups(self, groupby: str, link: LogicalLink) -> set[tuple[tuple[str, Instance], tuple[str, Instance]]]:
        """Each input belongs to the group that its indices on the keys name."""
        keys = [name for name, _, _ in self.keys(groupby)]
        found = set()
        for source in self.instances(link.source):
            here = dict(source)
            for place in self.instances(groupby):
                if all(here.get(name, index) == index for name, index in place):
                    group = (*place, *((f"{groupby}:{name}", here[name]) for name in keys))
                    found.add(((link.source, source), (link.target, group)))
        return found

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
        found = set()
        for group in self.groups(groupby):
            found.add(((groupby, group), (data, group)))
            for start in starts:
                source = data if start.kind is NodeKind.APP else groupby
                found.add(((source, group), (start.id, group)))
        return found
