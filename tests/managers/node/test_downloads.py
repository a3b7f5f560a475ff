"""Contents as downloads: whole, in parts, and damaged."""

import os
import zlib
from pathlib import Path

import pytest

from dropflow.api.contents import DataQuery, PartOfContent
from dropflow.engine.api import Handle
from dropflow.errors import GoneError, RangeError
from managers.node.downloads import content_download

_LARGE = bytes(range(251)) * 10_000


def _handle(kind: str, path: Path, content: bytes) -> Handle:
    if kind == "bytes":
        return Handle(body=content, size=len(content))
    path.write_bytes(content)
    checksum = zlib.crc32(content) if kind == "file" else 0
    return Handle(kind="file", location=str(path), size=len(content), checksum=checksum)


@pytest.mark.parametrize("kind", ["bytes", "file", "input"])
def test_parts_of_a_content_make_the_whole(kind: str, tmp_path: Path) -> None:
    """A download that was interrupted continues where it stopped, if the ETag is still the same."""
    handle = _handle(kind, tmp_path / "content", _LARGE)
    whole = content_download(handle, "x")
    rest = content_download(handle, "x", DataQuery(range="bytes=1000001-", if_range=whole.etag))

    assert b"".join(whole.chunks) == _LARGE
    assert b"".join(rest.chunks) == _LARGE[1_000_001:]
    assert rest.part == PartOfContent(1_000_001, len(_LARGE) - 1, len(_LARGE))
    assert (rest.size, rest.etag) == (len(_LARGE) - 1_000_001, whole.etag)
    with pytest.raises(RangeError, match="begins at byte 9,999,999"):
        content_download(handle, "x", DataQuery(range="bytes=9999999-"))


def test_a_content_that_was_changed_has_another_etag(tmp_path: Path) -> None:
    """Also one of the same size: the rest of it does not follow a part of the earlier one."""
    handle = _handle("input", tmp_path / "content", b"first")
    before = content_download(handle, "x")
    assert b"".join(before.chunks) == b"first"
    (tmp_path / "content").write_bytes(b"other")
    os.utime(tmp_path / "content", ns=(0, 1))

    after = content_download(handle, "x", DataQuery(range="bytes=2-", if_range=before.etag))

    assert after.etag != before.etag
    assert b"".join(after.chunks) == b"other"


def test_the_whole_of_a_damaged_content_is_never_sent(tmp_path: Path) -> None:
    """Not as one range either: the last block is missing."""
    handle = _handle("file", tmp_path / "content", _LARGE)
    (tmp_path / "content").write_bytes(_LARGE[:-1] + b"?")

    for query in (DataQuery(), DataQuery(range="bytes=0-")):
        download = content_download(handle, "x", query)
        with pytest.raises(GoneError, match="CRC-32"):
            list(download.chunks)
