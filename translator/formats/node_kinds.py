"""The kind of each node of a file: data, application, construct, variables or a note."""

from collections import Counter
from collections.abc import Mapping

from dropflow.problems import Problem, Severity
from translator.formats.node_records import NodeRecord, Records
from translator.formats.vocabulary import KINDS, UNDECIDED, canonical_category, canonical_class, fold
from translator.logical import Field, NodeKind
from translator.problem_codes import problem

__all__ = ["Nature", "nature_of", "natures"]

Nature = tuple[str, NodeKind]
"""Canonical category and kind of a node."""

_BY_TYPE = {
    "data": NodeKind.DATA,
    "datadrop": NodeKind.DATA,
    "service": NodeKind.DATA,
    "application": NodeKind.APP,
    "applicationdrop": NodeKind.APP,
}
_CLASS_NAMES = frozenset(map(fold, ("dropclass", "appclass", "Application class", "dataclass", "Data class")))
_DATA_CLASSES = ("data", "drops")
_SUGGESTED = 100


def natures(records: Records, problems: list[Problem]) -> Mapping[str, Nature]:
    """Return category and kind of every node by its id.

    The kind follows from the category. If that is undecided (``Unknown``), it follows from the type of the category,
    then the class, then the neighbours, with a warning. An unknown category is an error.
    """
    found = {record.id: nature_of(record.category, record.fields) for record in records.nodes}
    undecided = [record for record in records.nodes if record.category in UNDECIDED]
    neighbours = _neighbours(records, found) if undecided else {}
    for record in undecided:
        found[record.id] = (record.category or "Unknown", _guess(record, neighbours.get(record.id, Counter())))
    _report(records, found, problems)
    return found


def nature_of(category: str, fields: tuple[Field, ...]) -> Nature:
    """Return canonical category and kind by the category alone; an unknown category is an application."""
    canonical = canonical_category(category, _class_of(fields))
    return canonical, KINDS.get(canonical, NodeKind.APP)


def _class_of(fields: tuple[Field, ...]) -> str:
    values = (str(field.effective or "") for field in fields if fold(field.name) in _CLASS_NAMES)
    return canonical_class(next((value for value in values if value), ""))


def _neighbours(records: Records, found: Mapping[str, Nature]) -> dict[str, Counter[NodeKind]]:
    unsure = {record.id for record in records.nodes if record.category in UNDECIDED}
    counts: dict[str, Counter[NodeKind]] = {}
    for link in records.links:
        for one, other in ((link.source, link.target), (link.target, link.source)):
            if one in unsure and other in found and other not in unsure:
                counts.setdefault(one, Counter())[found[other][1]] += 1
    return counts


def _guess(record: NodeRecord, neighbours: Counter[NodeKind]) -> NodeKind:
    """Return the kind of a node with an undecided category."""
    by_type = _BY_TYPE.get(record.category_type.lower())
    if by_type is not None:
        return by_type
    name = _class_of(record.fields)
    if name:
        is_data = name.lower().endswith("drop") or any(part in _DATA_CLASSES for part in name.lower().split("."))
        return NodeKind.DATA if is_data else NodeKind.APP
    return NodeKind.APP if neighbours[NodeKind.DATA] > neighbours[NodeKind.APP] else NodeKind.DATA


def _report(records: Records, found: Mapping[str, Nature], problems: list[Problem]) -> None:
    renamed: dict[tuple[str, str], list[NodeRecord]] = {}
    unknown: dict[str, str] = {}
    for record in records.nodes:
        category, kind = found[record.id]
        if record.category in UNDECIDED:
            problems.append(_undecided(record, kind))
        elif category not in KINDS:
            if record.category not in unknown:
                unknown[record.category] = _similar(record.category) if len(unknown) < _SUGGESTED else ""
            problems.append(_unknown(record, unknown[record.category]))
        elif category != record.category:
            renamed.setdefault((record.category, category), []).append(record)
    for (old, new), nodes in renamed.items():
        text = f"category {old!r} of {len(nodes)} nodes is called {new!r} now; the first is {nodes[0].name!r}"
        problems.append(problem("LG031", text, where=f"{nodes[0].pointer}/category"))


def _undecided(record: NodeRecord, kind: NodeKind) -> Problem:
    return problem(
        "LG030",
        f"the category of node {record.name!r} is undecided ({record.category!r}); it is treated as {kind.value}",
        where=f"{record.pointer}/category",
        hint="choose a category in the editor",
        severity=Severity.WARNING,
    )


def _unknown(record: NodeRecord, near: str) -> Problem:
    return problem(
        "LG030",
        f"the category {record.category!r} of node {record.name!r} is not known",
        where=f"{record.pointer}/category",
        hint=f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(KINDS))}",
    )


def _similar(category: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for a message

    return next(iter(get_close_matches(category, KINDS, 1)), "")
