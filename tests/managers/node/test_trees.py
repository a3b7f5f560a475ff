"""Directories on their way between nodes, as tar files that are read and written while they are sent."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.data.storage_errors import fingerprint, tree_of
from dropflow.errors import StorageError
from managers.node.trees import TreeSource, TreeWriter

_LONG = "long-" * 30


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all that tar files distinguish: sizes around a block, long names, names of other encodings."""
    root = tmp_path_factory.mktemp("source")
    for folder in ("a", "a.b", "a/c", "empty", f"{_LONG}/{_LONG}"):
        (root / folder).mkdir(parents=True)
    for number, size in enumerate((0, 1, 511, 512, 513, 70_000)):
        (root / "a" / f"{size}").write_bytes(bytes([number]) * size)
    (root / "a.b" / "program").write_bytes(b"#!/bin/sh\n")
    (root / "a.b" / "program").chmod(0o755)
    (root / f"{_LONG}/{_LONG}" / "naïve").write_bytes(b"x")
    Path(os.fsdecode(os.fsencode(root) + b"/latin-\xe9")).write_bytes(b"y")
    (root / "link").symlink_to("a/513")
    (root / "nowhere").symlink_to("/nowhere" + _LONG)
    os.utime(root / "a" / "1", (1e9, 1e9))
    return root


def _written(target: Path, data: bytes, pieces: int = 1000) -> tuple[int, int]:
    writer = TreeWriter(str(target))
    try:
        for offset in range(0, len(data), pieces):
            writer.write(offset, memoryview(data)[offset : offset + pieces])
        return writer.finish()
    finally:
        writer.close()


def _all(source: TreeSource) -> bytes:
    return source.read(0, source.size + 1)


@pytest.mark.slow
@given(pieces=st.integers(1, 3000))
def test_a_directory_arrives_as_it_was(pieces: int, source: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """However its bytes are cut; the checksum that is computed on the way is that of what was written."""
    target = tmp_path_factory.mktemp("target") / "t"
    written = _written(target, _all(TreeSource(source)), pieces)

    assert written == tree_of(str(source)) == tree_of(str(target))
    assert fingerprint(target) == fingerprint(source)
    assert (target / "a" / "1").stat().st_mtime == 1e9
    assert (target / "a.b" / "program").stat().st_mode & 0o111 == 0o111


@given(data=st.data())
def test_any_range_is_that_of_the_whole(data: st.DataObject, source: Path) -> None:
    """A transfer goes on anywhere after a connection was lost."""
    tree = TreeSource(source)
    content = _all(tree)
    offset = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 100_000))

    assert len(content) == tree.size
    assert tree.read(offset, length) == content[offset : offset + length]


def test_the_standard_library_reads_it_and_is_read(source: Path, tmp_path: Path) -> None:
    """Nodes of earlier versions unpack and pack the same with `tarfile`."""
    with tarfile.open(fileobj=io.BytesIO(_all(TreeSource(source)))) as archive:
        archive.extractall(tmp_path / "theirs", filter="tar")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, arcname=".")

    assert fingerprint(tmp_path / "theirs") == fingerprint(source)
    assert _written(tmp_path / "ours", packed.getvalue()) == tree_of(str(source))
    assert fingerprint(tmp_path / "ours") == fingerprint(source)


def _tar(*members: tuple[str, bytes, str]) -> bytes:
    """A tar file with members of these names, kinds and links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind, target in ((".", tarfile.DIRTYPE, ""), *members):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (_tar(("../x", tarfile.REGTYPE, "")), "'../x' leaves the directory"),
        (_tar(("/x", tarfile.REGTYPE, "")), "'/x' leaves the directory"),
        (_tar(("a", tarfile.SYMTYPE, ".."), ("a/x", tarfile.REGTYPE, "")), "No such file or directory"),
        (_tar(("x", tarfile.REGTYPE, ""), ("x", tarfile.REGTYPE, "")), "File exists"),
        (_tar(("x", tarfile.FIFOTYPE, "")), "neither a file nor a directory"),
        (_tar(("x", tarfile.REGTYPE, ""))[:1024], "the end of a directory did not come"),
        (b"x" * 512, "did not come as a tar file"),
    ],
    ids=["up", "absolute", "through a link", "twice", "pipe", "cut off", "no tar file"],
)
def test_what_is_no_directory_is_refused(data: bytes, problem: str, tmp_path: Path) -> None:
    """Nothing is written beside the directory, nor through its links."""
    with pytest.raises(StorageError, match=problem):
        _written(tmp_path / "t", data)
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["t"])
