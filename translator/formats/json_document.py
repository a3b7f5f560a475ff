"""Graph files as JSON documents: reading within limits on size and depth, their family, and access to their values.

Size, encoding and depth are checked before the bytes are parsed, so that a hostile or broken file takes neither memory
nor time, and cannot exhaust the stack of this or a later stage.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dropflow.errors import BadFileError
from dropflow.failure import Problem
from dropflow.formatting import did_you_mean
from dropflow.graph.nesting import too_deep
from dropflow.graph.notes import FARTHEST
from translator.logical import Configuration, Field, LogicalLink, Role
from translator.options import ReadOptions
from translator.problem_codes import problem

_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 256 * 1024
"""Bytes that are decoded at once when the place of an invalid byte is looked for."""
_BYTE = re.compile(r"\(byte (\d+)\)")
_SHOWN_BYTES = 40
"""Bytes after the place of an error that its message shows."""
Json = Mapping[str, Any]
"""A JSON object of a file."""
_PAIR = re.compile(r"(-?[0-9]{1,6}(?:[.][0-9]{1,20})?) (-?[0-9]{1,6}(?:[.][0-9]{1,20})?)")
_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no", "", "none", "null"})
APPLICATION_IDS = {
    "id": ("inputApplicationId", "outputApplicationId"),
    "oid": ("inputApplicationId", "outputApplicationId"),
    "key": ("inputApplicationKey", "outputApplicationKey", "exitApplicationKey"),
}
"""Attributes of a construct with the ids of its embedded applications, by the identity of the file."""


class JsonDocument(NamedTuple):
    """The result of parsing: the value, or the reason why there is none."""

    value: Any
    problems: tuple[Problem, ...]


def parse(data: bytes, options: ReadOptions) -> JsonDocument:
    """Parse `data` as JSON (RFC 8259, UTF-8, with or without a byte order mark).

    Parameters
    ----------
    data : bytes
        The whole document.
    options : ReadOptions
        Limits on its size and depth.

    Returns
    -------
    JsonDocument
        Without value, and with one finding ``LG001``, if `data` is not accepted.
    """
    if len(data) > options.max_bytes:
        return _refuse(
            f"the document has {len(data):,} bytes, more than the {options.max_bytes:,} that are allowed",
            "a graph of this size is probably unrolled; give its logical graph instead",
        )
    data = data.removeprefix(_BOM)
    if not data or data.isspace():
        return _refuse("the document is empty", "save the graph again in the editor, and check that the file arrived")
    if too_deep(data, options.max_depth):
        return _refuse(
            f"lists and objects are nested more than {options.max_depth} levels deep",
            "graphs are never nested this deeply: the file is not a graph, or is damaged",
        )
    try:
        return JsonDocument(msgspec.json.decode(data), ())
    except (
        msgspec.DecodeError,
        ValueError,
        RecursionError,
    ) as fault:  # ValueError: an integer of 5,000 digits, bad UTF-8
        return _explain(data, fault)


def _refuse(text: str, hint: str) -> JsonDocument:
    return JsonDocument(None, (problem("LG001", text, hint=hint),))


def _explain(data: bytes, fault: Exception) -> JsonDocument:
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _CHUNK_BYTES):
        try:
            decoder.decode(data[start : start + _CHUNK_BYTES], final=start + _CHUNK_BYTES >= len(data))
        except UnicodeDecodeError as wrong:
            text = f"the document is not UTF-8 text: {wrong.reason} near byte {start + wrong.start}"
            return _refuse(text, _encoding_hint(data))
    return _refuse(f"the document is not JSON: {_place(str(fault), data)}", _syntax_hint(data))


def _place(text: str, data: bytes) -> str:
    """Return the message of the parser, with line and column instead of the byte."""
    match = _BYTE.search(text)
    if not match:
        return text[:1].lower() + text[1:]
    byte = int(match[1])
    line = data.count(b"\n", 0, byte) + 1
    column = byte - data.rfind(b"\n", 0, byte)
    near = data[byte : byte + _SHOWN_BYTES].decode("utf-8", "replace").splitlines()
    reason = text[: match.start()].removeprefix("JSON is malformed: ").strip()
    return f"{reason} in line {line}, column {column}" + (f", at {near[0]!r}" if near else "")


def _encoding_hint(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "this looks like UTF-16: save the file as UTF-8"
    return "save the file as UTF-8; if it is compressed or an archive, unpack it first"


def _syntax_hint(data: bytes) -> str:
    head = data[:_CHUNK_BYTES].lstrip()[:1]
    if head == b"<":
        return "this looks like a web page or XML: download the raw file"
    if re.search(rb"\b(NaN|-?Infinity)\b", data):
        return "JSON has no NaN and no Infinity: write the number as text, or leave it out"
    if head not in (b"{", b"["):
        return "a graph is a JSON object: give a .graph file that EAGLE saved"
    return "the file is cut off or was edited by hand: save it again in the editor"


# Reading of graph files, with clear errors.


def read_file(path: Path, options: ReadOptions | None = None) -> bytes:
    """Return the bytes of a graph file.

    Parameters
    ----------
    path : Path
        A regular file or a pipe.
    options : ReadOptions, optional
        At most `max_bytes` are read.

    Raises
    ------
    BadFileError
        There is no such file, it is a directory, there is no permission to read it, or it is too large.
    """
    limit = (options or ReadOptions()).max_bytes
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise BadFileError("there is no such file", where=where, hint=_neighbour(path)) from None
    except IsADirectoryError:
        raise BadFileError("this is a directory", where=where, hint="give a graph file in it") from None
    except PermissionError:
        raise BadFileError("no permission to read this file", where=where, hint="check its owner and mode") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadFileError(f"the file cannot be read: {reason}", where=where) from error
    if len(data) > limit:
        raise BadFileError(
            f"the file has more than the {limit:,} bytes that are allowed",
            where=where,
            hint="give the logical graph, which is small, or a .dfg file",
        )
    return data


def _neighbour(path: Path) -> str:
    """Return a hint with a similar name in the directory."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory {path.parent} either"
    return did_you_mean(path.name, names) or "check the spelling"


