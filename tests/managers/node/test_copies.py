"""The members of a session that hold copies for each other, with messages in any order and losses at any time."""

import errno
import os
import random
import re
import shutil
import zlib
from collections import deque
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.api.drop_records import ResultInfo
from dropflow.data.storage_errors import tree_of
from dropflow.data.workspace import Workspace
from dropflow.errors import StorageError
from dropflow.execution.content_location import Handle
from managers.composite.content_queries import without_needless_copies
from managers.deployment import Place
from managers.links import TransferResult
from managers.messages import Content, CopyContents, CopyMessage
from managers.node.contents import ContentExchange, stamp_of
from managers.node.copy_effects import CopyRecords, Version
from managers.node.decisions.copies import ContentCopies, HeldCopy
from managers.node.decisions.events import (
    CopyAction,
    CopyWritten,
    DiscardCopies,
    OfferCopies,
    OffersRefused,
    TakeCopies,
)
from managers.recovery.records import View, ViewDecision, pack_column
from managers.recovery.vote import SendToPeer

ROWS = 12


class Session:
    """Members, what they own and have on their disks, and the messages between them."""

    def __init__(self, members: int, chance: random.Random, full: set[str]) -> None:
        self.names = tuple("abcdef"[:members])
        self.chance = chance
        self.full = full
        self.view = View(0, tuple(Place(name, "", 1) for name in self.names))
        self.owner = {row: chance.choice(self.names) for row in range(ROWS)}
        self.copies = {name: ContentCopies(name, "s", 1) for name in self.names}
        self.contents: dict[int, int] = {}
        """How many copies are wanted of each content that is there."""
        self.completed: set[int] = set()
        self.links: dict[tuple[str, str], deque[CopyMessage]] = {}
        self.jobs: list[tuple[str, CopyWritten]] = []
        self.disks: dict[str, set[str]] = {name: set() for name in self.names}
        self.stopped: set[str] = set()
        self.made = 0
        for name in self.names:
            self.carry_out(name, self.copies[name].run(None, self.view))

    def carry_out(self, node: str, actions: list[CopyAction]) -> None:
        """Carry out the actions of a member."""
        for action in actions:
            match action:
                case SendToPeer():
                    self.links.setdefault((node, action.peer), deque()).append(action.message)
                case DiscardCopies():
                    self.disks[node] -= {copy.location for copy in action.copies}
                case TakeCopies():
                    self.take(node, action)
                case OfferCopies():
                    self.offer(node, action)

    def offer(self, node: str, action: OfferCopies) -> None:
        """Send a request for what is there."""
        gone = {row: "gone" for row in action.counts if self.owner[row] != node or row not in self.contents}
        if gone:
            self.carry_out(node, self.copies[node].refused(OffersRefused("s", 1, action.view, action.peer, gone)))
        rows = [row for row in action.counts if row not in gone]
        if rows:
            contents = tuple(Content(row, Handle(kind="file", size=1)) for row in rows)
            counts = tuple(action.counts[row] for row in rows)
            request = CopyContents("s", 1, action.view, contents, counts)
            self.links.setdefault((node, action.peer), deque()).append(request)

    def take(self, node: str, action: TakeCopies) -> None:
        """Begin to make copies; each is there, or failed, some time later."""
        for content in action.contents:
            taken, failed = {}, {}
            if node in self.full:
                failed[content.drop] = "no space left"
            else:
                self.made += 1
                place = f"{content.drop}/{self.made}"
                self.disks[node].add(place)
                taken[content.drop] = Handle(kind="file", location=place, size=1)
            self.jobs.append((node, CopyWritten("s", 1, action.view, taken, failed)))

    def step(self) -> bool:
        """Deliver a message, end a job, or have a member begin in its view; return whether there was something."""
        links = [link for link, queue in self.links.items() if queue]
        choices = [*links, *range(len(self.jobs)), *sorted(self.stopped)]
        if not choices:
            return False
        what = self.chance.choice(choices)
        match what:
            case (sender, receiver):
                message = self.links[sender, receiver].popleft()
                if {sender, receiver} <= set(self.copies):
                    self.carry_out(receiver, self.copies[receiver].receive(sender, message))
            case int():
                node, event = self.jobs.pop(what)
                if node in self.copies:
                    self.carry_out(node, self.copies[node].written(event))
            case _:
                self.stopped.remove(str(what))
                own = {row: count for row, count in self.contents.items() if self.owner[row] == what}
                self.carry_out(str(what), self.copies[str(what)].run(None, self.view))
                self.carry_out(str(what), self.copies[str(what)].want(own))
        return True

    def commit(self, row: int, count: int) -> None:
        """Complete a drop whose content is to have copies; again only after it was reset."""
        if row not in self.completed:
            self.completed.add(row)
            self.contents[row] = count
            if self.owner[row] not in self.stopped:
                self.carry_out(self.owner[row], self.copies[self.owner[row]].want({row: count}))

    def release(self, row: int) -> None:
        """Release a content, if its owner runs."""
        if row in self.contents and self.owner[row] not in self.stopped:
            del self.contents[row]
            self.carry_out(self.owner[row], self.copies[self.owner[row]].released([row]))

    def lose(self, lost: list[str], reset: set[int]) -> None:
        """Change the view: drops of lost members go where their copies are, and others run again."""
        left = [name for name in self.copies if name not in lost]
        for name in left:
            self.copies[name].stop()
            self.copies[name].report([])
        held = {name: {row for row, copy in self.copies[name].held.items() if copy.owner in lost} for name in left}
        for row, owner in self.owner.items():
            if owner in lost:
                holders = [name for name in left if row in held[name]]
                self.owner[row] = self.chance.choice(holders or left)
                if not holders and row in self.contents:
                    reset = reset | {row}
        self.contents = {row: count for row, count in self.contents.items() if row not in reset}
        self.completed -= reset
        self.view = View(self.view.number + 1, tuple(Place(name, "", 1) for name in left))
        decision = ViewDecision(
            view=self.view,
            places=tuple(left),
            placement=pack_column(np.array([left.index(self.owner[row]) for row in range(ROWS)], dtype=np.uint16)),
            reset=pack_column(np.array(sorted(reset), dtype=np.int32)),
        )
        self.copies = {name: self.copies[name] for name in left}
        for name in left:
            before = {row: copy.handle for row, copy in self.copies[name].held.items()}
            adopted = self.copies[name].next_view(decision)
            own = {row for row in before if self.owner[row] == name and row not in reset}
            assert adopted == {row: before[row] for row in own}
            self.disks[name] -= {handle.location for handle in adopted.values()}
            # Copies that had been released on their way here are contents again.
            self.contents |= {row: 1 for row in adopted if row not in self.contents}
        self.stopped = set(left)

    def check_end(self) -> None:
        """Check that all copies are where they are wanted, and nothing else is left."""
        names = set(self.copies)
        able = names - self.full
        for row, count in self.contents.items():
            owner = self.owner[row]
            holders = {name for name in names if row in self.copies[name].held}
            assert self.copies[owner].safe.get(row, set()) == holders
            assert min(count, len(able - {owner})) <= len(holders) <= self.copies[owner]._count[row]
            assert all(self.copies[name].held[row].owner == owner for name in holders)
        for name, copies in self.copies.items():
            assert copies.held.keys() <= self.contents.keys()
            assert self.disks[name] == {copy.handle.location for copy in copies.held.values()}
            assert not copies.waits_for()
            assert not copies.waiting


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_copies_are_where_they_are_wanted_in_the_end(data: st.DataObject) -> None:
    """After losses, releases, resets and full disks: as many as there are members for, and nothing is left over."""
    members = data.draw(st.integers(2, 6))
    full = set(data.draw(st.lists(st.sampled_from("abcdef"), max_size=2)))
    session = Session(members, random.Random(data.draw(st.integers(0, 2**32))), full)
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["commit", "commit", "commit", "release", "step", "step", "lose"])):
            case "commit":
                session.commit(data.draw(st.integers(0, ROWS - 1)), data.draw(st.integers(1, 3)))
            case "release":
                session.release(data.draw(st.integers(0, ROWS - 1)))
            case "step":
                for _ in range(data.draw(st.integers(1, 10))):
                    session.step()
            case _:
                names = sorted(session.copies)
                lost = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
                session.lose(lost, set(data.draw(st.lists(st.integers(0, ROWS - 1), max_size=2))))
    while session.step():
        pass

    session.check_end()


