"""Graph configurations: named sets of values for the fields of a graph."""

from collections.abc import Callable, Mapping

from translator.formats.json_access import Json, escape, objects, text
from translator.logical import Configuration

__all__ = ["read_configurations"]


def read_configurations(document: Json, find: Callable[[object], str]) -> tuple[tuple[Configuration, ...], str | None]:
    """Return all configurations of a document, and the id of the active one.

    Parameters
    ----------
    document : mapping
        The parsed file; its configurations are an object or a list of objects, with `nodes` -> `fields` -> `value`.
    find : callable
        Returns the id of a node by its name in the file.
    """
    found = []
    for pointer, raw in objects(document, "graphConfigurations"):
        about = raw.get("modelData")
        about = about if isinstance(about, Mapping) else {}
        found.append(
            Configuration(
                id=text(raw, "id") or pointer.rpartition("/")[2],
                name=text(raw, "name") or text(about, "name"),
                values=tuple(_values(raw, pointer, find)),
            )
        )
    return tuple(found), text(document, "activeGraphConfigId") or None


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
