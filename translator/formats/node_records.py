"""The records that readers return: nodes and links as in the file, with the same structure for all families."""

from collections.abc import Mapping

import msgspec

from translator.formats.detect import Family
from translator.logical import Configuration, Field, LogicalLink, Role

__all__ = ["ApplicationRecord", "NodeRecord", "Records"]


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
