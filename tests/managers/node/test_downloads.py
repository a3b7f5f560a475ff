"""Contents as downloads: of many drops, of one, in parts, and by a pool of threads."""

import errno
import io
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dropflow.api.contents_answer import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentRequest,
    DataQuery,
    PartOfContent,
    read_records,
    write_records,
)
from dropflow.cli.sessions.incoming_files import ResultDirectory
from dropflow.data.remote import location_of
from dropflow.data.storage_errors import fingerprint
from dropflow.errors import GoneError, LinkError, RangeError, StorageError
from dropflow.execution.content_location import Handle
from managers.links import Sink, TransferResult, WantedContent
from managers.node import downloads
from managers.node.contents import stamp_of, still_there
from managers.node.downloads import batch, content_download
from managers.node.fetch_pool import FetchJob, FetchPool, PendingFetch
from managers.recovery.records import SharedFile

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


@pytest.mark.slow
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
    assert [entry.name for entry in here.iterdir()] == ["out"]


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


# Contents as downloads: whole, in parts, and damaged.


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
    download = content_download(handle, "x")
    rest = content_download(handle, "x", DataQuery(range="bytes=1000001-", if_range=download.etag))

    assert b"".join(download.chunks) == _LARGE
    assert b"".join(rest.chunks) == _LARGE[1_000_001:]
    assert rest.part == PartOfContent(1_000_001, len(_LARGE) - 1, len(_LARGE))
    assert (rest.size, rest.etag) == (len(_LARGE) - 1_000_001, download.etag)
    with pytest.raises(RangeError, match="begins at byte 9,999,999"):
        content_download(handle, "x", DataQuery(range="bytes=9999999-"))


def test_a_content_in_a_store_is_downloaded_through_the_node(tmp_path: Path) -> None:
    """It is read there with the node's credentials, compared at its end, and refused if it is not there any more."""
    stored = _handle("file", tmp_path / "content", _LARGE)
    handle = replace(stored, kind="url", location=location_of(f"file://{tmp_path}/content", {}))
    download = content_download(handle, "x")
    assert (download.size, b"".join(download.chunks)) == (len(_LARGE), _LARGE)
    begin, *pieces, end = read_records(write_records(batch((ContentRequest(row=0),), lambda _: handle)))
    assert begin == ContentBegin(0, checksum=handle.checksum)
    assert end == ContentEnd(handle.checksum)
    assert b"".join(bytes(piece.data) for piece in pieces if isinstance(piece, ContentPiece)) == _LARGE

    (tmp_path / "content").write_bytes(bytes(len(_LARGE)))
    with pytest.raises(StorageError, match=r"CRC-32 .* was written"):
        b"".join(content_download(handle, "x").chunks)
    *_, end = read_records(write_records(batch((ContentRequest(row=0),), lambda _: handle)))
    assert isinstance(end, ContentError)
    (tmp_path / "content").unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        content_download(handle, "x")


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


class _FailingFile(io.FileIO):
    """A file on a disk that cannot read it."""

    def readinto(self, _: object) -> int:
        """Fail as a disk does, or a server whose file was replaced."""
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_content_that_the_disk_cannot_read_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file, and the other contents of the request are sent."""
    handle = _handle("file", tmp_path / "content", b"content")
    monkeypatch.setattr(downloads, "open_file", lambda path: io.BufferedReader(_FailingFile(path)))

    with pytest.raises(StorageError, match="content: Input/output error"):
        content_download(handle, "x")
    requests = (ContentRequest(row=0), ContentRequest(row=1))
    records = [*batch(requests, (handle, Handle(body=b"1", size=1)).__getitem__)]
    assert [type(record) for record in records] == [ContentError, ContentBegin, ContentPiece, ContentEnd]


# Files of other nodes are believed to be there only if they are as they were committed.


def _file(path: Path) -> SharedFile:
    path.write_bytes(b"content")
    return SharedFile(Handle(kind="file", location=str(path), size=7), stamp_of(str(path)))


def _directory(path: Path) -> SharedFile:
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "x").write_bytes(b"content")
    return SharedFile(Handle(kind="directory", location=str(path), size=7), stamp_of(str(path)))


@pytest.mark.parametrize("make", [_file, _directory])
def test_what_is_as_it_was_is_there(make: Callable[[Path], SharedFile], tmp_path: Path) -> None:
    """A file, and a directory with the size of its files."""
    assert still_there({5: make(tmp_path / "a"), 3: make(tmp_path / "b")}) == [5, 3]


def _shrink(path: Path) -> None:
    (path / "sub" / "x").write_bytes(b"")


def _replace(path: Path) -> None:
    before = path.stat()
    path.rename(path.with_name("before"))
    path.write_bytes(b"content")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (_file, Path.unlink),
        (_file, lambda path: path.write_bytes(b"c0ntent")),
        (_file, _replace),
        (_directory, _shrink),
        (_directory, lambda path: path.rename(path.with_name("moved"))),
    ],
    ids=["removed", "written again", "another file", "smaller directory", "moved directory"],
)
def test_what_is_another_one_is_not_there(
    make: Callable[[Path], SharedFile], change: Callable[[Path], object], tmp_path: Path
) -> None:
    """Also if path, size and time are the same, but not the inode."""
    kept = _file(tmp_path / "kept")
    file = make(tmp_path / "file")
    os.utime(tmp_path / "file", ns=(0, 1_000_000_000))
    file = SharedFile(file.handle, stamp_of(str(tmp_path / "file")))
    change(tmp_path / "file")

    assert still_there({1: file, 2: kept}) == [2]


def test_a_content_that_was_never_seen_is_not_there(tmp_path: Path) -> None:
    """A file without a stamp could not be read by its owner."""
    assert still_there({1: SharedFile(_file(tmp_path / "x").handle, ())}) == []
    assert still_there({}) == []


@pytest.mark.slow
def test_a_file_system_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that cannot be looked at in time count as lost."""
    gate = threading.Event()
    files = {1: _file(tmp_path / "quick"), 2: _file(tmp_path / "hangs")}
    stat = os.stat

    def slow(path: str) -> os.stat_result:
        if str(path).endswith("hangs"):
            gate.wait(60)
        return stat(path)

    monkeypatch.setattr("managers.node.contents.os.stat", slow)
    seen = still_there(files, seconds=0.2)
    gate.set()

    assert seen == [1]