# Tolerant access to JSON of files. Invalid values are skipped here; `translator.formats.load` reports them.


def escape(key: str) -> str:
    """Return a key as one step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(step: str) -> str:
    """Return the key of one step of a JSON pointer."""
    return step.replace("~1", "/").replace("~0", "~")


def objects(holder: Json, name: str, pointer: str = "") -> Iterator[tuple[str, Json]]:
    """Yield pointer and content of each object in the list or object `name` of `holder`; skip other items."""
    for key, item in items(holder, name):
        if isinstance(item, Mapping):
            yield f"{pointer}/{escape(name)}/{escape(key)}", item


def items(holder: Json, name: str) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each item of the list or object `name` of `holder`; keys of a list are its indices."""
    container = holder.get(name)
    if isinstance(container, Mapping):
        yield from ((str(key), value) for key, value in container.items())
    elif isinstance(container, list):
        yield from ((str(index), value) for index, value in enumerate(container))


def text(holder: Json, *names: str) -> str:
    """Return the first of the attributes `names` that is a non-empty text or a number, as text; else an empty text."""
    for name in names:
        value = holder.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def description_of(document: Json) -> str:
    """Return the description of the graph in a file: the detailed one of EAGLE, or the short one."""
    about = document.get("modelData")
    return text(about, "detailedDescription", "shortDescription") if isinstance(about, Mapping) else ""


def position(node: Json) -> tuple[float, float] | None:
    """Return where a node was drawn: `x` and `y`, or `loc` ("x y") of old files; None without usable numbers."""
    x, y = _coordinate(node.get("x")), _coordinate(node.get("y"))
    loc = node.get("loc")
    if isinstance(loc, str) and node.get("x") is None and node.get("y") is None:
        match = _PAIR.fullmatch(loc)
        x, y = (None, None) if match is None else (float(match[1]), float(match[2]))
    return None if x is None or y is None else (x, y)


