"""The stores of all classes of data drops."""

import configparser
import doctest
import json
import os
import pickle
import re
import shutil
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dropflow.apps.needs import check
from dropflow.data import file
from dropflow.data import file_names as naming
from dropflow.data.directory import DirectoryStore
from dropflow.data.file import FilesStore, FileStore, JsonStore
from dropflow.data.file_names import PLACEHOLDERS, check_name, final_path
from dropflow.data.memory import SMALL, MemoryStore, MemoryWriter, NullStore, SharedMemoryStore
from dropflow.data.parameter_set import ParameterSetStore
from dropflow.data.read import EMPTY, NULL, read, verify
from dropflow.data.registry import DATA_COMPONENTS, component_for, store_for
from dropflow.data.repository import LocalRepository
from dropflow.data.store import Slot, Store
from dropflow.data.survival import is_intact
from dropflow.errors import AppError, BadFileError, BadParameterError, MissingDependencyError, UnknownComponentError
from dropflow.execution.content_location import Handle
from dropflow.graph.templates import Argument, Axis, Kind, Template
from dropflow.ids import drop_file_name
from tests.corpus import corpus_files, needs_corpus

Node = Callable[..., Template]
Slots = Callable[..., Slot]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _written(store: Store, slot: Slot, *blocks: bytes, text: bool = False) -> Handle:
    part = store.part(slot)
    for block in blocks:
        part.write(block, text=text)
    return part.finish()


