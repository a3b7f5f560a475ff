"""``dropflow fetch``."""

import fcntl
import io
import signal
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.api.contents_answer import (
    UNFINISHED,
    ContentBegin,
    ContentEnd,
    ContentsRequest,
    Download,
    _confined,
    read_records,
    result_paths,
    write_records,
)
from dropflow.api.drop_records import ResultInfo
from dropflow.api.requests import ResultList
from dropflow.cli.sessions import downloads
from dropflow.cli.sessions.incoming_files import IncomingFile, KeptPart, ResultDirectory
from dropflow.data.storage_errors import fingerprint
from dropflow.errors import BadFileError, LinkError
from dropflow.files import is_made
from tests.cli.answers import Command
from tests.fake_manager import FakeManager


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


def test_no_more_chunks_wait_after_many_requests() -> None:
    """As many are here and not written yet as after the first one: memory does not grow with the results."""

    def contents(*_: object) -> Download:
        raise LinkError("it is away")

    client: Any = SimpleNamespace(contents=contents, url="http://island")
    batch: Any = SimpleNamespace(request=lambda: None)
    arrivals = downloads._Arrivals(client, "s", [[batch] * 40])

    assert len(list(arrivals)) == 40
    assert arrivals._free._value == downloads._WAITING


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
    assert "node far, which did not answer or has lost them" in text_answer.text
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
    assert "to fetch missing results: dropflow fetch finished again, with the same -o" in answer.text
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


def test_two_commands_fetch_one_archive(tmp_path: Path) -> None:
    """Each of them writes a file of its own until it is whole."""
    target = tmp_path / "all.tar"

    def fetch(*chunks: Iterator[bytes]) -> None:
        client: Any = SimpleNamespace(
            results=lambda _: ResultList(results=()), archive=lambda *_: SimpleNamespace(chunks=chain(*chunks))
        )
        downloads.download_archive(client, "s", "tar", target, quiet=True)

    def meanwhile() -> Iterator[bytes]:
        fetch(iter([b"second"]))
        assert target.read_bytes() == b"second"
        yield b" half"

    fetch(iter([b"first"]), meanwhile())

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"all.tar": b"first half"}


def test_results_in_stores_are_named_beside_an_archive(ask: Command, manager: FakeManager) -> None:
    """They are not in it, and the answer has the command that copies them."""
    listed = manager.results("finished")
    manager.results = lambda *_: msgspec.structs.replace(listed, in_stores=listed.results[:1])  # type: ignore[assignment, method-assign]
    answer = ask("fetch", "finished", "-o", "all.tar").out.decode()

    assert f"1 result in stores left out: {listed.results[0].name}; " in answer
    assert "fetch finished -o DIR" in answer


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


@pytest.mark.slow
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


@pytest.mark.slow
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


# Fetched files are complete, have distinct paths, and are in their directory.


PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c d", "~"]), min_size=1).map("/".join)
LARGE = 1 << 20
"""Bytes of a content whose beginning is kept."""


def result(path: str, *, node: str = "n", drop: int = 0) -> ResultInfo:
    """Return a result with this path."""
    return ResultInfo(drop=drop, oid=f"d{drop}", name="d", node=node, path=path, size=0)


