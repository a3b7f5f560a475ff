"""Which attribute of the nodes is their identity: the one by which all ends of links are found.

Files carry up to three (`id`, `oid`, `key`), sometimes mixed; the string that names the version of the file does not
tell which one its links use.
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
"""Attributes of a construct that identify its embedded applications, by the identity of the file."""


class Identity(StrEnum):
    """The attribute of a node that links refer to, in the order in which they are tried."""

    ID = "id"
    OID = "oid"
    KEY = "key"


def identity_text(value: Any, identity: Identity) -> str:
    """The id, as text, that stands for `value` in our model: ``k-4`` for the key -4; empty for no value."""
    if value is None or value == "" or isinstance(value, dict | list | bool):
        return ""
    return f"k{value}" if identity is Identity.KEY else str(value)


def choose_identity(document: Mapping[str, Any]) -> Identity:
    """The identity of a document of the OJS family.

    The first of ``id``, ``oid`` and ``key`` that every node has and by which every end of a link is found; in a
    damaged file, where there is none, the one by which most are found.
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
