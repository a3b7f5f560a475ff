"""Reading of logical graphs of all families. Never raises for the content of a file."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from dropflow.failure import Problem
from dropflow.graph.codec import is_dfg
from dropflow.graph.physical import PhysicalGraph
from translator.formats.json_document import LOGICAL, Family, Json, classify, escape, parse
from translator.formats.nodes import assemble
from translator.formats.ojs import read_ojs, read_v4
from translator.formats.wfformat import read_wfformat
from translator.logical import LogicalGraph
from translator.options import ReadOptions
from translator.problem_codes import problem

# Checks of the structure of a document with a JSON Schema, with texts that name the node and the field.
#
# The schema ``logical-graph.schema.json`` describes only what the translator reads. Readers ignore what it reports.
#
# Most documents fit. jsonschema takes 0.1 s to load and three quarters of the time of reading, so that it is asked only
# to tell what is wrong.

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError


_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
_SCHEMA_NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}
_LACKS = {
    "node": "has no identity: 'id', 'oid' or 'key'",
    "field": "has no name",
}
_KINDS: dict[type, tuple[str, ...]] = {
    dict: ("object",),
    list: ("array",),
    str: ("string",),
    int: ("number", "integer"),
    float: ("number",),
    bool: ("boolean",),
    type(None): ("null",),
}
_SHOWN_CHARACTERS = 40
"""Characters of the name of a node that a message shows."""
_FOREIGN = {
    Family.PHYSICAL: ("this is a physical graph (a list of drops)", "run or partition it directly: it is unrolled"),
    Family.DFG: ("this is a physical graph in a .dfg container", "run or partition it directly: it is unrolled"),
    Family.PALETTE: ("this is a palette, and not a graph", "draw a graph with it in EAGLE and give that"),
    Family.CONFIGURATION: ("this is a graph configuration, not a graph", "give the graph that it belongs to"),
    Family.NONE: (
        "this is JSON, but not a graph: it has neither 'nodeDataArray' nor 'nodes' and 'edges'",
        "give a .graph file that EAGLE saved",
    ),
}


def check_structure(document: Json, limit: int) -> Iterator[Problem]:
    """Yield findings ``LG007`` about the structure of a logical graph.

    Parameters
    ----------
    document : mapping
        The parsed file, of any of the logical families.
    limit : int
        Number of findings that are listed; if there are more, another finding is added.

    Yields
    ------
    Problem
        With a JSON pointer, and a text with the names of the node and the field.
    """
    family = "ojs" if "nodeDataArray" in document else "v4"
    if _fits(document, _schema(family)):
        return
    errors = _validator(family).iter_errors(document)
    for error in islice(errors, limit):
        path = list(error.absolute_path)
        yield problem(
            "LG007",
            f"{_subject(document, path)} {_complaint(error)}",
            where="".join(f"/{escape(str(step))}" for step in path),
            hint="correct it in the editor and save the graph again",
        )
    if next(errors, None) is not None:
        yield problem("LG007", f"there are more than {limit} errors in the structure", hint="correct these first")


@cache
def _schema(family: str) -> Json:
    schema = msgspec.json.decode(files("translator.formats").joinpath("logical-graph.schema.json").read_bytes())
    inlined: Json = _inlined(schema["$defs"][family], schema["$defs"])
    return inlined


@cache
def _validator(family: str) -> "Draft202012Validator":
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes longer to load than most graphs to read

    return Draft202012Validator(_schema(family))


def _fits(value: Any, schema: Json) -> bool:
    """Return whether a value surely fits: False for a schema with keywords other than these.

    Almost all graphs fit, and need no validator: its import takes 40 ms, a third of what this module imports otherwise.
    """
    for keyword, wanted in schema.items():
        match keyword:
            case "type":
                fits = any(kind in wanted for kind in _KINDS[type(value)])
            case "properties":
                fits = all(_fits(value[name], wanted[name]) for name in wanted.keys() & _members(value))
            case "additionalProperties":
                others = _members(value) - schema.get("properties", {}).keys()
                fits = all(_fits(value[name], wanted) for name in others)
            case "required":
                fits = not isinstance(value, dict) or all(name in value for name in wanted)
            case "items":
                fits = not isinstance(value, list) or all(_fits(item, wanted) for item in value)
            case "allOf":
                fits = all(_fits(value, each) for each in wanted)
            case "anyOf":
                fits = any(_fits(value, each) for each in wanted)
            case _:
                fits = False
        if not fits:
            return False
    return True


def _members(value: Any) -> AbstractSet[str]:
    return value.keys() if isinstance(value, dict) else frozenset()


def _inlined(schema: Any, definitions: Json) -> Any:
    """Return the schema with its references replaced, which would be resolved again for every item."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _inlined(item, definitions) for key, item in schema.items() if key != "$ref"}
    if "$ref" not in schema:
        return plain
    meant = _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {"allOf": [meant], **plain} if plain else meant


