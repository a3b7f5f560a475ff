"""Results of a session as one archive."""

import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents_answer import (
    ContentBegin,
    ContentEnd,
    ContentError,
    ContentPiece,
    ContentRecord,
    ContentsRequest,
    Download,
    write_records,
)
from dropflow.api.drop_records import ResultInfo
from dropflow.api.error_body import to_body
from dropflow.api.requests import ArchiveQuery, ResultList
from dropflow.errors import DropflowError, GoneError, LinkError, NotFoundError
from managers import archives as archive_module
from managers.archives import MISSING, ArchiveMember, TarWriter, archive_writer, results_archive
from managers.node.downloads import directory_tar
from tests.fake_manager import FakeManager, manager_with_sessions

FORMATS = ("tar", "zip")
_BIG = 5 << 20


def _result(row: int, size: int, *, node: str = "a", is_directory: bool = False) -> ResultInfo:
    return ResultInfo(
        drop=row, oid=f"o_{row}", name="out", node=node, path=f"results/o_{row}", size=size, is_directory=is_directory
    )


def _whole(index: int, data: bytes, *, is_directory: bool = False) -> Iterator[ContentRecord]:
    yield ContentBegin(index, is_directory)
    for start in range(0, len(data), 1 << 20):
        yield ContentPiece(data[start : start + (1 << 20)])
    yield ContentEnd(zlib.crc32(data))


class _Nodes(FakeManager):
    """A manager whose contents are the records that a test gives."""

    def __init__(
        self, results: Sequence[ResultInfo], contents: Callable[[ContentsRequest], Iterator[ContentRecord]]
    ) -> None:
        super().__init__()
        self._results = tuple(results)
        self._records = contents
        self.missing: tuple[str, ...] = ()

    def results(self, session: str) -> ResultList:
        assert session == "s"
        return ResultList(results=self._results, missing=self.missing)

    def contents(self, session: str, request: ContentsRequest) -> Download:
        assert session == "s"
        chunks = (chunk for record in self._records(request) for chunk in write_records([record]))
        return Download(name="", content_type="", size=None, chunks=chunks)


def _read(data: bytes, format_: str) -> dict[str, bytes]:
    """Return the files of an archive; of one that was cut off, those before the cut."""
    if format_ == "zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
            return {info.filename: archive.read(info) for info in archive.infolist()}
    members: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for info in tar:
            content = tar.extractfile(info)
            members[info.name] = b"" if content is None else content.read()
    return members


def _collected(download: Download) -> tuple[bytes, DropflowError | None]:
    parts: list[bytes] = []
    try:
        for part in download.chunks:
            parts.append(part)  # noqa: PERF402 - what comes before an error counts
    except DropflowError as error:
        return b"".join(parts), error
    return b"".join(parts), None


@pytest.mark.parametrize("format_", FORMATS)
def test_an_archive_has_all_results(format_: str) -> None:
    """Every result is in it under its path, with its bytes."""
    manager = manager_with_sessions()
    manager.write("finished", 22, b"another")
    wanted = {
        result.path: b"".join(manager.data("finished", result.oid).chunks)
        for result in manager.results("finished").results
    }
    data, error = _collected(results_archive(manager, "finished", ArchiveQuery(format=format_)))  # type: ignore[arg-type]

    assert error is None
    assert _read(data, format_) == wanted


@pytest.mark.slow
@given(
    contents=st.lists(st.binary(max_size=2_000), min_size=1, max_size=6),
    names=st.lists(st.text(min_size=1, max_size=150), min_size=6, max_size=6, unique=True),
    format_=st.sampled_from(FORMATS),
)
def test_any_name_and_content_is_read_back(contents: list[bytes], names: list[str], format_: str) -> None:
    """What a writer writes is what the readers of the standard library read."""
    writer = archive_writer(format_)  # type: ignore[arg-type]
    safe = [f"{place}/{name.encode(errors='replace').hex()}" for place, name in enumerate(names)]
    members = dict(zip(safe, contents, strict=False))
    data = b"".join(
        b"".join((writer.begin(ArchiveMember(name, size=len(content))), writer.write(content), writer.end()))
        for name, content in members.items()
    )
    assert _read(data + writer.finish(), format_) == members


@pytest.mark.parametrize("format_", FORMATS)
def test_directories_are_unpacked_into_the_archive(format_: str, tmp_path: Path) -> None:
    """The files below a result that is a directory are members below its path; links stay links."""
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "deep" / "x").write_bytes(b"x" * 700)
    (tmp_path / "d" / "big").write_bytes(os.urandom(1 << 20))
    (tmp_path / "d" / "link").symlink_to("big")
    packed = b"".join(directory_tar(tmp_path / "d", "."))
    manager = _Nodes([_result(0, 9, is_directory=True)], lambda _: _whole(0, packed, is_directory=True))
    data, error = _collected(results_archive(manager, "s", ArchiveQuery(format=format_)))  # type: ignore[arg-type]
    members = _read(data, format_)

    assert error is None
    assert members["results/o_0/deep/x"] == b"x" * 700
    assert members["results/o_0/big"] == (tmp_path / "d" / "big").read_bytes()
    assert "results/o_0/link" in members


