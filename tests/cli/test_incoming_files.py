"""Fetched files are complete, have distinct paths, and are in their directory."""

import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents import ContentBegin
from dropflow.api.records import ResultInfo
from dropflow.cli.incoming_files import KeptPart, ResultDirectory
from dropflow.data.storage_errors import fingerprint
from dropflow.errors import BadFileError
from dropflow.web.cause_groups import UNFINISHED, _confined, result_paths

PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c d", "~"]), min_size=1).map("/".join)

LARGE = 1 << 20
"""Bytes of a content whose beginning is kept."""


def result(path: str, *, node: str = "n", drop: int = 0) -> ResultInfo:
    """Return a result with this path."""
    return ResultInfo(drop=drop, oid=f"d{drop}", name="d", node=node, path=path, size=0)


def put(root: Path, path: str, *chunks: bytes, is_directory: bool = False, wanted: int | None = None) -> None:
    """Write a content in chunks; `wanted` is the checksum from the node, by default the right one."""
    whole = b"".join(chunks)
    checksum = zlib.crc32(whole)
    with ResultDirectory(root) as directory:
        known = {} if is_directory else {"size": len(whole), "checksum": checksum}
        incoming = directory.begin(PurePosixPath(path), ContentBegin(0, is_directory, **known))
        try:
            for chunk in chunks:
                incoming.write(chunk)
            incoming.finish(checksum if wanted is None else wanted)
        finally:
            incoming.close()


@given(path=PATHS, absolute=st.booleans())
def test_no_path_leads_out_of_the_directory(path: str, *, absolute: bool) -> None:
    """The paths of results are relative and have no ".."."""
    found = _confined(f"/{path}" if absolute else path)

    assert not found.is_absolute()
    assert ".." not in found.parts
    assert found.parts


@given(st.lists(st.tuples(PATHS, st.sampled_from(["m", "n"])), max_size=8))
def test_results_have_distinct_paths(given_paths: list[tuple[str, str]]) -> None:
    """Results with equal paths on their nodes are all kept."""
    results = [result(path, node=node, drop=at) for at, (path, node) in enumerate(given_paths)]
    paths = [path for _, path in result_paths(results)]

    assert len(set(paths)) == len(results)


def test_ordinary_paths_do_not_change() -> None:
    """The directory has the same paths as that of a run."""
    assert str(_confined("results/x.npy")) == "results/x.npy"
    assert str(_confined("files/out/y.fits")) == "files/out/y.fits"
    assert str(_confined("/data/out/y.fits")) == "outside/data/out/y.fits"


def test_damaged_content_is_an_error(tmp_path: Path) -> None:
    """An existing file stays, and no other file is left."""
    (tmp_path / "x").write_bytes(b"before")
    with pytest.raises(BadFileError, match="damaged on its node or during the transfer"):
        put(tmp_path, "x", b"abc", wanted=1)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"before")]


