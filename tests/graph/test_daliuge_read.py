import io
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from dropflow.errors import BadGraphError
from dropflow.failure import Problem
from dropflow.graph.build import GraphBuilder
from dropflow.graph.daliuge_read import read_pg, read_pg_stream
from dropflow.graph.daliuge_write import write_pg
from dropflow.graph.physical import Adjacency, PhysicalGraph, faults
from dropflow.graph.templates import TWO_PORTS, Argument, Kind
from dropflow.graph.text_ids import iid, oid, oids
from tests.corpus import corpus_files, needs_corpus
from tests.graph.shapes import graphs, scatter


def _written(graph: PhysicalGraph, places: tuple[str, ...] | None = None) -> Any:
    stream = io.BytesIO()
    write_pg(graph, stream, places=places)
    return json.loads(stream.getvalue())


def _drops(graph: PhysicalGraph) -> dict[str, dict[str, Any]]:
    return {drop["oid"]: drop for drop in _written(graph)[:-1]}


def _neighbours(graph: PhysicalGraph, edges: Adjacency, drop: int) -> list[tuple[str, str, str, bool]]:
    here = slice(edges.ptr[drop], edges.ptr[drop + 1])
    links = [graph.links[row] for row in edges.link[here]]
    names = oids(graph, edges.neighbour[here])
    ends = zip(names, links, strict=True)
    return [(name, link.source_port, link.target_port, link.streaming) for name, link in ends]


def _meaning(graph: PhysicalGraph) -> list[Any]:
    """What a graph says, drop by drop, without rows of templates, links and axes; data drops have unordered edges."""
    found = []
    for drop in range(graph.drops):
        template = msgspec.structs.replace(graph.templates[graph.template[drop]], axes=())
        order = list if template.kind is Kind.APP else sorted
        edges = [order(_neighbours(graph, side, drop)) for side in (graph.successors, graph.predecessors)]
        found.append((oid(graph, drop), iid(graph, drop), template, edges))
    return found


@pytest.mark.slow
@given(graphs(detailed=True))
@settings(max_examples=60)
def test_a_graph_round_trips_through_json(graph: PhysicalGraph) -> None:
    """Ids, instances, parameters, ports and the order of inputs and outputs are unchanged."""
    again = read_pg(_written(graph), name="again")

    assert _meaning(again) == _meaning(graph)
    assert faults(again) == []


@given(graphs())
def test_a_graph_is_read_from_a_stream(graph: PhysicalGraph) -> None:
    """A graph that is written to a stream is read from it unchanged."""
    stream = io.BytesIO()
    write_pg(graph, stream)

    assert _meaning(read_pg_stream(io.BytesIO(stream.getvalue()), name="x")) == _meaning(graph)


@pytest.mark.slow
@given(graphs())
def test_partitions_are_written_as_nodes(graph: PhysicalGraph) -> None:
    """Drops of one part have the same node, a placeholder or a place, and are one part when read again."""
    places = ("p", "q", "r", "s")[: graph.parts]
    plain = read_pg(_written(graph), name="x")
    placed = read_pg(_written(replace(graph, places=places)), name="x")

    together = [[a == b for b in graph.part] for a in graph.part]
    assert graph.parts == 1 or [[a == b for b in plain.part] for a in plain.part] == together
    assert [placed.places[part] for part in placed.part] == [places[part] for part in graph.part]
    assert plain.places == ()


def test_instances_of_a_node_share_a_template() -> None:
    """A thousand drops of three nodes and a join become four templates and three links."""
    graph = read_pg(_written(scatter(333)), name="x")

    assert (graph.drops, len(graph.templates), len(graph.links)) == (1000, 4, 3)
    assert [template.shape for template in graph.templates] == [(333,), (333,), (333,), ()]