def test_files_of_a_pattern_are_searched_once(
    node: Node, slot: Slots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each copy. As long as their number is wrong they are searched again, as one may be added."""
    searched: list[str] = []
    search = file.matching_files
    monkeypatch.setattr(file, "matching_files", lambda pattern: searched.append(pattern) or search(pattern))
    template = node("dropflow.data.file.FilesStore", pattern=str(tmp_path / "*.fits"))
    store = FilesStore(msgspec.structs.replace(template, axes=(Axis("s", "s", "scatter", 2),)))
    (tmp_path / "a.fits").touch()
    with pytest.raises(BadFileError, match="1 files match"):
        store.initial(msgspec.structs.replace(slot(), index=(0,)))
    (tmp_path / "b.fits").touch()

    found = [store.initial(msgspec.structs.replace(slot(), index=(at,))).location for at in (0, 1, 1)]
    assert found == [str(tmp_path / name) for name in ("a.fits", "b.fits", "b.fits")]
    assert len(searched) == 2


def test_small_contents_are_in_the_handle(node: Node, slot: Slots) -> None:
    """A content up to the threshold is part of the handle, and no file is written."""
    handle = _written(MemoryStore(node()), slot(), b"a" * SMALL)

    assert (handle.kind, handle.size, handle.location) == ("bytes", SMALL, "")
    verify(handle)


def test_large_contents_are_in_shared_memory(node: Node, slot: Slots, repository: LocalRepository) -> None:
    """A content above the threshold is one file in the shared memory of the session, which the handle names."""
    handle = _written(MemoryStore(node()), slot(), b"a" * SMALL, b"b")

    assert (handle.kind, handle.size, handle.body) == ("shm", SMALL + 1, b"")
    assert Path(handle.location).parent == repository.workspace.shared
    assert read(handle) == b"a" * SMALL + b"b"
    verify(handle)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 60))
def test_memory_drops_return_what_was_written(slot: Slots, blocks: list[bytes], small: int) -> None:
    """All writes are read back in order, below and above the threshold."""
    part = MemoryWriter(slot(), small)
    for block in blocks:
        part.write(block)
    handle = part.finish()

    assert read(handle) == b"".join(blocks)
    assert handle.size == len(read(handle))
    verify(handle)


@pytest.mark.parametrize("before", [b"", b"first ", b"f" * SMALL * 2])
def test_a_program_can_write_a_memory_drop(node: Node, slot: Slots, before: bytes) -> None:
    """The file that a program writes becomes the content, after the data that were written before."""
    part = MemoryStore(node()).part(slot())
    part.write(before)
    with Path(part.path()).open("ab") as stream:
        stream.write(b"second")

    assert read(part.finish()) == before + b"second"


def test_the_path_of_a_part_does_not_exist_yet(node: Node, slot: Slots) -> None:
    """The path does not exist and its directory does, for programs that refuse to overwrite files."""
    for store in (MemoryStore(node()), FileStore(node(filepath="x")), DirectoryStore(node()), NullStore(node())):
        path = Path(store.part(slot()).path())
        assert path.parent.is_dir()
        assert not path.exists()


def test_a_content_written_as_text_is_marked_as_text(node: Node, slot: Slots) -> None:
    """A content is text if all of it was written as text."""
    store = MemoryStore(node())

    assert _written(store, slot(), b"a", b"b", text=True).text
    assert not _written(store, slot(), b"a").text


def test_shared_memory_drops_of_any_size_are_files(node: Node, slot: Slots) -> None:
    """Even small contents are files, so that programs can map them."""
    handle = _written(SharedMemoryStore(node()), slot(), b"x")

    assert handle.kind == "shm"
    assert Path(handle.location).read_bytes() == b"x"


def test_a_part_has_the_base_name_of_its_file(node: Node, slot: Slots, repository: LocalRepository) -> None:
    """A part has the base name of its file, so that programs see its extension, in a directory of its own."""
    part = FileStore(node(filepath="sub/x.fits")).part(slot())

    assert Path(part.path()).name == "x.fits"
    assert Path(part.path()).is_relative_to(repository.workspace.tmp)
    assert not (repository.workspace.files / "sub").exists()


def test_a_part_for_an_absolute_path_is_on_the_same_file_system(node: Node, slot: Slots, tmp_path: Path) -> None:
    """A part for an absolute path is on the file system of that path, where a rename is atomic."""
    part = FileStore(node(filepath=str(tmp_path / "far/x.txt"))).part(slot())

    assert Path(part.path()).parent.parent == tmp_path / "far"


def test_a_file_that_is_not_written_is_empty(node: Node, slot: Slots) -> None:
    """An application that writes nothing leaves an empty file for the readers."""
    handle = FileStore(node(filepath="x")).part(slot()).finish()

    assert (handle.kind, handle.size, Path(handle.location).read_bytes()) == ("file", 0, b"")


def test_a_program_can_make_a_directory_of_a_file_drop(node: Node, slot: Slots) -> None:
    """Measurement sets are directories, and graphs keep them in File nodes."""
    part = FileStore(node(filepath="x.ms")).part(slot())
    Path(part.path()).mkdir()
    Path(part.path(), "table").write_bytes(b"12345")
    handle = part.finish()

    assert (handle.kind, handle.size) == ("directory", 5)


def test_the_producer_names_an_unnamed_file(node: Node, slot: Slots, repository: LocalRepository) -> None:
    """If the drop has no file name, that of its producer is used, by the same rules."""
    named = FileStore(node(filepath="")).part(slot(name="hello_{dlg}.txt")).finish()
    own = FileStore(node(filepath="own.txt")).part(slot(name="hello.txt")).finish()

    assert named.final == str(repository.workspace.files / "hello_dropflow.txt")
    assert own.final == str(repository.workspace.files / "own.txt")


@pytest.mark.parametrize("value", [None, 0, 0.0, "None"])
def test_a_zero_as_file_name_means_no_name(node: Node, slot: Slots, value: Any) -> None:
    """Some graphs declare the name of a file as a number; 0 means that it has no name."""
    assert FileStore(node(filepath=value)).part(slot()).finish().final.endswith("/files/g_k_0")


def test_old_files_have_a_directory_field(node: Node, slot: Slots, repository: LocalRepository) -> None:
    """Older graphs split the path of a file into two fields."""
    handle = FileStore(node(filepath="x", dirname="there")).part(slot()).finish()

    assert handle.final == str(repository.workspace.files / "there/x")


def test_root_files_are_found_where_they_are(node: Node, slot: Slots, tmp_path: Path) -> None:
    """A file without producers stays where it is."""
    (tmp_path / "input").write_bytes(b"data")
    handle = FileStore(node(filepath=str(tmp_path / "input"))).initial(slot())

    assert (handle.location, handle.final, handle.size) == (str(tmp_path / "input"), "", 4)


def test_a_link_to_a_root_file_has_the_size_of_the_file(node: Node, slot: Slots, tmp_path: Path) -> None:
    """So the content counts as it was, when its session continues or it is copied to another node."""
    (tmp_path / "input").write_bytes(b"data")
    (tmp_path / "link").symlink_to(tmp_path / "input")
    handle = FileStore(node(filepath=str(tmp_path / "link"))).initial(slot())

    assert handle.size == 4
    assert is_intact(handle)


def test_a_program_may_leave_a_link_to_a_file(node: Node, slot: Slots, tmp_path: Path) -> None:
    """The size is that of the file, as the checksum is."""
    (tmp_path / "made").write_bytes(b"data")
    part = FileStore(node(filepath="x")).part(slot())
    Path(part.path()).symlink_to(tmp_path / "made")

    assert is_intact(part.finish())


def test_root_devices_have_no_size(node: Node, slot: Slots) -> None:
    """A device can be an input; its size is reported as 0."""
    handle = FileStore(node(filepath="/dev/urandom")).initial(slot())

    assert stat.S_ISCHR(os.stat(handle.location).st_mode)  # noqa: PTH116 - the mode is what is asked
    assert handle.size == 0
    with pytest.raises(Exception, match="device"):
        read(handle)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"filepath": "/nowhere/at/all"}, "/nowhere/at/all does not exist"),
        ({"filepath": "input.txt", "check_filepath_exists": "true"}, "input.txt does not exist"),
    ],
)
def test_missing_root_files_are_named(node: Node, slot: Slots, fields: dict[str, Any], match: str) -> None:
    """An absolute file, or one that is to be checked, must be there."""
    with pytest.raises(BadFileError, match=match) as caught:
        FileStore(node(**fields)).initial(slot())
    assert "the data" in caught.value.hint


@pytest.mark.parametrize("value", ["", "name.txt"])
def test_relative_root_files_may_be_empty(node: Node, slot: Slots, value: str) -> None:
    """A relative file without producer is made empty, as in DALiuGE."""
    assert FileStore(node(filepath=value)).initial(slot()).size == 0


def test_directories_are_filled_by_programs(node: Node, slot: Slots, repository: LocalRepository) -> None:
    """A directory drop has the directory that a program makes; writing bytes to it is an error."""
    part = DirectoryStore(node(dirname="out")).part(slot())
    with pytest.raises(AppError, match="directory"):
        part.write(b"x")
    Path(part.path()).mkdir()
    Path(part.path(), "a").write_bytes(b"123")
    handle = part.finish()

    assert (handle.kind, handle.size, handle.final) == ("directory", 3, str(repository.workspace.files / "out"))


def _rewrite(path: Path) -> None:
    (path / "sub" / "b.txt").write_text("BYTES")


def _rename(path: Path) -> None:
    (path / "sub" / "b.txt").rename(path / "sub" / "c.txt")


def _run(path: Path) -> None:
    (path / "sub" / "b.txt").chmod(0o755)


def _link(path: Path) -> None:
    (path / "link").unlink()
    (path / "link").symlink_to("elsewhere")


def _folder(path: Path) -> None:
    (path / "empty").mkdir()


@pytest.mark.parametrize("change", [_rewrite, _rename, _run, _link, _folder])
def test_a_directory_has_the_checksum_of_its_tree(node: Node, slot: Slots, change: Callable[[Path], None]) -> None:
    """Names, links, contents and what can be executed count, so a change without a change of size is found."""
    part = DirectoryStore(node(dirname="out")).part(slot())
    path = Path(part.path())
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "b.txt").write_text("bytes")
    (path / "link").symlink_to("sub")
    made = part.finish()
    was_intact = is_intact(made)
    shutil.copytree(path, path.with_name("copy"), symlinks=True)
    copied = is_intact(msgspec.structs.replace(made, location=str(path.with_name("copy"))))
    change(path)

    assert (made.size, was_intact, copied) == (5, True, True)
    assert made.checksum
    assert not is_intact(made)


@pytest.mark.parametrize("fields", [{"dirname": "/nowhere"}, {"dirname": "in", "check_exists": True}])
def test_missing_root_directories_are_named(node: Node, slot: Slots, fields: dict[str, Any]) -> None:
    """A missing directory that must exist is an error, with a hint what to set."""
    with pytest.raises(BadFileError, match="does not exist"):
        DirectoryStore(node(**fields)).initial(slot())


def test_root_directories_can_be_made(node: Node, slot: Slots, tmp_path: Path) -> None:
    """With create_if_missing, a missing directory is created, also outside the session."""
    store = DirectoryStore(node(dirname=str(tmp_path / "new"), create_if_missing="true"))

    assert store.initial(slot()).kind == "directory"


def test_a_file_is_not_a_root_directory(node: Node, slot: Slots, tmp_path: Path) -> None:
    """A file where a directory is expected is an error."""
    (tmp_path / "x").touch()
    with pytest.raises(BadFileError, match="is a file"):
        DirectoryStore(node(dirname=str(tmp_path / "x"))).initial(slot())


def test_null_drops_discard(node: Node, slot: Slots) -> None:
    """They accept all ways of writing, and keep no content."""
    part = NullStore(node()).part(slot())
    assert part.write(b"12345") == 5
    Path(part.path()).write_bytes(b"12345")
    path = part.path()

    assert part.finish() is NULL
    assert not Path(path).exists()


def test_json_drops_have_their_encoding_and_suffix(node: Node, slot: Slots) -> None:
    """Ports with EAGLE's default encoding read and write JSON."""
    store = JsonStore(node())

    assert store.encoding == "json"
    assert store.part(slot()).finish().final.endswith(".json")


def test_abandoned_parts_are_removed(node: Node, slot: Slots, repository: LocalRepository) -> None:
    """A failed attempt leaves no file in the temporary directories."""
    for store in (MemoryStore(node()), FileStore(node(filepath="x")), DirectoryStore(node()), NullStore(node())):
        part = store.part(slot())
        if not isinstance(store, DirectoryStore):
            part.write(b"x" * SMALL * 2)
        Path(part.path()).parent.mkdir(exist_ok=True)
        part.abandon()

    assert _names(repository.workspace.tmp) == ["shm"]
    assert _names(repository.workspace.shared) == []


def _pydata(value: Any, type_: str) -> Argument:
    return Argument(name="pydata", value=value, type=type_)


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (5, "Integer", 5),
        ("5", "int", 5),
        ("2.5", "Float", 2.5),
        ("False", "Boolean", False),
        ("[1, 2]", "Json", [1, 2]),
        ({"a": 1}, "Json", {"a": 1}),
        ("['a', 'b']", "list", ["a", "b"]),
        ("gASVCgAAAAAAAABHP/O+dsi0OVgu", "Object", 1.234),
        ("[1, 2]", "Object", [1, 2]),
        (7, "Object.int", 7),
        ("(1, 'x')", "eval", (1, "x")),
    ],
)
def test_initial_values_are_typed(node: Node, slot: Slots, value: Any, type_: str, expected: Any) -> None:
    """At pickle ports, an initial value has its declared type: the text False is false."""
    handle = MemoryStore(node(pydata=_pydata(value, type_))).initial(slot())
    found = pickle.loads(handle.body)

    assert (type(found), handle.text) == (type(expected), False)
    assert found == pytest.approx(expected, rel=0.01) if isinstance(expected, float) else found == expected


