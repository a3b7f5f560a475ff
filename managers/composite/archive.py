"""Downloads of several children as one tar file."""

import io
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

from dropflow.ids import safe_name
from dropflow.rest.download import Download

__all__ = ["bundle"]

_CHUNK = 256 * 1024
_IN_MEMORY = 8 * 1024 * 1024


def bundle(name: str, members: Sequence[tuple[str, Download]], *, notes: str = "") -> Download:
    """Return a tar file with each download in a directory of its own.

    Parameters
    ----------
    name : str
        File name to offer.
    members : sequence of (str, Download)
        Directory and content. All are read and closed; large ones go through a temporary file.
    notes : str
        What is missing, for a file ``MISSING.txt``; no such file if it is empty.
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
            download.close()
    return Download(name=name, content_type="application/x-tar", size=size, chunks=_read(file))


def _add(tar: tarfile.TarFile, path: str, download: Download) -> None:
    # The size of a member is written before its content, and not every child gives the size of a download.
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