def _complaint(error: "ValidationError") -> str:
    if error.validator == "required":
        missing = [name for name in _words(error.validator_value) if name not in _words(error.instance)]
        return f"lacks {missing[0]!r}" if missing else "lacks something"
    if error.validator == "anyOf":
        holder = str(error.absolute_path[-2]) if len(error.absolute_path) > 1 else ""
        return _LACKS.get(_kind(holder), "does not fit")
    if error.validator == "type":
        allowed = [name for name in _words(error.validator_value) if name != "null"]
        names = " or ".join(_SCHEMA_NAMES[name] for name in allowed)
        return f"should be {names} but is {_NAMES.get(type(error.instance), 'a number')}"
    return f"does not fit: {error.message[:200]}"


def _words(value: Any) -> list[str]:
    """Return a list for one word or several; the keys of an object."""
    return [value] if isinstance(value, str) else [str(word) for word in value]


def _subject(document: Any, path: Sequence[str | int]) -> str:
    """Return a text for the item at `path`: the attribute of the field of the node."""
    words: list[str] = []
    here = document
    for place, step in enumerate(path):
        here = here[step]
        inside = str(path[place - 1]) if place else ""
        what = _kind(inside)
        if what:
            words.append(f"{what} {_label(here, step)}")
        elif place == len(path) - 1 or not (isinstance(here, list | dict) and _kind(str(step))):
            words.append(repr(step))
    return " of ".join(reversed(words)) or "the document"


def _kind(holder: str) -> str:
    """Return the kind of the items in a list or object of this name."""
    if holder in ("nodeDataArray", "nodes"):
        return "node"
    if holder in ("linkDataArray", "edges"):
        return "edge"
    if holder == "graphConfigurations":
        return "configuration"
    if holder.lower().endswith("ports"):
        return "port"
    return "field" if holder.lower().endswith(("fields", "args", "params")) else ""


def _label(item: Any, step: str | int) -> str:
    names = [item.get(name) for name in ("name", "text", "IdText", "id")] if isinstance(item, dict) else []
    name = next((str(name) for name in names if name), "")
    return repr(name[:_SHOWN_CHARACTERS]) if name else f"number {step + 1}" if isinstance(step, int) else repr(step)


class Reading(msgspec.Struct, frozen=True):
    """The result of reading a file.

    Attributes
    ----------
    graph : LogicalGraph or None
        The graph; None if the file has none. If `problems` has errors the graph is incomplete, and only used to find
        more problems.
    problems : tuple of Problem
        All findings.
    family : Family
        Family of the file.
    physical : PhysicalGraph or None
        The graph of a workflow of WfCommons, which is a physical one.
    """

    graph: LogicalGraph | None
    problems: tuple[Problem, ...]
    family: Family = Family.NONE
    physical: PhysicalGraph | None = None


def read_logical(data: bytes, *, name: str, options: ReadOptions | None = None) -> Reading:
    """Read a logical graph.

    Parameters
    ----------
    data : bytes
        The whole file.
    name : str
        Name of the graph, usually the file name without suffix.
    options : ReadOptions, optional
        Limits on size and depth.

    Returns
    -------
    Reading
        Every finding has a JSON pointer into the file. No content of a file makes this function raise.
    """
    options = options or ReadOptions()
    if is_dfg(data):
        return _foreign(Family.DFG)
    document = parse(data, options)
    if document.problems:
        return Reading(None, document.problems)
    family = classify(document.value)
    if family is Family.WFFORMAT:
        graph, findings = read_wfformat(document.value, name)
        return Reading(None, findings, family, graph)
    if family not in LOGICAL:
        return _foreign(family)
    problems: list[Problem] = list(check_structure(document.value, options.max_findings))
    records = (
        read_v4(document.value, problems)
        if "nodeDataArray" not in document.value
        else read_ojs(document.value, family, problems)
    )
    if family not in (Family.OJS_ID, Family.EMPTY):
        steps = "; ".join(records.steps)
        problems.append(problem("LG002", f"a graph of the {family.value} family was migrated: {steps}"))
    if family is Family.EMPTY:
        problems.append(problem("LG008", "the graph has no nodes", hint="draw one in EAGLE"))
    return Reading(assemble(records, name, problems), tuple(problems), family)


def _foreign(family: Family) -> Reading:
    text, hint = _FOREIGN[family]
    return Reading(None, (problem("LG001", text, hint=hint),), family)