@pytest.mark.parametrize(("value", "type_"), [("hello", "String"), ("hello", "str"), ("hello", "Object")])
def test_initial_text_is_text(node: Node, slot: Slots, value: str, type_: str) -> None:
    """Text stays text, also where an object was expected and there is only text."""
    handle = MemoryStore(node(pydata=_pydata(value, type_))).initial(slot())

    assert (handle.body, handle.text) == (b"hello", True)


@pytest.mark.parametrize("value", ["", None, "None"])
def test_a_blank_initial_value_is_an_empty_content(node: Node, slot: Slots, value: str | None) -> None:
    """No value, blank text and None give an empty content, or the empty text for text types."""
    assert MemoryStore(node(pydata=_pydata(value, "Object"))).initial(slot()) == EMPTY
    assert MemoryStore(node(pydata=_pydata(value, "String"))).initial(slot()).text


@pytest.mark.parametrize(
    ("value", "type_"), [("five", "Integer"), ("maybe", "Boolean"), ("{", "Json"), ("f(x)", "eval")]
)
def test_initial_values_of_the_wrong_type_are_an_error(node: Node, slot: Slots, value: str, type_: str) -> None:
    """The error has the value and the type; no code is evaluated."""
    with pytest.raises(BadParameterError, match="expected") as caught:
        MemoryStore(node(pydata=_pydata(value, type_))).initial(slot())
    assert value in caught.value.text
    assert type_ in caught.value.hint


