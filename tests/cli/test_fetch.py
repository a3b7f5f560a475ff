"""``dropflow fetch``."""

import signal
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dropflow.api.contents import ContentEnd, ContentsRequest, Download, read_records, write_records
from dropflow.api.requests import ResultList
from dropflow.cli.incoming_files import IncomingFile
from dropflow.errors import LinkError
from dropflow.testing.fake_manager import FakeManager
from dropflow.web.cause_groups import UNFINISHED
from tests.cli.answers import Command


def test_results_are_fetched_with_their_bytes(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """Every result is written unchanged to its path below the directory."""
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")
    results = {
        result.path: b"".join(manager.data("finished", result.oid).chunks)
        for result in manager.results("finished").results
    }

    assert answer.status == 0
    assert {path: (tmp_path / "here" / path).read_bytes() for path in results} == results
    assert {file["path"] for file in answer.json["files"]} == set(results)


def test_one_drop_is_fetched_alone(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """With DROP, only its content is fetched."""
    answer = ask("fetch", "finished", "fan_d_0-0", "-o", "here")
    files = [path for path in (tmp_path / "here").rglob("*") if path.is_file()]

    assert answer.status == 0
    assert [path.read_bytes() for path in files] == [b"".join(manager.data("finished", "fan_d_0-0").chunks)]


def test_missing_results_are_listed(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """The other results are fetched, everything that is missing is listed, and the exit status is 1."""
    manager.write("finished", 22, b"another")
    wanted = manager.results("finished").results
    lost = wanted[0]
    manager.advance("finished", {lost.drop: "EXPIRED"})
    manager.results = lambda *_: ResultList(results=wanted, missing=("far",))  # type: ignore[assignment, method-assign]
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")
    text_answer = ask("fetch", "finished", "-o", "here")

    assert answer.status == text_answer.status == 1
    assert [(one["drop"], one["code"]) for one in answer.json["missing"]] == [(lost.oid, "DF121")]
    assert (answer.json["fetched"], answer.json["missed"], answer.json["silent"]) == (len(wanted) - 1, 1, ["far"])
    assert f"missing: {lost.path} of {lost.oid}" in text_answer.text
    assert "node far, which did not answer" in text_answer.text
    assert not (tmp_path / "here" / lost.path).exists()


def test_results_of_a_failed_request_are_missing(ask: Command, manager: FakeManager) -> None:
    """Each has the reason of the failure."""
    manager.refuse("contents", LinkError("nothing listens there"))
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")

    assert answer.status == 1
    assert {one["drop"] for one in answer.json["missing"]} == {one.oid for one in manager.results("finished").results}
    assert all("nothing listens there" in one["text"] for one in answer.json["missing"])


def test_a_connection_that_breaks_is_reported_once(
    ask: Command, manager: FakeManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says that the connection broke and how to continue; what arrived before stays. Exit status 3."""
    manager.write("finished", 22, b"another")
    total = len(manager.results("finished").results)
    whole = manager.contents

    def broken(session: str, request: ContentsRequest) -> Download:
        answer = whole(session, request)
        records = list(read_records(answer.chunks))
        first = next(place for place, record in enumerate(records) if isinstance(record, ContentEnd)) + 1

        def chunks() -> Iterator[bytes]:
            yield from write_records(records[:first])
            raise ConnectionResetError("a test")

        return replace(answer, chunks=chunks())

    with monkeypatch.context() as patch:
        patch.setattr(manager, "contents", broken)
        answer = ask("fetch", "finished", "-o", "here")
    again = ask("fetch", "finished", "-o", "here", "--output", "json")

    assert answer.status == 3
    assert "error DF220: http://127.0.0.1" in answer.text
    assert answer.text.count("the connection broke") == 1
    assert f"missing: {total - 1} results, because the connection to the manager broke" in answer.text
    assert "to fetch what is missing: dropflow fetch finished again, with the same -o" in answer.text
    assert (again.status, again.json["fetched"], again.json["were_there"]) == (0, total - 1, 1)


def test_results_that_are_there_are_not_fetched_again(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """A second fetch copies only missing files and files with another content."""
    manager.write("finished", 22, b"another")
    first, second, *_ = manager.results("finished").results
    ask("fetch", "finished", "-o", "here")
    (tmp_path / "here" / first.path).unlink()
    damaged = tmp_path / "here" / second.path
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + b"?")
    answer = ask("fetch", "finished", "-o", "here", "--output", "json")

    total = len(manager.results("finished").results)
    assert (answer.status, answer.json["fetched"], answer.json["were_there"]) == (0, 2, total - 2)
    assert damaged.read_bytes() == whole
    assert {file["path"] for file in answer.json["files"] if not file["was_there"]} == {first.path, second.path}


@pytest.mark.parametrize("suffix", ["tar", "zip"])
def test_results_are_fetched_into_one_file(ask: Command, manager: FakeManager, tmp_path: Path, suffix: str) -> None:
    """The name of the file asks for the format; the file has its name when it is whole."""
    assert ask("fetch", "finished", "-o", f"all.{suffix}").status == 0
    wanted = {result.path for result in manager.results("finished").results}
    if suffix == "tar":
        with tarfile.open(tmp_path / "all.tar") as tar:
            assert set(tar.getnames()) == wanted
    else:
        with zipfile.ZipFile(tmp_path / "all.zip") as archive:
            assert set(archive.namelist()) == wanted


def test_an_archive_that_is_not_whole_has_another_name(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """What arrived is kept under a name that says so, and the exit status is that of a broken connection."""
    results = manager.results("finished").results
    manager.results = lambda *_: ResultList(results=results, missing=("far",))  # type: ignore[assignment, method-assign]
    answer = ask("fetch", "finished", "-o", "all.tar")

    assert answer.status == 3
    assert "the archive is not complete" in answer.err
    assert not (tmp_path / "all.tar").exists()
    with tarfile.open(tmp_path / "all.tar.incomplete") as tar:
        assert "MISSING.txt" in tar.getnames()


@pytest.mark.parametrize("name", ["x.txt", "x.csv", "sub/results.npy"])
def test_a_file_of_another_kind_is_refused(ask: Command, name: str) -> None:
    """The error names the formats, and how to name a directory; nothing is fetched."""
    answer = ask("fetch", "finished", "-o", name)

    assert answer.status == 2
    assert f"results cannot be written as {Path(name).suffix}" in answer.err
    assert ".tar or .zip" in answer.err


def test_directories_may_be_named_as_files(ask: Command, tmp_path: Path) -> None:
    """With a slash at the end, if there is one of that name, or if the name has a number at its end."""
    (tmp_path / "there.txt").mkdir()
    for name in ("new.txt/", "there.txt", "run.2"):
        assert ask("fetch", "finished", "-o", name).status == 0
        assert (tmp_path / name / "results").is_dir()


def test_one_drop_is_no_archive(ask: Command) -> None:
    """An archive of one drop is refused before anything is asked."""
    answer = ask("fetch", "finished", "fan_d_0-0", "-o", "x.tar")

    assert (answer.status, "not one drop" in answer.err) == (2, True)


def test_an_interrupted_fetch_says_what_is_left_and_continues(
    ask: Command, manager: FakeManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C ends it with status 130, SIGTERM with 143; the next one asks for what is left, also of a large file."""
    data = bytes(range(256)) * 12_000
    manager.write("finished", 22, data)
    total = len(manager.results("finished").results)
    asked: list[ContentsRequest] = []
    whole, write = manager.contents, IncomingFile.write

    def remember(session: str, request: ContentsRequest) -> Download:
        asked.append(request)
        return whole(session, request)

    def interrupted(self: IncomingFile, piece: bytes) -> None:
        write(self, piece)
        if self.size >= 1_000_000:
            raise KeyboardInterrupt

    monkeypatch.setattr(manager, "contents", remember)
    with monkeypatch.context() as patch:
        patch.setattr(IncomingFile, "write", interrupted)
        answer = ask("fetch", "finished", "-o", "here", "--output", "json")
        (large,) = [one for one in answer.json["missing"] if one["size"] == len(data)]
        text = ask("fetch", "finished", "-o", "here").text
    with monkeypatch.context() as patch:
        patch.setattr(
            IncomingFile, "write", lambda self, piece: (write(self, piece), signal.raise_signal(signal.SIGTERM))
        )
        terminated = ask("fetch", "finished", "-o", "there")
    again = ask("fetch", "finished", "-o", "here", "--output", "json")

    assert (answer.status, answer.json["interrupted"]) == (130, True)
    assert len(data) > large["here"] >= 1_000_000
    assert "interrupted: " in text
    assert (terminated.status, "left to fetch" in terminated.text) == (143, True)
    assert "of them are here" in text
    assert (again.status, again.json["missed"]) == (0, 0)
    (request,) = [one for one in asked[-1].wanted if one.row == 22]
    assert (request.offset >= 1_000_000, request.checksum) == (True, zlib.crc32(data))
    assert len(asked[-1].wanted) < total or total == 1
    assert (tmp_path / "here" / large["path"]).read_bytes() == data
    assert not (tmp_path / "here" / UNFINISHED).exists()
