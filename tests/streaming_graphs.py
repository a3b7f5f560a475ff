"""Graphs with streaming links, and applications that write and read several streams in a particular order."""

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from dropflow.api.contents_answer import Download
from dropflow.apps.app_interface import App, Context
from dropflow.execution.session import Session
from dropflow.graph.build import GraphBuilder
from dropflow.graph.components import Component
from dropflow.graph.order import leaves
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind
from dropflow.graph.text_ids import oids
from dropflow.session_options import RunOptions
from dropflow.sessions import local_run
from dropflow.sessions.local_run import RunHooks
from dropflow.states import DropState
from managers.node.downloads import content_download

Picture = tuple[dict[str, str], dict[str, int]]
"""State of every drop, and CRC-32 of the content of every leaf that has one."""

FILE = "dlg.data.drops.file.FileDROP"
MEMORY = "dlg.data.drops.memory.InMemoryDROP"

BLOCK = 1 << 16


def bash(kind: str, command: str, **fields: object) -> dict[str, Any]:
    """Return the fields of a shell command."""
    arguments = (Argument(name="command", value=command, type="String"),)
    return {"component": f"dlg.apps.bash_shell_app.{kind}", "arguments": arguments, **fields}


def line(make: str, take: str, places: tuple[int, int, int], *, data: str = FILE, tries: int = 1) -> PhysicalGraph:
    """Return MAKE -> data -> TAKE -> result with a streaming link: the first three on these nodes."""
    drawing = GraphBuilder("line")
    drawing.app("MAKE", part=places[0], **bash("StreamingOutputBashApp", make, tries=tries))  # type: ignore[arg-type]
    drawing.data("data", component=data, part=places[1])
    drawing.app("TAKE", part=places[2], **bash("StreamingInputOutputBashApp", take))  # type: ignore[arg-type]
    drawing.data("result", part=places[2])
    drawing.connect("MAKE", "data").connect("data", "TAKE", streaming=True).connect("TAKE", "result")
    return drawing.build()


def filters(make: str, *takes: str, places: Sequence[int], data: str = FILE) -> PhysicalGraph:
    """Return MAKE -> d0 -> F1 -> d1 -> ... -> result, with streaming links only; each filter and its data on a node."""
    drawing = GraphBuilder("filters")
    drawing.app("MAKE", part=places[0], **bash("StreamingOutputBashApp", make))  # type: ignore[arg-type]
    drawing.data("d0", component=data, part=places[0]).connect("MAKE", "d0")
    for at, take in enumerate(takes, 1):
        drawing.app(f"F{at}", part=places[at], **bash("StreamingInputOutputBashApp", take))  # type: ignore[arg-type]
        drawing.data(f"d{at}", component=data, part=places[at])
        drawing.connect(f"d{at - 1}", f"F{at}", streaming=True).connect(f"F{at}", f"d{at}")
    return drawing.build()


def fan(make: str, takes: Sequence[tuple[str, int, bool]]) -> PhysicalGraph:
    """Return MAKE -> data on the first node, and consumers: command, node, and whether the link is streaming."""
    drawing = GraphBuilder("fan")
    drawing.app("MAKE", **bash("StreamingOutputBashApp", make)).data("data", component=FILE)  # type: ignore[arg-type]
    drawing.connect("MAKE", "data")
    for at, (take, part, streaming) in enumerate(takes):
        app, data = f"TAKE{at}", f"r{at}"
        drawing.app(app, part=part, **bash("StreamingInputOutputBashApp", take))  # type: ignore[arg-type]
        drawing.data(data, part=part).connect("data", app, streaming=streaming).connect(app, data)
    return drawing.build()


