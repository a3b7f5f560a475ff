"""Graphs and workloads drawn from a seed, whose states and contents are the same in every run."""

import hashlib
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from dropflow.engine.api import Task
from dropflow.graph.build import GraphBuilder
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument
from managers.simulation.faults import happens
from managers.simulation.history import content_bytes
from managers.simulation.simulated_node import Workload

__all__ = ["RandomGraph", "draw_graph", "draw_workload"]

_FILE = "dlg.data.drops.file.FileDROP"
_COMMAND = (Argument(name="command", value="true", type="String"),)


class RandomGraph(msgspec.Struct, frozen=True):
    """A graph, and how its tasks behave.

    Attributes
    ----------
    graph : PhysicalGraph
        Its prefix is the name of its session.
    failing : frozenset of str
        Ids of the applications that always fail.
    failing_once : frozenset of str
        Ids of the applications that fail at their first attempt.
    skipping : frozenset of str
        Ids of the data drops that their producers choose to skip.
    reads_inputs : bool
        Whether contents depend on the inputs of the tasks that write them.
    has_streams : bool
        Whether there are drops that are read while they are written.
    is_noisy : bool
        Whether each attempt writes something else: then reads of two attempts' contents can be told apart.
    """

    graph: PhysicalGraph
    failing: frozenset[str] = frozenset()
    failing_once: frozenset[str] = frozenset()
    skipping: frozenset[str] = frozenset()
    reads_inputs: bool = True
    has_streams: bool = False
    is_noisy: bool = False


def draw_graph(session: str, parts: int, chance: random.Random) -> RandomGraph:
    """Return a graph of a random kind, with every drop in a random part."""
    draw = chance.choice((_fan, _streams, _layers, _layers, _few_inputs))
    drawn = draw(session, chance)
    if not drawn.has_streams and happens(chance, 0.25):
        drawn = msgspec.structs.replace(drawn, is_noisy=True)
    part = np.array([chance.randrange(parts) for _ in range(drawn.graph.drops)], dtype=np.int32)
    placed = replace(drawn.graph, part=part, places=tuple(f"#{number}" for number in range(parts)))
    return msgspec.structs.replace(drawn, graph=placed)


def draw_workload(graphs: Mapping[str, RandomGraph], chance: random.Random) -> Workload:
    """Return what the tasks of all graphs do; attempts take some time, and contents are small or large."""
    failing = frozenset[str]().union(*(one.failing for one in graphs.values()))
    once = frozenset[str]().union(*(one.failing_once for one in graphs.values()))
    skipping = frozenset[str]().union(*(one.skipping for one in graphs.values()))
    reading = {session: one.reads_inputs for session, one in graphs.items()}
    noisy = {session for session, one in graphs.items() if one.is_noisy}
    numbers = itertools.count()
    repeats = chance.choice((1, 1, 5000))

    def content(task: Task, drop: int) -> bytes:
        name = next((output.oid for output in task.outputs if output.drop == drop), task.oid)
        digest = hashlib.sha256(name.encode())
        if task.oid.partition("_")[0] in noisy:
            digest.update(b"%d" % next(numbers))
        if reading[task.oid.partition("_")[0]]:
            for one in task.inputs:
                digest.update(b"%d" % one.state + (b"" if one.handle is None else content_bytes(one.handle)))
        return digest.digest() * repeats

    return Workload(
        seconds=chance.choice((0.05, 1.0, 3.0, 6.0, 12.0)),
        fails=lambda task, _node: task.oid in failing or (task.oid in once and task.attempt == 1),
        skips=lambda task: tuple(output.drop for output in task.outputs if output.oid in skipping),
        content=content,
    )


def _fan(session: str, chance: random.Random) -> RandomGraph:
    """Chains of two applications between a start and an end."""
    builder = GraphBuilder(session).app("root").data("start").app("join").data("end")
    builder.connect("root", "start").connect("join", "end")
    for number in range(chance.randint(1, 8)):
        first, second, third, fourth = (f"{letter}{number}" for letter in "abcd")
        builder.app(first).data(second).app(third).data(fourth)
        builder.connect("start", first).connect(first, second).connect(second, third)
        builder.connect(third, fourth).connect(fourth, "join")
    return RandomGraph(builder.build())


