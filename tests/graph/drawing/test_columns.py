"""Columns for a browser."""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from dropflow.graph.drawing import draw, narrowest, pack_columns, pack_drawing, pack_edges
from dropflow.testing.drawing import fan

_TYPES = {"u8": "u1", "u16": "<u2", "u32": "<u4", "f32": "<f4"}


def unpack_columns(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read the head and the columns as the script of the page does."""
    start = 4 + int.from_bytes(data[:4], "little")
    head = msgspec.json.decode(data[4:start])
    found = {
        entry["name"]: np.frombuffer(data, _TYPES[entry["type"]], entry["length"], start + entry["at"])
        for entry in head.pop("columns")
    }
    return head, found


def test_columns_are_read_as_they_were_written() -> None:
    """Head, names, types and values are the same, and each column begins at a multiple of four octets."""
    columns = {
        "small": np.array([1, 2, 3], dtype=np.uint8),
        "none": np.zeros(0, dtype=np.uint16),
        "place": np.array([0.5, -2.0], dtype=np.float32),
        "row": np.array([1 << 20], dtype=np.uint32),
    }
    data = pack_columns({"name": "ä"}, columns)
    head, found = unpack_columns(data)

    assert head == {"name": "ä"}
    assert {name: (column.dtype, column.tolist()) for name, column in found.items()} == {
        name: (column.dtype, column.tolist()) for name, column in columns.items()
    }
    addresses = [int(column.__array_interface__["data"][0]) for column in found.values() if len(column)]
    first = int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])
    assert {(address - first) % 4 for address in addresses} == {0}


def test_a_column_that_a_browser_does_not_read_is_refused() -> None:
    """Such as one of int64."""
    with pytest.raises(ValueError, match="column 'x' has type int64, which a browser does not read"):
        pack_columns({}, {"x": np.zeros(1, dtype=np.int64)})


def test_numbers_take_no_more_room_than_they_need() -> None:
    """One octet up to 255, two up to 65,535, else four."""
    sizes = [narrowest(np.array([most])).dtype.itemsize for most in (0, 255, 256, 65_535, 65_536)]

    assert sizes == [1, 1, 2, 2, 4]


def test_a_drawing_has_all_that_a_browser_needs() -> None:
    """The ids of drops follow from the head and the columns; edges are in the order of the graph."""
    graph = fan(10)
    head, columns = unpack_columns(pack_drawing(graph, draw(graph)))
    _, edges = unpack_columns(pack_edges(graph))

    assert (head["drops"], head["edges"], head["prefix"], head["named"]) == (11, 10, "fan", False)
    assert [template["key"] for template in head["templates"]] == ["r", "a", "d"]
    assert columns["instance"].tolist() == graph.instance.tolist()
    assert {len(columns[name]) for name in ("box", "column", "row", "template", "instance", "part")} == {11}
    assert edges["target"].tolist() == graph.successors.neighbour.tolist()
