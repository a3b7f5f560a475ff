"""What is fetched stays in its directory, is whole, and is told apart."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.cli.fetching import _confined, _named, _store
from dropflow.errors import BadFileError
from dropflow.rest.schema import Download, ResultInfo

PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c d", "~"]), min_size=1).map("/".join)


def result(path: str, *, node: str = "n", drop: int = 0) -> ResultInfo:
    """A result that calls its file so."""
    return ResultInfo(drop=drop, oid=f"d{drop}", name="d", node=node, path=path, size=0)


def download(*chunks: bytes, size: int | None = None) -> Download:
    """Content on its way."""
    return Download(name="x", content_type="application/octet-stream", size=size, chunks=iter(chunks))


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
    paths = [path for _, path in _named(results)]

    assert len(set(paths)) == len(results)


def test_ordinary_paths_stay_as_they_are() -> None:
    """The directory looks as a run would have left it."""
    assert str(_confined("results/x.npy")) == "results/x.npy"
    assert str(_confined("files/out/y.fits")) == "files/out/y.fits"
    assert str(_confined("/data/out/y.fits")) == "outside/data/out/y.fits"


def test_content_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """Fewer bytes than promised leave nothing behind, and what was there stays."""
    (tmp_path / "x").write_bytes(b"before")
    with pytest.raises(BadFileError, match="3 of 5 bytes"):
        _store(download(b"abc", size=5), tmp_path, PurePosixPath("x"), is_directory=False)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"before")]


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    """A symbolic link that lies in the directory is not followed out of it."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "results").symlink_to(outside)
    with pytest.raises(BadFileError, match="leads out"):
        _store(download(b"abc"), inside, PurePosixPath("results/x"), is_directory=False)

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
    size = _store(download(*cut(data), size=len(data)), tmp_path, PurePosixPath("out"), is_directory=True)
    files = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in tmp_path.rglob("*.txt")}

    assert size == len(data)
    assert files == {"a.txt": b"one", "deep/b.txt": b"two"}
    assert not (tmp_path / "out" / "old").exists()


@pytest.mark.parametrize("member", [("../up.txt", b"x", ""), ("link", b"", "/etc/passwd"), ("link", b"", "../../up")])
def test_archives_that_lead_out_are_refused(tmp_path: Path, member: tuple[str, bytes, str]) -> None:
    """Nothing is written outside, and nothing is left inside."""
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(BadFileError, match="unpacked"):
        _store(download(packed(member)), root, PurePosixPath("out"), is_directory=True)

    assert [path.name for path in tmp_path.rglob("*")] == ["root"]


@pytest.mark.parametrize("data", [b"", b"no archive at all", packed(("a", b"x" * 2000, ""))[:1500]])
def test_damaged_archives_are_refused(tmp_path: Path, data: bytes) -> None:
    """Whatever comes instead of an archive is told, and leaves nothing."""
    with pytest.raises(BadFileError, match="unpacked"):
        _store(download(data), tmp_path, PurePosixPath("out"), is_directory=True)

    assert list(tmp_path.iterdir()) == []