def test_applications_have_the_keys_of_daliuge() -> None:
    """An application has the keys that DALiuGE and its tools look for."""
    drop = _drops(scatter(2))["s_work_0-1"]

    assert drop["outputs"] == [{"s_out_0-1": "result"}]
    assert drop["inputs"] == ["s_in_0-1"]
    assert (drop["iid"], drop["rank"], drop["lg_key"], drop["loop_ctx"]) == ("0-1", [0, 1], "work", None)
    assert (drop["categoryType"], drop["weight"], drop["num_cpus"]) == ("Application", 5, 1)
    assert drop["execution_time"] == drop["componentParams"]["execution_time"]["value"] == 5
    assert drop["fields"] == list(drop["componentParams"].values())
    assert drop["ports"] == [{"name": "result", "oid": "s_out_0-1", "direction": "output"}]
    assert "node" not in drop


def test_data_drops_have_the_keys_of_daliuge() -> None:
    """A data drop names its consumers and producers; ports are those on its own side."""
    drawing = GraphBuilder("g").app("A").data("d").app("B").connect("A", "d", source_port="o", target_port="i")
    drop = _drops(drawing.connect("d", "B", source_port="x", streaming=True).build())["g_d_0"]

    assert drop["producers"] == [{"g_A_0": "i"}]
    assert drop["streamingConsumers"] == [{"g_B_0": "x"}]
    assert drop["port_map"] == {"i": "o"}
    assert (drop["categoryType"], "num_cpus" in drop) == ("Data", False)


def test_the_list_ends_with_an_empty_record() -> None:
    """DALiuGE removes the last element of a list without checking it."""
    assert _written(scatter(1))[-1] == {}
    assert _written(GraphBuilder().build()) == [{}]


def test_a_parameter_never_overwrites_a_structural_key() -> None:
    """A parameter with the name of a key of the format is kept in its record, and read from there."""
    arguments = tuple(Argument(name=name, value="mine") for name in ("oid", "name", "inputs", "node", "weight"))
    graph = GraphBuilder("g").data("d", arguments=arguments).build()
    drop = _drops(graph)["g_d_0"]

    assert (drop["oid"], drop["name"], drop["weight"]) == ("g_d_0", "d", 1)
    assert read_pg(_written(graph), name="x").templates[0].arguments == arguments


def test_weights_are_rounded_up_and_read_back_exactly() -> None:
    """The whole number is for DALiuGE; the exact one is in the parameter behind it."""
    argument = Argument(name="execution_time", value=2.25, type="Float")
    graph = GraphBuilder("g").app("a", weight=2.25, arguments=(argument,)).build()

    assert _drops(graph)["g_a_0"]["weight"] == 3
    assert read_pg(_written(graph), name="x").templates[0].weight == 2.25


def test_places_may_be_given_for_writing() -> None:
    """Each part is written with the name of its node, and the first node as the island."""
    graph = replace(scatter(1), part=np.array([0, 1, 1, 0], dtype=np.int32))
    homes = {(drop["node"], drop["island"]) for drop in _written(graph, ("a", "b"))[:-1]}

    assert homes == {("a", "a"), ("b", "a")}
    assert {drop["node"] for drop in _written(graph)[:-1]} == {"#0", "#1"}


def test_loops_and_ranks_are_reported() -> None:
    """The context of a drop in loops has the indices of the loops only; a rank of MPI is its last index."""
    axes = tuple(msgspec.structs.replace(scatter(2).templates[0].axes[0], kind=kind) for kind in ("loop", "mpi"))
    whole = [msgspec.structs.replace(template, axes=axes) for template in scatter(2).templates[:1]]
    graph = replace(GraphBuilder("g").data("d").build(), templates=tuple(whole), instance=np.array([2], dtype=np.int32))
    drop = _drops(graph)["g_in_0-1-0"]

    assert (drop["loop_ctx"], drop["proc_index"]) == ("1", 0)


def test_lone_surrogates_are_not_written() -> None:
    """Writing a text that UTF-8 cannot encode is an error."""
    with pytest.raises(BadGraphError, match="half of a surrogate pair"):
        _written(GraphBuilder().data("\ud800").build())


MEMORY = {"categoryType": "Data", "dropclass": "dlg.data.drops.memory.InMemoryDROP"}
APP = {"categoryType": "Application", "dropclass": "dlg.apps.simple.CopyApp"}