_SETTINGS = {
    "mode": "json",
    "Cimager.ncycles": Argument(name="Cimager.ncycles", value=3, type="Integer", default=1, description="how often"),
    "wide": Argument(name="wide", value=False, type="Boolean"),
    "name": Argument(name="name", value='say "hi"', type="String"),
    "out": Argument(name="out", usage="OutputPort"),
}


def _parset(node: Node, slot: Slots, mode: str) -> bytes:
    return read(ParameterSetStore(node(**{**_SETTINGS, "mode": mode})).initial(slot()))


def test_parameter_sets_in_yanda_form(node: Node, slot: Slots) -> None:
    """There is one assignment per line, with lower-case booleans; ports and structural fields are left out."""
    assert _parset(node, slot, "YANDA") == b'Cimager.ncycles=3\nwide=false\nname=say "hi"\n'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\U0001d6fc \x7f", "\U0001d6fc \x7f"),
        ([1, [2.5, "x"], True], [1, [2.5, "x"], True]),
        ([float("inf"), -1e300], [float("inf"), -1e300]),
        ([{"a": 1}], '[{"a": 1}]'),
        ([1, None], "[1, null]"),
        ({"a": [1]}, '{"a": [1]}'),
    ],
)
def test_every_value_is_legal_toml(node: Node, slot: Slots, value: Any, shown: object) -> None:
    """Also of characters beyond 16 bits, in the name, too; what TOML has not is in the form of JSON, as text."""
    name = "gain\U0001d6fc"
    template = node(**{name: Argument(name=name, value=value, type="Json"), "mode": "toml"})
    body = read(ParameterSetStore(template).initial(slot()))

    assert tomllib.loads(body.decode())[name]["value"] == shown


