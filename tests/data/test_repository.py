"""The repository: commits, assembly, release, results."""

import errno
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from dropflow.apps.encodings import encode
from dropflow.clock import SystemClock
from dropflow.data.file import FileWriter
from dropflow.data.memory import SMALL
from dropflow.data.read import EMPTY, NULL, open_content, read, verify
from dropflow.data.registry import store_for
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot
from dropflow.data.workspace import Workspace
from dropflow.errors import AppError, BadFileError, ConflictError, StorageError, UsageError
from dropflow.execution.content_location import Handle
from dropflow.files import is_made
from dropflow.graph.build import GraphBuilder
from dropflow.graph.templates import Argument, Template
from dropflow.graph.text_ids import row_of

Node = Callable[..., Template]
Slots = Callable[..., Slot]

FILE = "dlg.data.drops.file.FileDROP"
DIRECTORY = "dlg.data.drops.directory.DirectoryDROP"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _part(template: Template, slot: Slot, content: bytes | dict[str, bytes]) -> Handle:
    part = store_for(template).part(slot)
    if isinstance(content, bytes):
        part.write(content)
    else:
        folder = Path(part.path())
        folder.mkdir()
        for name, body in content.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(body)
    return part.finish()


def test_a_commit_renames_the_part(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """The complete file appears under its name, and no file of the part is left."""
    template = node(FILE, filepath="sub/x.txt")
    part = _part(template, slot(), b"hello")
    assert not Path(part.final).exists()
    content = repository.commit(1, 1, template, part)

    assert content.location == str(repository.workspace.files / "sub/x.txt")
    assert (content.final, read(content), part.checksum) == ("", b"hello", content.checksum)
    assert _names(repository.workspace.tmp) == ["shm"]


def test_a_commit_replaces_an_earlier_content(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """A later content replaces an earlier one, for files and directories."""
    template = node(FILE, filepath="x")
    contents: list[bytes | dict[str, bytes]] = [b"1", b"2", {"a": b"3"}, {"b": b"4"}, b"5", {"c": b"6"}]
    for content in contents:
        repository.commit(1, 1, template, _part(template, slot(drop=1), content))

    assert _names(repository.workspace.files / "x") == ["c"]
    assert _names(repository.workspace.tmp) == ["shm"]


def test_a_commit_to_an_absolute_path_leaves_no_other_file(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """An absolute target gets its file, and nothing else is left beside it."""
    template = node(FILE, filepath=str(tmp_path / "far/x"))
    repository.commit(1, 1, template, _part(template, slot(), b"hello"))

    assert _names(tmp_path / "far") == ["x"]


def test_unfinished_contents_are_removed_in_any_directory(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """Also if its name has characters that separate lines for Python, but not for the list of these contents."""
    part = store_for(node(FILE, filepath=str(tmp_path / "far\u2028away\x0c/x"))).part(slot())
    Path(part.path()).write_bytes(b"half a content")
    repository.close()

    assert _names(tmp_path / "far\u2028away\x0c") == []


def test_closing_removes_unfinished_contents_beside_absolute_targets(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """Unfinished contents beside absolute targets are removed when the session closes."""
    part = store_for(node(FILE, filepath=str(tmp_path / "far/x"))).part(slot())
    Path(part.path()).write_bytes(b"half a content")
    repository.close()

    assert _names(tmp_path / "far") == []


def test_a_line_that_a_crash_cut_within_a_letter_names_nothing(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """Unfinished contents that the other lines name are removed."""
    part = store_for(node(FILE, filepath=str(tmp_path / "far/x"))).part(slot())
    Path(part.path()).write_bytes(b"half a content")
    with repository.workspace.outside.open("ab") as register:
        register.write("/far/é".encode()[:-1])

    LocalRepository(tmp_path / "session", "trial", SystemClock()).close()

    assert _names(tmp_path / "far") == []


def test_links_beside_a_target_are_not_followed(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """No data are written through links that another user makes beside an absolute target."""
    far, victim = tmp_path / "far", tmp_path / "victim"
    far.mkdir()
    victim.write_text("precious")
    for name in (".dropflow-trial-1-1-0", ".dropflow-trial-1-1-0.part", "x.part", ".dropflow-trial-1-1-0.part~"):
        (far / name).symlink_to(victim)
    repository.commit(1, 1, node(FILE), _part(node(FILE, filepath=str(far / "x")), slot(drop=1), b"hello"))

    assert (victim.read_text(), (far / "x").read_bytes()) == ("precious", b"hello")
    assert not (far / "x").is_symlink()


def test_directories_of_parts_have_unpredictable_names(node: Node, slot: Slots, tmp_path: Path) -> None:
    """The directory of a part beside an absolute target has a new name each time, and only its owner can enter it."""
    store = store_for(node(FILE, filepath=str(tmp_path / "far/x")))
    folders = {Path(store.part(slot(drop=1)).path()).parent for _ in range(2)}
    growing = store.growing
    assert growing is not None
    folders.add(Path(growing(slot(drop=1)).location).parent)

    assert len(folders) == 3
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
    assert {folder.parent for folder in folders} == {tmp_path / "far"}


def test_an_existing_file_at_the_path_of_a_part_is_not_used(tmp_path: Path) -> None:
    """An existing file or link at the path of a part is neither appended to nor followed."""
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "file").write_text("old")
    for name in ("link", "file"):
        with pytest.raises(StorageError, match="File exists"):
            FileWriter(str(tmp_path / name)).write(b"new")

    assert (tmp_path / "file").read_text() == "old"
    assert not (tmp_path / "victim").exists()


def test_uncommitted_parts_are_private(repository: LocalRepository, tmp_path: Path) -> None:
    """No other user can enter the directory of parts, and one that another user made is refused."""
    assert repository.workspace.tmp.stat().st_mode & 0o777 == 0o700
    (tmp_path / "open" / "tmp").mkdir(parents=True)
    (tmp_path / "open" / "tmp").chmod(0o777)

    with pytest.raises(StorageError, match="every user of this host can write"):
        Workspace(str(tmp_path / "open"), "s").prepare()


def test_a_target_on_another_file_system_is_written_privately(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A content that must be copied to its file system goes through a private directory, and leaves nothing there."""
    target, replace = tmp_path / "far/x", os.replace
    target.parent.mkdir()
    (target.parent / "x.part").symlink_to(tmp_path / "victim")
    part = msgspec.structs.replace(_part(node(FILE), slot(), b"hello"), final=str(target))

    def crossing(source: str, final: str) -> None:
        if Path(source).parent.parent != Path(final).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, final)

    monkeypatch.setattr(os, "replace", crossing)
    repository.commit(1, 1, node(FILE), part)

    assert (target.read_bytes(), _names(target.parent)) == (b"hello", ["x", "x.part"])
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("kind", [FILE, DIRECTORY])
def test_a_fifo_or_device_is_never_replaced(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path, kind: str
) -> None:
    """An output that names one is refused before it is written, and again when it is to be committed."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/null")
    parameter = "filepath" if kind == FILE else "dirname"
    for name, what in (("fifo", r"a FIFO \(named pipe\)"), ("link", "a device")):
        with pytest.raises(BadFileError, match=f"{name} is {what}") as caught:
            store_for(node(kind, **{parameter: str(tmp_path / name)})).part(slot())
        assert "NULL" in caught.value.hint
    part = msgspec.structs.replace(_part(node(FILE, filepath="x"), slot(), b"x"), final=str(tmp_path / "fifo"))
    with pytest.raises(BadFileError, match="fifo is a FIFO"):
        repository.commit(1, 1, node(kind), part)

    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert not Path(part.location).exists()


@pytest.mark.parametrize("kind", [FILE, DIRECTORY, MEMORY])
def test_a_fifo_made_by_a_program_is_not_a_content(node: Node, slot: Slots, kind: str) -> None:
    """A FIFO without writer does not block: the attempt fails with its kind."""
    part = store_for(node(kind)).part(slot())
    os.mkfifo(part.path())

    with pytest.raises(AppError, match=r"the program left a FIFO \(named pipe\)"):
        part.finish()
    part.abandon()


def test_a_fifo_as_input_is_not_read_as_a_value(node: Node, slot: Slots, tmp_path: Path) -> None:
    """Its path can be used; reading it, or opening it, does not wait for a writer."""
    os.mkfifo(tmp_path / "fifo")
    handle = store_for(node(FILE, filepath=str(tmp_path / "fifo"))).initial(slot())

    assert (handle.location, handle.size) == (str(tmp_path / "fifo"), 0)
    for look in (read, open_content):
        with pytest.raises(UsageError, match=r"fifo is a FIFO \(named pipe\), which may have no end") as caught:
            look(handle)
        assert "'path'" in caught.value.hint


def test_a_commit_that_fails_names_the_place(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """If the final path cannot be written, a StorageError names it, and the temporary file is removed."""
    template = node(FILE, filepath="file/x")
    part = _part(template, slot(), b"x")
    (repository.workspace.files / "file").touch()

    with pytest.raises(StorageError, match=r"files/file/x"):
        repository.commit(1, 1, template, part)
    assert not Path(part.location).exists()


@pytest.mark.parametrize("contents", [(b"one", b"two"), ({"a": b"1"}, {"a": b"2"}), (b"x", {"x": b"x"})])
def test_a_drop_does_not_overwrite_the_file_of_another_drop(
    repository: LocalRepository, node: Node, slot: Slots, contents: tuple[bytes | dict[str, bytes], ...]
) -> None:
    """The later drop fails and names the first; the file of the first stays whole. The drop itself may try again."""
    template = node(FILE, filepath="x")
    first, second = (_part(template, slot(drop=drop), content) for drop, content in zip((1, 2), contents, strict=True))
    again = _part(template, slot(drop=1, attempt=2), contents[0])
    kept = repository.commit(1, 1, template, first)
    with pytest.raises(ConflictError, match=r"files/x has been written by drop 1 already, with another") as caught:
        repository.commit(2, 1, template, second)

    assert "{uid}" in caught.value.hint
    assert not Path(second.location).exists()
    assert repository.commit(1, 2, template, again).size == kept.size


def test_what_is_in_a_directory_from_before_is_not_lost(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """A file does not replace it. A directory does, and what was there stays beside it, which users are told."""
    precious = tmp_path / "precious"
    (precious / "night1").mkdir(parents=True)
    (precious / "night1" / "obs.ms").write_text("seen once")
    of_file, of_directory = node(FILE, filepath=str(precious)), node(DIRECTORY, dirname=str(precious))
    with pytest.raises(BadFileError, match="precious is a directory, and a file would replace it"):
        repository.commit(1, 1, of_file, _part(of_file, slot(drop=1), b"x"))
    assert (precious / "night1" / "obs.ms").read_text() == "seen once"
    for content in ({"a": b"1"}, {"b": b"2"}):
        repository.commit(2, 1, of_directory, _part(of_directory, slot(drop=2), content))

    aside = tmp_path / f"precious.before-{repository.workspace.session}"
    assert _names(precious) == ["b"]
    assert (aside / "night1" / "obs.ms").read_text() == "seen once"
    assert repository.notes == [f"{precious} was there before the session: its files are in {aside}"]


def test_a_later_session_replaces_the_directory_of_an_earlier_one(tmp_path: Path, node: Node) -> None:
    """It is marked as made by dropflow, so that repeated runs leave no copies."""
    template = node(DIRECTORY, dirname=str(tmp_path / "made"))
    for name in ("one", "two"):
        repository = LocalRepository(tmp_path / name, name, SystemClock())
        part = _part(template, Slot(repository.workspace, "o", 1, 1, 0), {name: b"1"})
        repository.commit(1, 1, template, part)
        repository.close()
        if not is_made(str(tmp_path / "made")):
            pytest.skip("the file system has no extended attributes")

    assert _names(tmp_path / "made") == ["two"]
    assert _names(tmp_path) == ["made", "one", "two"]


@pytest.mark.parametrize("inner_first", [False, True])
def test_a_drop_does_not_change_the_directory_of_another_drop(
    repository: LocalRepository, node: Node, slot: Slots, *, inner_first: bool
) -> None:
    """A file in it and the directory around it are written by one of them; the later one fails and names the first."""
    contents = [(node(DIRECTORY, dirname="d"), {"f": b"1"}), (node(FILE, filepath="d/f"), b"2")]
    (one, first), (other, second) = reversed(contents) if inner_first else contents
    repository.commit(1, 1, one, _part(one, slot(drop=1), first))
    with pytest.raises(ConflictError, match=r"files/d(/f)? overlaps with .*files/d.* written by drop 1 already"):
        repository.commit(2, 1, other, _part(other, slot(drop=2), second))

    assert (repository.workspace.files / "d" / "f").read_bytes() == (b"2" if inner_first else b"1")


def test_a_directory_stays_if_a_drop_that_depends_on_it_has_written_in_it(tmp_path: Path, node: Node) -> None:
    """Its last use ends before that of the file in it."""
    drawing = GraphBuilder()
    drawing.app("A").data("d").app("B").data("f")
    drawing.connect("A", "d").connect("d", "B").connect("B", "f")
    repository = LocalRepository(tmp_path / "nested", "s", SystemClock(), drawing.build())
    outer, inner = node(DIRECTORY, dirname="d", persist=False), node(FILE, filepath="d/f")
    directory = repository.commit(1, 1, outer, _part(outer, Slot(repository.workspace, "o", 1, 1, 0), {"a": b"1"}))
    file = repository.commit(3, 1, inner, _part(inner, Slot(repository.workspace, "o", 3, 1, 0), b"2"))

    assert repository.release(1, outer, directory) is False
    assert read(file) == b"2"
    repository.close()


def test_drops_may_write_equal_contents_to_one_file(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """The file is removed when the last of the drops is released."""
    template = node(FILE, filepath="x", persist=False)
    handles = [repository.commit(drop, 1, template, _part(template, slot(drop=drop), b"x")) for drop in (1, 2, 3)]

    assert [repository.release(drop, template, handles[0]) for drop in (2, 3)] == [False, False]
    assert Path(handles[0].location).exists()
    assert repository.release(1, template, handles[0])
    assert not Path(handles[0].location).exists()


def test_a_drop_may_replace_what_it_depends_on(tmp_path: Path, node: Node) -> None:
    """If each iteration of a loop writes the same file, the content of the last one stays."""
    drawing = GraphBuilder()
    drawing.app("A").data("x").app("B").data("y").app("C").data("z")
    drawing.connect("A", "x").connect("x", "B").connect("B", "y").connect("C", "z")
    repository = LocalRepository(tmp_path / "ordered", "s", SystemClock(), drawing.build())
    template = node(FILE, filepath="f")
    parts = [
        _part(template, Slot(repository.workspace, "o", drop, 1, 0), body)
        for drop, body in ((1, b"1"), (3, b"2"), (5, b"3"))
    ]
    repository.commit(1, 1, template, parts[0])
    last = repository.commit(3, 1, template, parts[1])
    with pytest.raises(ConflictError, match="has been written by drawing_y_0 already"):
        repository.commit(5, 1, template, parts[2])

    assert read(last) == b"2"
    repository.close()


@pytest.mark.parametrize("where", ["f", "{tmp_path}/f"])
@pytest.mark.parametrize("content", [b"3", {"a": b"3"}])
def test_an_earlier_drop_that_runs_again_does_not_replace_a_later_one(
    tmp_path: Path, node: Node, content: bytes | dict[str, bytes], where: str
) -> None:
    """Its content is put aside until its last use, also if the session has continued since; the file stays."""
    drawing = GraphBuilder()
    for at in range(3):
        drawing.app(f"A{at}").data(f"x{at}").connect(f"A{at}", f"x{at}")
        if at:
            drawing.connect(f"x{at - 1}", f"A{at}")
    repository = LocalRepository(tmp_path / "loop", "s", SystemClock(), drawing.build())
    kind = {"filepath": where.format(tmp_path=tmp_path)} if isinstance(content, bytes) else {"dirname": "d"}
    template = node(FILE if isinstance(content, bytes) else DIRECTORY, **kind)

    def write(drop: int, attempt: int, body: bytes | dict[str, bytes]) -> Handle:
        part = _part(template, Slot(repository.workspace, "o", drop, attempt, 0), body)
        return repository.commit(drop, attempt, template, part)

    bodies = [content, {"b": b"5"}, {"c": b"7"}] if isinstance(content, dict) else [content, b"5", b"7"]
    written = {drop: write(drop, 1, body) for drop, body in zip((1, 3, 5), bodies, strict=True)}
    assert [repository.is_replaced(drop, one) for drop, one in written.items()] == [True, True, False]
    if isinstance(content, bytes):  # nothing tells directories apart in a later process
        repository.set_graph(drawing.build())
        repository.adopt(written)
        assert [repository.is_replaced(drop, one) for drop, one in written.items()] == [True, True, False]
    again = write(1, 2, bodies[0])

    assert not repository.is_replaced(1, again)
    assert not repository.is_replaced(5, written[5])
    assert again.location != written[5].location == written[1].location
    if isinstance(content, bytes):
        assert (read(again), read(written[5])) == (b"3", b"7")
    assert repository.release(1, template, again)
    assert not Path(again.location).exists()
    assert Path(written[5].location).exists()
    repository.close()


@pytest.mark.parametrize("size", [3, SMALL])
def test_parts_in_memory_are_concatenated(repository: LocalRepository, node: Node, slot: Slots, size: int) -> None:
    """The bytes are in the order of the producers."""
    template = node(MEMORY)
    parts = [_part(template, slot(), letter * size) for letter in (b"a", b"b", b"c")]
    content = repository.assemble(9, template, parts)

    assert read(content) == b"a" * size + b"b" * size + b"c" * size
    verify(content)


def test_parts_of_a_file_are_concatenated(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """The file has all parts, its checksum is right, and no part is left."""
    template = node(FILE, filepath="x")
    parts = [_part(template, slot(), body) for body in (b"one ", b"", b"two")]
    content = repository.assemble(9, template, parts)

    assert Path(content.location).read_bytes() == b"one two"
    verify(content)
    assert _names(repository.workspace.tmp) == ["shm"]


def test_directories_are_merged(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """The directory has the files of all producers, also in common subdirectories."""
    template = node(DIRECTORY, dirname="d")
    parts = [_part(template, slot(), {"a": b"1", "s/x": b"2"}), _part(template, slot(), {"b": b"3", "s/y": b"4"})]
    content = repository.assemble(9, template, parts)
    found = {str(path.relative_to(content.location)) for path in Path(content.location).rglob("*") if path.is_file()}

    assert found == {"a", "b", "s/x", "s/y"}
    assert content.size == 4


def test_links_to_directories_are_merged_as_links(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """They stay links; nothing is written through a link of another producer."""
    template = node(DIRECTORY, dirname="d")
    parts = [_part(template, slot(), {"a": b"1"}), _part(template, slot(), {"run/x": b"2"})]
    Path(parts[1].location, "latest").symlink_to("run")
    content = repository.assemble(9, template, parts)
    assert str(Path(content.location, "latest").readlink()) == "run"

    parts = [_part(template, slot(), {"run/x": b"2"}), _part(template, slot(), {"latest/y": b"1"})]
    Path(parts[0].location, "latest").symlink_to("run")
    with pytest.raises(StorageError, match="wrote 'latest'"):
        repository.assemble(9, template, parts)


def test_two_producers_of_one_file_in_a_directory_are_an_error(
    repository: LocalRepository, node: Node, slot: Slots
) -> None:
    """The error names the file, so that no content is lost silently."""
    template = node(DIRECTORY, dirname="d")
    parts = [_part(template, slot(), {"a": b"1"}), _part(template, slot(), {"a": b"2"})]

    with pytest.raises(StorageError, match="wrote 'a'"):
        repository.assemble(9, template, parts)
    assert _names(repository.workspace.tmp) == ["shm"]


def test_a_directory_and_a_file_do_not_mix(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """Parts of different kinds are an error that has the number of parts of each kind."""
    template = node(FILE, filepath="x")
    parts = [_part(template, slot(), {"a": b"1"}), _part(template, slot(), b"2")]

    with pytest.raises(StorageError, match="1 of 2 producers"):
        repository.assemble(9, template, parts)


def test_producers_without_content_give_an_empty_drop(repository: LocalRepository, node: Node) -> None:
    """If no producer has written, the drop has no content."""
    assert repository.assemble(9, node(MEMORY), [NULL, NULL]) == NULL
    assert repository.assemble(9, node(MEMORY), [EMPTY, EMPTY]).size == 0


def test_contents_of_late_attempts_are_removed(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """The contents of late attempts are removed; input files stay."""
    for template in (node(MEMORY), node(FILE, filepath="x"), node(FILE, filepath=str(tmp_path / "y"))):
        repository.discard(_part(template, slot(), b"z" * SMALL * 2))
    (tmp_path / "input").touch()
    repository.discard(Handle(kind="file", location=str(tmp_path / "input")))

    assert _names(repository.workspace.tmp) == ["outside", "shm"]
    assert _names(tmp_path) == ["input", "session"]


@pytest.mark.parametrize(
    ("component", "fields", "expected"),
    [
        (MEMORY, {}, "gone"),
        (MEMORY, {"persist": False}, "gone"),
        (MEMORY, {"persist": True}, "there"),
        (FILE, {"filepath": "x"}, "there"),
        (FILE, {"filepath": "x", "persist": True}, "there"),
        (FILE, {"filepath": "x", "persist": False}, "gone"),
        (FILE, {"filepath": "x", "expireAfterUse": "true"}, "gone"),
        (FILE, {"filepath": "x", "expireAfterUse": "true", "persist": True}, "there"),
    ],
)
def test_memory_is_released_and_files_stay_by_default(
    repository: LocalRepository,
    node: Node,
    slot: Slots,
    *,
    component: str,
    fields: dict[str, Any],
    expected: str,
) -> None:
    """After the last consumer, contents in memory are removed and files stay, unless the node has another setting."""
    template = node(component, **fields)
    content = repository.commit(1, 1, template, _part(template, slot(), b"x" * SMALL * 2))

    gone = repository.release(1, template, content)

    assert ("gone" if gone else "there") == expected
    assert Path(content.location).exists() is not gone


def test_files_elsewhere_and_inputs_are_not_released(
    repository: LocalRepository, node: Node, slot: Slots, tmp_path: Path
) -> None:
    """Outside the session directory a file is removed only with `expireAfterUse`, and an input never."""
    template = node(FILE, persist=False, filepath=str(tmp_path / "x"))
    content = repository.commit(1, 1, template, _part(template, slot(), b"x"))
    (tmp_path / "input").touch()
    found = store_for(node(FILE, filepath=str(tmp_path / "input"))).initial(slot())

    assert not repository.release(1, template, content)
    assert not repository.release(2, node(FILE, persist=False, expireAfterUse=True), found)


def test_an_empty_parent_directory_is_removed_on_request(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """With delete_parent_directory, the directory of a released file is removed if it is empty."""
    template = node(FILE, persist=False, filepath="sub/x", delete_parent_directory=True)
    content = repository.commit(1, 1, template, _part(template, slot(), b"x"))
    repository.release(1, template, content)

    assert _names(repository.workspace.files) == []


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b"hello", ".txt"),
        (encode("json", {"a": 1}), ".json"),
        (encode("pickle", {"a": 1}), ".pkl"),
        (encode("npy", np.arange(3)), ".npy"),
        (b"\x00\x01\x02", ".dat"),
        (b"\xc3\xa4" * SMALL, ".txt"),
        (b"x" + b"\xc3\xa4" * SMALL, ".txt"),
        (b"x" + b"\xc3\xa4" * SMALL + b"\xff", ".txt"),
        (b"{not json", ".txt"),
    ],
)
def test_results_have_suffixes(
    repository: LocalRepository, node: Node, slot: Slots, content: bytes, suffix: str
) -> None:
    """A leaf in memory becomes a file named after the drop, with a suffix that fits its content."""
    template = node(MEMORY)
    kept = repository.keep_result(1, "g_k_0-1", template, _part(template, slot(), content))
    repository.close()

    assert kept.location == str(repository.workspace.results / f"g_k_0-1{suffix}")
    assert Path(kept.location).read_bytes() == content
    verify(kept)


def test_file_leaves_are_not_copied(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """Leaves that are files already are not copied, and leaves without content get no file."""
    template = node(FILE, filepath="x")
    content = repository.commit(1, 1, template, _part(template, slot(), b"x"))

    assert repository.keep_result(1, "a", template, content) == content
    assert repository.keep_result(2, "b", node(MEMORY), EMPTY) == EMPTY
    assert _names(repository.workspace.results) == []


def test_a_directory_in_memory_is_kept(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """If a program writes a directory as a memory drop, it is kept as the result of a leaf."""
    template = node(MEMORY)
    kept = repository.keep_result(
        1, "a", template, repository.commit(1, 1, template, _part(template, slot(), {"x": b"1"}))
    )

    assert Path(kept.location, "x").read_bytes() == b"1"
    assert kept.kind == "directory"


def test_closing_removes_all_that_is_not_committed(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """Temporary files and shared memory are removed; closing twice is no error."""
    segment = repository.workspace.shared.resolve()
    _part(node(MEMORY), slot(), b"x" * SMALL * 2)
    repository.close()
    repository.close()

    assert not segment.exists()
    assert not repository.workspace.tmp.exists()


def test_closing_closes_all_directories(repository: LocalRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if uncommitted contents cannot be removed."""

    def refuse(*_: object) -> None:
        raise StorageError("it cannot be removed")

    monkeypatch.setattr("dropflow.data.repository.remove_uncommitted", refuse)
    with pytest.raises(StorageError, match="it cannot be removed"):
        repository.close()

    assert repository._open_directories == {}


def test_a_new_session_removes_temporary_files_of_a_crashed_one(tmp_path: Path) -> None:
    """Temporary files of a session that crashed in the same directory are removed."""
    first = LocalRepository(tmp_path, "one", SystemClock())
    (first.workspace.tmp / "rubbish").touch()
    segment = first.workspace.shared.resolve()
    second = LocalRepository(tmp_path, "two", SystemClock())

    assert _names(second.workspace.tmp) == ["shm"]
    second.close()
    first.close()
    assert not segment.exists()


def test_without_shared_memory_contents_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Node
) -> None:
    """Without /dev/shm, large contents are files in the session directory."""
    monkeypatch.setattr("dropflow.data.repository.claim_shared_memory", lambda _session, _root: None)
    repository = LocalRepository(tmp_path, "s", SystemClock())
    part = _part(node(MEMORY), Slot(repository.workspace, "o", 1, 1, 0), b"x" * SMALL * 2)

    assert Path(part.location).resolve().is_relative_to(tmp_path.resolve())
    assert read(part) == b"x" * SMALL * 2
    repository.close()


class _Full(FileWriter):
    """A file system with room for three bytes."""

    def _open(self) -> Any:
        stream = super()._open()
        outer = self

        class Raw:
            def write(self, data: memoryview) -> int:
                room = 3 - stream.tell() if outer._overflow is not None else len(data)
                if room <= 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return stream.write(data[:room])

            def close(self) -> None:
                stream.close()

        return Raw()


def test_a_full_shared_memory_overflows_to_the_disk(tmp_path: Path) -> None:
    """If shared memory is full, the content is continued on disk, and readers get all of it."""
    part = _Full(str(tmp_path / "small"), overflow=lambda: str(tmp_path / "large"))
    assert part.write(b"1234567") == 7
    part.write(b"89")
    handle = part.finish()

    assert (handle.location, read(handle)) == (str(tmp_path / "large"), b"123456789")
    assert not (tmp_path / "small").exists()
    verify(handle)


@pytest.mark.parametrize("array", [np.arange(10)[::2], np.zeros((0, 3)), np.arange(6).reshape(2, 3).T], ids=str)
def test_any_array_is_written_to_a_file(array: npt.NDArray[Any], tmp_path: Path) -> None:
    """Its elements in their order, also if they are not beside each other in memory."""
    part = FileWriter(str(tmp_path / "array"))
    part.write(memoryview(array))  # type: ignore[arg-type]

    assert read(part.finish()) == array.tobytes()


def test_a_full_disk_is_reported_with_its_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the path and the space that is left."""
    part = FileWriter(str(tmp_path / "full"))
    with io.FileIO("/dev/full", "ab") as full:
        monkeypatch.setattr(FileWriter, "_open", lambda _: full)
        with pytest.raises(StorageError, match=r"cannot write .*/full: No space left") as caught:
            part.write(b"x")
    part.abandon()

    assert "MB left" in caught.value.hint


def test_damaged_contents_are_detected(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """A content that was changed or truncated after its commit fails verification."""
    template = node(FILE, filepath="x")
    content = repository.commit(1, 1, template, _part(template, slot(), b"hello"))
    Path(content.location).write_bytes(b"hallo")
    with pytest.raises(StorageError, match="CRC-32"):
        verify(content)
    Path(content.location).write_bytes(b"hell")
    with pytest.raises(StorageError, match="4 bytes where 5"):
        verify(content)
    with pytest.raises(StorageError, match="CRC-32"):
        verify(msgspec.structs.replace(EMPTY, body=b"hallo", size=5, checksum=content.checksum))


def test_durable_files_are_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option, a finished file is synchronised to the disk."""
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", forced.append)
    for durable in (False, True):
        part = FileWriter(str(tmp_path / f"{durable}"), durable=durable)
        part.write(b"x")
        part.finish()

    assert len(forced) == 1


@pytest.mark.parametrize("component", [FILE, MEMORY])
def test_durable_files_of_several_producers_are_synchronised(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch, component: str
) -> None:
    """With the option, all bytes are on the disk under the final name, also what was joined in shared memory."""
    forced: dict[tuple[int, int], int] = {}

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        forced[status.st_dev, status.st_ino] = status.st_size

    repository = LocalRepository(tmp_path / "session", "session", SystemClock(), durable=True)
    template, parts = node(component), []
    for drop in range(2):
        slot = Slot(repository.workspace, f"x_{drop}", drop, 1, 0, kept=True)
        parts.append(_part(template, slot, b"x" * (SMALL + 1)))
    monkeypatch.setattr(os, "fsync", fsync)
    content = repository.keep_result(3, "x_3", template, repository.assemble(3, template, parts))
    status = Path(content.location).stat()
    repository.close()

    assert forced[status.st_dev, status.st_ino] == content.size == 2 * (SMALL + 1)


def test_the_parts_of_a_dead_attempt_are_removed(repository: LocalRepository, node: Node, slot: Slots) -> None:
    """Files, directories and shared memory of one attempt go; those of others, and its streams, stay."""
    workspace = repository.workspace
    for attempt in (1, 11):
        for number, component in enumerate([FILE, DIRECTORY, MEMORY]):
            template = node(component, filepath=f"x{number}")
            content = {"inside": b"x"} if component == DIRECTORY else b"x" * (SMALL + 1)
            _part(template, msgspec.structs.replace(slot(), drop=2, attempt=attempt, number=number), content)
    (workspace.tmp / "2-1-0.stream").mkdir()
    before = {*_names(workspace.tmp), *_names(workspace.shared)}
    repository.discard_attempt(2, 1)
    after = {*_names(workspace.tmp), *_names(workspace.shared)}
    repository.discard_attempt(3, 1)

    tag = workspace.tag
    removed = {f"2-1-{tag}-{number}" for number in range(3)}
    kept = {f"2-11-{tag}-{number}" for number in range(3)} | {"2-1-0", "shm"}
    assert {name.partition(".")[0] for name in before - after} == removed
    assert {name.partition(".")[0] for name in after} == kept


def test_a_replaced_file_stays_replaced_when_the_last_one_is_removed(repository: LocalRepository, slot: Slots) -> None:
    """If the last iteration's file is removed after its last use, those of earlier iterations do not come back."""
    drawing = GraphBuilder("loop")
    for at in (1, 2):
        fields = (Argument(name="filepath", value="log.txt"),)
        drawing.data(f"log{at}", component=FILE, persist=False, arguments=fields)
    graph = drawing.app("STEP").connect("log1", "STEP").connect("STEP", "log2").build()
    repository.set_graph(graph)
    first, second = (row_of(graph, f"loop_log{at}_0") or 0 for at in (1, 2))
    contents = {}
    for drop in (first, second):
        template = graph.templates[graph.template[drop]]
        contents[drop] = repository.commit(drop, 1, template, _part(template, slot(drop=drop), b"%d" % drop))
    template = graph.templates[graph.template[second]]

    assert repository.is_replaced(first, contents[first])
    assert not repository.release(first, template, contents[first])
    assert repository.release(second, template, contents[second])
    assert repository.is_replaced(first, contents[first])


@pytest.mark.parametrize("component", [FILE, MEMORY, DIRECTORY])
def test_a_worker_that_outlives_its_process_does_not_touch_parts_of_the_next_process(
    repository: LocalRepository, node: Node, slot: Slots, component: str
) -> None:
    """It may still write and abandon the part of an attempt that the next process begins under the same number."""
    orphan = store_for(node(component, filepath="x")).part(slot(drop=1))
    before = Path(orphan.path())
    following = LocalRepository(repository.workspace.directory, "trial", SystemClock())
    part = store_for(node(component, filepath="x")).part(
        msgspec.structs.replace(slot(drop=1), workspace=following.workspace)
    )
    path = Path(part.path())
    contents = {"a": b"new" * SMALL}

    def write(path: Path, body: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if component == DIRECTORY:
            path.mkdir()
            path = path / "a"
        path.write_bytes(body)

    write(path, contents["a"])
    write(before, b"old")
    orphan.abandon()
    content = following.commit(1, 1, node(component), part.finish())
    found = Path(content.location, "a" if component == DIRECTORY else "").read_bytes()
    following.close()

    assert found == contents["a"]
