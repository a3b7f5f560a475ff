"""What all readers hand to the assembly: nodes and links as they stand in the file, with one spelling of everything."""

from collections.abc import Mapping

import msgspec

from translator.formats.detect import Family
from translator.logical import Configuration, Field, LogicalLink, Role

__all__ = ["ApplicationRecord", "NodeRecord", "Records"]


class ApplicationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An application of a construct, as it stands in the file.

    Attributes
    ----------
    id : str
        Its own id; empty where the file gives none.
    ports : tuple of Field
        What stands in the port lists of the construct for this application.
    """

    role: Role
    id: str = ""
    name: str = ""
    category: str = ""
    fields: tuple[Field, ...] = ()
    ports: tuple[Field, ...] = ()
    pointer: str = ""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as it stands in the file; `category` and names of fields are still those of the file."""

    id: str
    name: str
    category: str
    category_type: str = ""
    parent: str | None = None
    fields: tuple[Field, ...] = ()
    applications: tuple[ApplicationRecord, ...] = ()
    switches: Mapping[str, bool] = {}
    pointer: str = ""


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """A logical graph, as it stands in the file; ends of links may be constructs."""

    family: Family
    nodes: tuple[NodeRecord, ...] = ()
    links: tuple[LogicalLink, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    active_configuration: str | None = None
    steps: tuple[str, ...] = ()
