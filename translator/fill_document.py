"""Filling of templates: the file of a logical graph, with values in place of its parameters.

Only values change; everything else of the file stays as it is, also what dropflow does not use. The filled file notes
in ``modelData/template`` what it was made from, and sessions keep this note.
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dropflow.failure import Problem, Severity
from translator.formats.json_document import parse, unescape
from translator.formats.load import Reading, read_logical
from translator.logical import LogicalGraph, NodeKind
from translator.options import ReadOptions
from translator.parameters import fill, variables_of
from translator.template import TemplateParameter, parameters_of

_NOTE = "template"
_MOST_GRAPHS = 10_000
"""Graphs that one sweep over values of parameters may make."""


class TemplateNote(msgspec.Struct, frozen=True, kw_only=True):
    """The template, configuration and values that a graph was made from.

    Attributes
    ----------
    name : str
        Name of the template.
    digest : str
        SHA-256 of its file, as ``sha256:`` and digits; empty if it was not a file.
    configuration : str
        Name of the graph configuration that was used; empty for none.
    values : dict
        Values of the parameters, and settings of single fields, by name.
    """

    name: str
    digest: str = ""
    configuration: str = ""
    values: dict[str, Any] = {}


class FilledGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A template with its values.

    Attributes
    ----------
    document : bytes
        The filled file; empty if there are errors.
    parameters : tuple of TemplateParameter
        The parameters of the template.
    note : TemplateNote
        The template, configuration and values that it was made from.
    problems : tuple of Problem
        All findings of reading and filling.
    """

    document: bytes
    parameters: tuple[TemplateParameter, ...]
    note: TemplateNote
    problems: tuple[Problem, ...]


def fill_document(
    data: bytes, *, name: str, configuration: str | None = None, settings: Mapping[str, Any] | Sequence[str] = ()
) -> FilledGraph:
    """Return the file of a logical graph with the values of its parameters; see `translator.parameters.fill`.

    Also ``~n`` inside texts is replaced. The active configuration is applied, and is not active in the filled file.
    """
    reading: Reading = read_logical(data, name=name)
    if reading.graph is None:
        return FilledGraph(document=b"", parameters=(), note=TemplateNote(name=name), problems=reading.problems)
    graph = reading.graph
    filled, fill_problems = fill(graph, configuration=configuration, settings=settings, tilde=True)
    note = note_of(graph, data, configuration=configuration, settings=settings)
    problems = (*reading.problems, *fill_problems)
    document = b""
    if not any(problem.severity is Severity.ERROR for problem in problems):
        content = parse(data, ReadOptions()).value
        _write(content, graph, filled, variables_of(graph, configuration, settings))
        about = content.get("modelData")
        content["modelData"] = {**(about if isinstance(about, dict) else {}), _NOTE: msgspec.to_builtins(note)}
        content["activeGraphConfigId"] = None
        document = msgspec.json.format(msgspec.json.encode(content), indent=4) + b"\n"
    return FilledGraph(document=document, parameters=parameters_of(graph), note=note, problems=problems)


def _write(content: Any, graph: LogicalGraph, filled: LogicalGraph, variables: Mapping[str, Any]) -> None:
    """Write the values that differ into the fields of a document."""
    plain, _ = fill(msgspec.structs.replace(graph, active_configuration=None))
    for node, before in zip(filled.nodes, plain.nodes, strict=True):
        if node.kind is NodeKind.GLOBALS:
            for field in node.fields:
                if variables.get(field.name, field.effective) != field.effective:
                    _put(content, field.pointer, variables[field.name])
            continue
        for field, old in zip(node.fields, before.fields, strict=True):
            if field.effective == old.effective:
                continue
            if field.pointer:
                _put(content, field.pointer, field.effective)
            else:  # a flag of the node in old files, which a field of its name replaces
                own = {"name": field.name, "type": field.type, "value": field.effective}
                holder = _at(content, node.pointer)
                holder["fields"] = [*(holder.get("fields") or ()), own]


def _put(content: Any, pointer: str, value: Any) -> None:
    """Set the value of the field at a JSON pointer."""
    _at(content, pointer)["value"] = value


def _at(content: Any, pointer: str) -> Any:
    """Return what is at a JSON pointer."""
    for step in pointer.split("/")[1:]:
        content = content[int(step)] if isinstance(content, list) else content[unescape(step)]
    return content


def note_of(
    graph: LogicalGraph,
    data: bytes = b"",
    *,
    configuration: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
) -> TemplateNote:
    """Return what a graph is made from, if it is filled with these values."""
    chosen = configuration or graph.active_configuration or ""
    names = {entry.id: entry.name or entry.id for entry in graph.configurations}
    values = variables_of(graph, configuration, settings)
    given = settings if isinstance(settings, Mapping) else dict(text.partition("=")[::2] for text in settings)
    return TemplateNote(
        name=graph.name,
        digest=f"sha256:{hashlib.sha256(data).hexdigest()}" if data else "",
        configuration=names.get(chosen, chosen),
        values={**values, **{key: value for key, value in given.items() if key.removeprefix("global.") not in values}},
    )


def read_note(data: bytes) -> TemplateNote | None:
    """Return the note in the file of a filled graph; None if it has none, or is not such a file."""
    if f'"{_NOTE}"'.encode() not in data:
        return None
    document = parse(data, ReadOptions()).value
    about = document.get("modelData") if isinstance(document, dict) else None
    note = about.get(_NOTE) if isinstance(about, dict) else None
    try:
        return msgspec.convert(note, TemplateNote)
    except msgspec.ValidationError:
        return None


def sweeps(texts: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield all combinations of the values in texts such as ``n=1,2,4``, the last one fastest.

    Raises
    ------
    ValueError
        A text has no name or no values, or there are too many combinations.
    """
    axes: list[list[tuple[str, str]]] = []
    count = 1
    for text in texts:
        name, sign, values = text.partition("=")
        given = [value.strip() for value in values.split(",") if value.strip()]
        if not (sign and name.strip() and given):
            raise ValueError(f"{text!r} is not NAME=VALUE,VALUE...")
        count *= len(given)
        axes.append([(name.strip(), value) for value in given])
    if count > _MOST_GRAPHS:
        raise ValueError(f"{count:,} graphs, more than {_MOST_GRAPHS:,}")
    yield from (dict(combination) for combination in itertools.product(*axes))
