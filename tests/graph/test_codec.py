import io
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.errors import BadFileError, BadGraphError
from dropflow.graph import codec
from dropflow.graph.build import GraphBuilder
from dropflow.graph.codec import digest, dump, load, parse, save
from dropflow.graph.daliuge_read import read_pg
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.notes import LOGICAL as META
from dropflow.graph.notes import LogicalNote, logical_of, note_logical, with_more_settings
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import slice_for
from dropflow.graph.templates import Argument
from tests.graph.shapes import graphs, scatter
from tests.regular_graphs import fan


def _bytes(graph: PhysicalGraph) -> bytes:
    return b"".join(codec.dump(graph))


def _same(one: PhysicalGraph, other: PhysicalGraph) -> bool:
    shared = ("name", "prefix", "templates", "links", "places", "oids", "meta")
    return digest(one) == digest(other) and all(getattr(one, name) == getattr(other, name) for name in shared)


SMALL = _bytes(scatter(2))


@pytest.mark.slow
@given(graphs(detailed=True))
@settings(max_examples=30)
def test_a_graph_round_trips_through_its_container(graph: PhysicalGraph) -> None:
    """A graph that is written and read again is equal in all parts, including parameters of templates and digest."""
    assert _same(codec.parse(_bytes(graph)), graph)


def test_all_parts_of_a_graph_are_kept() -> None:
    """The container has names, places, notes and text ids."""
    graph = _furnished()

    assert _same(codec.parse(_bytes(graph)), graph)


def _furnished() -> PhysicalGraph:
    graph = scatter(1)
    part = np.array([0, 1, 1, 0], dtype=np.int32)
    return replace(graph, oids=("ä", "", "x y", "€"), part=part, places=("n1", "n2"), meta={"islands": '["i"]'})


def test_columns_are_used_in_place() -> None:
    """Parsing copies no column, and what it gives is read-only even over memory that can be written."""
    buffer = bytearray(SMALL)
    graph = codec.parse(buffer)

    assert np.shares_memory(graph.successors.neighbour, np.frombuffer(buffer, dtype=np.uint8))
    assert not graph.template.flags.writeable
    assert all(column.ctypes.data % 4 == 0 for column in (graph.template, graph.part, graph.successors.link))


def test_containers_are_recognised_by_their_first_bytes() -> None:
    """The first eight bytes tell a container from other files."""
    assert codec.is_dfg(SMALL[:8])
    assert not codec.is_dfg(b"[{")


def test_values_that_msgpack_cannot_represent_round_trip() -> None:
    """Integers of any size, infinities and NaN are read back unchanged."""
    values = [2**80, -(2**64), {"nested": [2**70]}, float("inf"), None, True]
    graph = GraphBuilder().data("a", arguments=(Argument(name="x", value=values),)).build()
    found = codec.parse(_bytes(graph)).templates[0].arguments[0].value

    assert found == values


def test_lone_surrogates_are_refused() -> None:
    """Writing a text that UTF-8 cannot encode is an error, and writes no broken file."""
    with pytest.raises(BadGraphError, match=r"half of a surrogate pair: .*before\\ud800"):
        codec.dump(GraphBuilder().data("before\ud800").build())
    with pytest.raises(BadGraphError, match="half of a surrogate pair"):
        codec.dump(replace(scatter(1), oids=("a", "\udfff", "c", "d")))


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 255))
def test_a_changed_byte_of_any_value_is_detected(place: int, change: int) -> None:
    """For any new value of a byte, the file is refused with one error."""
    with pytest.raises(BadFileError, match="file"):
        codec.parse(SMALL[:place] + bytes([SMALL[place] ^ change]) + SMALL[place + 1 :])


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_a_changed_byte_at_any_place_is_detected(change: int) -> None:
    """Every changed byte in a file is detected."""
    for place in range(len(SMALL)):
        with pytest.raises(BadFileError, match="file"):
            codec.parse(SMALL[:place] + bytes([SMALL[place] ^ change]) + SMALL[place + 1 :])


def test_a_truncated_file_is_refused() -> None:
    """A file that is truncated at any place is refused."""
    for length in range(len(SMALL)):
        with pytest.raises(BadFileError, match=r"cut off|empty|not a \.dfg"):
            codec.parse(SMALL[:length])


@given(st.binary(min_size=1, max_size=300))
def test_trailing_bytes_are_refused(rest: bytes) -> None:
    """A file with data after its end is refused."""
    with pytest.raises(BadFileError, match="damaged"):
        codec.parse(SMALL + rest)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_with_one_error(content: bytes) -> None:
    """Bytes that are not a container are refused, even if they start like one."""
    for buffer in (content, SMALL[:8] + content, SMALL[:32] + content):
        with pytest.raises(BadFileError, match="file"):
            codec.parse(buffer)


