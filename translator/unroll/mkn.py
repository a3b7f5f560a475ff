"""MKN: from M inputs to K copies of its content, and from them to N outputs.

The input application is a gather: in each context it has one instance for every M inputs, counted and chunked as those
of a gather. Its content is repeated K times for each of these instances, and the output application has one instance
for each. Data beside the construct that the output application writes are repeated N times for each of its instances,
if N is more than 1; with N = 1, one data drop outside collects from all instances, as after a gather.

So the levels of the content are those of the context, the chunks, and the K copies. The applications have all but the
last of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dropflow.problems import Problem
from translator.logical import LogicalGraph, LogicalLink, LogicalNode, NodeKind, Role
from translator.problem_codes import problem
from translator.unroll.levels import GATHER, SCATTER, Level, Levels
from translator.unroll.values import Findings, multiplicity, whole

__all__ = ["Mkn", "find_applications", "mkn_levels"]


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
        """Yield the construct whose levels those of a node depend on."""
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
