"""How the chunks of a zarr array are compressed: what a user gives, and its record in the metadata of the array."""

import json
from collections.abc import Mapping
from typing import Any

from dropflow.errors import BadParameterError

__all__ = ["compressor_record"]

_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "zlib": {"level": 1},
    "gzip": {"level": 1},
    "bz2": {"level": 1},
    "zstd": {"level": 0},
    "lz4": {"acceleration": 1},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
}
"""The settings of each compressor, with the values that zarr gives them."""


def compressor_record(given: object) -> dict[str, Any] | None:
    """Return the compressor as the metadata of zarr has it; None for no compression.

    Parameters
    ----------
    given : str or mapping
        The name of a compressor, or an object with its name under ``id`` and its settings, also as JSON text. Empty for
        no compression.

    Raises
    ------
    BadParameterError
        There is no such compressor, or it has no such setting.
    """
    found: Any = given.strip() if isinstance(given, str) else given
    if isinstance(found, str) and found.startswith("{"):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError) as error:
            raise _bad(f"the compressor {given!r} is not JSON: {error}") from error
    if found is None or found == "":
        return None
    if isinstance(found, str):
        found = {"id": found}
    if not isinstance(found, Mapping) or found.get("id") not in _DEFAULTS:
        raise _bad(f"there is no compressor {str(given)[:80]!r}")
    defaults = _DEFAULTS[found["id"]]
    for name, value in found.items():
        if name != "id" and (name not in defaults or type(value) is not type(defaults[name])):
            raise _bad(f"the compressor {found['id']} has no setting {name!r} of {value!r}")
    return {"id": found["id"], **defaults, **found}


def _bad(text: str) -> BadParameterError:
    names = ", ".join(sorted(_DEFAULTS))
    hint = f'one of {names}, or one with settings, such as {{"id": "blosc", "cname": "zstd", "clevel": 3}}'
    return BadParameterError(text, fields=("compressor",), hint=hint)
