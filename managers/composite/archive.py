"""What several children have to offer for download, as one tar file."""

import io
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

from dropflow.ids import safe_name
from dropflow.rest.schema import Download

__all__ = ["bundle", "close"]

_CHUNK = 256 * 1024
_IN_MEMORY = 8 * 1024 * 1024


def bundle(name: str, members: Sequence[tuple[str, Download]], *, notes: str = "") -> Download:
    """A tar file with each download in a directory of its own.

    Parameters
    ----------
    name : str
        File name to offer.
    members : sequence of (str, Download)
        Directory and content. All are read and closed; large ones go through a temporary file.
    notes : str
        What is missing; becomes a file ``MISSING.txt`` unless it is empty.
    """
    file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed with the download
    try:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for directory, download in members:
                _add(tar, f"{safe_name(directory)}/{safe_name(download.name, fallback='content')}", download)
            if notes:
                text = notes.encode()
                header = tarfile.TarInfo("MISSING.txt")
                header.size = len(text)
                tar.addfile(header, io.BytesIO(text))
        size = file.tell()
    except BaseException:
        file.close()
        raise
    finally:
        for _, download in members:
            close(download)
    return Download(name=name, content_type="application/x-tar", size=size, chunks=_read(file))


def close(download: Download) -> None:
    """Let go of a download that nobody reads to its end."""
    end = getattr(download.chunks, "close", None)
    if end is not None:
        end()


def _add(tar: tarfile.TarFile, path: str, download: Download) -> None:
    # A member's size stands before its content, and a child need not say it.
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as content:
        for chunk in download.chunks:
            content.write(chunk)
        header = tarfile.TarInfo(path)
        header.size = content.tell()
        content.seek(0)
        tar.addfile(header, content)


def _read(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while chunk := file.read(_CHUNK):
            yield chunk
