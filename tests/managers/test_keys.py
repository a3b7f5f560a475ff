"""The cluster key on disk."""

import os
import stat
from pathlib import Path

import pytest

from dropflow.errors import BadFileError, ConflictError, StorageError
from managers.keys import ClusterKey, create, load


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a key may be created: in a directory that does not exist."""
    return tmp_path / "config" / "cluster.key"


def test_a_stored_key_is_loaded(path: Path) -> None:
    """`load` returns the key that `create` made."""
    key = create(path)

    assert load(path) == key


def test_only_the_owner_can_read_a_key(path: Path) -> None:
    """Other users cannot read the file or the directory, with any umask."""
    before = os.umask(0)
    try:
        create(path)
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_key_is_never_overwritten(path: Path) -> None:
    """A second `create` refuses and leaves the first key alone."""
    key = create(path)
    with pytest.raises(ConflictError, match="there is a cluster key already"):
        create(path)

    assert load(path) == key


def test_a_key_is_never_written_through_a_link(path: Path, tmp_path: Path) -> None:
    """A symbolic link in the way is refused, not followed."""
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConflictError, match="cluster key"):
        create(path)

    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_key_that_others_can_read_is_refused(path: Path, mode: int) -> None:
    """Loading a key with open permissions fails and says what to do."""
    create(path)
    path.chmod(mode)

    with pytest.raises(BadFileError, match="others can read the cluster key") as caught:
        load(path)
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a cluster key"),
        (b"public abc\nsecret def\n", "not a cluster key"),
        (b"\xff" * 5000, "not a cluster key"),
        (b"public " + b"0" * 40 + b"\nsecret " + b"1" * 40 + b"\n", "do not match"),
        (b"public " + b"0" * 40 + b"\nsecret " + b"\xff" * 40 + b"\n", "the secret is not a CURVE key"),
    ],
)
def test_files_that_are_not_keys_are_refused(path: Path, content: bytes, problem: str) -> None:
    """The error names the problem."""
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(BadFileError, match=problem):
        load(path)


def test_a_missing_key_has_a_hint(path: Path) -> None:
    """The hint names the command that makes a key."""
    with pytest.raises(StorageError, match="cannot be read") as caught:
        load(path)

    assert "dropflow keys create" in caught.value.hint


def test_the_secret_is_not_shown(path: Path) -> None:
    """Neither `repr` nor the fingerprint contains the secret, and different keys have different fingerprints."""
    key, other = create(path), create(path.with_name("other.key"))

    assert key.secret.decode() not in repr(key) + str(key) + key.fingerprint
    assert key.fingerprint != other.fingerprint
    assert key.fingerprint == ClusterKey(key.public, b"").fingerprint
