"""Differences between two records of a session, so that an event stream sends only what changed.

A change is a JSON object with the fields that differ. ``logical`` has only the logical nodes that differ, identified by
their ``key``; every other field is replaced as a whole.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dropflow.rest.session_records import LogicalNodeInfo, SessionDetail

__all__ = ["apply_change", "change_between"]

_FIELDS = SessionDetail.__struct_fields__


def change_between(before: SessionDetail, after: SessionDetail) -> dict[str, Any] | None:
    """Return the change from `before` to `after`; None if the whole record must be sent."""
    change = {name: value for name in _FIELDS if (value := getattr(after, name)) != getattr(before, name)}
    if "logical" in change:
        if [node.key for node in before.logical] != [node.key for node in after.logical]:
            return None
        pairs = zip(before.logical, after.logical, strict=True)
        change["logical"] = [new for old, new in pairs if new != old]
    return change


def apply_change(before: SessionDetail, change: Mapping[str, Any]) -> SessionDetail:
    """Return the record after a change.

    Raises
    ------
    msgspec.ValidationError
        It is not a change of a session.
    """
    merged = {name: getattr(before, name) for name in _FIELDS} | dict(change)
    if "logical" in change:
        new = {node.key: node for node in msgspec.convert(change["logical"], tuple[LogicalNodeInfo, ...])}
        merged["logical"] = tuple(new.get(node.key, node) for node in before.logical)
    return msgspec.convert(msgspec.to_builtins(merged), SessionDetail)
