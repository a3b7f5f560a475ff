"""The optimizations that dask makes before it calls a scheduler, and how they are switched off."""

from collections.abc import Hashable, Mapping
from typing import Any

import dask
from dask.core import convert_legacy_graph, flatten

from dropflow.dask.fused_chains import with_fused_chains
from dropflow.errors import BadParameterError

__all__ = ["optimization_settings", "switch"]


def switch(name: str, value: bool | None) -> bool:  # noqa: FBT001 - the value of a switch
    """Return a switch: `value`, or else ``dropflow.<name>`` of dask's configuration, or else True.

    Raises
    ------
    BadParameterError
        The configuration has no boolean there.
    """
    found = dask.config.get(f"dropflow.{name}", True) if value is None else value
    if not isinstance(found, bool):
        raise BadParameterError(f"{name} is {found!r}", hint="give True or False")
    return found


def optimization_settings(*, tileable: bool, chunk: bool) -> Mapping[str, Any]:
    """Return the configuration of dask with which it makes these optimizations of arrays only.

    Parameters
    ----------
    tileable : bool
        Whether layers are optimized: operations block by block become one. Bags and data frames keep their own steps,
        which they need to be computed at all, or which are part of their expressions.
    chunk : bool
        Whether tasks in a row are fused.
    """
    settings: dict[str, Any] = {}
    if not tileable:
        settings["array_optimize"] = _fused if chunk else False
    if not chunk:
        settings["optimization.fuse.active"] = False
    return settings


def _fused(graph: Any, keys: Any, **_: Any) -> Mapping[Hashable, Any]:
    """Return a graph of arrays with one task in the place of each chain; dask calls this for its own optimization."""
    return with_fused_chains(convert_legacy_graph(dict(graph)), list(flatten([keys])))