# The pool of threads that fetch contents: no peer delays the fetches from others.


class Echo:
    """Returns the number of a drop as its content; drop 0 cannot be fetched."""

    def fetch(
        self, peer: str, wanted: WantedContent, sink: Sink, /, *, timeout: float | None, give_up: Callable[[], bool]
    ) -> TransferResult:
        """Write one byte to `sink`."""
        del timeout, give_up
        if not wanted.drop:
            raise LinkError(f"node {peer!r} does not send")
        sink(0, memoryview(bytes([wanted.drop])))
        return TransferResult(1, wanted.drop)


@pytest.fixture
def fetch_pool() -> Iterator[FetchPool]:
    """Return a pool of four threads, at most two for each peer."""
    with closing(FetchPool(Echo(), 4, 2)) as made:
        yield made


def test_a_peer_that_does_not_answer_does_not_delay_others(fetch_pool: FetchPool) -> None:
    """However many fetches wait for it, fetches from other peers are carried out."""
    stuck, come = threading.Event(), threading.Semaphore(0)
    for _ in range(100):
        fetch_pool.run("stuck", lambda: bool(stuck.wait(60)) and None)
    for _ in range(100):
        fetch_pool.run("quick", come.release)
    arrived = [come.acquire(timeout=60) for _ in range(100)]
    stuck.set()

    assert all(arrived)


def test_every_call_is_carried_out_once(fetch_pool: FetchPool) -> None:
    """Calls that had to wait are carried out in the order of each peer; the pool keeps no record of them."""
    got: list[int] = []
    done, alone = threading.Semaphore(0), FetchPool(Echo(), 4, 1)
    with closing(alone):
        for number in range(50):
            alone.run("a", lambda number=number: (got.append(number), done.release())[0])  # type: ignore[misc]
        for number in range(50):
            fetch_pool.run(f"peer-{number % 5}", done.release)
        arrived = [done.acquire(timeout=60) for _ in range(100)]

    assert all(arrived)
    assert got == list(range(50))
    pause = threading.Event()
    assert any(not (fetch_pool._busy or fetch_pool._waiting) or pause.wait(0.01) for _ in range(6000))


def test_calls_are_carried_out_by_the_threads_that_are_there(
    fetch_pool: FetchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the system refuses another thread, no call is lost, and a session goes on that has asked for a content."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = threading.Semaphore(0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for number in range(20):
            fetch_pool.run(f"peer-{number % 5}", done.release)
    assert all(done.acquire(timeout=60) for _ in range(20))


def test_a_call_that_raises_occupies_no_thread(fetch_pool: FetchPool) -> None:
    """The next calls for that peer are carried out."""
    done = threading.Event()
    for _ in range(5):
        fetch_pool.run("a", lambda: int("x") and None)
    fetch_pool.run("a", done.set)

    assert done.wait(60)


def test_a_closed_pool_starts_no_calls(fetch_pool: FetchPool) -> None:
    """Calls that are submitted late, or still wait, are not carried out."""
    begun, go, late = threading.Event(), threading.Event(), threading.Event()
    for _ in range(2):
        fetch_pool.run("a", lambda: (begun.set(), go.wait(60))[0])
    fetch_pool.run("a", late.set)
    assert begun.wait(60)
    fetch_pool.close()
    fetch_pool.run("b", late.set)
    go.set()
    fetch_pool._pool.shutdown(wait=True)

    assert not late.is_set()


def test_a_job_continues_with_the_result_or_the_error_of_each_fetch(fetch_pool: FetchPool) -> None:
    """Contents arrive one after the other; an error is raised in the job where it waits."""
    got: list[object] = []
    done = threading.Event()

    def job() -> FetchJob:
        for drop in (7, 0, 8):
            wanted = WantedContent(session="s", drop=drop)
            try:
                result = yield PendingFetch(wanted, lambda _, data: got.append(bytes(data)), 1.0, lambda: False)
            except LinkError as error:
                got.append(error.text)
            else:
                got.append(result.checksum)
        done.set()

    fetch_pool.submit("a", job())

    assert done.wait(60)
    assert got == [b"\x07", 7, "node 'a' does not send", b"\x08", 8]
