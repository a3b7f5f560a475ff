"""Random graphs, machines and assignments. Numbers are sums of few powers of two, so that floats are exact."""

from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import strategies as st

from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from translator.plan.machines import LinkSpeed, Machines, NodeCapacity


@st.composite
def machines(draw: st.DrawFn, *, most: int = 4) -> Machines:
    """Draw up to `most` nodes on two islands."""
    node = st.builds(
        NodeCapacity,
        name=st.just(""),
        cores=st.integers(1, 3),
        speed=st.sampled_from([0.5, 1.0, 2.0]),
        memory=st.sampled_from([float("inf"), 8.0]),
        gpus=st.sampled_from([0, 1, 3]),
        island=st.sampled_from(["a", "b"]),
    )
    nodes = draw(st.lists(node, min_size=1, max_size=most))
    speed = st.builds(LinkSpeed, bandwidth=st.sampled_from([1.0, 2.0, 8.0]), latency=st.sampled_from([0.0, 0.0, 0.25]))
    return Machines(
        nodes=tuple(msgspec.structs.replace(n, name=f"n{k}") for k, n in enumerate(nodes)),
        links=draw(speed),
        between_islands=draw(st.none() | speed),
        contention=draw(st.booleans()),
    )


@st.composite
def work_graphs(draw: st.DrawFn, *, most: int = 8, producers: int = 1, gpus: int = 0) -> PhysicalGraph:
    """Draw a graph of up to `most` applications with up to `gpus` GPUs, whose data have up to `producers` producers."""
    builder = GraphBuilder("plan")
    names: list[str] = []
    roots = draw(st.integers(0, 2))
    volumes = st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0])
    for number in range(roots):
        names.append(f"r{number}")
        builder.data(names[-1], weight=draw(volumes))
    written: dict[str, list[str]] = {}
    for number in range(draw(st.integers(1, most))):
        app = f"A{number}"
        memory = draw(st.sampled_from([None, None, 4.0, "6 B", 16]))
        fields = {"memory": memory, "num_gpus": draw(st.sampled_from([None, None, 1, gpus])) if gpus else None}
        arguments = tuple(Argument(name=name, value=value) for name, value in fields.items() if value is not None)
        builder.app(
            app,
            weight=draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])),
            cpus=draw(st.sampled_from([1, 1, 1, 2, 4])),
            arguments=arguments,
        )
        inputs = draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) if names else []
        for data in inputs:
            builder.connect(data, app)
            written.pop(data, None)  # gets no further producer, so that there is no cycle
        for data in draw(st.lists(st.sampled_from(sorted(written)), unique=True, max_size=1)) if written else []:
            if len(written[data]) < producers:
                builder.connect(app, data)
                written[data].append(app)
        for output in range(draw(st.integers(0, 2))):
            names.append(f"d{number}-{output}")
            builder.data(names[-1], weight=draw(volumes))
            builder.connect(app, names[-1])
            written[names[-1]] = [app]
    return builder.build()


@st.composite
def plans(draw: st.DrawFn, *, most: int = 8) -> tuple[PhysicalGraph, Machines, list[int] | None]:
    """Draw a graph with parts, machines for them, and perhaps priorities."""
    graph, where = draw(work_graphs(most=most, producers=2, gpus=2)), draw(machines())
    part = draw(st.lists(st.integers(0, len(where.nodes) - 1), min_size=graph.drops, max_size=graph.drops))
    priority = draw(st.none() | st.lists(st.integers(-3, 3), min_size=graph.drops, max_size=graph.drops))
    return replace(graph, part=np.array(part, dtype=np.int32)), where, priority
