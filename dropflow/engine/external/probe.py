"""The check that all workers of an engine can use the directory of a session, before anything runs."""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dropflow.engine.external.host import PYTHON, HostView
from dropflow.errors import ConflictError, MissingDependencyError, StorageError
from dropflow.exception_text import summary_of
from dropflow.version import __version__

__all__ = ["probe_file", "refuse_other_versions", "share_directory", "view_of"]

_HINT = f"install dropflow {__version__} in the environment of the workers"
_NO_MODULE = re.compile(r"No module named '?[\w.]+'?")
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
    """Raise if workers of an engine have another version of dropflow, or of Python.

    Code and objects of Python that a graph carries can only be read by the minor version that wrote them.

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
            hint=f"{_HINT}, or theirs here",
        )
    others = {name: view.python for name, view in views.items() if _minor(view.python) != _minor(PYTHON)}
    if others:
        raise ConflictError(
            f"{_listed(others)} of {engine} have another version of Python than this process ({PYTHON})",
            hint=f"start the workers with Python {_minor(PYTHON)}, or this command with theirs",
        )


def view_of(worker: str, found: object, version: object = None) -> HostView:
    """Return what a worker of an engine has answered when it was to look.

    Parameters
    ----------
    worker : str
        The worker, as ``Dask worker tcp://...``.
    found : mapping or Exception
        Its answer: the fields of a `HostView`.
    version : str, optional
        Its version of dropflow, if it could be asked in another way.

    Raises
    ------
    MissingDependencyError
        It cannot import dropflow.
    ConflictError
        Its version of dropflow answers something else.
    """
    # Engines put exceptions into others, such as `Exception("ModuleNotFoundError(...)")`. A package that dropflow needs
    # may be what is missing.
    if isinstance(found, Exception) and (missing := _NO_MODULE.search(str(found))):
        raise MissingDependencyError(f"the {worker} cannot import dropflow: {missing[0]}", hint=_HINT) from found
    try:
        return msgspec.convert(found, HostView)
    except msgspec.ValidationError as error:
        text = summary_of(found if isinstance(found, Exception) else error).partition("\n")[0]
        has = f"has dropflow {version}, and " if isinstance(version, str) else ""
        raise ConflictError(
            f"the {worker} {has}cannot run this version of dropflow ({__version__}): {text}", hint=_HINT
        ) from error


def share_directory(views: Mapping[str, HostView]) -> bool:
    """Return whether all workers can use the session directory."""
    return not any(view.problem for view in views.values())


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _listed(found: Mapping[str, str]) -> str:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(f"{name} ({text})" for name, text in sorted(found.items())[:_SHOWN]) + more
