"""Physical graphs for tests: regular ones of any size, and random ones."""

import math
import random
from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import strategies as st

from dropflow.graph.build import from_columns
from dropflow.graph.daliuge_read import collecting
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.slices import (
    Slice,
    slice_for,
)
from dropflow.graph.templates import Argument, Axis, Kind, Link, Template
from tests.translator.drawing import Drawing
from translator.options import UnrollOptions
from translator.unroll import outline_of, unroll

# Graphs whose drops must stay together.


def exclusive_and_mpi(copies: int, ranks: int = 2) -> PhysicalGraph:
    """Return a root, and in each copy data, an application of two alone on a node, and an MPI job."""
    drawing = Drawing().data("root")
    with drawing.scatter("S", copies):
        drawing.app("first").data("given")
        with drawing.construct("ExclusiveForceNode", "X"):
            drawing.app("alone").data("made")
        drawing.app("job", category="Mpi", num_of_procs=ranks).data("end")
    drawing.link("root", "first", "given", "alone", "made", "job", "end")
    return unroll(outline_of(drawing.graph(), UnrollOptions()))


def scatter(copies: int, *, name: str = "scatter", prefix: str = "s") -> PhysicalGraph:
    """Return copies of data -> app -> data, gathered by one application."""
    axes = (Axis("s", "s", "scatter", copies),)
    arguments = (Argument(name="execution_time", value=5, type="Integer"),)
    templates = [
        Template(key="in", name="in", kind=Kind.DATA, axes=axes, weight=3.0),
        Template(key="work", name="work", kind=Kind.APP, axes=axes, arguments=arguments, weight=5.0),
        Template(key="out", name="out", kind=Kind.DATA, axes=axes),
        Template(key="join", name="join", kind=Kind.APP),
    ]
    links = [Link(source=0, target=1), Link(source=1, target=2, source_port="result"), Link(source=2, target=3)]
    row = np.arange(copies, dtype=np.int32)
    return from_columns(
        name=name,
        prefix=prefix,
        templates=templates,
        links=links,
        template=np.repeat(np.arange(4, dtype=np.int32), [copies, copies, copies, 1]),
        instance=np.concatenate([row, row, row, row[:1]]),
        source=np.concatenate([row, row + copies, row + 2 * copies]),
        target=np.concatenate([row + copies, row + 2 * copies, np.full(copies, 3 * copies, dtype=np.int32)]),
        link=np.repeat(np.arange(3, dtype=np.int32), copies),
    )


def chain(drops: int) -> PhysicalGraph:
    """Return a chain of data and applications in turn; `drops` is even."""
    axes = (Axis("l", "l", "loop", drops // 2),)
    row = np.arange(drops, dtype=np.int32)
    return from_columns(
        name="chain",
        prefix="c",
        templates=[
            Template(key="d", name="d", kind=Kind.DATA, axes=axes),
            Template(key="a", name="a", kind=Kind.APP, axes=axes, weight=2.0),
        ],
        links=[Link(source=0, target=1), Link(source=1, target=0, carry=True)],
        template=row % 2,
        instance=row // 2,
        source=row[:-1],
        target=row[1:],
        link=row[:-1] % 2,
    )


def edges_of(graph: PhysicalGraph) -> list[tuple[int, int, int]]:
    """Return (source, link, target) of every edge."""
    out = graph.successors
    return [
        (drop, int(out.link[edge]), int(out.neighbour[edge]))
        for drop in range(graph.drops)
        for edge in range(out.ptr[drop], out.ptr[drop + 1])
    ]


_names = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=6)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=4,
)


def _argument(name: str) -> st.SearchStrategy[Argument]:
    return st.builds(
        Argument,
        name=st.just(name),
        value=_json,
        type=st.sampled_from(["String", "Integer", "Float", "Boolean", "Json", "Object.File"]),
        encoding=st.sampled_from(["", "pickle", "dill", "npy"]),
        usage=st.sampled_from(["NoPort", "InputPort", "OutputPort", "InputOutput"]),
        parameter_type=st.sampled_from(["ComponentParameter", "ApplicationArgument", "ConstraintParameter"]),
        positional=st.booleans(),
        precious=st.booleans(),
        id=_names,
        default=_json,
        options=st.lists(_names, max_size=2).map(tuple),
        description=_names,
    )


