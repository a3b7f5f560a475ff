"""The result store at an address: a bucket of moto's server of S3, and a directory by fsspec."""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dropflow.cli.main import commands
from dropflow.data.remote import CHANGE_TIMES, file_system
from dropflow.errors import StorageError
from dropflow.reuse import remote_result_store
from dropflow.reuse.remote_result_store import RemoteResultStore
from dropflow.reuse.result_store import ResultStore, StoredContent
from tests.reuse.story import ALL, Story
from tests.s3_server import make_bucket, s3_server

pytestmark = [
    pytest.mark.skipif(find_spec("s3fs") is None, reason="needs the extra stores"),
    pytest.mark.skipif(find_spec("moto") is None, reason="needs moto[s3] and flask-cors"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server of S3."""
    with s3_server() as found:
        yield found


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.slow), "file"])
def address(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store that is not there yet. Runs of the test use it, with a key and copies of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = f"file://{tmp_path}/there"
    if request.param == "s3":
        found, server = "s3://bucket/results", request.getfixturevalue("server")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server)
        make_bucket(server, monkeypatch)
    monkeypatch.setenv("DROPFLOW_STORE", found)
    return found


@pytest.fixture
def story(tmp_path: Path, address: str) -> Story:
    """A graph that has run once, on a host whose copies are gone: the next run is that of another host."""
    made = Story(tmp_path)
    assert made.run() == ("is 18", ALL)
    assert len(_contents(address)) == 1
    _forget(tmp_path)
    return made


def _forget(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache")


def _contents(address: str) -> list[str]:
    system, path = file_system(f"{address}/contents")
    return [name for name, info in system.find(path, detail=True).items() if info["size"] > 4096]


def _cache(*words: str) -> Result:
    return CliRunner().invoke(commands, ["cache", *words, "--output", "json"])


@pytest.mark.slow
def test_another_host_takes_results_from_an_address(story: Story) -> None:
    """All of them; and what it computes after an edit, the first host takes again."""
    assert story.run() == ("is 18", set())
    story.values["Rms"]["offset"] = 1
    assert story.run() == ("is 19", {"Rms", "Show"})
    _forget(story.folder)
    assert story.run() == ("is 19", set())


@pytest.mark.slow
def test_attempts_ask_the_address(story: Story) -> None:
    """An application that was changed and gives the same bytes ends the wave, also with the results of another host."""
    story.helpers.write_text("def scaled(x):\n    return x * 3\n")
    assert story.run() == ("is 18", {"Rms"})


@pytest.mark.slow
def test_a_damaged_content_at_an_address_is_replaced(story: Story, address: str) -> None:
    """It is never used, and the run that computes it again repairs the address."""
    (path,) = _contents(address)
    system, _ = file_system(address)
    system.pipe_file(path, b"x" * system.info(path)["size"])
    assert story.run() == ("is 18", {"Show"})
    _forget(story.folder)
    assert story.run() == ("is 18", set())


def test_a_damaged_copy_does_not_remove_the_content_at_its_address(address: str, tmp_path: Path) -> None:
    """It is removed here, and brought again."""
    store, content = ResultStore(address), b"x" * 10_000
    digest = store.keep_bytes(content)
    copy = next((tmp_path / "cache").rglob(digest))
    copy.chmod(0o600)
    copy.write_bytes(b"cut")

    store.verify()
    assert len(_contents(address)) == 1
    assert ResultStore(address).is_there(StoredContent("bytes", digest, len(content)))


@pytest.mark.slow
def test_the_store_at_an_address_is_counted_checked_and_pruned(story: Story, address: str) -> None:
    """``dropflow cache`` counts what is at the address, removes what is damaged, and what was written first."""
    (path,) = _contents(address)
    whole = _cache("info")
    assert whole.exit_code == 0
    system, _ = file_system(address)
    system.pipe_file(path, b"x" * system.info(path)["size"])
    assert path.rpartition("/")[2] in _cache("verify").stdout
    assert not _contents(address)
    assert _cache("prune", "--limit", "0").exit_code == 0
    assert '"records":0,"contents":0' in _cache("info").stdout.replace(" ", "")
    assert story.run() == ("is 18", ALL)


@pytest.mark.parametrize("name", [*CHANGE_TIMES, "created"])
def test_files_are_ordered_by_any_time_that_a_file_system_has(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What was written first is pruned first, whatever the time is called."""
    system, _ = file_system("memory://x")
    found = {f"/x/contents/{at}/{at}": {"size": 1, name: time} for at, time in (("new", 9.0), ("old", 1.0))}
    monkeypatch.setattr(type(system), "find", lambda *_, **__: found)

    assert [file.name for file in RemoteResultStore("memory://x").files()] == ["old", "new"]


@pytest.mark.slow
def test_a_store_that_goes_away_costs_one_wait(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run computes what it cannot take, and asks the store no more; logs of drops say what is not stored."""
    asked, check = [], ResultStore.check

    def fail(*_: Any, **__: Any) -> None:
        asked.append(1)
        raise StorageError("the store did not answer")

    def gone(store: ResultStore) -> None:
        check(store)
        monkeypatch.setattr(remote_result_store, "reach", fail)

    monkeypatch.setattr(ResultStore, "check", gone)
    assert story.run() == ("is 18", ALL)
    assert len(asked) == 2  # of the run, and of its attempts


@pytest.mark.slow
def test_a_store_that_cannot_be_reached_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs, with the address: a server that is not there, a bucket that is not, an unknown protocol."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    graph = str(Path(__file__).parents[2] / "examples" / "hello.graph")
    with s3_server() as server:
        make_bucket(server, monkeypatch)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server)
        places = ["s3://no-such-bucket/x", "nonsense://x/y"]
        found = [CliRunner().invoke(commands, ["run", graph, "--reuse", "--store", place]) for place in places]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    places.append("s3://bucket/x")
    found.append(CliRunner().invoke(commands, ["run", graph, "--reuse", "--store", places[-1]]))
    for place, done in zip(places, found, strict=True):
        assert place in done.stderr
        assert "Traceback" not in done.stderr
    assert [done.exit_code for done in found] == [1, 2, 1]
    assert not list(tmp_path.glob("*/journal.dfj"))
