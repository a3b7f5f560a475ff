"""What is fetched stays in its directory, is whole, and is told apart."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.cli.incoming_files import _UNFINISHED, ResultDirectory, _confined, result_paths
from dropflow.data.fingerprint import digest, fingerprint
from dropflow.errors import BadFileError
from dropflow.rest.schema import ResultInfo

PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c d", "~"]), min_size=1).map("/".join)


def result(path: str, *, node: str = "n", drop: int = 0) -> ResultInfo:
    """A result that calls its file so."""
    return ResultInfo(drop=drop, oid=f"d{drop}", name="d", node=node, path=path, size=0)


def put(root: Path, path: str, *chunks: bytes, is_directory: bool = False, wanted: str = "") -> None:
    """Let a content arrive; `wanted` is the digest that the node tells, the right one unless given."""
    found = digest()
    found.update(b"".join(chunks))
    with ResultDirectory(root) as folder:
        arrival = folder.begin(PurePosixPath(path), is_directory=is_directory)
        try:
            for chunk in chunks:
                arrival.write(chunk)
            arrival.finish(wanted or found.hexdigest())
        finally:
            arrival.close()


@given(path=PATHS, absolute=st.booleans())
def test_no_path_leads_out(path: str, *, absolute: bool) -> None:
    """Whatever a manager calls its results, they land below the directory."""
    found = _confined(f"/{path}" if absolute else path)

    assert not found.is_absolute()
    assert ".." not in found.parts
    assert found.parts


@given(st.lists(st.tuples(PATHS, st.sampled_from(["m", "n"])), max_size=8))
def test_no_two_results_share_a_file(given_paths: list[tuple[str, str]]) -> None:
    """Results that nodes call the same are all kept."""
    results = [result(path, node=node, drop=at) for at, (path, node) in enumerate(given_paths)]
    paths = [path for _, path in result_paths(results)]

    assert len(set(paths)) == len(results)


def test_ordinary_paths_stay_as_they_are() -> None:
    """The directory looks as a run would have left it."""
    assert str(_confined("results/x.npy")) == "results/x.npy"
    assert str(_confined("files/out/y.fits")) == "files/out/y.fits"
    assert str(_confined("/data/out/y.fits")) == "outside/data/out/y.fits"


def test_content_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """Other bytes than the node has sent leave nothing behind, and what was there stays."""
    (tmp_path / "x").write_bytes(b"before")
    with pytest.raises(BadFileError, match="damaged during the transfer"):
        put(tmp_path, "x", b"abc", wanted="0" * 32)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"before")]


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    """A symbolic link that lies in the directory is not followed out of it."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "results").symlink_to(outside)
    with pytest.raises(BadFileError, match="leads out"):
        put(inside, "results/x", b"abc")

    assert list(outside.iterdir()) == []


def packed(*members: tuple[str, bytes, str]) -> bytes:
    """A tar file of names, contents and link targets."""
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
    """A directory comes as it was, in whatever pieces the network cuts it, and replaces an earlier one."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    data = packed(("a.txt", b"one", ""), ("deep/b.txt", b"two", ""))
    put(tmp_path, "out", *cut(data), is_directory=True)
    files = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in tmp_path.rglob("*.txt")}

    assert files == {"a.txt": b"one", "deep/b.txt": b"two"}
    assert not (tmp_path / "out" / "old").exists()


@pytest.mark.parametrize("member", [("../up.txt", b"x", ""), ("link", b"", "/etc/passwd"), ("link", b"", "../../up")])
def test_archives_that_lead_out_are_refused(tmp_path: Path, member: tuple[str, bytes, str]) -> None:
    """Nothing is written outside, and nothing is left inside."""
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(BadFileError, match="unpacked"):
        put(root, "out", packed(member), is_directory=True)

    assert [path.name for path in tmp_path.rglob("*")] == ["root"]


@pytest.mark.parametrize("data", [b"", b"no archive at all", packed(("a", b"x" * 2000, ""))[:1500]])
def test_damaged_archives_are_refused(tmp_path: Path, data: bytes) -> None:
    """Whatever comes instead of an archive is told, and leaves nothing."""
    with pytest.raises(BadFileError, match="unpacked"):
        put(tmp_path, "out", data, is_directory=True)

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_command_left_is_removed(tmp_path: Path) -> None:
    """Unfinished files of a command that is gone go; those of one that is at work stay."""
    (tmp_path / _UNFINISHED).mkdir()
    (tmp_path / _UNFINISHED / "0").touch()
    with ResultDirectory(tmp_path) as first:
        assert list((tmp_path / _UNFINISHED).iterdir()) == []
        arrival = first.begin(PurePosixPath("x"), is_directory=False)
        put(tmp_path, "y", b"another command")
        arrival.finish(digest().hexdigest())
        arrival.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_what_is_there_is_told_by_its_digest(tmp_path: Path) -> None:
    """A file of the right size and a directory have the digests that a node computes; anything else has none."""
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "deep" / "f").write_bytes(b"abc")
    with ResultDirectory(tmp_path) as folder:
        assert folder.digest(PurePosixPath("f"), 3) == fingerprint(tmp_path / "f") != ""
        assert folder.digest(PurePosixPath("f"), 4) == folder.digest(PurePosixPath("no"), 3) == ""
        assert folder.digest(PurePosixPath("link"), 3) == ""
        before = folder.digest(PurePosixPath("d"), 0)
        (tmp_path / "d" / "deep" / "f").write_bytes(b"xyz")
        assert before != folder.digest(PurePosixPath("d"), 0) != ""
