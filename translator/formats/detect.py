"""The family of a file, from its structure and not from a version string."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from dropflow.graph.codec import is_dfg
from translator.formats.identity import Identity, choose_identity
from translator.formats.json_document import parse
from translator.formats.wfformat import is_wfformat
from translator.stage_options import ReadOptions

__all__ = ["LOGICAL", "Family", "classify", "detect"]

_HEAD = 4096
_LIST_OF_DROPS = re.compile(rb'\s*\[\s*(?:\{|\]|"(?:[^"\\]|\\.)*"\s*,\s*\[)', re.DOTALL)


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


def detect(data: bytes, options: ReadOptions | None = None) -> Family:
    """Return the family of a file.

    Lists of drops and `.dfg` containers are recognised by their first bytes, because they can be very large; all other
    files are parsed.

    Parameters
    ----------
    data : bytes
        The whole file.
    options : ReadOptions, optional
        Limits on size and depth.

    Returns
    -------
    Family
        ``none`` for anything that cannot be used; `read_logical` gives the reason.
    """
    if is_dfg(data):
        return Family.DFG
    if _LIST_OF_DROPS.match(data[:_HEAD].removeprefix(b"\xef\xbb\xbf")):
        return Family.PHYSICAL
    return classify(parse(data, options or ReadOptions()).value)


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
    if is_wfformat(value):
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