def _sealed(header: object, columns: bytes = b"", *, version: int = codec.VERSION) -> bytes:
    """A container with right checksums and any header."""
    packed = msgspec.msgpack.encode(header)
    start = -(-(32 + len(packed)) // 64) * 64
    total = start + len(columns)
    head = struct.pack("<8sHHIQI", b"\x89DFG\r\n\x1a\n", version, 0, len(packed), total, zlib.crc32(packed))
    return (head + struct.pack("<I", zlib.crc32(head)) + packed).ljust(start, b"\0") + columns


_HEADER = {"name": "x", "prefix": "x", "templates": [], "links": [], "columns": []}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (_sealed(_HEADER, version=7), "version 7 of the .dfg format; this dropflow reads version 1"),
        (_sealed([1, 2]), "the header of the file cannot be read"),
        (_sealed({**_HEADER, "templates": [{"key": 1}]}), "the header of the file cannot be read"),
        (_sealed({**_HEADER, "name": msgspec.msgpack.Ext(9, b"")}), "the header of the file cannot be read"),
        (_sealed(_HEADER), "the file has the columns"),
        (
            _sealed({**_HEADER, "columns": [{"name": "ptr", "dtype": "<i8", "offset": 0, "items": 1, "crc": 0}]}),
            "columns",
        ),
    ],
)
def test_invalid_files_with_valid_checksums_are_refused(content: bytes, text: str) -> None:
    """Crafted files, and files of another version, are refused with a reason."""
    with pytest.raises(BadFileError, match=text):
        codec.parse(content, where="x.dfg")


_COLUMN = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["template", "instance", "part", "ptr", "neighbour", "link", "oid_ptr", "oid_text"]),
        "dtype": st.sampled_from(["<i4", "<i8", "|u1", "O"]),
        "offset": st.integers(-64, 512),
        "items": st.integers(-1, 1 << 60),
        "crc": st.integers(0, 1 << 32),
    }
)


@given(st.lists(_COLUMN, max_size=8))
def test_invalid_tables_of_columns_are_refused(columns: list[object]) -> None:
    """Columns that overlap, are outside of the file or have invalid sizes are an error."""
    with pytest.raises(BadFileError, match="columns"):
        codec.parse(_sealed({**_HEADER, "columns": columns}, bytes(256)))


