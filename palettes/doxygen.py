"""Nodes of palettes from comments in source code, as DALiuGE's users write them.

A comment describes a node if it has ``@par EAGLE_START``, then an ``@param`` for each field, and ``@par EAGLE_END``.
Its ``@brief`` is the name of the node, ``@details`` the description. The value of a field has nine parts with slashes
between them, quoted if they contain one::

    @param limit 1.5/Float/ApplicationArgument/NoPort/ReadWrite//False/False/Flux that must be reached

default, type, kind, usage, access, options with commas, precious, positional, description. ``category`` names the
component; ``construct`` offers it as the application of a Scatter or Gather, too. The comments are Python's (lines that
begin with ``#``) or those of C (``/*! */``, ``/** */``, ``///``). The code is only read.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from dropflow.graph.components import Component, Unusable, convert, is_empty
from dropflow.graph.templates import Kind
from palettes.build import components, construct_with, fields_of
from palettes.eagle import EagleField, EagleNode, category_type, stable_id

__all__ = ["DescribedNodes", "described_nodes"]

_ENDINGS = frozenset({".py", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".pyx"})
_COMMENT = re.compile(r"\s*(?:#+|///?!?|/\*[*!]*|\*/|\*)[ \t]?(.*)")
_COMMAND = re.compile(r"\s*[@\\](\w+)(?:\[[^\]]*\])?\s*(.*)")
_LANGUAGE = re.compile(r"[@\\]~\w*\s*")
_ABOUT = ("category", "construct", "tag", "gitrepo", "version")
"""Names of ``@param`` that are not fields."""
_FIELD_PARTS = 9
"""Parts between slashes that a field in a comment has: the last one, its description, may have slashes."""
_KINDS = ("ComponentParameter", "ApplicationArgument", "ConstraintParameter", "ConstructParameter")
_USAGES = ("NoPort", "InputPort", "OutputPort", "InputOutput")
_OLDER = {"PythonApp": "DALiuGEApp"}
"""Categories of older comments, and what they are now."""
_OWN_CLASS = Component(name="", kind=Kind.APP, category="DALiuGEApp", dropclass="", description="")
"""Many built-in applications have this category, and none of them is meant by a comment."""


class DescribedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that comments describe, and what could not be drawn: place and reason."""

    nodes: tuple[EagleNode, ...]
    told: tuple[str, ...]


class _Comment(msgspec.Struct, kw_only=True):
    """One comment: its commands, and the parameters between the two marks by line."""

    line: int
    brief: str = ""
    details: str = ""
    values: dict[str, tuple[int, str]] = msgspec.field(default_factory=dict)
    is_marked: bool = False


def described_nodes(path: Path) -> DescribedNodes:
    """Return the nodes that the comments of a file, or of the source files below a directory, describe."""
    files = (
        [path]
        if path.is_file()
        else sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS and file.is_file())
    )
    told: list[str] = []
    nodes: list[EagleNode] = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        if "EAGLE_START" not in text:
            continue
        for comment in _comments(text.splitlines()):
            nodes += _nodes(comment, file, told)
    return DescribedNodes(nodes=tuple(nodes), told=tuple(told))


def _comments(lines: Iterable[str]) -> Iterator[_Comment]:
    """Yield the comments that have parameters between the marks."""
    comment, last, inside_c = _Comment(line=1), "", False
    for number, line in enumerate(lines, start=1):
        match, begins_c = _COMMENT.match(line), line.lstrip().startswith("/*") and not inside_c
        if begins_c or (match is None and not inside_c):
            if comment.is_marked:
                yield comment
            comment, last = _Comment(line=number if begins_c else number + 1), ""
        if match is None and not inside_c:
            continue
        text = _LANGUAGE.sub("", (match[1] if match else line).split("*/")[0]).strip()
        inside_c = "*/" not in line and (inside_c or begins_c)
        command = _COMMAND.match(text)
        last = _take(comment, command[1], command[2], number) if command else _continue(comment, last, text)
    if comment.is_marked:
        yield comment


