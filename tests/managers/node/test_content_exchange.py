"""Contents that were fetched are kept for the next view of a session, as long as they are needed."""

import errno
import os
import shutil
import zlib
from pathlib import Path

import pytest

from dropflow.data.storage_errors import tree_of
from dropflow.data.workspace import Workspace
from dropflow.engine.api import Handle
from dropflow.errors import StorageError
from managers.links import TransferResult
from managers.messages import Content
from managers.node.contents import ContentExchange

BODY = b"content" * 1000


def _fetched(contents: ContentExchange, content: Content) -> Handle:
    """Fetch a content whose bytes arrive at once."""
    job = contents.fetch(content, lambda: False)
    pending = next(job)
    pending.sink(0, memoryview(BODY))
    with pytest.raises(StopIteration, match="Handle") as ended:
        job.send(TransferResult(len(BODY), zlib.crc32(BODY)))
    handle: Handle = ended.value.value
    return handle


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_a_fetched_content_is_not_fetched_again_in_the_next_view(kind: str, tmp_path: Path) -> None:
    """Neither one in memory nor a file; not after its release, and not if its drop is not complete in the next view."""
    workspace = Workspace(str(tmp_path), "s")
    workspace.prepare()
    contents = ContentExchange("s", workspace)
    handle = Handle(kind=kind, size=len(BODY), checksum=zlib.crc32(BODY), location="" if kind == "bytes" else "x.txt")
    found = {drop: _fetched(contents, Content(drop, handle)) for drop in (1, 2, 3)}
    contents.next_view([], {1, 3})
    contents.remove_copy(3)

    assert contents.copy(Content(1, handle)) == found[1]
    assert found[1].body == (BODY if kind == "bytes" else b"")
    assert contents.copy(Content(2, handle)) is None
    assert contents.copy(Content(3, handle)) is None
    assert contents.copy(Content(1, handle, producer=4)) is None


def _answered(contents: ContentExchange, content: Content, bodies: list[bytes]) -> Handle:
    """Fetch a content whose bytes arrive at once, and other ones each time that it is fetched again."""
    job = contents.fetch(content, lambda: False)
    pending = next(job)
    for body in bodies:
        pending.sink(0, memoryview(body))
        try:
            pending = job.send(TransferResult(len(body), zlib.crc32(body)))
        except StopIteration as ended:
            handle: Handle = ended.value
            return handle
    raise AssertionError("it is fetched once more")


def test_a_directory_that_came_wrong_is_fetched_again(tmp_path: Path) -> None:
    """Its tree is compared with that which was committed; after a second wrong one nothing is left."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    folder = tmp_path / "a" / "s" / "files" / "x.ms"
    folder.mkdir()
    (folder / "table.dat").write_bytes(BODY)
    size, checksum = tree_of(str(folder))
    handle = Handle(kind="directory", size=size, checksum=checksum, location=str(folder))
    owner.offer(1, handle)
    content = Content(1, handle)  # as of a node whose files are not seen here
    right = bytes(owner.source(1, -1).read(0, 1 << 20))
    wrong = right.replace(BODY, BODY[:-1] + b"?")

    with pytest.raises(StorageError, match="CRC-32"):
        _answered(reader, content, [wrong, wrong])
    assert list((tmp_path / "b").rglob("table.dat")) == []
    assert tree_of(_answered(reader, content, [wrong, right]).location) == (size, checksum)


def _in_place(contents: ContentExchange, content: Content) -> Handle:
    """Return a content that is seen from here, so that nothing is transferred."""
    with pytest.raises(StopIteration, match="Handle") as ended:
        next(contents.fetch(content, lambda: False))
    handle: Handle = ended.value.value
    return handle


def _exchange(directory: Path) -> ContentExchange:
    workspace = Workspace(str(directory), "s")
    workspace.prepare()
    return ContentExchange("s", workspace)


@pytest.mark.parametrize("folder", ["tmp", "files"])
def test_a_content_in_place_outlives_the_directory_of_its_node(folder: str, tmp_path: Path) -> None:
    """A node that is started again removes it, while an attempt on another node reads it (torture, seed 126)."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    path = tmp_path / "a" / "s" / folder / "x.txt"
    path.write_bytes(BODY)
    content = owner.offer(1, Handle(kind="file", size=len(BODY), location=str(path)))
    found = _in_place(reader, content)
    shutil.rmtree(tmp_path / "a")

    assert Path(found.location).read_bytes() == BODY
    assert found.location.endswith("x.txt")
    assert reader.copy(content) == found
    reader.remove_copy(1)
    assert not Path(found.location).exists()


def test_a_file_outside_of_the_session_is_read_by_its_own_name(tmp_path: Path) -> None:
    """Its node never removes it, and programs see the name that the user gave it."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    path = tmp_path / "outside.fits"
    path.write_bytes(BODY)
    found = _in_place(reader, owner.offer(1, Handle(kind="file", size=len(BODY), location=str(path))))
    reader.remove_copy(1)

    assert found.location == str(path)
    assert path.read_bytes() == BODY


def test_a_content_that_cannot_be_linked_is_read_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one on another file system."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    path = tmp_path / "a" / "s" / "files" / "x.txt"
    path.write_bytes(BODY)

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    found = _in_place(reader, owner.offer(1, Handle(kind="file", size=len(BODY), location=str(path))))
    reader.remove_copy(1)

    assert found.location == str(path)
    assert path.read_bytes() == BODY
