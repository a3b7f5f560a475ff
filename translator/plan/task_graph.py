"""The graph of applications that planners work on: data drops become edges and nets, and follow their applications.

A data drop belongs on the node of its producer, or, without one, on that of a consumer: elsewhere it would move once
more. So planners decide about *tasks*: the applications, and data drops with several producers and several consumers,
which would otherwise be as many edges as there are pairs of them.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.templates import Kind, needs_of
from translator.plan.machines import Machines

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]
Wide = npt.NDArray[np.int64]
_GIVEN = 1e-6
"""Weight of all data that no task makes together, as a share of the weight of those that tasks make."""

# The work of a graph as columns: times, processors, memory, GPUs and volumes of its drops.


@dataclass(frozen=True)
class GraphWork:
    """The times and resources of the drops of a graph, as columns.

    Attributes
    ----------
    drops : int
        Number of drops.
    is_app : bool array, shape (drops,)
        Whether a drop is an application.
    seconds : float array, shape (drops,)
        Execution time on a node of speed 1; 0 for data.
    cpus : int32 array, shape (drops,)
        Processors, at least 1; 0 for data.
    memory : float array, shape (drops,)
        Bytes of memory that an application declares; 0 for data.
    gpus : int32 array, shape (drops,)
        GPUs that an application declares; 0 for data.
    volume : float array, shape (drops,)
        Bytes of a data drop; 0 for applications.
    source, target : int32 arrays, shape (edges,)
        Ends of the edges, sorted by source.
    """

    drops: int
    is_app: Bits
    seconds: Floats
    cpus: IntColumn
    memory: Floats
    gpus: IntColumn
    volume: Floats
    source: IntColumn
    target: IntColumn

    @cached_property
    def work(self) -> Floats:
        """Core seconds of each drop, shape (drops,)."""
        work: Floats = self.seconds * self.cpus
        return work

    @cached_property
    def is_made(self) -> Bits:
        """The drops that an application writes, shape (drops,)."""
        is_made = np.zeros(self.drops, dtype=np.bool_)
        is_made[self.target[~self.is_app[self.target]]] = True
        return is_made

    def exceeds(self, machines: Machines, part: IntColumn) -> Bits:
        """Return which drops ask for more than the node of their part has, shape (drops,)."""
        cores, memory, gpus = (column[part] for column in capacities(machines))
        exceeds: Bits = (self.cpus > cores) | (self.memory > memory) | (self.gpus > gpus)
        return exceeds

    def without_given(self) -> "GraphWork | None":
        """Return the work as it is where data that no application makes need not move; None if there are none."""
        given = ~self.is_app & ~self.is_made & (self.volume > 0)
        return replace(self, volume=np.where(given, 0.0, self.volume)) if given.any() else None

    @cached_property
    def apps(self) -> IntColumn:
        """The applications, ascending."""
        return np.flatnonzero(self.is_app).astype(np.int32)


def capacities(machines: Machines) -> tuple[IntColumn, Floats, Floats]:
    """Return the processors, the memory and the GPUs of each node."""
    nodes = machines.nodes
    cores = np.array([node.cores for node in nodes], dtype=np.int32)
    memory, gpus = (np.array([getattr(node, name) for node in nodes], dtype=np.float64) for name in ("memory", "gpus"))
    return cores, memory, gpus


def work_of(graph: PhysicalGraph) -> GraphWork:
    """Return the work of a graph, from its measured weights or those of its templates."""
    kinds = [template.kind is Kind.APP for template in graph.templates]

    def column(values: list[Any], dtype: Any) -> npt.NDArray[Any]:
        return np.array(values, dtype=dtype)[graph.template]

    pairs = list(zip(graph.templates, kinds, strict=True))
    is_app = column(kinds, np.bool_)
    weight = graph.drop_weights
    return GraphWork(
        drops=graph.drops,
        is_app=is_app,
        seconds=np.where(is_app, weight, 0.0),
        cpus=column([needs_of(template).cpus if app else 0 for template, app in pairs], np.int32),
        memory=column([needs_of(template).memory for template in graph.templates], np.float64),
        gpus=column([needs_of(template).gpus for template in graph.templates], np.int32),
        volume=np.where(is_app, 0.0, weight),
        source=np.repeat(np.arange(graph.drops, dtype=np.int32), np.diff(graph.successors.ptr)),
        target=graph.successors.neighbour,
    )


@dataclass(frozen=True)
class Nets:
    """The data drops with several tasks: the hypergraph of what moves.

    If the tasks of a net are in n parts, its bytes move n - 1 times. What no task makes may be anywhere when the graph
    begins, so it only decides between partitions that move equally much of the rest: all of it counts a millionth.

    Attributes
    ----------
    ptr, task : int64 arrays
        The tasks of net i, without repetitions, are ``task[ptr[i]:ptr[i + 1]]``.
    volume : float array, shape (nets,)
        Bytes of each, as they count.
    is_made : bool array, shape (nets,)
        Whether a task makes it.
    """

    ptr: Wide
    task: Wide
    volume: Floats
    is_made: Bits

    @cached_property
    def made(self) -> "Nets":
        """The nets that tasks make; all, if they make none."""
        kept = self.is_made
        if kept.all() or not kept.any():
            return self
        ptr = np.append(0, np.cumsum(np.diff(self.ptr)[kept]))
        return Nets(ptr=ptr, task=self.task[kept[self.net]], volume=self.volume[kept], is_made=kept[kept])

    @cached_property
    def net(self) -> Wide:
        """The net of each item of `task`."""
        return np.repeat(np.arange(len(self.volume)), np.diff(self.ptr))

    def of_tasks(self, tasks: int) -> tuple[Wide, Wide]:
        """Return pointers, shape (tasks + 1,), and nets: those of task i are ``nets[ptr[i]:ptr[i + 1]]``."""
        ptr = np.zeros(tasks + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.task, minlength=tasks), out=ptr[1:])
        return ptr, self.net[np.argsort(self.task, kind="stable")]


@dataclass(frozen=True)
class TaskGraph:
    """Tasks, and the data between them.

    Attributes
    ----------
    work : GraphWork
        The drops.
    row : int64 array, shape (tasks,)
        The drop of each task, ascending.
    seconds, load, memory : float arrays, shape (tasks,)
        Execution time at speed 1, core seconds, and declared memory.
    cpus, gpus : int64 arrays, shape (tasks,)
        Processors and GPUs.
    before_ptr, before, before_data : int64 arrays
        The predecessors of each task in compressed sparse rows, and the data drop between.
    after_ptr, after, after_data : int64 arrays
        The successors.
    root_ptr, root_data : int64 arrays
        The data drops without producers that each task reads.
    home : int64 array, shape (drops,)
        The task that each drop follows; -1 for data without any.
    """

    work: GraphWork
    row: Wide
    seconds: Floats
    load: Floats
    memory: Floats
    cpus: Wide
    gpus: Wide
    before_ptr: Wide
    before: Wide
    before_data: Wide
    after_ptr: Wide
    after: Wide
    after_data: Wide
    root_ptr: Wide
    root_data: Wide
    home: Wide

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.row)

    @cached_property
    def nets(self) -> Nets:
        """The data drops with several tasks."""
        return _nets(self)

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """The tasks, each after its predecessors."""
        waiting = np.diff(self.before_ptr).tolist()
        ptr, after = self.after_ptr.tolist(), self.after.tolist()
        order: list[int] = np.flatnonzero(np.diff(self.before_ptr) == 0).tolist()
        for task in order:
            for target in after[ptr[task] : ptr[task + 1]]:
                waiting[target] -= 1
                if not waiting[target]:
                    order.append(target)
        return tuple(order)

    def fits(self, machines: Machines) -> Bits:
        """Return where tasks have the processors, the memory and the GPUs that they ask for, shape (tasks, nodes)."""
        cores, memory, gpus = capacities(machines)
        needs = (self.cpus[:, None] <= cores) & (self.memory[:, None] <= memory) & (self.gpus[:, None] <= gpus)
        fits: Bits = needs
        return fits

    def allowed(self, machines: Machines) -> Bits:
        """Return where tasks may be, shape (tasks, nodes): where they fit, and anywhere if they fit nowhere."""
        fits = self.fits(machines)
        return fits | ~fits.any(axis=1, keepdims=True)

    def expanded(self, task_part: npt.NDArray[np.integer]) -> IntColumn:
        """Return the part of each drop, from those of the tasks; data without tasks are in part 0."""
        part: IntColumn = np.append(task_part, 0).astype(np.int32)[self.home]
        return part

    def of_drops(self, values: npt.NDArray[np.integer]) -> IntColumn:
        """Return a column of drops with the values of tasks, 0 for other drops."""
        column = np.zeros(self.work.drops, dtype=np.int32)
        column[self.row] = values
        return column


def task_graph(work: GraphWork) -> TaskGraph:
    """Return the tasks of a graph."""
    drops, source, target = work.drops, work.source.astype(np.int64), work.target.astype(np.int64)
    into_data = ~work.is_app[target]
    producers = np.bincount(target[into_data], minlength=drops)
    consumers = np.bincount(source[~into_data], minlength=drops)
    is_task = work.is_app | ((producers > 1) & (consumers > 1))
    row = np.flatnonzero(is_task)
    number = np.full(drops, -1, dtype=np.int64)
    number[row] = np.arange(len(row))
    # Edges between tasks directly, and across one data drop that has a single producer, or a single consumer.
    direct = is_task[source] & is_task[target]
    first, second = [source[direct]], [target[direct]]
    data = [np.where(work.is_app[source[direct]], target[direct], source[direct])]
    single = ~is_task & (producers == 1)
    producer = np.full(drops, -1, dtype=np.int64)
    inner = into_data & single[target]
    producer[target[inner]] = source[inner]
    edges = ~into_data & single[source]
    first.append(producer[source[edges]])
    second.append(target[edges])
    data.append(source[edges])
    joined = ~is_task & (producers > 1) & (consumers == 1)
    consumer = np.full(drops, -1, dtype=np.int64)
    outer = ~into_data & joined[source]
    consumer[source[outer]] = target[outer]
    edges = into_data & joined[target]
    first.append(source[edges])
    second.append(consumer[target[edges]])
    data.append(target[edges])
    earlier, later = number[np.concatenate(first)], number[np.concatenate(second)]
    between = np.concatenate(data)
    forth = np.argsort(earlier, kind="stable")
    back = np.argsort(later, kind="stable")
    roots = ~into_data & (producers[source] == 0) & ~is_task[source]
    readers = number[target[roots]]
    by_reader = np.argsort(readers, kind="stable")
    return TaskGraph(
        work=work,
        row=row,
        seconds=work.seconds[row],
        load=work.work[row],
        memory=work.memory[row],
        cpus=work.cpus[row].astype(np.int64),
        gpus=work.gpus[row].astype(np.int64),
        before_ptr=_pointers(later, len(row)),
        before=earlier[back],
        before_data=between[back],
        after_ptr=_pointers(earlier, len(row)),
        after=later[forth],
        after_data=between[forth],
        root_ptr=_pointers(readers, len(row)),
        root_data=source[roots][by_reader],
        home=_homes(number, source, target, into_data),
    )


def _pointers(key: Wide, rows: int) -> Wide:
    ptr = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(key, minlength=rows), out=ptr[1:])
    return ptr


def _homes(number: Wide, source: Wide, target: Wide, into_data: npt.NDArray[np.bool_]) -> Wide:
    """Return the task of each drop: itself, its first producer, or its first consumer."""
    home = number.copy()
    free = number < 0
    # In reverse, so that of several ones the first is written last.
    from_data, readers = source[~into_data][::-1], target[~into_data][::-1]
    chosen = free[from_data]
    home[from_data[chosen]] = number[readers[chosen]]
    data, writers = target[into_data][::-1], source[into_data][::-1]
    chosen = free[data]
    home[data[chosen]] = number[writers[chosen]]
    return home


def _nets(graph: TaskGraph) -> Nets:
    work = graph.work
    number = np.full(work.drops, -1, dtype=np.int64)
    number[graph.row] = np.arange(graph.tasks)
    source, target = work.source.astype(np.int64), work.target.astype(np.int64)
    into_data = ~work.is_app[target]
    data = np.where(into_data, target, source)
    other = number[np.where(into_data, source, target)]
    # A data drop that is a task itself is in its net, too.
    own = np.flatnonzero((number >= 0) & ~work.is_app)
    key = np.unique(np.concatenate([data * max(graph.tasks, 1) + other, own * max(graph.tasks, 1) + number[own]]))
    data, task = key // max(graph.tasks, 1), key % max(graph.tasks, 1)
    size = np.bincount(data, minlength=work.drops)
    kept = (size[data] > 1) & (work.volume[data] > 0)
    data, task = data[kept], task[kept]
    names, count = np.unique(data, return_counts=True)
    ptr = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum(count, out=ptr[1:])
    volume, is_made = work.volume[names], work.is_made[names]
    made, given = float(volume[is_made].sum()), float(volume[~is_made].sum())
    if made > 0 and given > 0:
        volume = np.where(is_made, volume, volume * (_GIVEN * made / given))
    return Nets(ptr=ptr, task=task, volume=volume, is_made=is_made)


# The graph that a simulation runs: applications, moves of data between nodes, and data that must be waited for.
#
# A data drop on the node of its only producer is complete when that ends, so the simulation needs no vertex for it. The
# content of a data drop moves once to each other node with a consumer. A data drop that is not on the node of a
# producer gets its content by a move from that node.


@dataclass(frozen=True)
class EventGraph:
    """Vertices and edges for one assignment. Vertices are the drops, then the moves.

    Attributes
    ----------
    vertices : int
        Number of vertices. Data that complete with their producer are vertices without edges.
    stands_for : int64 array, shape (drops,)
        The vertex with whose end a drop is complete: its producer, or itself.
    ptr, successors : int64 arrays
        Edges in compressed sparse rows.
    waiting : int64 array, shape (vertices,)
        Number of edges into each vertex.
    begins : int64 array
        Vertices without edges into them that have to be simulated.
    move_drop, move_from, move_to : int64 arrays, shape (moves,)
        The data drop of each move, and the parts at its ends.
    volume : float array, shape (moves,)
        Bytes of each move.
    """

    vertices: int
    stands_for: Wide
    ptr: Wide
    successors: Wide
    waiting: Wide
    begins: Wide
    move_drop: Wide
    move_from: Wide
    move_to: Wide
    volume: Floats


def event_graph(work: GraphWork, part: IntColumn) -> EventGraph:
    """Return what happens if each drop is on the node of its part."""
    drops = work.drops
    source, target = work.source.astype(np.int64), work.target.astype(np.int64)
    home = part.astype(np.int64)
    parts = int(home.max(initial=0)) + 1
    into_data = ~work.is_app[target]
    crosses = home[source] != home[target]
    producers = np.bincount(target[into_data], minlength=drops)
    is_remote = np.zeros(drops, dtype=np.bool_)
    is_remote[target[into_data & crosses]] = True
    follows = ~work.is_app & (producers == 1) & ~is_remote
    stands_for = np.arange(drops, dtype=np.int64)
    inner = into_data & follows[target]
    stands_for[target[inner]] = source[inner]

    local = ~crosses & ~inner
    edges_from, edges_to = [stands_for[source[local]]], [target[local]]
    # One move for each data drop and receiving node, and one for each data drop and node that writes it elsewhere.
    outward, inward = crosses & ~into_data, crosses & into_data
    key = np.concatenate(
        [
            2 * (source[outward] * parts + home[target[outward]]),
            2 * (target[inward] * parts + home[source[inward]]) + 1,
        ]
    )
    moved, number = np.unique(key, return_inverse=True)
    number = number.reshape(-1) + drops
    drop, other, writes = (moved // 2) // parts, (moved // 2) % parts, moved % 2 == 1
    moves = np.arange(len(moved), dtype=np.int64) + drops
    out = number[: int(outward.sum())]
    back = number[len(out) :]
    edges_from += [stands_for[drop[~writes]], out, source[inward], moves[writes]]
    edges_to += [moves[~writes], target[outward], back, drop[writes]]
    before, after = np.concatenate(edges_from), np.concatenate(edges_to)
    vertices = drops + len(moved)
    order = np.argsort(before, kind="stable")
    ptr = np.zeros(vertices + 1, dtype=np.int64)
    np.cumsum(np.bincount(before, minlength=vertices), out=ptr[1:])
    waiting = np.bincount(after, minlength=vertices)
    is_simulated = np.ones(vertices, dtype=np.bool_)
    is_simulated[:drops] = ~follows
    return EventGraph(
        vertices=vertices,
        stands_for=stands_for,
        ptr=ptr,
        successors=after[order],
        waiting=waiting,
        begins=np.flatnonzero((waiting == 0) & is_simulated),
        move_drop=drop,
        move_from=np.where(writes, other, home[drop]),
        move_to=np.where(writes, home[drop], other),
        volume=work.volume[drop],
    )