def _streams(session: str, chance: random.Random) -> RandomGraph:
    """Rows of filters over streaming links."""
    builder = GraphBuilder(session).app("join", tries=3).data("end").connect("join", "end")
    once = set()
    for row in range(chance.randint(1, 4)):
        component = "dlg.apps.bash_shell_app.Streaming"
        builder.app(f"make{row}", component=f"{component}OutputBashApp", arguments=_COMMAND, tries=3)
        for name in ("filter", "take"):
            builder.app(f"{name}{row}", component=f"{component}InputOutputBashApp", arguments=_COMMAND, tries=3)
        builder.data(f"a{row}", component=_FILE).data(f"b{row}", component=_FILE).data(f"c{row}")
        builder.connect(f"make{row}", f"a{row}").connect(f"a{row}", f"filter{row}", streaming=True)
        builder.connect(f"filter{row}", f"b{row}").connect(f"b{row}", f"take{row}", streaming=True)
        builder.connect(f"take{row}", f"c{row}").connect(f"c{row}", "join")
        once |= {f"{session}_{name}{row}_0" for name in ("make", "filter", "take") if happens(chance, 0.2)}
    return RandomGraph(builder.build(), failing_once=frozenset(once), reads_inputs=False, has_streams=True)


def _layers(session: str, chance: random.Random) -> RandomGraph:
    """Layers of applications: failures with thresholds, branches, and data drops with several producers."""
    builder = GraphBuilder(session)
    troubled = happens(chance, 0.6)
    before: list[str] = []
    for number in range(chance.randint(0, 2)):
        builder.data(f"root{number}")
        before.append(f"root{number}")
    failing, once, skipping = set[str](), set[str](), set[str]()
    for layer in range(chance.randint(2, 5)):
        apps = [f"A{layer}-{number}" for number in range(chance.randint(1, 4))]
        for app in apps:
            tries = _add_app(builder, app, before, chance)
            if troubled and happens(chance, 0.1):
                failing.add(app)
            elif tries > 1 and happens(chance, 0.3):
                once.add(app)
        written = [name for app in apps for name in _add_outputs(builder, app, apps, chance)]
        skipping.update(name for name in written if troubled and happens(chance, 0.1))
        before = [*written, *chance.sample(before, len(before) // 2)]

    def named(names: set[str]) -> frozenset[str]:
        return frozenset(f"{session}_{name}_0" for name in names)

    return RandomGraph(builder.build(), named(failing), named(once), named(skipping))


def _add_app(builder: GraphBuilder, app: str, before: Sequence[str], chance: random.Random) -> int:
    """Add an application that reads some data; return how many tries it has."""
    tries = chance.choice((1, 2, 3))
    blocks, threshold = happens(chance, 0.3), chance.choice((0.0, 0.0, 50.0, 100.0))
    builder.app(app, tries=tries, block_skip=blocks, error_threshold=threshold)
    for name in chance.sample(before, min(len(before), chance.randint(1, 3))):
        builder.connect(name, app)
    return tries


def _add_outputs(builder: GraphBuilder, app: str, apps: Sequence[str], chance: random.Random) -> list[str]:
    """Add data that an application writes, and sometimes others, too; return their names."""
    names = [f"{app}-d{number}".replace("A", "d", 1) for number in range(chance.randint(1, 2))]
    for name in names:
        builder.data(name, persist=happens(chance, 0.2), block_skip=happens(chance, 0.2)).connect(app, name)
        for other in apps:
            if other != app and happens(chance, 0.15):
                builder.connect(other, name)
    return names


def _few_inputs(session: str, chance: random.Random) -> RandomGraph:
    """Applications that act on some of their inputs, whichever come first."""
    builder = GraphBuilder(session)
    wide, then = chance.randint(2, 6), chance.randint(1, 3)
    for number in range(wide):
        builder.app(f"make{number}").data(f"d{number}").connect(f"make{number}", f"d{number}")
    for number in range(then):
        builder.app(f"some{number}", effective_inputs=chance.randint(1, wide)).data(f"e{number}", persist=True)
        builder.connect(f"some{number}", f"e{number}")
        for other in range(wide):
            builder.connect(f"d{other}", f"some{number}")
    return RandomGraph(builder.build(), reads_inputs=False)
