"""EAGLE's palettes as typed records: the file, its nodes and their fields, in the OJS schema.

Keys that EAGLE writes in camelCase are snake_case here. That is the only difference between a record and its JSON.
Graphs are written by `translator.formats.dump`.
"""

from typing import Any
from uuid import UUID, uuid5

import msgspec

__all__ = [
    "CATEGORY_TYPES",
    "EagleField",
    "EagleFile",
    "EagleNode",
    "ModelData",
    "category_type",
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
    """A parameter of a node, and also a port, depending on `usage`. `changeable`: whether the editor may rename it."""

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


class EagleNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """A node, with the applications embedded in it when it is a construct."""

    category: str
    category_type: str
    is_group: bool = False
    id: str
    name: str
    description: str = ""
    comment: str = ""
    repository_url: str = ""
    commit_hash: str = ""
    palette_download_url: str = ""
    data_hash: str = ""
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
    """A whole file."""

    model_data: ModelData
    node_data_array: tuple[EagleNode, ...] = ()
    link_data_array: tuple[()] = ()


def encode(document: EagleFile) -> bytes:
    """Return the bytes of a file: JSON, indented so that changes can be reviewed, with a line break at the end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