@pytest.mark.parametrize(
    ("time", "expected"),
    [(0.0, (1980, 1, 1, 0, 0, 0)), (2e9, (2033, 5, 18, 3, 33, 20)), (2**33, (2107, 12, 31, 23, 59, 58))],
)
def test_times_that_a_zip_file_cannot_name(time: float, expected: tuple[int, ...]) -> None:
    """They become the first or the last one that it can name."""
    writer = archive_writer("zip")
    data = writer.begin(ArchiveMember("x", time=time)) + writer.end() + writer.finish()

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.getinfo("x").date_time == expected


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_gone_is_named_and_the_stream_is_cut_off(format_: str) -> None:
    """The other results are there, MISSING.txt has the reason, and the end is an error."""

    def contents(_: ContentsRequest) -> Iterator[ContentRecord]:
        yield from _whole(0, b"zero")
        yield ContentError(1, to_body(GoneError("the user removed it")))
        yield from _whole(2, b"two")

    manager = _Nodes([_result(row, 4) for row in range(3)], contents)
    manager.missing = ("far",)
    data, error = _collected(results_archive(manager, "s", ArchiveQuery(format=format_)))  # type: ignore[arg-type]
    members = _read(data, format_)

    assert isinstance(error, GoneError)
    assert set(members) == {"results/o_0", "results/o_2", MISSING}
    assert members[MISSING].decode().splitlines()[0] == "all results on node far: it did not answer"
    assert "results/o_1 of o_1 on node a: the user removed it" in members[MISSING].decode()


def test_a_node_that_is_lost_costs_its_own_results_only() -> None:
    """Those that it had not sent are named, with the reason; results of other nodes follow."""

    def contents(request: ContentsRequest) -> Iterator[ContentRecord]:
        yield from _whole(0, b"zero")
        if request.node == "a":
            yield ContentBegin(1)
            yield ContentPiece(b"o")
            raise LinkError("the connection broke")

    manager = _Nodes([_result(row, 4, node="ab"[row == 3]) for row in range(4)], contents)
    data, error = _collected(results_archive(manager, "s", ArchiveQuery()))
    members = _read(data, "tar")
    lines = members[MISSING].decode().splitlines()

    assert isinstance(error, GoneError)
    assert set(members) == {"results/o_0", "results/o_3", MISSING}
    assert [line.split(" of ")[0] for line in lines] == ["results/o_1", "results/o_2"]
    assert all("the connection broke" in line for line in lines)


def test_a_large_content_that_breaks_cuts_the_stream_off_within_it() -> None:
    """Nothing follows it that could make it look whole: a reader meets the end of the data."""

    def contents(_: ContentsRequest) -> Iterator[ContentRecord]:
        yield ContentBegin(0)
        yield ContentPiece(bytes(_BIG))
        raise LinkError("the connection broke")

    manager = _Nodes([_result(0, 2 * _BIG)], contents)
    data, error = _collected(results_archive(manager, "s", ArchiveQuery()))

    assert isinstance(error, LinkError)
    with pytest.raises(tarfile.ReadError, match="unexpected end of data"):
        _read(data, "tar")


def test_a_large_content_of_another_size_is_refused() -> None:
    """A content longer than it was committed with cannot spill into the next member."""
    manager = _Nodes([_result(0, _BIG)], lambda _: _whole(0, bytes(2 * _BIG)))
    data, error = _collected(results_archive(manager, "s", ArchiveQuery()))

    assert isinstance(error, GoneError)
    assert len(data) <= _BIG + 2 * 512


def test_large_contents_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A content above the limit is passed on piece by piece."""
    monkeypatch.setattr(archive_module, "_HELD_BYTES", 1 << 20)
    sent: list[int] = []

    def contents(_: ContentsRequest) -> Iterator[ContentRecord]:
        for record in _whole(0, bytes(8 << 20)):
            sent.append(len(sent))
            yield record

    chunks = results_archive(_Nodes([_result(0, 8 << 20)], contents), "s", ArchiveQuery()).chunks
    next(chunks)
    assert len(sent) < 6
    assert sum(map(len, chunks)) == (8 << 20) + 2 * 512


def test_results_are_selected() -> None:
    """By a text in path, id or name, and by node; 404 if none matches."""
    manager = _Nodes(
        [_result(0, 1), _result(1, 1, node="b")],
        lambda request: (record for index, _ in enumerate(request.wanted) for record in _whole(index, b"1")),
    )

    def names(**query: str) -> set[str]:
        data, _ = _collected(results_archive(manager, "s", ArchiveQuery(**query)))  # type: ignore[arg-type]
        return set(_read(data, "tar"))

    assert names(text="O_1") == {"results/o_1"}
    assert names(node="a") == {"results/o_0"}
    with pytest.raises(NotFoundError, match="no result of session 's' matches"):
        results_archive(manager, "s", ArchiveQuery(text="nothing"))


def test_a_file_that_shrinks_while_a_directory_is_sent_is_an_error(tmp_path: Path) -> None:
    """The tar file breaks off, rather than to have a member with other bytes."""
    path = tmp_path / "x"
    path.write_bytes(bytes(1 << 20))
    chunks = directory_tar(tmp_path, ".")
    next(chunks)  # the header of the directory
    next(chunks)  # the header of the file
    os.truncate(path, 10)
    with pytest.raises(DropflowError, match="less than a moment ago"):
        list(chunks)


def test_tar_files_are_read_by_the_standard_library_without_their_end() -> None:
    """The members before a cut are whole."""
    writer = TarWriter()
    data = writer.begin(ArchiveMember("a" * 300, size=3)) + writer.write(b"abc") + writer.end()
    assert _read(data, "tar") == {"a" * 300: b"abc"}
