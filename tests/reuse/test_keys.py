"""What the keys of results tell apart."""

from pathlib import Path
from typing import Any

import pytest

import dropflow
from dropflow import Graph
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from dropflow.reuse.attempt import attempt_key, differences
from dropflow.reuse.code import CodeReader
from dropflow.reuse.keys import deep_keys, node_keys
from dropflow.reuse.result_store import ResultStore
from tests.drawn_graphs import data, draw, function


@dropflow.app
def shown(x: Any) -> str:
    """Return a value as Python writes it."""
    return repr(x)


def _shown(value: object) -> PhysicalGraph:
    with Graph("values") as graph:
        shown(value)
    return graph.translate().graph


def _deep_keys(graph: PhysicalGraph) -> list[list[int]]:
    keys = deep_keys(graph, node_keys(graph, CodeReader()), lambda _: None).tolist()
    assert all(map(any, keys))
    return sorted(keys)


@pytest.mark.parametrize(
    ("first", "second"), [(1, "1"), ([1], "[1]"), (True, "true"), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (1, 1.0)]
)
def test_values_of_other_types_and_orders_have_keys_of_their_own(first: object, second: object, tmp_path: Path) -> None:
    """A function tells them apart, though some are written with the same characters."""
    graphs = [_shown(value) for value in (first, second)]
    before, now = (next(key.parts for key in node_keys(graph, CodeReader()) if key.parts) for graph in graphs)
    assert attempt_key(before, (), (), ()) != attempt_key(now, (), (), ())
    assert not {*map(tuple, _deep_keys(graphs[0]))} & {*map(tuple, _deep_keys(graphs[1]))}
    (reason,) = differences(before, now, ResultStore(tmp_path / "store"))
    assert reason.startswith(("parameter `x`: ", "parameter `x`: type "))


@pytest.mark.parametrize("types", [("Integer", "String"), ("String", "Json")])
def test_the_type_of_a_value_in_memory_counts(types: tuple[str, str], tmp_path: Path) -> None:
    """Its readers get another object."""
    keys = []
    for name in types:
        value = data("value", "Memory", pydata="1")
        (field,) = (one for one in value["fields"] if one["name"] == "pydata")
        field["type"] = name
        nodes = [value, function("Show", "def Show(input):\n    return repr(input)\n"), data("out")]
        keys.append(_deep_keys(dropflow.translate(draw(tmp_path / "g.graph", nodes, "value > Show > out")).graph))
    assert not {*map(tuple, keys[0])} & {*map(tuple, keys[1])}


@pytest.mark.parametrize(
    ("field", "given"), [("libpath", "{}/libmade.so"), ("lib", "$FOLDER/libmade.so"), ("libpath", "libmade.so")]
)
def test_a_shared_library_counts_where_its_application_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, given: str
) -> None:
    """By a path, a variable, or a name in the folders of the loader: when it is built again, the application runs."""
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    library = Argument(name=field, value=given.format(tmp_path), type="String")
    builder = GraphBuilder("library").app("call", component="dlg.apps.dynlib.DynlibApp", arguments=(library,))
    graph = builder.data("made").connect("call", "made").build()
    keys = set()
    for content in ("before", "after"):
        (tmp_path / "libmade.so").write_text(content)
        keys.add(next(key.parts for key in node_keys(graph, CodeReader()) if key.parts))

    assert len(keys) == 2


def test_a_library_below_no_home_is_not_found() -> None:
    """It is no error of the forecast: the application tells it."""
    library = Argument(name="libpath", value="~no-such-user/libmade.so", type="String")
    builder = GraphBuilder("library").app("call", component="dlg.apps.dynlib.DynlibApp", arguments=(library,))
    graph = builder.data("made").connect("call", "made").build()

    parts = next(key.parts for key in node_keys(graph, CodeReader()) if key.parts)
    assert [part.value for part in parts if part.kind == "library"] == ["not found"]


def test_the_value_of_a_variable_counts_and_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter, or a value in memory, that is ``$DLG_<name>`` is what the environment has at the time of the run."""
    show = function("Show", "def Show(input, gain=0):\n    return f'{input} {gain}'\n", gain="$DLG_GAIN")
    nodes = [data("value", "Memory", pydata="$DLG_GAIN"), show, data("out")]
    graph = dropflow.translate(draw(tmp_path / "g.graph", nodes, "value > Show > out")).graph
    keys, parts = [], []
    for value in ("secret-1", "secret-2", "secret-1"):
        monkeypatch.setenv("DLG_GAIN", value)
        keys.append(_deep_keys(graph))
        parts.append(next(key.parts for key in node_keys(graph, CodeReader()) if key.parts))
    assert keys[0] == keys[2]
    assert not {*map(tuple, keys[0])} & {*map(tuple, keys[1])}
    (reason,) = differences(parts[0], parts[1], ResultStore(tmp_path / "store"))
    assert reason.startswith("parameter `gain`: $DLG_GAIN (")
    assert "secret" not in str(parts)

    monkeypatch.delenv("DLG_GAIN")
    assert _deep_keys(graph) not in keys
