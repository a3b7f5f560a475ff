"""Queries of addresses, from records."""

from urllib.parse import urlencode

import msgspec

__all__ = ["asked"]


def asked(query: msgspec.Struct, default: msgspec.Struct) -> str:
    """Return the fields of a query that differ from `default`, as the end of an address."""
    fields = query.__struct_fields__
    given = {name: getattr(query, name) for name in fields if getattr(query, name) != getattr(default, name)}
    return f"?{urlencode(given)}" if given else ""
