"""Differences of two physical graphs: logical nodes, their parameters, their numbers of drops, and their links.

The cost follows from the number of logical nodes, and for the numbers of drops from one pass over a column.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Template

_LONGEST_TEXT = 400
"""Characters of a value in a difference; longer ones are excerpts."""
_SHOWN_BEFORE = 60
"""Characters of an excerpt before the first that differs."""
_ATTRIBUTES: tuple[tuple[str, Callable[[Template], Any]], ...] = (
    ("name", lambda template: template.name),
    ("component", lambda template: template.component),
    ("category", lambda template: template.category),
    ("index space", lambda template: " x ".join(f"{axis.kind} {axis.name} of {axis.size:,}" for axis in template.axes)),
    ("weight", lambda template: template.weight),
    ("processors", lambda template: template.cpus),
    ("error threshold", lambda template: template.error_threshold),
    ("attempts", lambda template: template.tries),
    ("effective inputs", lambda template: template.effective_inputs),
    ("block skip", lambda template: template.block_skip),
    ("persist", lambda template: template.persist),
    ("collecting ports", lambda template: ", ".join(template.collects)),
)
_ARGUMENT: tuple[tuple[str, Callable[[Argument], Any]], ...] = (
    ("type", lambda argument: argument.type),
    ("encoding", lambda argument: argument.encoding),
    ("usage", lambda argument: argument.usage),
)
_NOTHING = object()
_Link = tuple[tuple[int, int], str, tuple[int, int], str, bool, bool]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between two graphs, or two sessions.

    Attributes
    ----------
    subject : str
        Name of a logical node, a link, a setting, a number or a result.
    what : str
        What of it: the name of a parameter or of another property.
    left, right : str, float or None
        The first and the second value, long texts cut around the first letter that differs; None if there is none.
    unit : str
        Unit of numbers: ``seconds``, ``bytes`` or ``count``.
    """

    subject: str
    what: str
    left: str | float | None = None
    right: str | float | None = None
    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """The second number divided by the first; None if one of them is 0 or no number."""
        if not isinstance(self.left, float | int) or not isinstance(self.right, float | int):
            return None
        return self.right / self.left if self.left > 0 and self.right > 0 else None


def matched_templates(first: Sequence[Template], second: Sequence[Template]) -> dict[int, int]:
    """Return the row in `second` of each template of `first` that is in both.

    Templates match by key; the others by kind, category and name, in their order.
    """
    theirs = {entry.key: row for row, entry in enumerate(second)}
    pairs = {row: theirs[entry.key] for row, entry in enumerate(first) if entry.key in theirs}
    pairs = {row: other for row, other in pairs.items() if first[row].kind is second[other].kind}
    free: dict[tuple[object, ...], list[int]] = {}
    taken = set(pairs.values())
    for other, entry in enumerate(second):
        if other not in taken:
            free.setdefault(_likeness(entry), []).append(other)
    for row, entry in enumerate(first):
        alike = free.get(_likeness(entry)) if row not in pairs else None
        if alike:
            pairs[row] = alike.pop(0)
    return dict(sorted(pairs.items()))


def graph_differences(first: PhysicalGraph, second: PhysicalGraph) -> tuple[Difference, ...]:
    """Return what differs between two graphs, apart from their partition, their places and the ids of their drops.

    A logical node that only one graph has differs in its drops, which the other one has not; a link likewise.
    """
    pairs = matched_templates(first.templates, second.templates)
    ours, theirs = _drops(first), _drops(second)
    taken = set(pairs.values())
    differences = [_number(first.templates[row].name, ours[row], None) for row in range(len(ours)) if row not in pairs]
    differences += [
        _number(second.templates[row].name, None, theirs[row]) for row in range(len(theirs)) if row not in taken
    ]
    for row, other in pairs.items():
        if ours[row] != theirs[other]:
            differences.append(_number(second.templates[other].name, ours[row], theirs[other]))
        differences += _values(first.templates[row], second.templates[other])
    before, after = Counter(_links(first, pairs)), Counter(_links(second, None))
    for links, ends in ((before - after, ("yes", None)), (after - before, (None, "yes"))):
        for link in links.elements():
            subject = _spelled(first, second, link)
            differences.append(Difference(subject=subject, what="link", left=ends[0], right=ends[1]))
    return tuple(differences)


def _number(node: str, left: int | None, right: int | None) -> Difference:
    return Difference(subject=node, what="drops", left=left, right=right, unit="count")


def _likeness(template: Template) -> tuple[object, ...]:
    return template.kind, template.category, template.name, template.app_name


def _drops(graph: PhysicalGraph) -> list[int]:
    """Return the number of drops of each template."""
    counts: list[int] = np.bincount(graph.template, minlength=len(graph.templates)).tolist()
    return counts


def _values(first: Template, second: Template) -> Iterator[Difference]:
    for what, value in _ATTRIBUTES:
        if value(first) != value(second):
            yield _difference(second.name, what, (value(first), value(second)))
    ours, theirs = ({argument.name: argument for argument in template.arguments} for template in (first, second))
    for name in (*ours, *(name for name in theirs if name not in ours)):
        yield from _parameter(second.name, name, ours, theirs)


def _parameter(
    node: str, name: str, ours: Mapping[str, Argument], theirs: Mapping[str, Argument]
) -> Iterator[Difference]:
    if name not in theirs:
        yield _difference(node, name, (ours[name].value, _NOTHING))
    elif name not in ours:
        yield _difference(node, name, (_NOTHING, theirs[name].value))
    else:
        argument, changed = ours[name], theirs[name]
        if _text(argument.value) != _text(changed.value):
            yield _difference(node, name, (argument.value, changed.value))
        for what, value in _ARGUMENT:
            if value(argument) != value(changed):
                yield _difference(node, f"{what} of {name}", (value(argument), value(changed)))


def _difference(node: str, what: str, values: tuple[object, object]) -> Difference:
    before, after = (None if value is _NOTHING else _text(value) for value in values)
    first, second = (_cut(before), _cut(after)) if before is None or after is None else _excerpts(before, after)
    return Difference(subject=node, what=what, left=first, right=second)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()


def _cut(text: str | None) -> str | None:
    return None if text is None else _shortened(text)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _excerpts(first: str, second: str) -> tuple[str, str]:
    """Return two texts that differ, long ones from shortly before the first letter that differs."""
    if max(len(first), len(second)) <= _LONGEST_TEXT:
        return first, second
    same = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    start = max((min(len(first), len(second)) if same is None else same) - _SHOWN_BEFORE, 0)
    dots = "…" if start else ""
    return dots + _shortened(first[start:]), dots + _shortened(second[start:])


def _links(graph: PhysicalGraph, pairs: Mapping[int, int] | None) -> Iterator[_Link]:
    """Yield the links of a graph by what they join: ends are (1, row in the second graph) or (0, row in the first)."""

    def end(row: int) -> tuple[int, int]:
        return (1, row if pairs is None else pairs[row]) if pairs is None or row in pairs else (0, row)

    for link in graph.links:
        yield end(link.source), link.source_port, end(link.target), link.target_port, link.streaming, link.carry


def _spelled(first: PhysicalGraph, second: PhysicalGraph, link: _Link) -> str:
    source, out, target, into, streaming, carry = link
    names = [(second if graph else first).templates[row].name for graph, row in (source, target)]
    ends = [f"{name}.{port}" if port else name for name, port in zip(names, (out, into), strict=True)]
    marks = [word for word, is_on in (("streaming", streaming), ("to the next iteration", carry)) if is_on]
    return " -> ".join(ends) + (f" ({', '.join(marks)})" if marks else "")