def _edited(graph: PhysicalGraph, column: str, **changed: object) -> bytes:
    """The container of a graph with one entry of its table of columns changed, and its checksums made right."""
    content = _bytes(graph)
    length = struct.unpack_from("<I", content, 12)[0]
    header = msgspec.msgpack.decode(content[32 : 32 + length])
    next(entry for entry in header["columns"] if entry["name"] == column).update(changed)
    return _sealed(header, content[-(-(32 + length) // 64) * 64 :])


@pytest.mark.parametrize(
    ("column", "changed", "text"),
    [
        ("part", {"dtype": "<i8"}, "part has an impossible position"),
        ("part", {"offset": 0}, "part has an impossible position"),
        ("part", {"items": -1}, "part has an impossible position"),
        ("link", {"items": 1 << 40}, "cut off"),
        ("link", {"items": 1, "crc": zlib.crc32(b"\0\0\0\0")}, "damaged"),
        ("ptr", {"crc": 0}, "damaged"),
    ],
)
def test_one_invalid_entry_of_the_table_is_refused(column: str, changed: dict[str, object], text: str) -> None:
    """One wrong entry in an otherwise valid file is detected, even with valid checksums."""
    with pytest.raises(BadFileError, match=text):
        codec.parse(_edited(scatter(2), column, **changed))


def test_an_edit_without_a_change_is_valid() -> None:
    """The files of the test above are refused because of the wrong entry, not because of the way they are made."""
    assert _same(codec.parse(_edited(scatter(2), "part")), scatter(2))


@pytest.mark.parametrize(
    ("changed", "text"),
    [({"oid_text": b"a\xffbcd"}, "not UTF-8"), ({"oid_ptr": struct.pack("<5q", 0, 2, 1, 4, 5)}, "not ascending")],
)
def test_text_ids_that_are_not_text_are_refused(changed: dict[str, bytes], text: str) -> None:
    """Text ids must be UTF-8, and contiguous."""
    content = bytearray(_bytes(replace(scatter(1), oids=("aa", "b", "c", "d"))))
    (name, new), *_ = changed.items()
    header = msgspec.msgpack.decode(content[32 : 32 + struct.unpack_from("<I", content, 12)[0]])
    start = len(content) - max(entry["offset"] for entry in header["columns"]) - 5
    entry = next(entry for entry in header["columns"] if entry["name"] == name)
    content[start + entry["offset"] : start + entry["offset"] + len(new)] = new
    entry["crc"] = zlib.crc32(new)
    with pytest.raises(BadFileError, match=text):
        codec.parse(_sealed(header, bytes(content[start:])))


def test_invalid_rows_are_refused() -> None:
    """A valid container with an invalid graph is refused with what is wrong."""
    graph = scatter(1)
    strange = replace(graph, template=np.array([0, 1, 2, 9], dtype=np.int32))
    with pytest.raises(BadFileError, match="is not valid: a drop has a template that does not exist"):
        codec.parse(_bytes(strange), where="x.dfg")


def _priorities(graph: PhysicalGraph) -> list[int]:
    return [] if graph.priority is None else graph.priority.tolist()


def test_priorities_travel_in_both_forms() -> None:
    """A graph with priorities keeps them in a container, in DALiuGE's JSON, in slices and in its digest."""
    plain = scatter(3)
    priority = np.where(plain.kinds[plain.template] == 1, np.arange(plain.drops), 0).astype(np.int32)
    graph = replace(plain, priority=priority, places=("n",))

    assert _priorities(codec.parse(_bytes(graph))) == priority.tolist()
    assert codec.parse(_bytes(plain)).priority is None
    stream = io.BytesIO()
    write_pg(graph, stream)
    assert _priorities(read_pg(json.loads(stream.getvalue()), name="g")) == priority.tolist()
    assert _priorities(slice_for(graph, "n").graph) == priority.tolist()
    assert digest(graph) != digest(replace(graph, priority=None))


GRAPH = scatter(2)


@pytest.mark.parametrize(
    "changed",
    [
        replace(GRAPH, prefix="other"),
        replace(GRAPH, links=GRAPH.links[::-1]),
        replace(GRAPH, part=np.ones(7, dtype=np.int32)),
        replace(GRAPH, places=("node",)),
        replace(GRAPH, oids=tuple("abcdefg")),
        replace(GRAPH, templates=(msgspec.structs.replace(GRAPH.templates[0], weight=4.0), *GRAPH.templates[1:])),
        scatter(3, name="scatter"),
    ],
    ids=["prefix", "links", "part", "places", "oids", "weight", "size"],
)
def test_changes_of_a_graph_change_its_digest(changed: PhysicalGraph) -> None:
    """Ids, parameters, edges and places count."""
    assert digest(changed) != digest(GRAPH)


def test_names_and_notes_do_not_change_a_digest() -> None:
    """The name of a graph and its notes are not part of the digest."""
    assert digest(replace(GRAPH, name="copy of x", meta={"from": "x"})) == digest(GRAPH)


def test_the_order_of_keys_in_a_value_does_not_count() -> None:
    """The order of keys in JSON objects does not change the digest."""
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    graphs = [GraphBuilder().data("d", arguments=(Argument(name="x", value=value),)).build() for value in (one, other)]

    assert digest(graphs[0]) == digest(graphs[1])


def test_the_digest_of_a_fixed_graph_does_not_change() -> None:
    """Digests are compared between hosts and versions, so the algorithm must not change."""
    assert digest(GRAPH) == "93e2cd4c5b958d935f2e174ddb760480e3bd6ed46a02d6afc2ce9a128b872608"


# The copy of a logical graph that sessions keep.


@given(st.binary(max_size=2000), st.none() | st.text(max_size=5), st.lists(st.text(max_size=9)))
def test_the_copy_survives_a_graph_file(document: bytes, configuration: str | None, settings: list[str]) -> None:
    """File, configuration and settings are read again as they were; the digest of the graph does not change."""
    plain = fan(4)
    graph = replace(plain, meta={META: note_logical(document, configuration=configuration, settings=settings)})
    again = parse(b"".join(bytes(buffer) for buffer in dump(graph)))

    assert logical_of(again) == LogicalNote(
        document=document, configuration=configuration or "", settings=tuple(settings)
    )
    assert digest(again) == digest(plain)


def test_a_graph_without_a_copy_has_none() -> None:
    """Nor has one whose copy is damaged, or would be too large."""
    assert logical_of(fan(4)) is None
    for damaged in ("", "{}", '{"zlib": "AAAA"}', "x"):
        assert logical_of(replace(fan(4), meta={META: damaged})) is None
    assert note_logical(bytes(17 << 20), configuration=None, settings=()) == ""


def test_new_settings_replace_those_of_the_same_parameter() -> None:
    """A parameter of the graph has one name with and without ``global``; values of a mapping are written as texts."""
    known = ("global.n=3", "Scatter.copies=2", "Work.f=[1]")

    assert with_more_settings(known, ["n=4"]) == ("Scatter.copies=2", "Work.f=[1]", "n=4")
    note = note_logical(b"{}", configuration=None, settings={"n": 3, "Work.f": [1], "t": "x"})
    found = logical_of(replace(fan(4), meta={META: note}))
    assert found is not None
    assert found.settings == ("n=3", "Work.f=[1]", "t=x")


def test_a_long_name_of_other_letters_is_a_file(tmp_path: Path) -> None:
    """A name that the file system takes is written, also if its letters are three bytes each."""
    path = tmp_path / ("\u56f3" * 84)
    save(scatter(2), path)

    assert load(path).drops == scatter(2).drops