def _pair(data: dict[str, Any], app: dict[str, Any]) -> list[Any]:
    return [{"oid": "d", **MEMORY, **data}, {"oid": "a", **APP, **app}]


@pytest.mark.parametrize(
    "document",
    [
        _pair({"consumers": ["a"]}, {}),
        _pair({}, {"inputs": ["d"]}),
        _pair({"consumers": ["a"]}, {"inputs": ["d"]}),
        _pair({"consumers": [{"a": ""}]}, {"inputs": [{"d": None}]}),
        _pair({"consumers": {"a": ""}}, {}),
        _pair({"consumers": ["a", "a"]}, {"inputs": ["d", "d"]}),
        [*_pair({"consumers": ["a"]}, {}), {}],
        [*_pair({"consumers": ["a"]}, {}), {"rmode": "1", "RERUN": {}}],
        ["name", _pair({"consumers": ["a"]}, {})],
        ["name", [*_pair({"consumers": ["a"]}, {}), {}], {"more": 1}],
    ],
)
def test_an_edge_that_is_declared_several_times_is_one_edge(document: list[Any]) -> None:
    """Declared on either side or on both, once or twice, in any container: it is one edge between two drops."""
    for graph in (read_pg(document, name=""), read_pg_stream(io.BytesIO(json.dumps(document).encode()), name="")):
        assert (graph.oids, graph.successors.neighbour.tolist()) == (("d", "a"), [1])
        assert graph.name in ("", "name")


def test_drops_may_be_joined_at_several_ports() -> None:
    """The k-th declaration on one side belongs to the k-th on the other; a port named once serves all."""
    graph = read_pg(_pair({"consumers": [{"a": "out"}]}, {"inputs": [{"d": "x"}, {"d": "y"}]}), name="x")

    assert [(link.source_port, link.target_port) for link in graph.links] == [("out", "x"), ("out", "y")]


def test_inputs_keep_the_order_in_which_they_are_declared() -> None:
    """Positional parameters depend on the order of inputs: it is kept for any order of drops and any placement."""
    same = {"lg_key": "k", "name": "n", **MEMORY}
    document = [{"oid": one, **same} for one in "abcd"]
    document += [{"oid": "one", "inputs": ["c", "a", "d", "b"], **APP}, {"oid": "two", "inputs": ["a", "c"], **APP}]
    graph = read_pg(document, name="x")
    inputs = [
        oids(graph, graph.predecessors.neighbour[slice(*graph.predecessors.ptr[row : row + 2])]) for row in (4, 5)
    ]

    assert inputs == [["c", "a", "d", "b"], ["a", "c"]]
    assert len(graph.templates) == 3


@pytest.mark.slow
def test_many_inputs_in_another_order_are_read() -> None:
    """The time does not grow with the square of the inputs that are not in the order of the drops."""
    names = [f"d{number}" for number in range(20_000)]
    document: list[Any] = [{"oid": name, "lg_key": "k", "name": "n", **MEMORY} for name in names]
    graph = read_pg([*document, {"oid": "app", "inputs": names[::-1], **APP}], name="x")

    assert oids(graph, graph.predecessors.neighbour) == names[::-1]


@pytest.mark.parametrize(
    ("spelling", "kind", "component"),
    [
        ({"categoryType": "data", "storage": "Memory"}, Kind.DATA, "dlg.data.drops.memory.InMemoryDROP"),
        ({"categoryType": "DATA", "category": "File"}, Kind.DATA, "dlg.data.drops.file.FileDROP"),
        ({"type": "plain", "storage": "file"}, Kind.DATA, "dlg.data.drops.file.FileDROP"),
        ({"type": "app", "app": "dfms.apps.simple.CopyApp"}, Kind.APP, "dlg.apps.simple.CopyApp"),
        ({"categoryType": "app", "appclass": "my.App"}, Kind.APP, "my.App"),
        ({"categoryType": "Application", "Application": "my.App"}, Kind.APP, "my.App"),
        ({"categoryType": "container"}, Kind.DATA, "dlg.data.drops.container.ContainerDROP"),
        ({"categoryType": "Socket"}, Kind.APP, "dlg.apps.socket_listener.SocketListenerApp"),
        ({"categoryType": "Application", "dropclass": "", "category": "Unheard"}, Kind.APP, ""),
    ],
)
def test_old_spellings_are_read(spelling: dict[str, Any], kind: Kind, component: str) -> None:
    """Kinds in any case, classes under their old keys, and classes that follow from the kind of storage."""
    template = read_pg([{"oid": "x", **spelling}], name="x").templates[0]

    assert (template.kind, template.component) == (kind, component)
    assert template.arguments == ()