# The records of copies on the disk: which of them a later process finds, and in which view they count.


def _copy(directory: Path, row: int, view: int = 0, body: bytes = b"x") -> HeldCopy:
    """Make the copy of a content that is the file of a session."""
    path = directory / "copies" / f"{row}-tag-{view}.part" / "x.fits"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    handle = Handle(kind="file", location=str(path), final=f"{directory}/files/x.fits", size=len(body), checksum=1)
    return HeldCopy(handle, "a", 0)


def test_copies_are_found_by_a_later_process_although_the_directory_was_moved(tmp_path: Path) -> None:
    """Their paths are relative to the session directory; those of small contents are in the record."""
    before, after = tmp_path / "before", tmp_path / "after"
    records, large, small = CopyRecords(before), _copy(before, 3), HeldCopy(Handle(body=b"ab", size=2), "b", 0)
    records.write((7, 0), 3, large)
    records.write((7, 0), 4, small)
    before.rename(after)
    copies = CopyRecords(after).read((7, 0))

    assert copies == {3: _copy(after, 3), 4: small}
    assert CopyRecords(tmp_path / "none").read((7, 0)) == {}


def test_what_is_damaged_or_gone_is_no_copy(tmp_path: Path) -> None:
    """A record that is damaged, a copy with another size or that was removed, and a changed file of the owner."""
    records, shared = CopyRecords(tmp_path), tmp_path / "shared"
    shared.write_bytes(b"x")
    for row in range(4):
        records.write((1, 0), row, _copy(tmp_path, row))
    handle = Handle(kind="file", location=str(shared), size=1)
    records.write((1, 0), 4, HeldCopy(handle, "a", 0, stamp_of(str(shared))))
    records.write((1, 0), 5, HeldCopy(handle, "a", 0, (0, 0, 0)))
    (tmp_path / "copies" / "0.msgpack").write_bytes(b"?")
    Path(_copy(tmp_path, 1).handle.location).write_bytes(b"xy")
    path = Path(_copy(tmp_path, 2).handle.location)
    path.unlink()
    records.forget(str(path))
    records.forget("/elsewhere")

    assert set(records.read((1, 0))) == {3, 4}
    assert not (tmp_path / "copies" / "2.msgpack").exists()


