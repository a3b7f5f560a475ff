"""Arrays of a logical graph are tiled: how many drops and edges there are, and what is refused."""

import itertools
import json
from collections.abc import Callable
from math import ceil, prod
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropflow.graph.interchange import write_pg
from dropflow.graph.placement_groups import placement_groups
from dropflow.graph.tilings import Tiling
from tests.array_drawings import ArrayDrawing, tilings
from tests.translator.unrolled import codes, edges, planned
from translator.pipeline import translate
from translator.stage_options import PartitionOptions, UnrollOptions
from translator.unroll import plan, unroll


def sizes(drawing: ArrayDrawing) -> dict[str, int]:
    """Return the number of drops of each template."""
    made = planned(drawing)
    assert made.problems == ()
    return dict(zip((template.key for template in made.templates), made.sizes, strict=True))


def bounds(length: int, chunks: Any) -> list[tuple[int, int]]:
    """Return where chunks begin and end, the plain way."""
    parts = chunks if isinstance(chunks, list) else [min(chunks, length - at) for at in range(0, length, chunks)]
    ends = list(itertools.accumulate(parts))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two parts of an axis have values in common."""
    return max(one[0], other[0]) < min(one[1], other[1])


@settings(max_examples=30)
@given(tilings())
def test_a_change_of_chunks_joins_what_has_values_in_common(
    tiling: tuple[list[int], list[Any], list[Any], list[int]],
) -> None:
    """Through its pieces, an old chunk leads to each new chunk that shares values with it, and to no other one."""
    shape, before, after, _ = tiling
    drawing = ArrayDrawing().array("x", shape, before).array("y", shape, after).source("x").rechunk("change")
    drawing.link("x", "change", "y")
    graph = unroll(planned(drawing))
    keys = [template.key for template in graph.templates]
    reached: set[tuple[int, int]] = set()
    for start in np.flatnonzero(graph.template == keys.index("x")).tolist():
        found, ahead = {start}, [start]
        while ahead:
            drop = ahead.pop()
            after_it = graph.successors.neighbour[graph.successors.ptr[drop] : graph.successors.ptr[drop + 1]].tolist()
            ahead += [one for one in after_it if one not in found]
            found.update(after_it)
        ends = [one for one in found if graph.template[one] == keys.index("y")]
        reached.update((int(graph.instance[start]), int(graph.instance[end])) for end in ends)

    axes = [(bounds(length, one), bounds(length, two)) for length, one, two in zip(shape, before, after, strict=True)]
    old = list(itertools.product(*(one for one, _ in axes)))
    new = list(itertools.product(*(two for _, two in axes)))
    expected = {
        (first, second)
        for (first, one), (second, other) in itertools.product(enumerate(old), enumerate(new))
        if all(itertools.starmap(meet, zip(one, other, strict=True)))
    }
    assert reached == expected


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.data())
def test_a_reduction_is_a_tree(counts: list[int], data: st.DataObject) -> None:
    """There is a result for each chunk, and then at most `split` are combined at a time until one is left."""
    labels = "ijk"[: len(counts)]
    kept = "".join(label for label in labels if data.draw(st.booleans(), label=label))
    split = data.draw(st.integers(2, 9))
    left = [count for label, count in zip(labels, counts, strict=True) if label in kept]
    drawing = ArrayDrawing().array("x", counts, 1).array("y", left, 1).source("x")
    drawing.reduction("sum", f"{labels} -> {kept}", split=split).link("x", "sum", "y")
    made = unroll(planned(drawing))
    widest = max(np.diff(made.predecessors.ptr), default=0)

    found = sizes(drawing)
    assert found["x"] == found["sum"] == prod(counts)
    assert found["y"] == prod(left)
    axes = sum(count > 1 for label, count in zip(labels, counts, strict=True) if label not in kept)
    assert widest <= max(split, 2**axes)
    steps = [number for key, number in found.items() if key.startswith("sum-combine")]
    assert steps == sorted(steps, reverse=True)
    assert (steps or [prod(counts)])[-1] == prod(left)


@settings(max_examples=30)
@given(st.tuples(*[st.integers(1, 5)] * 3))
def test_labels_say_which_chunks_meet(counts: tuple[int, int, int]) -> None:
    """A chunk of a product of matrices has a row of chunks of one and a column of the other, in their order."""
    rows, inner, columns = counts
    drawing = ArrayDrawing().array("a", [rows, inner], 1).array("b", [inner, columns], 1).source("a").source("b")
    drawing.array("c", [rows, columns], 1)
    drawing.blockwise("product", "x: ij, y: jk -> ik", "def f(x, y):\n    return x @ y\n", "x", "y")
    drawing.read("a", "product", "x").read("b", "product", "y").link("product", "c")

    found = edges(drawing, "a", "product")
    assert sorted(found) == [((i, j), (i, k)) for i in range(rows) for j in range(inner) for k in range(columns)]
    assert len(edges(drawing, "b", "product")) == prod(counts)
    assert edges(drawing, "product", "c") == [(at, at) for at in itertools.product(range(rows), range(columns))]


def test_a_store_is_written_by_drops_of_its_own() -> None:
    """An array with a store has an application that opens it, one for each chunk, and one that completes it."""
    drawing = ArrayDrawing().array("x", [100, 30], [10, 30], store="x.zarr").source("x")

    assert sizes(drawing) == {
        "x": 10,
        "make x": 10,
        "x-open": 1,
        "x-opened": 1,
        "x-write": 10,
        "x-written": 10,
        "x-close": 1,
        "x-store": 1,
    }


def test_what_writes_a_directory_of_the_session_stays_on_one_node() -> None:
    """A store with a relative path is written on one node; one with an absolute path by all nodes."""
    options = PartitionOptions(algorithm="blocks", parts=3)
    apart = {}
    for store in ("x.zarr", "/data/x.zarr"):
        drawing = ArrayDrawing().array("x", [60], 1, store=store).source("x")
        graph = translate(drawing.graph(), partition_options=options).graph
        keys = [template.key for template in graph.templates]
        writers = [row for row, key in enumerate(keys) if key.startswith("x-")]
        apart[store] = len(np.unique(graph.part[np.isin(graph.template, writers)]))
        assert (placement_groups(graph) is None) is store.startswith("/")

    assert apart["x.zarr"] == 1
    assert apart["/data/x.zarr"] > 1


def test_copies_have_arrays_of_their_own() -> None:
    """In a scatter each copy has its chunks; an array outside of it is broadcast to all copies."""
    drawing = ArrayDrawing().array("all", [6], [2]).source("all")
    with drawing.scatter("three", 3):
        drawing.array("y", [6], [2]).blockwise("f", "i -> i", "def f(x):\n    return x\n")
    drawing.link("all", "f", "y")

    found = sizes(drawing)
    assert (found["all"], found["f"], found["y"]) == (3, 9, 9)
    assert edges(drawing, "all", "f") == [((i,), (copy, i)) for i in range(3) for copy in range(3)]


def one(**values: Any) -> ArrayDrawing:
    """Draw an array with its source, and some fields changed."""
    fields = {"shape": [4, 6], "chunks": [2, 3], **values}
    return ArrayDrawing().array("x", fields.pop("shape"), fields.pop("chunks"), **fields).source("x")


def two(labels: str, **values: Any) -> ArrayDrawing:
    """Draw an application between two arrays, with some fields of the second changed."""
    fields = {"shape": [4, 6], "chunks": [2, 3], **values}
    drawing = one().array("y", fields.pop("shape"), fields.pop("chunks"), **fields)
    return drawing.blockwise("f", labels, "def f(x):\n    return x\n").link("x", "f", "y")


def reduced(labels: str, shape: list[int], chunks: list[int]) -> ArrayDrawing:
    """Draw a reduction."""
    return one().array("y", shape, chunks).reduction("sum", labels).link("x", "sum", "y")


def carried(chunks: int, labels: str = "x: i -> j") -> ArrayDrawing:
    """Draw a loop that carries an array; those before it are of two values."""
    drawing = ArrayDrawing().array("before", [6], 2).source("before")
    with drawing.loop("loop", 3):
        drawing.array("after", [6], chunks).blockwise("step", labels, "def f(x):\n    return x\n", "x")
    drawing.link("before", "step", ports=("", "step.x"), aware=True).link("step", "after")
    return drawing.link("after", "step", ports=("", "step.x"), closes=True)


COPY = {"dropclass": "dlg.apps.simple.CopyApp"}

_WRONG: list[tuple[Callable[[], ArrayDrawing], str, str]] = [
    (lambda: one(shape=[4, 0]), "LG130", "the length 0 is not a positive whole number"),
    (lambda: one(shape="four"), "LG130", "it is not a list of numbers"),
    (lambda: one(chunks=[2]), "LG130", "it has 1 axes, and the shape 2"),
    (lambda: one(chunks=[[1, 2], 3]), "LG130", "the chunks of axis 0 make up 3 of its 4 values"),
    (lambda: one(chunks=[2, -2]), "LG130", "chunks of axis 1 need a positive length"),
    (lambda: one(dtype="float65"), "LG130", "the type 'float65' is not one of numbers"),
    (lambda: one(dtype="object"), "LG130", "the type 'object' is not one of numbers"),
    (lambda: one(compressor="zip"), "LG130", "there is no compressor 'zip'"),
    (lambda: one(shape=[2**40, 2**40], chunks=1), "LG120", "more than"),
    (lambda: two(""), "LG131", "has no labels"),
    (lambda: two("ij"), "LG131", "not exactly one '->'"),
    (lambda: two("ij -> i"), "LG131", "has 2 axes, and the labels 'i'"),
    (lambda: two("ii -> ij"), "LG131", "a label is twice"),
    (lambda: two("x: ij, ij -> ij"), "LG131", "does not name its port"),
    (lambda: two("x: ij -> ij"), "LG131", "to which no array is connected"),
    (lambda: two("ij -> ij", chunks=[2, 2]), "LG132", "6 values in chunks of 3 and 'y' has 6 values in chunks of 2"),
    (lambda: two("ij -> ij", chunks=[2, [1, 5]]), "LG132", "in 2 chunks of different lengths"),
    (lambda: reduced("ij -> ji", [6, 4], [3, 2]), "LG131", "reduction 'sum' has the labels 'i j' -> 'j i'"),
    (lambda: reduced("ij -> i", [4], [4]), "LG132", "at the label 'i' of application 'sum'"),
    (lambda: one().array("y", [4, 5], -1).rechunk("r").link("x", "r", "y"), "LG132", "of shape [4, 5]"),
    (lambda: ArrayDrawing().array("x", [4], [2]), "LG133", "no application makes it"),
    (lambda: ArrayDrawing().array("x", [4], [2], store="x.zarr"), "LG133", "a relative path"),
    (lambda: one().app("copy", **COPY).data("d").link("x", "copy", "d"), "LG133", "does not take its chunks"),
    (
        lambda: ArrayDrawing().app("copy", **COPY).array("x", [4], 2).link("copy", "x"),
        "LG133",
        "an ordinary application",
    ),
    (lambda: one(chunks=[[1, 3], 3], store="x.zarr"), "LG133", "chunks of different lengths"),
    (lambda: two("ij -> ij").data("d").link("f", "d"), "LG134", "is not an array"),
    (lambda: one().data("d").link("x", "d"), "LG134", "an array is joined to other data"),
    (lambda: one().data("d").link("d", "x"), "LG134", "other data are joined to an array"),
    (
        lambda: one().app("f", dropclass="dropflow.apps.ArraySource").link("f", "x"),
        "LG134",
        "several applications write",
    ),
    (lambda: one().rechunk("r").link("x", "r"), "LG134", "works on arrays, and writes none"),
    (
        lambda: two("ij -> ij").array("z", [4, 6], [2, 3]).source("z").link("z", "f"),
        "LG134",
        "several arrays are connected to the port",
    ),
    (lambda: carried(3), "LG132", "'before' and 'after' at the port 'x' of 'step' differ in shape or chunks"),
]


@pytest.mark.parametrize(("drawing", "code", "text"), _WRONG, ids=[f"{code} {text}" for _, code, text in _WRONG])
def test_what_does_not_fit_is_a_problem(drawing: Callable[[], ArrayDrawing], code: str, text: str) -> None:
    """Shapes, chunks, labels and stores that cannot be used are errors with a place, before anything is unrolled."""
    found = [one for one in planned(drawing()).problems if one.code != "LG041"]

    assert {one.code for one in found} == {code}
    assert any(text in one.text for one in found)
    assert found[0].where.startswith("/")
    assert found[0].hint


def test_a_loop_carries_each_chunk_to_the_next_iteration() -> None:
    """The first iteration gets chunks from before the loop, and each other one those of the iteration before it."""
    drawing = carried(2, "x: i -> i")

    assert codes(drawing) == []
    assert edges(drawing, "before", "step") == [((i,), (0, i)) for i in range(3)]
    assert edges(drawing, "after", "step") == [((turn, i), (turn + 1, i)) for turn in range(2) for i in range(3)]


def test_problems_of_all_arrays_are_found_at_once() -> None:
    """One answer has the problems of all arrays and of all fields of an array."""
    drawing = one(shape=[0], dtype="text").array("y", [4], [3], dtype="cake").array("z", [4], [2])

    assert codes(drawing) == ["LG130", "LG130", "LG130", "LG133"]


def test_an_array_of_a_scatter_leads_out_of_it_only_by_its_store() -> None:
    """Applications outside of a scatter do not take the chunks of all its copies."""
    drawing = ArrayDrawing()
    with drawing.scatter("three", 3):
        drawing.array("x", [4], [2]).source("x")
    drawing.array("y", [4], [2]).blockwise("f", "i -> i", "def f(x):\n    return x\n").link("x", "f", "y")

    assert codes(drawing) == ["LG134"]


def test_copies_that_write_one_store_are_a_problem() -> None:
    """Copies of an array in a scatter need stores of their own."""
    drawing = ArrayDrawing()
    with drawing.scatter("three", 3):
        drawing.array("x", [4], [2], store="x.zarr").source("x")
    with pytest.raises(Exception, match=r"LG135 3 drops of 'store of x' write one file, x\.zarr") as caught:
        translate(drawing.graph())

    assert caught.value.problems[0].where == "/nodeDataArray/1"


def test_code_of_the_graph_is_not_run_by_translation() -> None:
    """Functions are only named: translating a graph whose code would end the process succeeds."""
    drawing = one().array("y", [4, 6], [2, 3]).blockwise("f", "ij -> ij", "raise SystemExit(3)\n").link("x", "f", "y")

    assert translate(drawing.graph()).graph.drops == 16


def test_a_plan_has_no_object_for_each_chunk() -> None:
    """A plan is as large for a million chunks as for a hundred, but for the axes."""

    def objects(count: int) -> int:
        drawing = ArrayDrawing().array("x", [count, 100], 1).array("y", [count], 1).source("x")
        drawing.reduction("sum", "ij -> i").link("x", "sum", "y")
        made = plan(drawing.graph(), UnrollOptions())
        assert made.drops > 100 * count
        return len(msgspec.json.encode(made.templates)) + len(made.links)

    assert objects(10_000) < objects(1) * 1.2


def test_a_tiled_graph_is_written_as_json_and_read_again(tmp_path: Any) -> None:
    """DALiuGE's JSON has the chunks, with what the applications need to know."""
    drawing = one(store="x.zarr")
    graph = unroll(planned(drawing))
    with (tmp_path / "pg.json").open("wb") as stream:
        write_pg(graph, stream)
    again = translate(tmp_path / "pg.json").graph

    assert again.drops == graph.drops
    told = {one.get("lg_key"): one.get("tiling") for one in json.loads((tmp_path / "pg.json").read_bytes())}
    assert Tiling.read(told["x-write"]["array"]) == Tiling((4, 6), (2, 3))


def test_the_number_of_pieces_is_that_of_both_tilings() -> None:
    """Turning rows into columns cuts each row into as many pieces as there are columns."""
    drawing = ArrayDrawing().array("rows", [8, 9], [2, 9]).array("columns", [8, 9], [8, 2]).source("rows")
    drawing.rechunk("turn").link("rows", "turn", "columns")

    assert sizes(drawing)["turn-piece"] == ceil(8 / 2) * ceil(9 / 2)