def put(root: Path, path: str, *chunks: bytes, is_directory: bool = False, wanted: int | None = None) -> str:
    """Write a content in chunks; `wanted` is the checksum from the node, by default the right one."""
    whole = b"".join(chunks)
    checksum = zlib.crc32(whole)
    with ResultDirectory(root) as directory:
        known = {} if is_directory else {"size": len(whole), "checksum": checksum}
        incoming = directory.begin(PurePosixPath(path), ContentBegin(0, is_directory, **known))
        try:
            for chunk in chunks:
                incoming.write(chunk)
            return incoming.finish(checksum if wanted is None else wanted)
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
    with pytest.raises(BadFileError, match="damaged on its node or during the transfer"):
        put(tmp_path, "x", b"abc", wanted=1)

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
    """A directory replaces a file, and one that was fetched before; the sizes of the chunks do not matter."""
    (tmp_path / "out").touch()
    put(tmp_path, "out", packed(("old", b"", "")), is_directory=True)
    if not is_made(str(tmp_path / "out")):
        pytest.skip("the file system has no extended attributes")
    data = packed(("a.txt", b"one", ""), ("deep/b.txt", b"two", ""))
    put(tmp_path, "out", *cut(data), is_directory=True)
    files = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in tmp_path.rglob("*.txt")}

    assert files == {"a.txt": b"one", "deep/b.txt": b"two"}
    assert not (tmp_path / "out" / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    put(tmp_path, "out", b"a file")
    assert (tmp_path / "out").read_bytes() == b"a file"


def test_a_directory_of_the_user_is_not_lost(ask: Command, manager: FakeManager, tmp_path: Path) -> None:
    """A file does not replace it, which is listed. A directory does, and the answer names where the former one is."""
    first = manager.results("finished").results[0]
    mine = tmp_path / "here" / first.path / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    answer = ask("fetch", "finished", "-o", "here")

    assert (answer.status, mine.read_text()) == (1, "precious")
    assert f"missing: {first.path} of {first.oid}" in answer.text
    assert "is a directory, and a file would replace it with all that is in it" in answer.text
    whole = packed(("a.txt", b"one", ""))
    assert put(tmp_path / "here", first.path, whole, is_directory=True) == f"{mine.parent}.before-fetch"
    assert Path(f"{mine.parent}.before-fetch", "mine.txt").read_text() == "precious"
    fetched = downloads.FetchedFile(drop="d", node="n", path="p", size=1, kept="p.before-fetch")
    reply = downloads.FetchReply.of("s", "here", [fetched], ())
    assert "note: p was there before: its files are in p.before-fetch" in [*reply.lines()]


def test_a_file_that_would_replace_a_directory_is_not_requested(
    ask: Command, manager: FakeManager, tmp_path: Path
) -> None:
    """It is refused before its bytes are transferred."""
    first, *others = manager.results("finished").results
    (tmp_path / "here" / first.path).mkdir(parents=True)
    asked: list[int] = []
    contents = manager.contents

    def record(session: str, request: ContentsRequest) -> Download:
        asked.extend(one.row for one in request.wanted)
        return contents(session, request)

    manager.contents = record  # type: ignore[method-assign]
    assert ask("fetch", "finished", "-o", "here").status == 1
    assert sorted(asked) == sorted(result.drop for result in others)


def test_a_directory_comes_back_if_nothing_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between the two renames leaves the former directory."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("a test")

    monkeypatch.setattr(Path, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt, match="a test"):
        put(tmp_path, "out", packed(("a.txt", b"one", "")), is_directory=True)

    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine"]


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
        incoming = first.begin(PurePosixPath("x"), ContentBegin(0, size=0))
        put(tmp_path, "y", b"another command")
        incoming.finish(0)
        incoming.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_a_file_is_there_if_it_has_the_size_and_checksum(tmp_path: Path) -> None:
    """A link, a directory, a file with other bytes and one of unknown checksum are fetched."""
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "d").mkdir()
    right = msgspec.structs.replace(result("f"), size=3, checksum=zlib.crc32(b"abc"))
    with ResultDirectory(tmp_path) as directory:
        assert directory.has(PurePosixPath("f"), right)
        assert not directory.has(PurePosixPath("f"), msgspec.structs.replace(right, size=4))
        assert not directory.has(PurePosixPath("f"), msgspec.structs.replace(right, checksum=7))
        assert not directory.has(PurePosixPath("f"), msgspec.structs.replace(right, checksum=None))
        assert not any(directory.has(PurePosixPath(name), right) for name in ("link", "d", "no"))


def test_what_has_no_checksum_is_compared_by_its_digest(tmp_path: Path) -> None:
    """A file of the right size and a directory have the digest that a node computes; anything else has none."""
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "deep" / "f").write_bytes(b"abc")
    three = msgspec.structs.replace(result("f"), size=3)
    with ResultDirectory(tmp_path) as directory:
        assert directory.digest(PurePosixPath("f"), three) == fingerprint(tmp_path / "f") != ""
        assert directory.digest(PurePosixPath("f"), result("f")) == directory.digest(PurePosixPath("no"), three) == ""
        assert directory.digest(PurePosixPath("f"), msgspec.structs.replace(three, checksum=1)) == ""
        assert directory.digest(PurePosixPath("link"), three) == ""
        before = directory.digest(PurePosixPath("d"), three)
        (tmp_path / "d" / "deep" / "f").write_bytes(b"xyz")
        assert before != directory.digest(PurePosixPath("d"), three) != ""


