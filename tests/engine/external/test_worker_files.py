"""What the session does with the directory of a worker, and how contents travel there in pieces."""

import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropflow.errors import StorageError
from dropflow.runners.content_relay import SerialJobs
from dropflow.runners.external_contents import HeldContents
from dropflow.runners.listed_content import ContentEntry, ListedContent, identity_of, listing_of
from dropflow.runners.worker_files import FilesReply, Get, Move, Put, Remove, Request, WorkerFiles, room_below

FILE = stat.S_IFREG | 0o644


def ask(files: WorkerFiles, *requests: Request) -> FilesReply:
    """What a worker answers."""
    return msgspec.msgpack.decode(files.serve(msgspec.msgpack.encode(requests)), type=FilesReply)


@pytest.fixture
def files(tmp_path: Path):  # noqa: ANN201 - a generator of WorkerFiles
    """The directory of a worker."""
    made = WorkerFiles(str(tmp_path))
    yield made
    made.close()
    assert not Path(made.path).exists()
    made.close()


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 9))
def test_a_directory_travels_in_pieces_of_any_size(bodies: list[bytes], piece: int) -> None:
    """Files, also empty ones, have the same bytes at the other end, whatever the pieces are."""
    import tempfile  # noqa: PLC0415 - a new directory for each example

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        (source / "sub").mkdir(parents=True)
        for number, body in enumerate(bodies):
            (source / ("sub" if number % 2 else ".") / f"f{number}").write_bytes(body)
        here = ListedContent(str(source), listing_of(str(source)))
        there = ListedContent(f"{folder}/target", here.entries)
        there.begin()
        for offset in range(0, here.size, piece):
            there.write(offset, here.read(offset, min(piece, here.size - offset)))
        there.finish()

        assert here.size == sum(map(len, bodies))
        assert listing_of(f"{folder}/target") == here.entries
        for number, body in enumerate(bodies):
            assert (Path(folder, "target") / ("sub" if number % 2 else ".") / f"f{number}").read_bytes() == body


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (ContentEntry("x", FILE),),
        (ContentEntry("", stat.S_IFLNK, target="/etc"),),
        (ContentEntry("", stat.S_IFDIR | 0o700), ContentEntry("../x", FILE)),
        (ContentEntry("", stat.S_IFDIR | 0o700), ContentEntry("a/x", FILE)),
        (
            ContentEntry("", stat.S_IFDIR | 0o700),
            ContentEntry("l", stat.S_IFLNK, target="/"),
            ContentEntry("l/x", FILE),
        ),
        (ContentEntry("", stat.S_IFDIR | 0o700), ContentEntry("x", FILE), ContentEntry("x", FILE)),
        (ContentEntry("", stat.S_IFIFO),),
    ],
)
def test_a_listing_cannot_write_outside_of_its_content(entries: tuple[ContentEntry, ...], tmp_path: Path) -> None:
    """Names that leave the content, or go through a link, are refused before anything is written."""
    with pytest.raises(StorageError, match="the listing of a content"):
        ListedContent(str(tmp_path / "x"), entries)


def test_the_identity_of_a_content_changes_with_it(tmp_path: Path) -> None:
    """Another size, time or file is another content; a new name is not."""
    path = tmp_path / "x"
    path.write_text("one")
    first = identity_of(str(path))
    path.rename(tmp_path / "y")
    assert identity_of(str(tmp_path / "y")) == first
    os.utime(tmp_path / "y", ns=(1, 1))
    assert identity_of(str(tmp_path / "y")) != first


