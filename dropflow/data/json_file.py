"""JSON drops: file drops whose content is JSON, independent of the encodings of ports."""

import msgspec

from dropflow.data.data_parameters import IO
from dropflow.data.file import FILE, FileStore
from dropflow.engine.component import Component
from dropflow.graph.templates import Kind

__all__ = ["JSON", "JsonStore"]

JSON = Component(
    name="JSON",
    kind=Kind.DATA,
    category="File",
    dropclass="dlg.data.drops.json_drop.JsonDROP",
    aliases=("dlg.data.drops.JsonDROP", "dlg.drop.JsonDROP"),
    description="A file with one JSON value: functions receive and return the value itself.",
    parameters=FILE.parameters,
    ports=tuple(msgspec.structs.replace(port, encoding="json") for port in IO),
)


class JsonStore(FileStore):
    """JSON files named by the parameters of one template."""

    component = JSON
    encoding = "json"
    suffix = ".json"
