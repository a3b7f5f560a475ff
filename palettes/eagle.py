"""EAGLE's files as typed records: the node, field and link of a graph or palette in the OJS schema.

The same records serve palettes (nodes without a place) and the graphs of ``examples/`` (nodes with one). Keys that
EAGLE writes in camelCase are snake_case here. That is the only difference between a record and its JSON.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import hypot
from typing import Any
from uuid import UUID, uuid5

import msgspec

__all__ = [
    "CATEGORY_TYPES",
    "Circle",
    "EagleEdge",
    "EagleField",
    "EagleFile",
    "EagleNode",
    "ModelData",
    "WantedPlace",
    "category_type",
    "circles",
    "encode",
    "stable_id",
]


_NAMESPACE = UUID("6f1d7f0e-5a0b-5c6b-9d0e-d20bf1000001")

CATEGORY_TYPES: dict[str, str] = {
    **dict.fromkeys(("File", "Directory", "Memory", "SharedMemory", "NGAS", "S3", "Data"), "Data"),
    **dict.fromkeys(("PythonObject", "ParameterSet", "json", "null"), "Data"),
    **dict.fromkeys(("Scatter", "Gather", "GroupBy", "Loop", "SubGraph", "MKN", "ExclusiveForceNode"), "Construct"),
    **dict.fromkeys(("RDBMS", "Plasma", "PlasmaFlight", "Service"), "Service"),
    "Comment": "Other",
    "GlobalVariables": "Global",
}
"""EAGLE's type of each category that is not an application."""


def category_type(category: str) -> str:
    """Return EAGLE's type of `category`; Application for all that are not in the table."""
    return CATEGORY_TYPES.get(category, "Application")


def stable_id(*parts: str) -> str:
    """Return the same UUID (version 5) for the same `parts`, so that generated nodes keep their identity."""
    return str(uuid5(_NAMESPACE, "\x1f".join(parts)))


