"""Private directories: safe from other users of the host."""

import logging
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from dropflow.api.auth import store_token
from dropflow.cli.server_process import claim_root, start_logging
from dropflow.errors import StorageError
from dropflow.files import private_directory
from managers.keys import create


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    """With any umask, other users can neither enter nor change a new directory and the parents that it needs."""
    before = os.umask(0)
    try:
        made = private_directory(tmp_path / "a" / "b" / "c")
        store_token(tmp_path / "config" / "dropflow" / "token", "secret")
        create(tmp_path / "keys" / "dropflow" / "cluster.key")
        with ExitStack() as stack:
            claim_root(tmp_path / "state" / "dropflow" / "n1", stack)
        log = logging.getLogger("test of private files")
        start_logging(level="info", file=None, as_json=False, own=made / "manager.log")
        log.info("a line")
    finally:
        os.umask(before)
        logging.basicConfig(handlers=[], force=True)

    found = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert {str(path): oct(mode) for path, mode in found.items() if mode & 0o077} == {}
    assert {Path("a/b/c/manager.log"), Path("keys/dropflow/cluster.key")} <= found.keys()
    assert private_directory(made) == made


def test_a_directory_that_everybody_can_write_to_is_refused(tmp_path: Path) -> None:
    """A directory that every user can write to is refused: others could replace sessions and tokens."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)

    with ExitStack() as stack, pytest.raises(StorageError, match="every user of this host can write") as caught:
        claim_root(tmp_path / "open", stack)
    assert caught.value.hint == f"chmod o-w {tmp_path / 'open'}"


def test_the_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that belongs to another user is refused: it may be a trap."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    (tmp_path / "theirs").mkdir()
    if (tmp_path / "theirs").stat().st_uid == 0:
        os.chown(tmp_path / "theirs", 4712, -1)

    with pytest.raises(StorageError, match="belongs to another user"):
        private_directory(tmp_path / "theirs")