def test_values_are_those_that_daliuge_would_use() -> None:
    """An application argument counts more than a bare value, a bare value more than a component parameter."""
    record = {"value": "record", "type": "String", "usage": "InputPort", "encoding": "dill"}
    drop = {
        "oid": "x",
        **APP,
        "a": "bare",
        "b": "bare",
        "c": 5,
        "d": {"value": 2, "type": "Integer"},
        "applicationArgs": {"a": record},
        "componentParams": {"b": record},
    }
    found = {argument.name: argument for argument in read_pg([drop], name="x").templates[0].arguments}

    assert {name: one.value for name, one in found.items()} == {"a": "record", "b": "bare", "c": 5, "d": 2}
    assert (found["a"].usage, found["a"].encoding, found["a"].parameter_type) == (
        "InputPort",
        "dill",
        "ApplicationArgument",
    )
    assert (found["c"].type, found["d"].type) == ("Integer", "Integer")


def test_a_parameter_and_ports_of_one_name_are_merged() -> None:
    """The parameter gives the value, the ports give encoding and direction."""
    fields = [
        {"name": "x", "value": "", "usage": "InputPort", "encoding": "npy", "type": "Object"},
        {"name": "x", "value": 7, "usage": "NoPort", "type": "Integer"},
        {"name": "x", "value": "", "usage": "OutputPort"},
    ]
    graph = read_pg([{"oid": "x", **APP, "fields": fields}], name="x")
    again = read_pg(_written(graph), name="x")

    (one,) = graph.templates[0].arguments
    assert (one.name, one.value, one.usage, one.encoding) == ("x", 7, TWO_PORTS, "npy")
    assert [same.usage for same in again.templates[0].arguments if same.name == "x"] == [TWO_PORTS]


def test_ports_with_several_edges_of_one_node_collect() -> None:
    """A list that another program wrote does not say what collects: the edges show it."""
    pieces = [
        {"oid": f"d{n}", **MEMORY, "name": "piece", "lg_key": "k", "iid": f"0-{n}", "consumers": [{"g": "x"}]}
        for n in (0, 1)
    ]
    gather = {"oid": "g", **APP, "inputs": [{"d0": "x"}, {"d1": "x"}]}
    found = {template.name: template.collects for template in read_pg([*pieces, gather], name="x").templates}

    assert found == {"piece": (), "g": ("x",)}


def test_rules_for_the_engine_are_read_as_texts_too() -> None:
    """Old graphs write numbers and truth values as texts, and `precious` for `persist`."""
    drop = {"oid": "x", **APP, "n_tries": "3", "input_error_threshold": "12.5", "precious": "True", "block_skip": "0"}
    template = read_pg([{**drop, "num_cpus": "", "n_effective_inputs": 2.0}], name="x").templates[0]

    assert (template.tries, template.error_threshold, template.persist, template.block_skip) == (3, 12.5, True, False)
    assert (template.cpus, template.effective_inputs) == (1, 2)


