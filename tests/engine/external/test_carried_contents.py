"""Contents as pieces of an archive, and the directory of a worker."""

import contextlib
import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.data.storage_errors import checksum_of
from dropflow.errors import StorageError
from dropflow.runners import carried_contents
from dropflow.runners.carried_contents import OwnDirectory, identity_of, pack, unpack


def tree(path: Path) -> dict[str, tuple[int, bytes | str]]:
    """Permissions and contents of all below a directory."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for one in sorted(path.rglob("*")):
        name = str(one.relative_to(path))
        if one.is_symlink():
            found[name] = 0, str(one.readlink())
        else:
            found[name] = one.stat().st_mode, b"" if one.is_dir() else one.read_bytes()
    return found


@given(st.lists(st.binary(max_size=2000), max_size=6), st.integers(1, 5000))
def test_a_directory_travels_in_pieces_of_any_size(bodies: list[bytes], size: int) -> None:
    """Files, also empty ones, and links have the same bytes at the other end, whatever the pieces are."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(carried_contents, "PIECE_BYTES", size)
        source = Path(folder, "source")
        (source / "sub").mkdir(parents=True)
        for number, body in enumerate(bodies):
            (source / ("sub" if number % 2 else ".") / f"f{number}").write_bytes(body)
        (source / "link").symlink_to("sub/f1")
        pieces: list[bytes] = []
        pack(str(source), pieces.append)
        unpack(pieces, f"{folder}/target")

        assert {len(one) for one in pieces[:-1]} <= {size}
        assert tree(Path(folder, "target")) == tree(source)


def test_a_file_is_compared_with_its_checksum(tmp_path: Path) -> None:
    """A content that was changed on its way is refused; a link to a file is the file."""
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(path)
    pieces: list[bytes] = []
    pack(str(tmp_path / "link"), pieces.append)
    unpack(pieces, str(tmp_path / "y"), checksum_of(str(path)))

    assert (tmp_path / "y").read_bytes() == b"abc"
    assert not (tmp_path / "y").is_symlink()
    with pytest.raises(StorageError, match="has CRC-32"):
        unpack([pieces[0].replace(b"abc", b"xyz")], str(tmp_path / "z"), checksum_of(str(path)))
    with pytest.raises(StorageError, match="cannot be unpacked"):
        unpack([b"abc"], str(tmp_path / "w"))


@pytest.mark.parametrize("name", ["content/../../x", "/etc/dropflow-x", "content/link/x"])
def test_a_content_writes_nothing_outside_of_its_directory(name: str, tmp_path: Path) -> None:
    """Names that leave it, or go through a link, are refused or stay inside."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for kind, one in ((tarfile.DIRTYPE, "content"), (tarfile.SYMTYPE, "content/link"), (tarfile.REGTYPE, name)):
            member = tarfile.TarInfo(one)
            member.type, member.linkname, member.mode = kind, str(tmp_path / "outside"), 0o755
            archive.addfile(member)
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    with contextlib.suppress(StorageError):
        unpack([stream.getvalue()], str(tmp_path / "inside" / "content"))

    assert not list((tmp_path / "outside").iterdir())
    assert {one.name for one in tmp_path.iterdir()} == {"outside", "inside"}
    assert not Path("/etc/dropflow-x").exists()


def test_the_identity_of_a_content_changes_with_it(tmp_path: Path) -> None:
    """Another size, time or file is another content; a new name is not."""
    path = tmp_path / "x"
    path.write_text("one")
    first = identity_of(str(path))
    path.rename(tmp_path / "y")
    assert identity_of(str(tmp_path / "y")) == first
    os.utime(tmp_path / "y", ns=(1, 1))
    assert identity_of(str(tmp_path / "y")) != first
    whole = identity_of(str(tmp_path))
    (tmp_path / "z").write_text("")
    assert identity_of(str(tmp_path)) != whole


def test_directories_of_processes_that_were_killed_are_removed(tmp_path: Path) -> None:
    """The lock of such a directory is free; those of others are kept."""
    living = OwnDirectory(str(tmp_path))
    dead = OwnDirectory(str(tmp_path))
    os.close(dead._lock)  # as the system does with those of a process that was killed
    other = OwnDirectory(str(tmp_path))

    assert not Path(dead.path).exists()
    assert Path(living.path).exists()
    living.close()
    other.close()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made"):
        OwnDirectory(str(tmp_path / "file"))