class CrossWriter(App):
    """Writes a number of bytes to its first output, then as many to its second."""

    component = Component(
        name="CrossWriter",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="tests.streaming_graphs.CrossWriter",
        description="For tests.",
    )

    def run(self, context: Context) -> None:
        """Write."""
        size = int(next(each.value for each in self.template.arguments if each.name == "size"))
        for output in context.outputs:
            for _ in range(size // BLOCK):
                output.write(bytes(BLOCK))


class CrossReader(App):
    """Reads all of its second input while it holds the first one open, then the first."""

    component = Component(
        name="CrossReader",
        kind=Kind.APP,
        category="DALiuGEApp",
        dropclass="tests.streaming_graphs.CrossReader",
        description="For tests.",
    )
    streams = True

    def run(self, context: Context) -> None:
        """Read."""
        first, second = context.inputs
        with first.open() as x, second.open() as y:
            sizes = [_length(stream) for stream in (y, x)]
        context.outputs[0].write(f"{sizes[0]} {sizes[1]}")


def _length(stream: BinaryIO) -> int:
    return sum(len(block) for block in iter(partial(stream.read, BLOCK), b""))


def crossing(size: int, places: tuple[int, int, int]) -> PhysicalGraph:
    """Return a writer of x, then y, and a reader of y, then x, which would be a deadlock with bounded channels."""
    writer, between, reader = places
    drawing = GraphBuilder("crossing")
    arguments = (Argument(name="size", value=size, type="Integer"),)
    drawing.app("WRITE", component="tests.streaming_graphs.CrossWriter", arguments=arguments, part=writer)
    drawing.data("x", component=FILE, part=between).data("y", component=FILE, part=between)
    drawing.app("READ", component="tests.streaming_graphs.CrossReader", part=reader).data("sizes", part=reader)
    drawing.connect("WRITE", "x").connect("WRITE", "y")
    drawing.connect("x", "READ", streaming=True).connect("y", "READ", streaming=True)
    return drawing.connect("READ", "sizes").build()


def random_graph(seed: int, apps: int, *, marks: Path, failing: float = 0.0) -> PhysicalGraph:
    """Applications that each read one to three earlier contents, mostly over streaming links.

    Each output depends on what its application read. The share `failing` of them fails in mid-stream: some for good,
    some at their first attempt only (they leave a file in `marks` by then) and have a second one.
    """
    rng = random.Random(seed)
    drawing = GraphBuilder(f"random{seed}")
    drawing.app("A0", **bash("StreamingOutputBashApp", "seq 5000"))  # type: ignore[arg-type]
    drawing.data("d0", component=FILE).connect("A0", "d0")
    for at in range(1, apps):
        sources = rng.sample(range(at), min(at, rng.choice((1, 1, 1, 2, 3))))
        fields: dict[str, object] = {"component": "dlg.apps.simple.CopyApp"}
        if len(sources) == 1:
            fields = bash("StreamingInputOutputBashApp", f"cat; echo from {at}")
        if len(sources) == 1 and rng.random() < failing:
            fields = _failing(at, marks, for_good=rng.random() < 0.3)
        drawing.app(f"A{at}", error_threshold=rng.choice((0, 50)), **fields)  # type: ignore[arg-type]
        drawing.data(f"d{at}", component=rng.choice((FILE, MEMORY))).connect(f"A{at}", f"d{at}")
        for source in sources:
            drawing.connect(f"d{source}", f"A{at}", streaming=rng.random() < 0.7)
    return drawing.build()


def scattered(graph: PhysicalGraph, parts: int, seed: int) -> PhysicalGraph:
    """Return the graph with every drop in a random part; no part is empty."""
    part = np.random.default_rng(seed).integers(0, parts, graph.drops).astype(np.int32)
    part[:parts] = range(parts)
    return replace(graph, part=part)


def unstreamed(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph without streaming links."""
    return replace(graph, links=tuple(msgspec.structs.replace(link, streaming=False) for link in graph.links))


def _failing(at: int, marks: Path, *, for_good: bool) -> dict[str, object]:
    """Return a filter that fails after it has written some data."""
    if for_good:
        return bash("StreamingInputOutputBashApp", "read line; echo $line; exit 1")
    mark = f"{marks}/{at}"
    command = f"if test -e {mark}; then cat; echo from {at}; else read line; echo $line; touch {mark}; exit 1; fi"
    return bash("StreamingInputOutputBashApp", command, tries=2)


def content(download: Download) -> bytes:
    """Return the whole content."""
    return b"".join(download.chunks)


def written(root: Path) -> int:
    """Return the size of the largest temporary content below the root of a node."""
    sizes = [0]
    for path in root.glob("sessions/*/tmp/*"):
        try:
            sizes.append(path.stat().st_size if path.is_file() else 0)
        except FileNotFoundError:
            continue
    return max(sizes)


def settled(measure: Callable[[], int], pause: Callable[[float], object], *, least: int) -> int:
    """Return the value of `measure` when it is at least `least` and equal in fifty successive measurements."""
    last, same = -1, 0
    for _ in range(3000):
        now = measure()
        same = same + 1 if now == last and now >= least else 0
        last = now
        if same == 50:
            return now
        pause(0.01)
    raise AssertionError(f"it does not come to rest, but is {last} now")


def alone(graph: PhysicalGraph, directory: Path) -> Picture:
    """Run a graph in one process, without streams; return the states and contents."""
    kept: list[Session] = []
    plain = unstreamed(graph)
    local_run.run(
        plain,
        local_run.prepare_directory(directory),
        RunOptions(runner="threads"),
        hooks=RunHooks(on_session=kept.append),
    )
    names = oids(graph, range(graph.drops))
    states = {name: DropState(state).name for name, state in zip(names, kept[0].core.drops.states, strict=True)}
    handles = {names[leaf]: kept[0].content(leaf) for leaf in leaves(graph).tolist()}
    contents = {
        name: zlib.crc32(b"".join(content_download(handle, "x").chunks)) for name, handle in handles.items() if handle
    }
    return states, contents