def test_contents_are_written_read_renamed_and_removed(files: WorkerFiles) -> None:
    """A content is complete with its last piece; its folder goes with it."""
    entries = (ContentEntry("", FILE, 6),)
    reply = ask(
        files,
        Put("contents/1/x", 0, b"abc", False, entries),
        Put("contents/1/x", 3, b"def", True),
        Get("contents/1/x", 2, 3),
        Move("contents/1/x", "contents/2/y"),
        Get("contents/2/y", 0, 6),
    )

    assert reply == FilesReply((b"cde", b"abcdef"))
    assert not Path(files.path, "contents/1").exists()
    ask(files, Remove(("contents/2/y", "contents/3/z")))
    assert list(Path(files.path, "contents").iterdir()) == []


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (Get("../x", 0, 1), "not in the directory"),
        (Get("/etc/passwd", 0, 1), "not in the directory"),
        (Get("files//x", 0, 1), "not in the directory"),
        (Get("files/x", 0, 1), "No such file"),
        (Put("files/x", 5, b"a", True), "before its beginning"),
        (Put("files/x", 0, b"ab", True, (ContentEntry("", FILE, 1),)), "2 bytes from 0 on"),
        (Put("files/x", 0, b"a", True, (ContentEntry("", FILE, 1),), 77), "CRC-32"),
        (Remove(("..",)), "not in the directory"),
    ],
)
def test_what_cannot_be_done_is_answered_with_the_reason(request_: Request, problem: str, files: WorkerFiles) -> None:
    """The requests after it are not done."""
    reply = ask(files, request_, Put("files/later", 0, b"", True, (ContentEntry("", FILE),)))

    assert problem in reply.problem
    assert not Path(files.path, "files/later").exists()


def test_a_file_that_becomes_shorter_is_not_sent(tmp_path: Path) -> None:
    """What is missing is not made up."""
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    content = ListedContent(str(path), listing_of(str(path)))
    path.write_bytes(b"12")
    with pytest.raises(StorageError, match="became shorter"):
        content.read(0, 5)


def test_directories_of_processes_that_were_killed_are_removed(tmp_path: Path) -> None:
    """The lock of such a directory is free; those of others are kept."""
    living = WorkerFiles(str(tmp_path))
    dead = WorkerFiles(str(tmp_path))
    os.close(dead._lock)  # as the system does with those of a process that was killed
    other = WorkerFiles(str(tmp_path))

    assert not Path(dead.path).exists()
    assert Path(living.path).exists()
    living.close()
    other.close()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error names it; there is always some room."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be made"):
        WorkerFiles(str(tmp_path / "file"))

    assert room_below(str(tmp_path)) > 1
    assert room_below(str(tmp_path / "absent")) == 1


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40), st.booleans()), max_size=40))
def test_contents_that_batches_use_are_never_removed(steps: list[tuple[int, int, bool]]) -> None:
    """Against a list of what is there: what is removed is not in use, and was used longest ago."""
    held, room = HeldContents(), 100
    held.set_workers({"w": room})
    there: dict[int, tuple[int, bool]] = {}
    for identity, size, keeps in steps:
        if held.use("w", identity, 1 if keeps else 2):
            before, is_used = there.pop(identity)
            there[identity] = before, is_used or keeps
            held.end(2)
            continue
        removed = {int(path) for path in held.make_room("w", size)}
        free = [one for one, (_, is_used) in there.items() if not is_used]
        assert removed == set(free[: len(removed)])
        for one in removed:
            del there[one]
        together = sum(size for size, _ in there.values()) + size
        assert together <= room or not [one for one, (_, is_used) in there.items() if not is_used]
        held.add("w", identity, str(identity), size, 1 if keeps else 0)
        there[identity] = size, keeps
    assert held.bytes_on("w", there) == sum(size for size, _ in there.values())
    held.set_workers({"v": room})
    assert held.bytes_on("w", there) == 0
    assert held.add("w", 1, "x", 1) == ""


def test_jobs_with_one_key_keep_their_order() -> None:
    """Others run beside them; after the end nothing runs."""
    jobs = SerialJobs(4)
    done: dict[str, list[int]] = {"a": [], "b": []}
    for number in range(50):
        for key, order in done.items():
            jobs.add(key, lambda order=order, number=number: order.append(number))  # type: ignore[misc]
    from tests.e2e.cluster import until  # noqa: PLC0415 - only here

    assert until(lambda: sum(map(len, done.values())) == 100)
    jobs.close()
    jobs.add("a", lambda: done["a"].append(99))
    assert done == {"a": list(range(50)), "b": list(range(50))}