def test_a_copy_that_became_a_content_is_found_there(tmp_path: Path) -> None:
    """So it is not lost if the continuation of its session is undone."""
    records, copy = CopyRecords(tmp_path), _copy(tmp_path, 3)
    records.write((1, 0), 3, copy)
    (tmp_path / "files").mkdir()
    final = Path(copy.handle.location).rename(copy.handle.final)
    records.moved(3, msgspec.structs.replace(copy.handle, location=str(final), final=""))
    handle = records.read((1, 0))[3].handle

    assert (handle.location, handle.final) == (str(final), str(final))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["copy", "view", "lose", "die"])), max_size=12))
def test_only_copies_that_were_there_in_every_view_count(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    """Whatever is copied and lost between views, and although processes end between a view and its record."""
    directory = tmp_path_factory.mktemp("session")
    records, version, held = CopyRecords(directory), (1, 0), dict[int, Version]()
    for row, step in steps:
        match step:
            case "copy":
                records.write(version, row, _copy(directory, row, version[1]))
                held[row] = version
            case "lose":  # its drop runs again in the next view; the process ends before the copy is removed
                held.pop(row, None)
                version = version[0], version[1] + 1
                records.begin_view(version, held)
            case "view":
                version = version[0], version[1] + 1
                records.begin_view(version, held)
            case _:  # a view that has no record here
                version, held = (version[0] + 1, 0), {}

        assert set(CopyRecords(directory).read(version)) == set(held)


def test_of_each_drop_one_result_is_listed() -> None:
    """Its own content if its node answers, or else a copy of it."""

    def result(drop: int, node: str, owner: str = "") -> ResultInfo:
        return ResultInfo(drop=drop, oid=f"d{drop}", name="d", node=node, path="x", size=1, owner=owner)

    own = [result(2, "a"), result(1, "b")]
    copies = [result(1, "a", "b"), result(3, "b", "c"), result(3, "a", "c")]

    assert without_needless_copies([*copies, *own]) == (own[1], own[0], copies[2])
    assert without_needless_copies([]) == ()


# Contents that were fetched are kept for the next view of a session, as long as they are needed.


BODY = b"content" * 1000


def _fetched(contents: ContentExchange, content: Content) -> Handle:
    """Fetch a content whose bytes arrive at once."""
    job = contents.fetch(content, lambda: False)
    pending = next(job)
    pending.sink(0, memoryview(BODY))
    with pytest.raises(StopIteration, match="Handle") as ended:
        job.send(TransferResult(len(BODY), zlib.crc32(BODY)))
    handle: Handle = ended.value.value
    return handle


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_a_fetched_content_is_not_fetched_again_in_the_next_view(kind: str, tmp_path: Path) -> None:
    """Neither one in memory nor a file; not after its release, and not if its drop is not complete in the next view."""
    workspace = Workspace(str(tmp_path), "s")
    workspace.prepare()
    contents = ContentExchange("s", workspace)
    handle = Handle(kind=kind, size=len(BODY), checksum=zlib.crc32(BODY), location="" if kind == "bytes" else "x.txt")
    fetched = {drop: _fetched(contents, Content(drop, handle)) for drop in (1, 2, 3)}
    contents.next_view([], {1, 3})
    contents.remove_copy(3)

    assert contents.copy(Content(1, handle)) == fetched[1]
    assert fetched[1].body == (BODY if kind == "bytes" else b"")
    assert contents.copy(Content(2, handle)) is None
    assert contents.copy(Content(3, handle)) is None
    assert contents.copy(Content(1, handle, producer=4)) is None


def _answered(contents: ContentExchange, content: Content, bodies: list[bytes]) -> Handle:
    """Fetch a content whose bytes arrive at once, and other ones each time that it is fetched again."""
    job = contents.fetch(content, lambda: False)
    pending = next(job)
    for body in bodies:
        pending.sink(0, memoryview(body))
        try:
            pending = job.send(TransferResult(len(body), zlib.crc32(body)))
        except StopIteration as ended:
            handle: Handle = ended.value
            return handle
    raise AssertionError("it is fetched once more")


def test_a_directory_that_came_wrong_is_fetched_again(tmp_path: Path) -> None:
    """Its tree is compared with that which was committed; after a second wrong one nothing is left."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    folder = tmp_path / "a" / "s" / "files" / "x.ms"
    folder.mkdir()
    (folder / "table.dat").write_bytes(BODY)
    size, checksum = tree_of(str(folder))
    handle = Handle(kind="directory", size=size, checksum=checksum, location=str(folder))
    owner.offer(1, handle)
    content = Content(1, handle)  # as of a node whose files are not seen here
    right = bytes(owner.source(1, -1).read(0, 1 << 20))
    wrong = right.replace(BODY, BODY[:-1] + b"?")

    with pytest.raises(StorageError, match="CRC-32"):
        _answered(reader, content, [wrong, wrong])
    assert list((tmp_path / "b").rglob("table.dat")) == []
    assert tree_of(_answered(reader, content, [wrong, right]).location) == (size, checksum)


def _in_place(contents: ContentExchange, content: Content) -> Handle:
    """Return a content that is seen from here, so that nothing is transferred."""
    with pytest.raises(StopIteration, match="Handle") as ended:
        next(contents.fetch(content, lambda: False))
    handle: Handle = ended.value.value
    return handle


def _exchange(directory: Path) -> ContentExchange:
    workspace = Workspace(str(directory), "s")
    workspace.prepare()
    return ContentExchange("s", workspace)


@pytest.mark.parametrize("folder", ["tmp", "files"])
def test_a_content_in_place_outlives_the_directory_of_its_node(folder: str, tmp_path: Path) -> None:
    """A node that is started again removes it, while an attempt on another node reads it (torture, seed 126)."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    path = tmp_path / "a" / "s" / folder / "x.txt"
    path.write_bytes(BODY)
    content = owner.offer(1, Handle(kind="file", size=len(BODY), location=str(path)))
    handle = _in_place(reader, content)
    shutil.rmtree(tmp_path / "a")

    assert Path(handle.location).read_bytes() == BODY
    assert handle.location.endswith("x.txt")
    assert reader.copy(content) == handle
    reader.remove_copy(1)
    assert not Path(handle.location).exists()


def test_a_file_outside_of_the_session_is_read_by_its_own_name(tmp_path: Path) -> None:
    """Its node never removes it, and programs see the name that the user gave it."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    path = tmp_path / "outside.fits"
    path.write_bytes(BODY)
    handle = _in_place(reader, owner.offer(1, Handle(kind="file", size=len(BODY), location=str(path))))
    reader.remove_copy(1)

    assert handle.location == str(path)
    assert path.read_bytes() == BODY


def test_a_content_that_cannot_be_linked_is_read_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one on another file system."""
    owner, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    path = tmp_path / "a" / "s" / "files" / "x.txt"
    path.write_bytes(BODY)

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    handle = _in_place(reader, owner.offer(1, Handle(kind="file", size=len(BODY), location=str(path))))
    reader.remove_copy(1)

    assert handle.location == str(path)
    assert path.read_bytes() == BODY


def test_a_part_for_which_the_disk_has_no_room_is_refused_with_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the file that cannot be written, not only the one on the other node, whose disk has room."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    _, reader = _exchange(tmp_path / "a" / "s"), _exchange(tmp_path / "b" / "s")
    path = tmp_path / "a" / "s" / "tmp" / "part"
    path.write_bytes(BODY)
    part = Handle(kind="file", size=len(BODY), location=str(path))
    content = Content(1, part, producer=2, stamp=stamp_of(str(path)))
    monkeypatch.setattr(shutil, "move", full)

    with pytest.raises(StorageError, match=f"to {re.escape(str(tmp_path))}/b/s/tmp/from-1-2-part: No space left"):
        _in_place(reader, content)
