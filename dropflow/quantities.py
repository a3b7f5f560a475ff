"""Reads quantities with units, such as ``128 MiB/s``, ``16 GiB`` and ``10 ms``."""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["BANDWIDTH", "MEMORY", "SECONDS", "quantity"]

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf)\s*(.*?)\s*")
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PREFIXES |= {f"{sign}i": 1024.0**power for power, sign in enumerate("KMGTP", 1)}

MEMORY: Mapping[str, float] = MappingProxyType(
    {"": 1.0} | {f"{prefix}B": factor for prefix, factor in _PREFIXES.items()}
)
"""Bytes of each unit of memory."""

BANDWIDTH: Mapping[str, float] = MappingProxyType(
    {"": 1.0}
    | {f"{prefix}B/s": factor for prefix, factor in _PREFIXES.items()}
    | {f"{prefix}{bit}": factor / 8 for prefix, factor in _PREFIXES.items() for bit in ("bit/s", "b/s", "bps")}
)
"""Bytes per second of each unit of bandwidth."""

SECONDS: Mapping[str, float] = MappingProxyType(
    {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
)
"""Seconds of each unit of time."""


def quantity(value: Any, units: Mapping[str, float]) -> float | None:
    """Return a number, or a text of a number and a unit, in the basic unit; None if it is neither.

    Parameters
    ----------
    value : Any
        For example 1024 or "1 KiB".
    units : mapping of str to float
        One of the tables of this module.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return None if math.isnan(value) else float(value)
        except OverflowError:
            return None
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    factor = units.get(found[2]) if found else None
    return None if found is None or factor is None else float(found[1]) * factor
