"""The attribute that identifies nodes: the one that the ends of links refer to.

Files have up to three (`id`, `oid`, `key`), sometimes mixed. The version string of a file does not tell which one its
links use.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

__all__ = ["Identity", "choose_identity", "identity_text"]

APPLICATION_IDS = {
    "id": ("inputApplicationId", "outputApplicationId"),
    "oid": ("inputApplicationId", "outputApplicationId"),
    "key": ("inputApplicationKey", "outputApplicationKey", "exitApplicationKey"),
}
"""Attributes of a construct with the ids of its embedded applications, by the identity of the file."""


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
        found = sum(end in known for end in ends)
        if having == len(nodes) and found == len(ends):
            return identity
        score = found / max(len(ends), 1) + having / max(len(nodes), 1)
        if score > best_score:
            best, best_score = identity, score
    return best


def _ids(node: Mapping[str, Any], identity: Identity) -> Iterator[str]:
    for attribute in (identity.value, *APPLICATION_IDS[identity.value]):
        text = identity_text(node.get(attribute), Identity.ID)
        if text:
            yield text


def _items(document: Mapping[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []
