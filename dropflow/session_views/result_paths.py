"""Paths of the results of a session in a directory or an archive: relative, distinct, and never outside of it."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from dropflow.ids import safe_name
from dropflow.rest.session_records import ResultInfo

__all__ = ["UNFINISHED", "result_paths"]

UNFINISHED = ".dropflow-unfinished"
"""Name of the directory for incomplete files; no result has it."""

_OUTSIDE = "outside"


def result_paths(results: Iterable[ResultInfo]) -> Iterator[tuple[ResultInfo, PurePosixPath]]:
    """Yield each result with a distinct relative path; if paths are equal, the node or the row is appended."""
    taken: set[PurePosixPath] = set()
    for result in results:
        path = _confined(result.path)
        if path in taken:
            path = path.with_name(f"{path.name}~{safe_name(result.node, fallback='node')}")
        while path in taken:
            path = path.with_name(f"{path.name}~{result.drop}")
        taken.add(path)
        yield result, path


def _confined(path: str) -> PurePosixPath:
    """Return `path` without ``..``, and below ``outside`` if it led out of the directory."""
    given = PurePosixPath(path.replace("\0", "_"))
    parts = [part for part in given.parts if part not in ("/", "//", "..", ".")]
    if given.is_absolute() or ".." in given.parts or (parts and parts[0] == UNFINISHED):
        parts.insert(0, _OUTSIDE)
    return PurePosixPath(*parts) if parts else PurePosixPath(_OUTSIDE, "unnamed")
