"""The check that all workers of an engine can use the directory of a session, before anything runs."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dropflow.engine.external.host import HostView
from dropflow.errors import ConflictError, StorageError
from dropflow.version import __version__

__all__ = ["probe_file", "refuse_other_versions", "share_directory"]

_SHOWN = 3
_TOKEN_BYTES = 16


@contextmanager
def probe_file(directory: str) -> Iterator[tuple[str, str]]:
    """Write a file into the private directory of a session; yield its path and what is in it.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    token = secrets.token_hex(_TOKEN_BYTES)
    path = Path(directory, "tmp", f"probe-{token[:8]}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(token, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the session directory cannot be written: {error.strerror}", where=directory) from error
    try:
        yield str(path), token
    finally:
        path.unlink(missing_ok=True)


def refuse_other_versions(engine: str, views: Mapping[str, HostView]) -> None:
    """Raise if workers of an engine have another version of dropflow.

    Parameters
    ----------
    views : mapping of str to HostView
        What each worker has found.

    Raises
    ------
    ConflictError
        They have.
    """
    others = {name: view.version for name, view in views.items() if view.version != __version__}
    if others:
        raise ConflictError(
            f"{_listed(others)} of {engine} have another version of dropflow than this process ({__version__})",
            hint="install the same version in the environment of the workers",
        )


def share_directory(views: Mapping[str, HostView]) -> bool:
    """Return whether all workers can use the session directory."""
    return not any(view.problem for view in views.values())


def _listed(found: Mapping[str, str]) -> str:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(f"{name} ({text})" for name, text in sorted(found.items())[:_SHOWN]) + more