def _coordinate(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= FARTHEST:
        return None
    return float(value)


def truth(value: Any) -> bool | None:
    """Return the value of a flag, in all forms that EAGLE and DALiuGE have used; None for other values."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    folded = value.strip().lower() if isinstance(value, str) else "?"
    return True if folded in _TRUE else False if folded in _FALSE else None


# Graph configurations: named sets of values for the fields of a graph.


def read_configurations(document: Json, find: Callable[[object], str]) -> tuple[tuple[Configuration, ...], str | None]:
    """Return all configurations of a document, and the id of the active one.

    Parameters
    ----------
    document : mapping
        The parsed file; its configurations are an object or a list of objects, with `nodes` -> `fields` -> `value`.
    find : callable
        Returns the id of a node by its name in the file.
    """
    configurations = []
    for pointer, raw in objects(document, "graphConfigurations"):
        about = raw.get("modelData")
        about = about if isinstance(about, Mapping) else {}
        configurations.append(
            Configuration(
                id=text(raw, "id") or pointer.rpartition("/")[2],
                name=text(raw, "name") or text(about, "name"),
                values=tuple(_values(raw, pointer, find)),
            )
        )
    return tuple(configurations), text(document, "activeGraphConfigId") or None


def _values(raw: Json, pointer: str, find: Callable[[object], str]) -> list[tuple[str, str, object, str]]:
    nodes = raw.get("nodes")
    return [
        (find(node), str(field), setting.get("value"), f"{place}/fields/{escape(str(field))}")
        for node, content in (nodes.items() if isinstance(nodes, Mapping) else ())
        for place in [f"{pointer}/nodes/{escape(str(node))}"]
        if isinstance(content, Mapping) and isinstance(content.get("fields"), Mapping)
        for field, setting in content["fields"].items()
        if isinstance(setting, Mapping)
    ]


# The attribute that identifies nodes: the one that the ends of links refer to.
#
# Files have up to three (`id`, `oid`, `key`), sometimes mixed. The version string of a file does not tell which one its
# links use.


class Identity(StrEnum):
    """Attributes that links may refer to, in the order in which they are tried."""

    ID = "id"
    OID = "oid"
    KEY = "key"


def identity_text(value: Any, identity: Identity) -> str:
    """Return the id of a node as text: ``k-4`` for the key -4; empty for no value."""
    if value is None or value == "" or isinstance(value, dict | list | bool):
        return ""
    return f"k{value}" if identity is Identity.KEY else str(value)


def choose_identity(document: Mapping[str, Any]) -> Identity:
    """Return the identity of a document of the OJS family.

    It is the first of ``id``, ``oid`` and ``key`` that every node has and that every end of a link refers to. In a
    damaged file without such an attribute it is the one with most matches.
    """
    nodes = [node for node in _items(document, "nodeDataArray") if isinstance(node, Mapping)]
    links = [link for link in _items(document, "linkDataArray") if isinstance(link, Mapping)]
    ends = [identity_text(link.get(end), Identity.ID) for link in links for end in ("from", "to")]
    best, best_score = Identity.ID, -1.0
    for identity in Identity:
        known = {text for node in nodes for text in _ids(node, identity)}
        having = sum(identity_text(node.get(identity.value), Identity.ID) != "" for node in nodes)
        resolved = sum(end in known for end in ends)
        if having == len(nodes) and resolved == len(ends):
            return identity
        score = resolved / max(len(ends), 1) + having / max(len(nodes), 1)
        if score > best_score:
            best, best_score = identity, score
    return best


def _ids(node: Mapping[str, Any], identity: Identity) -> Iterator[str]:
    for attribute in (identity.value, *APPLICATION_IDS[identity.value]):
        text = identity_text(node.get(attribute), Identity.ID)
        if text:
            yield text


def _items(document: Mapping[str, Any], name: str) -> list[Any]:
    container = document.get(name)
    return container if isinstance(container, list) else []


class Family(StrEnum):
    """A family of files. Families of logical graphs differ in the identity of nodes and the place of ports."""

    OJS_ID = "OJS-id"
    OJS_OID = "OJS-oid"
    OJS_KEY = "OJS-key"
    PRE_OJS = "pre-OJS"
    GOJS = "GoJS"
    V4 = "V4"
    EMPTY = "empty"
    PHYSICAL = "physical-graph"
    DFG = "dfg"
    WFFORMAT = "WfFormat"
    PALETTE = "palette"
    CONFIGURATION = "graph-configuration"
    NONE = "none"


LOGICAL = frozenset(
    {Family.OJS_ID, Family.OJS_OID, Family.OJS_KEY, Family.PRE_OJS, Family.GOJS, Family.V4, Family.EMPTY}
)
"""The families that `translator.formats.read_logical` reads."""

_NO_GRAPH = {"palette": Family.PALETTE, "graphconfig": Family.CONFIGURATION}
_OJS = {Identity.ID: Family.OJS_ID, Identity.OID: Family.OJS_OID, Identity.KEY: Family.OJS_KEY}


def classify(value: Any) -> Family:
    """Return the family of a parsed JSON document."""
    if isinstance(value, list):
        return Family.PHYSICAL if _holds_drops(value) else Family.NONE
    return _of_object(value) if isinstance(value, Mapping) else Family.NONE


def _of_object(value: Mapping[str, Any]) -> Family:
    about = value.get("modelData")
    about = about if isinstance(about, Mapping) else {}
    kind = str(about.get("fileType") or about.get("type") or "").lower()
    if kind in _NO_GRAPH:
        return _NO_GRAPH[kind]
    if isinstance(value.get("workflow"), Mapping) and "nodeDataArray" not in value:
        return Family.WFFORMAT
    if "nodeDataArray" in value:
        return _ojs(value, about)
    if "nodes" in value and ("edges" in value or about.get("schemaVersion") == "V4"):
        return Family.V4 if value["nodes"] else Family.EMPTY
    return Family.NONE


def _ojs(value: Mapping[str, Any], about: Mapping[str, Any]) -> Family:
    if not value["nodeDataArray"]:
        return Family.EMPTY
    if about.get("schemaVersion"):
        return _OJS[choose_identity(value)]
    return Family.GOJS if "copiesArrays" in value or "copiesArrayObjects" in value else Family.PRE_OJS


def _holds_drops(value: list[Any]) -> bool:
    if len(value) > 1 and isinstance(value[0], str) and isinstance(value[1], list):
        value = value[1]
    return all(isinstance(item, Mapping) for item in value[:10])


# The records that readers return: nodes and links as in the file, with the same structure for all families.


class ApplicationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An application of a construct as in the file.

    Attributes
    ----------
    id : str
        Its id; empty if the file has none.
    """

    role: Role
    id: str = ""
    name: str = ""
    category: str = ""
    fields: tuple[Field, ...] = ()
    pointer: str = ""
    description: str = ""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node as in the file, with its `category` and names of fields."""

    id: str
    name: str
    category: str
    category_type: str = ""
    parent: str | None = None
    fields: tuple[Field, ...] = ()
    applications: tuple[ApplicationRecord, ...] = ()
    switches: Mapping[str, bool] = {}
    pointer: str = ""
    position: tuple[float, float] | None = None
    description: str = ""


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """A logical graph as in the file. Ends of links may be constructs."""

    family: Family
    nodes: tuple[NodeRecord, ...] = ()
    links: tuple[LogicalLink, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    active_configuration: str | None = None
    steps: tuple[str, ...] = ()
    description: str = ""
