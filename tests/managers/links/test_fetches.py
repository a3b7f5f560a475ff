"""Fetches of content over real sockets."""

import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from dropflow.errors import GoneError, StorageError
from managers.keys import ClusterKey
from managers.links import (
    BufferSource,
    FileSource,
)
from managers.messages import StopSession
from tests.managers.links.conftest import CONTENT, SMALL, LinkFactory, wanted_content

pytestmark = pytest.mark.usefixtures("nothing_leaks")


def test_events_and_data_do_not_wait_for_each_other(link_factory: LinkFactory) -> None:
    """Messages arrive while a large fetch is running."""
    arrived = threading.Event()
    a, _ = link_factory.open("a", settings=SMALL)
    b, at_b = link_factory.open("b", open_content=lambda *_: BufferSource(CONTENT), settings=SMALL)
    a.connect("b", b.address)
    got: list[int] = []

    def sink(offset: int, data: memoryview) -> None:
        got.append(offset + len(data))
        if len(got) == 3:
            a.send("b", StopSession("s", 1, "in the middle"))
            at_b.wait(lambda: at_b.texts() == ["in the middle"])
            arrived.set()

    a.fetch("b", wanted_content(1, size=len(CONTENT), checksum=zlib.crc32(CONTENT)), sink)

    assert arrived.is_set()
    assert got[-1] == len(CONTENT)


def test_a_slow_reader_limits_requested_data(link_factory: LinkFactory) -> None:
    """A fetch requests no more than its credit while its sink is busy."""
    asked: list[int] = []

    class Watched(BufferSource):
        """A content that records how much of it was read."""

        def read(self, offset: int, length: int) -> memoryview | bytes | bytearray:
            """Record the request and read."""
            asked.append(offset + length)
            return super().read(offset, length)

    a, _ = link_factory.open("a", settings=SMALL)
    b, _ = link_factory.open("b", open_content=lambda *_: Watched(CONTENT))
    a.connect("b", b.address)
    ahead: list[int] = []
    a.fetch("b", wanted_content(1, size=len(CONTENT)), lambda offset, _: ahead.append(max(asked) - offset))

    assert max(ahead) <= (SMALL.ahead + 1) * SMALL.chunk_most


def test_files_are_fetched_from_disk(link_factory: LinkFactory, tmp_path: Path) -> None:
    """Content is read from a file; an empty file is empty, and a missing one is an error."""
    (tmp_path / "1").write_bytes(CONTENT)
    (tmp_path / "2").write_bytes(b"")
    a, _ = link_factory.open("a")
    b, _ = link_factory.open("b", open_content=lambda _, drop, *__: FileSource(tmp_path / str(drop)))
    a.connect("b", b.address)
    got = bytearray()

    a.fetch("b", wanted_content(1), lambda _, data: got.extend(data))
    assert got == CONTENT
    assert a.fetch("b", wanted_content(2), lambda *_: None).size == 0
    with pytest.raises(StorageError, match="cannot be read"):
        a.fetch("b", wanted_content(3), lambda *_: None)
    b.close_content("s")


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "curve"])
def test_chunks_have_checksums_only_without_a_key(
    link_factory: LinkFactory, key: ClusterKey, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    """Without a key each chunk is checked by a CRC-32; with one, CURVE has authenticated it and none is computed."""
    computed: list[int] = []

    def crc32(data: memoryview) -> int:
        computed.append(len(data))
        return zlib.crc32(data)

    monkeypatch.setattr("managers.links.contents.zlib", SimpleNamespace(crc32=crc32))
    options = {"key": key if secure else None}
    a, _ = link_factory.open("a", **options)
    b, _ = link_factory.open("b", open_content=lambda *_: BufferSource(CONTENT), **options)
    a.connect("b", b.address)

    assert a.fetch("b", wanted_content(1), lambda *_: None).size == len(CONTENT)
    assert sum(computed) == (0 if secure else len(CONTENT))


def test_content_that_is_not_served_is_gone(link_factory: LinkFactory) -> None:
    """Fetching from a process that serves no content is a `GoneError`."""
    (a, _), (b, _) = link_factory.open("a"), link_factory.open("b")
    a.connect("b", b.address)
    with pytest.raises(GoneError, match="is not on this node"):
        a.fetch("b", wanted_content(1), lambda *_: None)