def _broken_off(root: Path, data: bytes, here: int) -> ContentBegin:
    """Write the first bytes of a large content, as a command does that is interrupted."""
    record = ContentBegin(0, size=len(data), checksum=zlib.crc32(data))
    with ResultDirectory(root) as directory:
        incoming = directory.begin(PurePosixPath("x"), record)
        incoming.write(data[:here])
        directory.keep(PurePosixPath("x"), incoming)
        assert directory.kept(PurePosixPath("x")).size == here
    return record


@given(here=st.integers(1, LARGE), again=st.integers(0, LARGE))
def test_a_large_file_is_continued(here: int, again: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is here is asked for no more; the node may begin earlier. Nothing else is left at the end."""
    root = tmp_path_factory.mktemp("here")
    data = bytes(range(256)) * (LARGE // 256)
    record = _broken_off(root, data, here)
    with ResultDirectory(root) as directory:
        assert directory.kept(PurePosixPath("x")) == KeptPart(here, zlib.crc32(data))
        start = min(again, here)
        incoming = directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=start))
        incoming.write(data[start:])
        incoming.finish(zlib.crc32(data))
        directory.discard_parts()

    assert [(path.name, path.read_bytes()) for path in root.iterdir()] == [("x", data)]


def test_another_content_begins_again(tmp_path: Path) -> None:
    """The beginning of a content that has changed is removed; one that is damaged is an error, and removed too."""
    _broken_off(tmp_path, b"a" * LARGE, 1000)
    other = b"b" * LARGE
    with ResultDirectory(tmp_path) as directory:
        incoming = directory.begin(PurePosixPath("x"), ContentBegin(0, size=LARGE, checksum=zlib.crc32(other)))
        incoming.write(other)
        incoming.finish(zlib.crc32(other))
    assert (tmp_path / "x").read_bytes() == other

    record = _broken_off(tmp_path, b"c" * LARGE, 1000)
    (part,) = (tmp_path / UNFINISHED).iterdir()
    part.write_bytes(b"?" * 1000)
    with ResultDirectory(tmp_path) as directory:
        incoming = directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=1000))
        incoming.write(b"c" * (LARGE - 1000))
        with pytest.raises(BadFileError, match="damaged on its node or during the transfer"):
            incoming.finish(zlib.crc32(b"c" * LARGE))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_two_commands_do_not_write_the_same_file(tmp_path: Path) -> None:
    """The second one begins a file of its own, and both are complete."""
    data = b"a" * LARGE
    record = _broken_off(tmp_path, data, 1000)
    with ResultDirectory(tmp_path) as first, ResultDirectory(tmp_path) as second:
        assert (first.kept(PurePosixPath("x")).size, second.kept(PurePosixPath("x")).size) == (1000, 0)
        for directory, start in ((second, 0), (first, 1000)):
            incoming = directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=start))
            incoming.write(data[start:])
            incoming.finish(zlib.crc32(data))

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", data)]


def test_an_older_part_beside_one_of_another_command_is_not_used(tmp_path: Path) -> None:
    """Its file is closed, and its number may be that of another one."""
    _broken_off(tmp_path, b"a" * LARGE, 1000)
    (part,) = (tmp_path / UNFINISHED).iterdir()
    other = part.with_name(f"{part.stem.partition('-')[0]}-ffffffff.part")
    with other.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with ResultDirectory(tmp_path) as directory:
            assert directory.kept(PurePosixPath("x")).size == 0


def test_more_bytes_than_there_are_cannot_be_continued(tmp_path: Path) -> None:
    """An answer that begins later than the bytes that are here is an error."""
    record = _broken_off(tmp_path, b"a" * LARGE, 1000)
    with (
        ResultDirectory(tmp_path) as directory,
        pytest.raises(BadFileError, match="begins at byte 2,000, but only 1,000 bytes are here"),
    ):
        directory.begin(PurePosixPath("x"), msgspec.structs.replace(record, offset=2000))