def _take(comment: _Comment, command: str, text: str, line: int) -> str:
    """Add a command to a comment, and return what the next lines continue: a name of a parameter, or a command."""
    match command:
        case "brief" | "details":
            setattr(comment, command, text)
            return command
        case "par":
            comment.is_marked |= text.startswith("EAGLE_START")
        case "param" if comment.is_marked and text:
            name, _, value = text.partition(" ")
            name, _, rest = name.partition("/")  # a blank default may follow the name without a space
            comment.values[name] = (line, f"/{rest} {value}".rstrip() if rest else value.strip())
            return name
    return ""


def _continue(comment: _Comment, last: str, text: str) -> str:
    if last in ("brief", "details"):
        setattr(comment, last, f"{getattr(comment, last)} {text}".strip())
    elif last in comment.values and text:
        line, value = comment.values[last]
        comment.values[last] = (line, f"{value} {text}")
    return last


def _nodes(comment: _Comment, file: Path, told: list[str]) -> Iterator[EagleNode]:
    """Yield the node of a comment, and the construct with it if the comment asks for one."""
    about = {name: comment.values[name][1].partition("/")[0].strip() for name in _ABOUT if name in comment.values}
    category = _OLDER.get(about.get("category", ""), about.get("category", ""))
    base = next((component for component in (_OWN_CLASS, *components()) if component.category == category), None)
    if not comment.brief or base is None:
        unknown = f"the unknown category {category!r}" if category else "no @param category"
        reason = unknown if comment.brief else "no @brief, which names it"
        told.append(f"{file}:{comment.line}: the node has {reason}")
        return
    yield _node(comment, base, comment.brief, f"{file}", told)
    construct = about.get("construct", "")
    if construct in ("Scatter", "Gather"):
        yield construct_with(construct, _node(comment, base, f"{construct}/{comment.brief}", "", []))
    elif construct:
        told.append(f"{file}:{comment.values['construct'][0]}: the construct {construct!r} is not Scatter or Gather")


def _node(comment: _Comment, base: Component, owner: str, file: str, told: list[str]) -> EagleNode:
    fields = []
    for name, (line, text) in comment.values.items():
        if name not in _ABOUT:
            try:
                fields.append(_field(owner, name, text))
            except Unusable as problem:
                told.append(f"{file}:{line}: {comment.brief}: the field {name} has {problem}")
    named = {field.name for field in fields}
    common = [field for field in fields_of(base, owner=f"described/{owner}") if field.name not in named]
    return EagleNode(
        category=base.category,
        category_type=category_type(base.category),
        id=stable_id("described", owner),
        name=comment.brief,
        description=comment.details or comment.brief,
        fields=(*fields, *(structs.replace(field, readonly=False) for field in common)),
    )


def _field(owner: str, name: str, text: str) -> EagleField:
    """Return the field that nine parts describe.

    Raises
    ------
    Unusable
        It has fewer parts, or one that EAGLE does not know.
    """
    parts = [part.strip() for part in next(csv.reader([text], delimiter="/", skipinitialspace=True), [])]
    if len(parts) < _FIELD_PARTS:
        raise Unusable(f"{len(parts)} parts, expected {_FIELD_PARTS} with slashes between them: {text!r}")
    default, type_, kind, usage, access, options, precious, positional = parts[: _FIELD_PARTS - 1]
    for value, known in ((kind, _KINDS), (usage, _USAGES)):
        if value not in known:
            raise Unusable(f"{value!r}, expected one of {', '.join(known)}")
    choices = tuple(word.strip() for word in options.split(",") if word.strip())
    return EagleField(
        name=name,
        value=(given := _default(default, type_, choices)),
        default_value=given,
        description="/".join(parts[_FIELD_PARTS - 1 :]),
        readonly=access.lower() == "readonly",
        type=type_,
        precious=precious.lower() == "true",
        options=choices,
        positional=positional.lower() == "true",
        id=stable_id("described", owner, name, usage),
        parameter_type=kind,
        usage=usage,
    )


def _default(text: str, type_: str, options: tuple[str, ...]) -> Any:
    if is_empty(text, type_):
        return ""
    try:
        return convert(text, type_, options=options)
    except Unusable as problem:
        raise Unusable(f"the default {text!r}, expected {problem}") from None
