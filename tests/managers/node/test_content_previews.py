"""Previews and pictures of contents on a node."""

import os
from pathlib import Path

import numpy as np
import pytest

from dropflow.engine.api import Handle
from dropflow.errors import BadFileError, GoneError, UsageError
from dropflow.preview.records import FIRST_LOOK
from managers.node.content_previews import content_picture, content_preview
from tests.preview.made_files import npy, zarr

_IMAGE = np.arange(12.0).reshape(3, 4)


def test_contents_of_all_kinds_have_previews(tmp_path: Path) -> None:
    """Memory, files and directories are read in place; no content is empty."""
    file, folder = tmp_path / "a.npy", tmp_path / "b"
    file.write_bytes(npy(_IMAGE))
    zarr(folder, _IMAGE, (2, 2))
    handles = [
        Handle(body=npy(_IMAGE)),
        Handle(kind="file", location=str(file), size=file.stat().st_size),
        Handle(kind="directory", location=str(folder)),
    ]

    for handle in handles:
        assert content_preview(handle, FIRST_LOOK).kind == "array"
        picture = content_picture(handle, "x", FIRST_LOOK)
        assert (picture.name, picture.content_type) == ("x.png", "image/png")
    assert content_preview(Handle(kind="null"), FIRST_LOOK).kind == "nothing"
    with pytest.raises(BadFileError, match="not a picture"):
        content_picture(Handle(body=b"text"), "x", FIRST_LOOK)


def test_contents_that_are_not_here_are_refused(tmp_path: Path) -> None:
    """A content elsewhere, one that is missing, one of another size, and one that is a FIFO have errors."""
    changed, fifo = tmp_path / "a", tmp_path / "b"
    changed.write_bytes(b"1234")
    os.mkfifo(fifo)

    with pytest.raises(GoneError, match="is at http://x"):
        content_preview(Handle(kind="url", location="http://x"), FIRST_LOOK)
    with pytest.raises(GoneError, match="not there any more"):
        content_preview(Handle(kind="file", location=str(tmp_path / "none")), FIRST_LOOK)
    with pytest.raises(GoneError, match="has 4 bytes where 5 were committed"):
        content_preview(Handle(kind="file", location=str(changed), size=5, checksum=1), FIRST_LOOK)
    with pytest.raises(UsageError, match="FIFO"):
        content_preview(Handle(kind="file", location=str(fifo)), FIRST_LOOK)