def _codes(read: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(BadGraphError, match="PG001") as caught:
        read()
    return [(found.code, found.where) for found in caught.value.problems if isinstance(found, Problem)]


def test_all_problems_are_reported_together() -> None:
    """Each problem has its code and the place in the document."""
    document = [
        {"oid": "a", **MEMORY, "consumers": ["absent"], "producers": "b"},
        {"oid": "a", **MEMORY},
        7,
        {**MEMORY, "consumers": []},
        {"oid": "b", "categoryType": "Service", "dropclass": "x"},
        {"oid": "c", "categoryType": "Data"},
        {"oid": "e", **APP, "n_tries": "many", "num_cpus": 1.5, "block_skip": "perhaps", "weight": "NaN"},
        {"oid": "f", **APP, "inputs": [["g"], {"a": 1}]},
    ]

    assert _codes(lambda: read_pg(document, name="x")) == [
        ("PG001", "/0/producers"),
        ("PG003", "/1/oid"),
        ("PG001", "/2"),
        ("PG001", "/3"),
        ("PG001", "/4/categoryType"),
        ("PG001", "/5/dropclass"),
        ("PG001", "/6/weight"),
        ("PG001", "/6/num_cpus"),
        ("PG001", "/6/n_tries"),
        ("PG001", "/6/block_skip"),
        ("PG001", "/7/inputs"),
        ("PG001", "/7/inputs"),
        ("PG002", "/0/consumers"),
    ]


def test_lone_surrogates_in_a_document_are_a_problem() -> None:
    """Half of a surrogate pair, which Python's parser accepts, is refused in every text."""
    for drop in ({"oid": "\ud800", **MEMORY}, {"oid": "x", **MEMORY, "note": "\ud800"}):
        assert _codes(lambda drop=drop: read_pg([drop], name="x"))[0] == ("PG001", "/0")
        assert _codes(lambda drop=drop: read_pg_stream(io.BytesIO(json.dumps([drop]).encode()), name="x"))


def test_the_depth_of_a_document_has_a_limit() -> None:
    """A document that is deeper than the given limit is a problem, before it is parsed."""
    document = json.dumps([{"oid": "a", **MEMORY, "note": [[[]]]}]).encode()

    assert read_pg_stream(io.BytesIO(document), name="x", max_depth=5).drops == 1
    assert _codes(lambda: read_pg_stream(io.BytesIO(document), name="x", max_depth=4)) == [("PG001", "")]
    assert _codes(lambda: read_pg_stream(io.BytesIO(b"[" * 10**6), name="x", max_depth=4)) == [("PG001", "")]


def test_ranks_and_loops_are_read_as_levels() -> None:
    """The innermost levels are loops according to `loop_ctx`, and MPI ranks according to `proc_index`."""
    same = {**MEMORY, "lg_key": "k", "name": "n"}
    loops = [{"oid": f"l{n}", **same, "iid": f"0-0-{n}", "loop_ctx": f"0-{n}"} for n in range(2)]
    ranks = [{"oid": f"r{n}", **same, "name": "m", "iid": f"0-{n}", "proc_index": n} for n in range(3)]
    mixed = [
        {"oid": "m0", **same, "name": "o", "iid": "0-0", "loop_ctx": "0"},
        {"oid": "m1", **same, "name": "o", "iid": "0-1"},
    ]
    graph = read_pg([*loops, *ranks, *mixed], name="x")

    assert [[axis.kind for axis in template.axes] for template in graph.templates] == [
        ["loop", "loop"],
        ["mpi"],
        ["list"],
    ]


@pytest.mark.parametrize(("key", "value"), [("num_cpus", 2**63), ("n_tries", 1e30), ("n_effective_inputs", -(10**30))])
def test_a_setting_beyond_64_bits_is_refused(key: str, value: float) -> None:
    """It could not be read again from a container."""
    drop = {"oid": "A", "categoryType": "Application", "dropclass": "dlg.apps.simple.SleepApp", key: value}

    assert _codes(lambda: read_pg([drop], name="x")) == [("PG001", f"/0/{key}")]


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan")])
def test_an_exact_weight_that_is_no_finite_number_is_ignored(value: float) -> None:
    """The rounded one counts."""
    app = {"oid": "A", "categoryType": "Application", "dropclass": "dlg.apps.simple.SleepApp", "weight": 3}

    assert read_pg([app | {"execution_time": value}], name="x").templates[0].weight == 3.0


def test_the_number_of_problems_is_limited() -> None:
    """A document with many errors gives a limited number of problems, and the number of the others."""
    with pytest.raises(BadGraphError, match="PG001") as caught:
        read_pg([1] * 5000, name="x")

    assert len(caught.value.problems) == 201
    assert "and 4800 more problems" in str(caught.value.problems[-1])


@pytest.mark.parametrize("text", [b"", b"{}", b"[", b"[1", b"[{]", b'[{"oid": "\xff"}]', b"[" * 100_000, b"7", b"\x00"])
def test_damaged_and_foreign_documents_are_a_problem(text: bytes) -> None:
    """Damaged or foreign documents are PG001, never another exception."""
    assert [code for code, _ in _codes(lambda: read_pg_stream(io.BytesIO(text), name="x"))] == ["PG001"]


@pytest.mark.parametrize("piece", [b"[", b"{},", b"[[],"])
def test_megabytes_of_brackets_are_refused_without_parsing(piece: bytes) -> None:
    """A large document without a drop is not parsed: the refusal needs less memory than the text."""
    text = b"[" + piece * (4_000_000 // len(piece))
    tracemalloc.start()
    try:
        assert [code for code, _ in _codes(lambda: read_pg_stream(io.BytesIO(text), name="x"))] == ["PG001"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * len(text)


def test_a_byte_order_mark_is_accepted() -> None:
    """Some editors write one at the start of a document."""
    text = "\ufeff" + json.dumps([{"oid": "d", **MEMORY}])

    assert read_pg_stream(io.BytesIO(text.encode()), name="x").drops == 1


def test_numbers_that_python_writes_are_read() -> None:
    """Documents with NaN, as Python programs write them, are read."""
    text = json.dumps([{"oid": "d", **MEMORY, "limit": float("inf")}])
    graph = read_pg_stream(io.BytesIO(text.encode()), name="x")

    assert graph.templates[0].arguments[0].value == float("inf")


def test_edges_between_drops_of_one_kind_get_adapters() -> None:
    """Artificial drops are inserted between applications and between data drops, with a note."""
    document = [
        {"oid": "A", **APP, "name": "first", "outputs": [{"B": "o"}]},
        {"oid": "B", **APP, "name": "second", "producers": [{"A": "i"}]},
        {"oid": "c", **MEMORY, "consumers": ["d"]},
        {"oid": "d", **MEMORY},
        {"oid": "A-to-B", **MEMORY},
    ]
    findings: list[Problem] = []
    graph = read_pg(document, name="x", findings=findings)

    assert (graph.oids or ())[5:] == ("A-to-B-2", "c-to-d")
    assert [(template.kind, template.artificial, template.component) for template in graph.templates[-2:]] == [
        (Kind.DATA, True, "dlg.data.drops.memory.InMemoryDROP"),
        (Kind.APP, True, "dlg.apps.simple.CopyApp"),
    ]
    assert [(link.source_port, link.target_port) for link in graph.links if link.source_port or link.target_port] == [
        ("o", ""),
        ("", "i"),
    ]
    assert [found.code for found in findings] == ["LG041", "LG041"]
    assert faults(graph) == []
    assert _meaning(read_pg(_written(graph), name="x")) == _meaning(graph)


def test_many_adapters_between_two_nodes_share_a_template() -> None:
    """A hundred edges between the instances of two applications need one template more, not a hundred."""
    apps = [{**APP, "lg_key": key, "name": key} for key in "AB"]
    document = [{"oid": f"A{n}", **apps[0], "outputs": [f"B{n}"]} for n in range(100)]
    graph = read_pg([*document, *({"oid": f"B{n}", **apps[1]} for n in range(100))], name="x")

    assert (graph.drops, graph.edges, len(graph.templates), len(graph.links)) == (300, 200, 3, 2)


def test_an_incomplete_placement_is_ignored_with_a_warning() -> None:
    """If only some drops have a node, the graph is read without places."""
    findings: list[Problem] = []
    graph = read_pg(_pair({"node": "host"}, {}), name="x", findings=findings)

    assert (graph.places, graph.parts) == ((), 1)
    assert ["1 drops have no node" in found.text for found in findings] == [True]


def test_islands_are_kept_as_a_note() -> None:
    """The island of each node is written again as it was read."""
    document = _pair({"node": "n1", "island": "i1"}, {"node": "n2", "island": "i2"})
    again = _written(read_pg(document, name="x"))

    assert [(drop["node"], drop["island"]) for drop in again[:-1]] == [("n1", "i1"), ("n2", "i2")]


@pytest.mark.parametrize(
    "indices",
    [
        [None, None],
        ["0-0", "0-0"],
        ["0-1", "0-1-2"],
        ["x", "0-1"],
        ["0-99999", "0-1-1"],
        ["1-0", "1-1"],
        ["0-" + "9" * 30, "0"],
    ],
)
def test_invalid_indices_are_replaced(indices: list[Any]) -> None:
    """Missing, repeated or irregular indices are replaced by the order of the document; ids do not change."""
    document = [{"oid": f"d{n}", **MEMORY, "lg_key": "k", "name": "n", "iid": text} for n, text in enumerate(indices)]
    graph = read_pg(document, name="x")

    assert [iid(graph, drop) for drop in (0, 1)] == ["0-0", "0-1"]
    assert graph.oids == ("d0", "d1")


@needs_corpus
def test_every_physical_graph_of_the_community_is_read() -> None:
    """Graphs of all DALiuGE versions are read, are valid, and are equal after they are written and read again."""
    lists = {path: document for path in corpus_files() if isinstance(document := json.loads(path.read_bytes()), list)}
    assert lists
    for path, document in lists.items():
        with path.open("rb") as stream:
            graph = read_pg_stream(stream, name=path.name)
        drops = document[1] if isinstance(document[0], str) else document
        wanted = [drop["oid"] for drop in drops if "oid" in drop]
        assert list(graph.oids or ())[: len(wanted)] == wanted, path.name
        assert faults(graph) == [], path.name
        assert _meaning(read_pg(_written(graph), name="again")) == _meaning(graph), path.name


@pytest.mark.parametrize(
    ("nodes", "islands", "parts"),
    [
        (("#1", "#2"), ("#0", "#0"), [0, 1]),
        (("#2", "#4"), ("#0", "#1"), [0, 2]),
        (("#0", "#2"), ("#0", "#0"), [0, 2]),
        (("#1", "#2"), ("#0", ""), [1, 2]),
    ],
)
def test_placeholders_of_islands_come_first(nodes: tuple[str, ...], islands: tuple[str, ...], parts: list[int]) -> None:
    """DALiuGE numbers islands before nodes: its first node is part 0, so that it needs no more nodes than parts."""
    drops = [
        {"oid": oid, "categoryType": "Data", "dropclass": "d", "node": node, "island": island}
        for oid, node, island in zip("ab", nodes, islands, strict=True)
    ]

    assert read_pg([*drops, {}], name="g").part.tolist() == parts


@pytest.mark.parametrize("note", ["", "{", "5", "null", '{"a": 5}', "[1]"])
def test_a_note_of_islands_that_cannot_be_read_is_none(note: str) -> None:
    """A graph file of another program may have any note: the list of drops is written without islands."""
    graph = replace(read_pg([{"oid": "a", "node": "n", **APP}], name="x"), meta={"islands": note})

    assert _written(graph)[0]["node"] == "n"


def test_a_number_of_thousands_of_digits_is_a_name() -> None:
    """A node whose name only looks like a placeholder is a node of that name."""
    name = f"#{'9' * 5_000}"

    assert read_pg([{"oid": "a", "node": name, **APP}], name="x").places == (name,)


def test_placeholders_of_nodes_keep_their_numbers() -> None:
    """A plan may leave nodes empty: part k stays on the k-th machine. No drops have no parts."""
    drops = [
        {"oid": "a", "categoryType": "Data", "dropclass": "d", "node": "#1"},
        {"oid": "b", "categoryType": "Data", "dropclass": "d", "node": "#4"},
    ]

    graph = read_pg([*drops, {}], name="g")

    assert graph.part.tolist() == [1, 4]
    assert read_pg(_written(graph), name="again").part.tolist() == [1, 4]
    assert read_pg([], name="g").part.tolist() == []
