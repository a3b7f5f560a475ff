"""Blobs of bytes at URLs of a store that the session and the workers of an engine reach, such as a bucket (fsspec)."""

from typing import Any

from dropflow.errors import BadParameterError, MissingDependencyError, StorageError
from dropflow.exception_text import summary_of

__all__ = ["check_store", "read_blob", "remove_blobs", "write_blob"]

_HINT = "see that this host reaches the store, and has its credentials, in the environment or in fsspec's configuration"


def check_store(url: str) -> None:
    """Raise if contents cannot go by a URL. Does not try it.

    Raises
    ------
    BadParameterError
        It has no protocol, or one that fsspec does not know.
    MissingDependencyError
        fsspec, or its package for the protocol, is not installed.
    """
    protocol, separator, rest = url.partition("://")
    hint = "give a URL that all workers reach, such as s3://bucket/directory"
    if not (protocol and separator and rest):
        raise BadParameterError(f"{url!r} is not the URL of a store for contents", hint=hint)
    try:
        import fsspec  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingDependencyError(
            "contents by a URL need the package fsspec, which is not installed", hint="pip install 'dropflow[fsspec]'"
        ) from error
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise MissingDependencyError(
            f"fsspec cannot use {protocol}:// yet: {summary_of(error)}",
            hint="install that package here and in the environment of the workers",
        ) from error
    except ValueError as error:
        raise BadParameterError(f"fsspec has no protocol {protocol!r} (in {url})", hint=hint) from error


def write_blob(url: str, data: bytes) -> None:
    """Write a blob.

    Raises
    ------
    StorageError
        The store does not take it.
    """
    try:
        found, path = _at(url)
        found.pipe_file(path, data)
    except Exception as error:
        raise _failed(url, "written", error) from error


def read_blob(url: str) -> bytes:
    """Return a blob.

    Raises
    ------
    StorageError
        It is not there, or cannot be read.
    """
    try:
        found, path = _at(url)
        data: bytes = found.cat_file(path)
    except Exception as error:
        raise _failed(url, "read", error) from error
    return data


def remove_blobs(url: str) -> None:
    """Remove a blob, or all below a directory of them, if they are there.

    Raises
    ------
    StorageError
        The store does not remove them.
    """
    try:
        found, path = _at(url)
        if found.exists(path):
            found.rm(path, recursive=True)
    except FileNotFoundError:
        return
    except Exception as error:
        raise _failed(url, "removed", error) from error


def _at(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there. fsspec keeps file systems."""
    import fsspec  # noqa: PLC0415 - an extra

    found: tuple[Any, str] = fsspec.url_to_fs(url, **({"auto_mkdir": True} if url.startswith("file:") else {}))
    return found


def _failed(url: str, what: str, error: Exception) -> StorageError:
    return StorageError(f"it cannot be {what}: {summary_of(error)}", where=url, hint=_HINT)