@pytest.mark.parametrize(
    ("mode", "load"),
    [("json", json.loads), ("toml", lambda body: tomllib.loads(body.decode())), ("pickle", pickle.loads)],
)
def test_parameter_sets_keep_types(node: Node, slot: Slots, mode: str, load: Callable[[bytes], Any]) -> None:
    """In formats with types, each value is read back with its type."""
    found = load(_parset(node, slot, mode))

    assert {name: record["value"] for name, record in found.items()} == {
        "Cimager.ncycles": 3,
        "wide": False,
        "name": 'say "hi"',
    }
    assert found["Cimager.ncycles"]["default"] == 1


def test_parameter_sets_as_ini(node: Node, slot: Slots) -> None:
    """Each name is a section."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(_parset(node, slot, "ini").decode())

    assert parser["Cimager.ncycles"]["value"] == "3"


def test_parameter_sets_as_yaml(node: Node, slot: Slots) -> None:
    """The content is a mapping of mappings, with scalars as in JSON."""
    lines = _parset(node, slot, "yaml").decode().splitlines()

    assert lines[:2] == ['"Cimager.ncycles":', "  value: 3"]
    assert '  value: "say \\"hi\\""' in lines


def test_parameter_sets_can_be_verbatim(node: Node, slot: Slots) -> None:
    """With config_data, the content is that text."""
    assert read(ParameterSetStore(node(mode="YANDA", config_data="a=1")).initial(slot())) == b"a=1"


# The components for classes of data.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dlg.data.drops.s3_drop.S3DROP", "S3"),
        ("dlg.data.drops.ngas.NgasDROP", "NGAS"),
        ("dlg.data.drops.rdbms.RDBMSDrop", "RDBMS"),
        ("dlg.data.drops.plasma.PlasmaDROP", "SharedMemory"),
        ("dlg.data.drops.memory.InMemoryDROP", "Memory"),
        ("dlg.data.drops.InMemoryDROP", "Memory"),
        ("dlg.drop.InMemoryDROP", "Memory"),
        ("dfms.drop.FileDROP", "File"),
        ("dlg.some.older.place.FileDROP", "File"),
        ("dlg.data.drops.memory.SharedMemoryDROP", "SharedMemory"),
        ("dlg.data.drops.memory.PythonObjectDROP", "PythonObject"),
        ("dlg.data.drops.directory.DirectoryDROP", "Directory"),
        ("dlg.data.drops.data_base.NullDROP", "NULL"),
        ("dlg.data.drops.data_base.EndDROP", "End"),
        ("dlg.data.drops.json_drop.JsonDROP", "JSON"),
        ("dlg.data.drops.parset_drop.ParameterSetDROP", "ParameterSet"),
    ],
)
def test_every_class_has_one_component(node: Node, name: str, expected: str) -> None:
    """Every class name of DALiuGE, new and old, has one component, independent of the category."""
    assert component_for(node(name, category="Memory")).name == expected


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("Memory", "Memory"),
        ("File", "File"),
        ("SharedMemory", "SharedMemory"),
        ("null", "NULL"),
        ("NGAS", "NGAS"),
        ("Plasma", "SharedMemory"),
    ],
)
def test_nodes_without_a_class_use_their_category(node: Node, category: str, expected: str) -> None:
    """A node without class name has the component of its category."""
    assert component_for(node(category=category)).name == expected


@pytest.mark.parametrize("name", ["dlg.data.drops.container.ContainerDROP", "dlg.data.drops.iceberg.IcebergTableDrop"])
def test_unsupported_classes_of_daliuge_have_an_alternative(node: Node, name: str) -> None:
    """A class of DALiuGE that is not supported is reported as such, with an alternative."""
    with pytest.raises(MissingDependencyError, match="does not support") as caught:
        store_for(node(name))
    assert "File" in caught.value.hint


def test_unknown_classes_are_named(node: Node) -> None:
    """An unknown class is an error with the node, the class and the nearest known one."""
    with pytest.raises(UnknownComponentError, match=r"'the data'.*'dlg.data.drops.memory.InMemoryDRP'") as caught:
        store_for(node("dlg.data.drops.memory.InMemoryDRP"))
    assert "InMemoryDROP" in caught.value.hint


def test_all_errors_are_reported_together(node: Node) -> None:
    """One call reports all unknown classes and bad parameters."""
    nodes = [
        node("no.such.Class"),
        node("dlg.data.drops.memory.InMemoryDROP"),
        node("dlg.data.drops.file.FileDROP", filepath="{nonsense}"),
        node("dlg.data.drops.file.FileDROP", check_filepath_exists="perhaps"),
        node(category="IcebergTable"),
    ]
    found = check(nodes, ())

    assert [problem.code for problem in found] == ["DF103", "DF104", "DF104", "DF106"]
    assert all(problem.hint for problem in found)


@pytest.mark.slow
def test_every_class_is_valid_with_its_defaults(node: Node) -> None:
    """A node of each class with default parameters has no problems, if it has an address."""
    given = {"url": "file:///x", "Bucket": "b", "pattern": "*"}
    nodes = [node(component.dropclass, **given) for component in DATA_COMPONENTS if component.name != "RDBMS"]
    nodes.append(node("dlg.data.drops.rdbms.RDBMSDrop", dbtable="t"))
    assert check(nodes, ()) == []


def test_names_are_unique() -> None:
    """No two components have the same class name."""
    names = [name for component in DATA_COMPONENTS for name in (component.dropclass, *component.aliases)]

    assert len(set(names)) == len(names)
    assert all(
        component.kind is Kind.DATA and component.ports and component.description for component in DATA_COMPONENTS
    )


@needs_corpus
def test_every_data_class_of_the_community_is_known(node: Node) -> None:
    """Each class name in graphs of the community has a component or is listed as not supported."""
    names = {
        name
        for path in corpus_files()
        for name in re.findall(r'"(?:dlg|dfms)\.(?:data\.)?drops?\.[\w.]+"', path.read_text(encoding="utf-8"))
    }
    assert names
    refused = set()
    for name in names:
        try:
            component_for(node(json.loads(name)))
        except MissingDependencyError:
            refused.add(json.loads(name).rpartition(".")[2])
    assert refused <= {"ContainerDROP"}


# Paths of the files of data drops.


BASE = Path("/s/files")
OID = "2024-10-30T12:01:57_0140555b-e1c4_0-3"


def _path(value: str, **environment: str) -> str:
    return final_path(value, base=BASE, oid=OID, now=1_700_000_000.0, environment=environment)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("name.txt", "/s/files/name.txt"),
        ("sub/name.txt", "/s/files/sub/name.txt"),
        ("sub/../name.txt", "/s/files/name.txt"),
        ("/abs/x", "/abs/x"),
        ("/abs//./x", "/abs/x"),
        ("$PLACE/x", "/data/x"),
        ("${PLACE}/x", "/data/x"),
        ("a_{uid}.dat", "/s/files/a_2024-10-30T12_01_57_0140555b-e1c4_0-3.dat"),
        ("a_{humanKey}.dat", "/s/files/a_0140_0-3.dat"),
        ("{datetime}.dat", "/s/files/2023-11-14.dat"),
        ("{dlg}.dat", "/s/files/dropflow.dat"),
        ("{{uid}}", "/s/files/{uid}"),
    ],
)
def test_file_names_follow_the_documented_table(value: str, expected: str) -> None:
    """Each row of the table in the docstring of the module holds."""
    assert _path(value, PLACE="/data") == expected


@pytest.mark.parametrize("value", ["", "  ", "None", "./", ".", "{auto}"])
def test_a_file_without_a_name_is_named_after_its_drop(value: str) -> None:
    """No name, the text None, a bare directory and {auto} give a name that is unique to the drop."""
    assert _path(value) == f"/s/files/{drop_file_name(OID)}"


@pytest.mark.parametrize(("value", "folder"), [("sub/", "/s/files/sub"), ("/abs/", "/abs")])
def test_a_trailing_slash_names_a_directory(value: str, folder: str) -> None:
    """The file gets a generated name in that directory."""
    assert _path(value) == f"{folder}/{drop_file_name(OID)}"


def test_unknown_placeholders_are_named() -> None:
    """An unknown placeholder is an error that lists the known ones."""
    with pytest.raises(BadParameterError, match=r"unknown placeholder \{InputMS\}") as caught:
        _path("{InputMS}.fits")
    assert all(f"{{{name}}}" in caught.value.hint for name in PLACEHOLDERS)


def test_unset_variables_are_named() -> None:
    """A variable that is not set is an error, with a hint how to set it."""
    with pytest.raises(BadParameterError, match="variable DATA_HOME, which is not set") as caught:
        _path("$DATA_HOME/x")
    assert "export DATA_HOME=" in caught.value.hint


def test_dlg_root_has_a_default() -> None:
    """$DLG_ROOT is ~/dlg where it is not set, as in DALiuGE."""
    assert _path("$DLG_ROOT/testdata/x") == str(Path.home() / "dlg/testdata/x")


@pytest.mark.parametrize("value", ["../x", "a/../../x", ".."])
def test_relative_paths_that_leave_the_session_are_refused(value: str) -> None:
    """A relative path that leaves the session's files is an error."""
    with pytest.raises(BadParameterError, match="leaves the directory"):
        check_name(value)


@given(st.text(alphabet="ab./ {}", max_size=12))
def test_relative_paths_stay_inside(value: str) -> None:
    """Any relative value gives a normal path below the base, or an error."""
    try:
        path = final_path(value, base=BASE, oid=OID, now=0.0, environment={})
    except BadParameterError:
        return
    assert value.strip().startswith("/") or (path.startswith("/s/files/") and os.path.normpath(path) == path)


@given(st.lists(st.text(min_size=1, max_size=150), min_size=2, max_size=6, unique=True))
def test_file_names_of_drops_are_safe_and_different(oids: list[str]) -> None:
    """Different ids give different names, each one safe segment of at most 100 characters."""
    names = [drop_file_name(oid) for oid in oids]

    assert len(set(names)) == len(names)
    assert all("/" not in name and not name.startswith((".", "-")) and 0 < len(name) <= 100 for name in names)


def test_doctest_examples_are_right() -> None:
    """The examples in the docstrings are right."""
    assert doctest.testmod(naming).failed == 0
