"""Contents of many drops in one answer: directories that continue where a transfer broke off."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents import (
    ContentBegin,
    ContentEnd,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    read_records,
    write_records,
)
from dropflow.cli.incoming_files import ResultDirectory
from dropflow.data.storage_errors import fingerprint
from dropflow.engine.api import Handle
from managers.node.downloads import batch

_FILE = 700_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of 2 MB with files, an empty directory and a link."""
    root = tmp_path_factory.mktemp("source")
    for number in range(3):
        (root / f"sub{number}").mkdir()
        (root / f"sub{number}" / "file").write_bytes(bytes([number]) * _FILE)
    (root / "empty").mkdir()
    (root / "link").symlink_to("sub0/file")
    return root


def _sent(root: Path, request: ContentRequest) -> Iterator[ContentRecord]:
    handle = Handle(kind="directory", location=str(root))
    return read_records(write_records(batch((request,), lambda _: handle)))


def _first(root: Path) -> tuple[ContentBegin, bytes, int]:
    """Return how a directory begins, its tar file, and the checksum of that."""
    begin, *pieces, end = _sent(root, ContentRequest(row=0))
    assert isinstance(begin, ContentBegin)
    assert isinstance(end, ContentEnd)
    return begin, b"".join(bytes(piece.data) for piece in pieces if isinstance(piece, ContentPiece)), end.checksum


@given(share=st.floats(0, 1))
def test_a_directory_continues_where_it_broke_off(
    share: float, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any number of bytes, also in a later command: only the rest is sent, and the directory is whole."""
    here = tmp_path_factory.mktemp("here")
    path = PurePosixPath("out")
    begin, data, _ = _first(source)
    cut = int(share * len(data))
    with ResultDirectory(here) as directory:
        incoming = directory.begin(path, begin)
        incoming.write(data[:cut])
        directory.keep(path, incoming)
    received = 0
    with ResultDirectory(here) as directory:
        kept = directory.kept(path)
        for record in _sent(source, ContentRequest(row=0, offset=kept.size, checksum=kept.checksum)):
            if isinstance(record, ContentBegin):
                incoming = directory.begin(path, record)
            elif isinstance(record, ContentPiece):
                received += len(record.data)
                incoming.write(record.data)
            elif isinstance(record, ContentEnd):
                incoming.finish(record.checksum)

    assert (kept.size, received) == (cut, len(data) - cut)
    assert fingerprint(here / "out") == fingerprint(source)
    assert [one.name for one in here.iterdir()] == ["out"]


@pytest.mark.parametrize("change", ["content", "time", "name"])
def test_a_directory_that_has_changed_begins_again(tmp_path: Path, change: str) -> None:
    """Its listing has another checksum, so none of the bytes that the client has are used."""
    (tmp_path / "file").write_bytes(b"a" * 1000)
    begin, _, _ = _first(tmp_path)
    request = ContentRequest(row=0, offset=600, checksum=begin.checksum or 0)
    unchanged, *_ = _sent(tmp_path, request)
    if change == "content":
        (tmp_path / "file").write_bytes(b"a" * 1001)
    elif change == "time":
        os.utime(tmp_path / "file", ns=(0, 1))
    else:
        (tmp_path / "file").rename(tmp_path / "other")
    changed, *pieces, end = _sent(tmp_path, request)

    assert isinstance(unchanged, ContentBegin)
    assert isinstance(changed, ContentBegin)
    assert isinstance(end, ContentEnd)
    assert (unchanged.offset, changed.offset) == (600, 0)
    data = b"".join(bytes(piece.data) for piece in pieces if isinstance(piece, ContentPiece))
    assert zlib.crc32(data) == end.checksum


def test_a_long_beginning_that_is_not_sent_shows_that_it_goes_on(source: Path) -> None:
    """The node reads it for the checksum; meanwhile something arrives, so that the client does not give up."""
    begin, data, _ = _first(source)
    handle = Handle(kind="directory", location=str(source))
    request = ContentRequest(row=0, offset=len(data), checksum=begin.checksum or 0)
    chunks = list(write_records(batch((request,), lambda _: handle)))

    assert len(chunks) > len(data) // (1 << 18)
    assert sum(len(chunk) for chunk in chunks) < 1000