@st.composite
def _details(draw: st.DrawFn, template: Template) -> Template:
    """Return the template with all of its fields set."""
    # Names of parameters that are also names of structural keys are the interesting ones.
    names = draw(st.lists(st.sampled_from(["x", "y", "name", "weight", "node", "inputs", "type"]), unique=True))
    return msgspec.structs.replace(
        template,
        name=draw(_names.filter(bool)),
        component=draw(st.sampled_from(["dlg.apps.simple.CopyApp", "my.Own"])),
        category=draw(st.sampled_from(["Memory", "File", "PyFuncApp", ""])),
        arguments=tuple(draw(_argument(name)) for name in names),
        weight=float(draw(st.integers(0, 9))),
        cpus=draw(st.integers(1, 4)) if template.kind is Kind.APP else 1,
        error_threshold=float(draw(st.integers(0, 100))),
        tries=draw(st.integers(1, 3)),
        effective_inputs=draw(st.integers(-1, 3)),
        block_skip=draw(st.booleans()),
        persist=draw(st.none() | st.booleans()),
        collects=tuple(draw(st.lists(_names, max_size=2, unique=True))),
    )


@st.composite
def graphs(draw: st.DrawFn, *, acyclic: bool = True, detailed: bool = False) -> PhysicalGraph:
    """Draw random graphs of up to some forty drops, with random parts and edges in random order."""
    shapes = draw(st.lists(st.lists(st.integers(1, 3), max_size=2), min_size=2, max_size=5))
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    templates = []
    for number, shape in enumerate(shapes):
        axes = tuple(Axis(f"c{level}", "", "scatter", size) for level, size in enumerate(shape))
        kind = Kind(number) if number < len(Kind) else chance.choice(list(Kind))
        plain = Template(key=f"k{number}", name=f"n{number}", kind=kind, axes=axes, weight=float(chance.randrange(9)))
        templates.append(draw(_details(plain)) if detailed else plain)
    rows = [(row, item) for row, one in enumerate(templates) for item in range(math.prod(one.shape))]
    links: dict[tuple[int, int, str, str], int] = {}
    edges = set()
    for _ in range(draw(st.integers(0, 40))):
        ends = (chance.randrange(len(rows)), chance.randrange(len(rows)))
        source, target = sorted(ends) if acyclic else ends
        before, after = rows[source][0], rows[target][0]
        if templates[before].kind is not templates[after].kind:
            words = (before, after, chance.choice(["", "x"]), chance.choice(["", "y", "z"]))
            edges.add((source, target, links.setdefault(words, len(links))))
    shuffled = sorted(edges)
    chance.shuffle(shuffled)
    columns = np.array(shuffled, dtype=np.int32).reshape(-1, 3).T
    graph = from_columns(
        name="random",
        prefix="r",
        templates=templates,
        links=[Link(source=a, target=b, source_port=p, target_port=q) for a, b, p, q in links],
        template=np.array([row for row, _ in rows], dtype=np.int32),
        instance=np.array([item for _, item in rows], dtype=np.int32),
        source=columns[0],
        target=columns[1],
        link=columns[2],
        part=np.array([chance.randrange(4) for _ in rows], dtype=np.int32),
    )
    return replace(graph, templates=collecting(graph))


# Slices of all nodes.


def slice_by_place(graph: PhysicalGraph) -> dict[str, Slice]:
    """Return the slices of a placed graph by node, for all nodes with drops."""
    slices = {node: slice_for(graph, node) for node in sorted(set(graph.places)) or [""]}
    return {node: piece for node, piece in slices.items() if piece.graph.drops}


def drops_of(graph: PhysicalGraph, *keys: str) -> list[int]:
    """Return the drops of some nodes."""
    return [drop for drop in range(graph.drops) if graph.templates[graph.template[drop]].key in keys]
