"""Fetched files are complete, have distinct paths, and are in their directory."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.cli.incoming_files import ResultDirectory
from dropflow.content_digest import digest
from dropflow.data.fingerprint import fingerprint
from dropflow.errors import BadFileError
from dropflow.rest.result_paths import UNFINISHED, _confined, result_paths
from dropflow.rest.schema import ResultInfo

PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c d", "~"]), min_size=1).map("/".join)


def result(path: str, *, node: str = "n", drop: int = 0) -> ResultInfo:
    """Return a result with this path."""
    return ResultInfo(drop=drop, oid=f"d{drop}", name="d", node=node, path=path, size=0)


def put(root: Path, path: str, *chunks: bytes, is_directory: bool = False, wanted: str = "") -> None:
    """Write a content in chunks; `wanted` is the digest from the node, by default the right one."""
    found = digest()
    found.update(b"".join(chunks))
    with ResultDirectory(root) as directory:
        incoming = directory.begin(PurePosixPath(path), is_directory=is_directory)
        try:
            for chunk in chunks:
                incoming.write(chunk)
            incoming.finish(wanted or found.hexdigest())
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
    with pytest.raises(BadFileError, match="damaged during the transfer"):
        put(tmp_path, "x", b"abc", wanted="0" * 32)

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
        incoming = first.begin(PurePosixPath("x"), is_directory=False)
        put(tmp_path, "y", b"another command")
        incoming.finish(digest().hexdigest())
        incoming.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_existing_files_have_digests(tmp_path: Path) -> None:
    """A file of the right size and a directory have the digest that a node computes; anything else has none."""
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "deep" / "f").write_bytes(b"abc")
    with ResultDirectory(tmp_path) as directory:
        assert directory.digest(PurePosixPath("f"), 3) == fingerprint(tmp_path / "f") != ""
        assert directory.digest(PurePosixPath("f"), 4) == directory.digest(PurePosixPath("no"), 3) == ""
        assert directory.digest(PurePosixPath("link"), 3) == ""
        before = directory.digest(PurePosixPath("d"), 0)
        (tmp_path / "d" / "deep" / "f").write_bytes(b"xyz")
        assert before != directory.digest(PurePosixPath("d"), 0) != ""
