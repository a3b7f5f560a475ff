"""The store of results: contents by digest, records by key, many writers, and a bound for its size."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dropflow.engine.api import Handle
from dropflow.reuse.store import Record, ResultStore, StoredContent, key_of


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultStore:
    """An empty store, with a key of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return ResultStore(tmp_path / "store")


def _file(path: Path, content: bytes) -> Handle:
    path.write_bytes(content)
    return Handle(kind="file", location=str(path), size=len(content))


def _add(store: ResultStore, name: str, *outputs: StoredContent) -> str:
    key = key_of(name)
    store.add(Record((key, ""), outputs, (), (), key_of("drop", name), "session", "host", 1.0, 2.0))
    return key


def test_a_directory_comes_back_as_it_was(store: ResultStore, tmp_path: Path) -> None:
    """With its links, empty directories and programs; only this user can enter the store."""
    folder = tmp_path / "made"
    (folder / "empty").mkdir(parents=True)
    (folder / "large").write_bytes(b"x" * 10_000)
    (folder / "link").symlink_to("large")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    content = store.keep(Handle(kind="directory", location=str(folder), size=10_010))
    store.place(content, str(tmp_path / "again"))

    assert store.is_there(content)
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == ["empty", "large", "link", "run.sh"]
    assert (tmp_path / "again" / "link").read_bytes() == b"x" * 10_000
    assert os.access(tmp_path / "again" / "run.sh", os.X_OK)
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0


def test_a_content_that_may_change_later_is_copied(store: ResultStore, tmp_path: Path) -> None:
    """Others may be the same file; if that is changed in place, the content does not count any more."""
    copied = store.keep(_file(tmp_path / "one", b"a" * 5000), linked=False)
    linked = store.keep(_file(tmp_path / "two", b"b" * 5000))
    for name in ("one", "two"):
        with (tmp_path / name).open("r+b") as stream:
            stream.write(b"changed")

    assert store.is_there(copied)
    is_same_file = (tmp_path / "two").stat().st_nlink > 1
    assert store.is_there(linked) is not is_same_file


def test_a_record_of_another_key_or_user_is_not_found(store: ResultStore, tmp_path: Path) -> None:
    """A file that was renamed, changed, or signed with another key is ignored."""
    key, other = _add(store, "a"), key_of("b")
    path = tmp_path / "store" / "records" / key[:2] / key
    renamed = tmp_path / "store" / "records" / other[:2] / other
    renamed.parent.mkdir(exist_ok=True)
    renamed.write_bytes(path.read_bytes())

    assert store.find(key) is not None
    assert store.find(other) is None
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert store.find(key) is None


def test_what_was_used_last_stays(store: ResultStore, tmp_path: Path) -> None:
    """A smaller limit removes the results that were not used for longest, and their contents."""
    keys = []
    for number, name in enumerate("abc"):
        keys.append(_add(store, name, store.keep(_file(tmp_path / name, name.encode() * 6000), linked=False)))
        path = tmp_path / "store" / "records" / keys[-1][:2] / keys[-1]
        os.utime(path, (1000 + number, 1000 + number))
    assert store.find(keys[0]) is not None
    use = store.prune(15_000)

    assert [store.find(key) is not None for key in keys] == [True, False, True]
    assert (use.removed_records, use.removed_contents, use.contents) == (1, 1, 2)
    assert use.size <= 15_000
    assert store.prune(0).size == 0


def test_many_writers_of_the_same_result_leave_one(store: ResultStore, tmp_path: Path) -> None:
    """Each has a store of its own in the same directory, as processes on several hosts have."""

    def write(number: int) -> bool:
        own = ResultStore(store.directory)
        content = own.keep(_file(tmp_path / f"part{number}", b"same" * 3000))
        record = own.find(_add(own, "same", content))
        return record is not None and own.is_there(record.outputs[0])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, range(40)))
    use = store.use()
    assert (use.records, use.contents) == (1, 1)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []
