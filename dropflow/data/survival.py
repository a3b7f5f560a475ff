"""Finds the contents of an earlier process that still exist."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dropflow.data.read import measure, verify
from dropflow.data.storage_errors import tree_of
from dropflow.errors import DropflowError
from dropflow.execution.content_location import ContentRecord, Handle
from dropflow.graph.components import Unusable, convert, find, is_empty
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, Template

MOST_REPLICAS = 100
"""Greatest number of nodes that can be asked for."""


def replaced_contents(records: Mapping[int, ContentRecord]) -> set[int]:
    """Return the drops whose content another drop has replaced, as the next iteration of a loop does with its file.

    Parameters
    ----------
    records : mapping of int to ContentRecord
        By drop, in the order of the commits.
    """
    last = {record.location: drop for drop, record in records.items() if record.kind in ("file", "directory")}
    replaced = set()
    for drop, record in records.items():
        final = last.get(record.location, drop)
        # The records of two directories do not show whether they are equal.
        if final != drop and (record.kind == "directory" or _sums(record) != _sums(records[final])):
            replaced.add(drop)
    return replaced


def _sums(record: ContentRecord) -> tuple[str, int, int]:
    return record.kind, record.size, record.checksum


def surviving_contents(records: Mapping[int, ContentRecord], directory: Path) -> dict[int, Handle]:
    """Return the contents that are as they were committed, by drop, in the order of their records.

    Files are compared by size and checksum, directories by those of their trees. What is behind a URL is not
    checked. If several drops wrote one path, as the iterations of a loop do, the last one decides for all of them; see
    also `replaced_contents`.

    Parameters
    ----------
    records : mapping of int to ContentRecord
        By drop, in the order of the commits.
    directory : Path
        The session directory.
    """
    handles = {
        drop: handle for drop, record in records.items() if (handle := record.in_directory(directory)) is not None
    }
    last = {handle.location: handle for handle in handles.values() if handle.location}
    temporary = f"{directory / 'tmp'}/"
    intact = {path for path, handle in last.items() if not path.startswith(temporary) and is_intact(handle)}
    return {drop: handle for drop, handle in handles.items() if not handle.location or handle.location in intact}


def changed_inputs(
    records: Mapping[int, ContentRecord], directory: Path, since: float
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the drops whose file or directory is missing, and those where it has changed, or may have.

    Only the size is recorded of what a session did not write, so the time of the last change counts, too.

    Parameters
    ----------
    records : mapping of int to ContentRecord
        Contents that existed before the session, by drop.
    directory : Path
        The session directory.
    since : float
        When the session read them, at the earliest, in seconds since the epoch.
    """
    missing, changed = set(), set()
    for drop, record in records.items():
        handle = record.in_directory(directory)
        if handle is None or handle.kind not in ("file", "directory"):
            continue
        try:
            last = _last_change(handle.location)
        except OSError:
            missing.add(drop)
            continue
        if not is_intact(handle) or (handle.size and last > since):
            changed.add(drop)
    return frozenset(missing), frozenset(changed)


def _last_change(path: str) -> float:
    """Return when a file, or anything in a directory, was changed: its bytes, its name, or its attributes.

    Raises
    ------
    OSError
        It does not exist, or cannot be read.
    """
    last = os.stat(path).st_ctime  # noqa: PTH116 - text, as everywhere here
    for folder, _, names in os.walk(path):
        last = max(last, *(os.lstat(os.path.join(folder, name)).st_ctime for name in (".", *names)))  # noqa: PTH118
    return last


def is_intact(handle: Handle) -> bool:
    """Return whether a content is as it was committed, by size and checksum; for a directory these are of its tree.

    A directory of a session of an earlier version, and one that was there before its session, has no checksum.
    """
    if handle.kind == "url" or not handle.location:
        return True
    try:
        if handle.kind == "directory":
            if not handle.checksum:
                return os.path.isdir(handle.location) and measure(handle.location) == handle.size  # noqa: PTH112 - text
            return tree_of(handle.location) == (handle.size, handle.checksum)
        verify(handle)
    except (OSError, DropflowError):
        return False
    return os.path.exists(handle.location)  # noqa: PTH110 - text; an empty content is not verified


# How many nodes are to have the content of each data drop.


def replicas_of(template: Template) -> int:
    """Return on how many nodes the contents of a data node are to be; 0 if it does not say."""
    argument = find(template.arguments, "replicas", type_="Integer") if template.kind is Kind.DATA else None
    if argument is None or is_empty(argument.value, "Integer"):
        return 0
    try:
        return min(max(int(convert(argument.value, "Integer")), 0), MOST_REPLICAS)
    except Unusable:
        return 0


def wanted_copies(graph: PhysicalGraph, kept: bytes, replicas: int) -> npt.NDArray[np.uint8]:
    """Return how many other nodes are to have a copy of the content of each drop, shape (drops,).

    Parameters
    ----------
    kept : bytes
        1 for each result, from `dropflow.execution.content_table.kept_drops`.
    replicas : int
        On how many nodes results are to be whose node does not say.
    """
    named = np.array([replicas_of(template) for template in graph.templates], dtype=np.uint8)[graph.template]
    by_default = np.where(np.frombuffer(kept, dtype=np.uint8) > 0, np.uint8(max(replicas, 1)), np.uint8(1))
    copies: npt.NDArray[np.uint8] = np.where(named > 0, named, by_default) - np.uint8(1)
    return copies