def test_symbolic_links_out_of_the_directory_are_not_followed(tmp_path: Path) -> None:
    """The target of the link stays empty."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "results").symlink_to(outside)
    with pytest.raises(BadFileError, match="leads out"):
        put(inside, "results/x", b"abc")

    assert list(outside.iterdir()) == []


def packed(*members: tuple[str, bytes, str]) -> bytes:
    """Return a tar file of names, contents and link targets."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content, link in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize(
    "cut", [lambda data: [data], lambda data: [data[at : at + 7] for at in range(0, len(data), 7)]]
)
def test_directories_are_unpacked(tmp_path: Path, cut: Callable[[bytes], list[bytes]]) -> None:
    """A directory replaces an earlier one; the sizes of the chunks do not matter."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    data = packed(("a.txt", b"one", ""), ("deep/b.txt", b"two", ""))
    put(tmp_path, "out", *cut(data), is_directory=True)
    files = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in tmp_path.rglob("*.txt")}

    assert files == {"a.txt": b"one", "deep/b.txt": b"two"}
    assert not (tmp_path / "out" / "old").exists()


@pytest.mark.parametrize("member", [("../up.txt", b"x", ""), ("link", b"", "/etc/passwd"), ("link", b"", "../../up")])
def test_archives_with_paths_out_of_the_directory_are_an_error(tmp_path: Path, member: tuple[str, bytes, str]) -> None:
    """No file is written outside, and none is left inside."""
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(BadFileError, match="unpacked"):
        put(root, "out", packed(member), is_directory=True)

    assert [path.name for path in tmp_path.rglob("*")] == ["root"]


@pytest.mark.parametrize("data", [b"", b"no archive at all", packed(("a", b"x" * 2000, ""))[:1500]])
def test_damaged_archives_are_an_error(tmp_path: Path, data: bytes) -> None:
    """No file is left."""
    with pytest.raises(BadFileError, match="unpacked"):
        put(tmp_path, "out", data, is_directory=True)

    assert list(tmp_path.iterdir()) == []


def test_incomplete_files_of_a_killed_command_are_removed(tmp_path: Path) -> None:
    """Those of a running command stay."""
    (tmp_path / UNFINISHED).mkdir()
    (tmp_path / UNFINISHED / "0").touch()
    with ResultDirectory(tmp_path) as first:
        assert list((tmp_path / UNFINISHED).iterdir()) == []
        incoming = first.begin(PurePosixPath("x"), ContentBegin(0, size=0))
        put(tmp_path, "y", b"another command")
        incoming.finish(0)
        incoming.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_a_file_is_there_if_it_has_the_size_and_checksum(tmp_path: Path) -> None:
    """A link, a directory, a file with other bytes and one of unknown checksum are fetched."""
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "d").mkdir()
    right = msgspec.structs.replace(result("f"), size=3, checksum=zlib.crc32(b"abc"))
    with ResultDirectory(tmp_path) as directory:
        assert directory.has(PurePosixPath("f"), right)
        assert not directory.has(PurePosixPath("f"), msgspec.structs.replace(right, size=4))
        assert not directory.has(PurePosixPath("f"), msgspec.structs.replace(right, checksum=7))
        assert not directory.has(PurePosixPath("f"), msgspec.structs.replace(right, checksum=None))
        assert not any(directory.has(PurePosixPath(name), right) for name in ("link", "d", "no"))


def test_what_has_no_checksum_is_compared_by_its_digest(tmp_path: Path) -> None:
    """A file of the right size and a directory have the digest that a node computes; anything else has none."""
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "deep" / "f").write_bytes(b"abc")
    three = msgspec.structs.replace(result("f"), size=3)
    with ResultDirectory(tmp_path) as directory:
        assert directory.digest(PurePosixPath("f"), three) == fingerprint(tmp_path / "f") != ""
        assert directory.digest(PurePosixPath("f"), result("f")) == directory.digest(PurePosixPath("no"), three) == ""
        assert directory.digest(PurePosixPath("f"), msgspec.structs.replace(three, checksum=1)) == ""
        assert directory.digest(PurePosixPath("link"), three) == ""
        before = directory.digest(PurePosixPath("d"), three)
        (tmp_path / "d" / "deep" / "f").write_bytes(b"xyz")
        assert before != directory.digest(PurePosixPath("d"), three) != ""


def _broken_off(root: Path, data: bytes, here: int) -> ContentBegin:
    """Write the first bytes of a large content, as a command does that is interrupted."""
    record = ContentBegin(0, size=len(data), checksum=zlib.crc32(data))
    with ResultDirectory(root) as directory:
        incoming = directory.begin(PurePosixPath("x"), record)
        incoming.write(data[:here])
        directory.keep(PurePosixPath("x"), incoming)
        assert directory.kept(PurePosixPath("x")).size == here
    return record


@given(here=st.integers(1, LARGE), again=st.integers(0, LARGE))
def test_a_large_file_is_continued(here: int, again: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is here is asked for no more; the node may begin earlier. Nothing else is left at the end."""
    root = tmp_path_factory.mktemp("here")
    data = bytes(range(256)) * (LARGE // 256)
    record = _broken_off(root, data, here)
    with ResultDirectory(root) as directory:
        assert directory.kept(PurePosixPath("x")) == KeptPart(here, zlib.crc32(data))
        start = min(again, here)
        incoming = directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=start))
        incoming.write(data[start:])
        incoming.finish(zlib.crc32(data))
        directory.discard_parts()

    assert [(path.name, path.read_bytes()) for path in root.iterdir()] == [("x", data)]


def test_another_content_begins_again(tmp_path: Path) -> None:
    """The beginning of a content that has changed is removed; one that is damaged is an error, and removed too."""
    _broken_off(tmp_path, b"a" * LARGE, 1000)
    other = b"b" * LARGE
    with ResultDirectory(tmp_path) as directory:
        incoming = directory.begin(PurePosixPath("x"), ContentBegin(0, size=LARGE, checksum=zlib.crc32(other)))
        incoming.write(other)
        incoming.finish(zlib.crc32(other))
    assert (tmp_path / "x").read_bytes() == other

    record = _broken_off(tmp_path, b"c" * LARGE, 1000)
    (part,) = (tmp_path / UNFINISHED).iterdir()
    part.write_bytes(b"?" * 1000)
    with ResultDirectory(tmp_path) as directory:
        incoming = directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=1000))
        incoming.write(b"c" * (LARGE - 1000))
        with pytest.raises(BadFileError, match="damaged on its node or during the transfer"):
            incoming.finish(zlib.crc32(b"c" * LARGE))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_two_commands_do_not_write_the_same_file(tmp_path: Path) -> None:
    """The second one begins a file of its own, and both are complete."""
    data = b"a" * LARGE
    record = _broken_off(tmp_path, data, 1000)
    with ResultDirectory(tmp_path) as first, ResultDirectory(tmp_path) as second:
        assert (first.kept(PurePosixPath("x")).size, second.kept(PurePosixPath("x")).size) == (1000, 0)
        for directory, start in ((second, 0), (first, 1000)):
            incoming = directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=start))
            incoming.write(data[start:])
            incoming.finish(zlib.crc32(data))

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", data)]


def test_more_bytes_than_there_are_cannot_be_continued(tmp_path: Path) -> None:
    """An answer that begins later than the bytes that are here is an error."""
    record = _broken_off(tmp_path, b"a" * LARGE, 1000)
    with (
        ResultDirectory(tmp_path) as directory,
        pytest.raises(BadFileError, match="begins at byte 2,000, but only 1,000 bytes are here"),
    ):
        directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=2000))