class EagleField(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A parameter of a node, and a port if `usage` says so. The attributes are EAGLE's.

    `changeable`: whether the editor may rename it. `minimum` and `maximum`, which EAGLE does not know, limit a
    number that is a parameter of a graph.
    """

    name: str
    value: Any = ""
    default_value: Any = ""
    description: str = ""
    readonly: bool = False
    type: str = "String"
    precious: bool = False
    options: tuple[str, ...] = ()
    positional: bool = False
    encoding: str = "pickle"
    id: str = ""
    parameter_type: str = "ComponentParameter"
    usage: str = "NoPort"
    changeable: bool = True
    minimum: float | msgspec.UnsetType = msgspec.UNSET
    maximum: float | msgspec.UnsetType = msgspec.UNSET


class EagleNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """A node of a graph or palette, with the applications embedded in it when it is a construct."""

    category: str
    category_type: str
    is_group: bool = False
    color: str | msgspec.UnsetType = msgspec.UNSET
    draw_order_hint: int | msgspec.UnsetType = msgspec.UNSET
    id: str
    name: str
    description: str = ""
    comment: str = ""
    x: float | msgspec.UnsetType = msgspec.UNSET
    y: float | msgspec.UnsetType = msgspec.UNSET
    repository_url: str = ""
    commit_hash: str = ""
    palette_download_url: str = ""
    data_hash: str = ""
    parent_id: str | msgspec.UnsetType = msgspec.UNSET
    fields: tuple[EagleField, ...] = ()
    input_app_fields: tuple[EagleField, ...] = ()
    output_app_fields: tuple[EagleField, ...] = ()
    input_application_name: str = ""
    input_application_type: str = "None"
    input_application_id: str | None = None
    input_application_description: str = ""
    input_application_comment: str = ""
    output_application_name: str = ""
    output_application_type: str = "None"
    output_application_id: str | None = None
    output_application_description: str = ""
    output_application_comment: str = ""


class EagleEdge(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "source_port": "fromPort"}):
    """An edge. Ends are ids of nodes (of the construct, for its embedded application) and of their fields."""

    comment: str = ""
    source: str
    source_port: str
    target: str = msgspec.field(name="to")
    target_port: str = msgspec.field(name="toPort")
    loop_aware: str = "0"
    closes_loop: bool = msgspec.field(name="closesLoop", default=False)


class ModelData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The metadata of a file."""

    file_path: str
    file_type: str
    short_description: str = ""
    detailed_description: str = ""
    repo_service: str = "Unknown"
    repo_branch: str = ""
    repo: str = ""
    generator_version: str = ""
    generator_commit_hash: str = ""
    generator_name: str = "dropflow"
    schema_version: str = "OJS"
    readonly: bool = True
    repository_url: str = ""
    commit_hash: str = ""
    download_url: str = ""
    signature: str = ""
    last_modified_name: str = ""
    last_modified_email: str = ""
    last_modified_datetime: float = 0
    nodes: int = msgspec.field(name="numLGNodes", default=0)


class EagleFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole file, graph or palette."""

    model_data: ModelData
    active_graph_config_id: str | msgspec.UnsetType | None = msgspec.UNSET
    graph_configurations: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    node_data_array: tuple[EagleNode, ...] = ()
    link_data_array: tuple[EagleEdge, ...] = ()


def encode(document: EagleFile) -> bytes:
    """Return the bytes of a file: JSON, indented so that changes can be reviewed, with a line break at the end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


# Places the nodes of a drawing as EAGLE shows them: constructs are circles that enclose their nodes,
# and no others.
#
# The places that are given order the nodes in columns; the distances follow from the sizes of the
# circles. A node without children is a circle, too, with room for its name.

NODE_RADIUS = 40.0
"""Of a node with its icon and its name, as EAGLE draws it."""

_PAD = 45.0
"""Between the rim of a construct, where its input application is drawn, and its nodes."""

_GAP = 90.0
"""Between circles side by side, for edges and names of ports."""


class WantedPlace(msgspec.Struct, frozen=True):
    """Where a node is wanted: columns and rows of any unit, and the construct that it is in, if any."""

    column: float
    row: float
    inside: str = ""


class Circle(msgspec.Struct, frozen=True):
    """Where a node is drawn: the centre and the radius of its circle."""

    x: float
    y: float
    radius: float


def circles(wanted: Mapping[str, WantedPlace]) -> dict[str, Circle]:
    """Return the circle of each node.

    Circles of nodes in the same construct are disjoint, and inside that of the construct. The relation "inside" has no
    cycles.
    """
    children: dict[str, list[str]] = defaultdict(list)
    for name, place in wanted.items():
        children[place.inside].append(name)
    found: dict[str, Circle] = {}
    _lay_out("", children, wanted, found)
    return {name: _moved(name, wanted, found) for name in wanted}


def _lay_out(
    parent: str, children: Mapping[str, Sequence[str]], wanted: Mapping[str, WantedPlace], found: dict[str, Circle]
) -> float:
    """Put the circles of the children into `found`, around the origin, and return the radius that encloses them."""
    names = children.get(parent, ())
    if not names:
        return NODE_RADIUS
    sizes = {name: _lay_out(name, children, wanted, found) for name in names}
    columns: dict[float, list[str]] = defaultdict(list)
    for name in names:
        columns[wanted[name].column].append(name)
    x, placed = 0.0, {}
    for column in sorted(columns):
        rows = sorted(columns[column], key=lambda name: wanted[name].row)
        widest = max(sizes[name] for name in rows)
        height = sum(2 * sizes[name] for name in rows) + _GAP * (len(rows) - 1)
        y = -height / 2
        for name in rows:
            placed[name] = (x + widest, y + sizes[name])
            y += 2 * sizes[name] + _GAP
        x += 2 * widest + _GAP
    middle = (x - _GAP) / 2
    for name, (at, down) in placed.items():
        found[name] = Circle(at - middle, down, sizes[name])
    return _PAD + max(hypot(found[name].x, found[name].y) + sizes[name] for name in names)


def _moved(name: str, wanted: Mapping[str, WantedPlace], found: Mapping[str, Circle]) -> Circle:
    """Return the circle of a node, moved to the place of the constructs around it."""
    own, outer = found[name], wanted[name].inside
    x, y = own.x, own.y
    while outer:
        x, y = x + found[outer].x, y + found[outer].y
        outer = wanted[outer].inside
    return Circle(round(x), round(y), own.radius)
