"""A lower bound of the completion time that counts moves, and when work can begin and must be done.

Each task gets a head, the time before which it cannot start, and a tail, the seconds that follow its end in any plan. A
predecessor on the same node shares the processors there with other tasks; the data of any other predecessor arrive
later by their move. The best case is that the predecessors whose data would arrive last are on the node of the task: as
many as can be done there before the data of the next one could arrive (M. A. Al-Mouhamed, IEEE Trans. Software Eng. 16,
1990). Tails are the heads of the reversed graph. All processors have to do the work of the tasks with at least a given
head and tail in the time between the two (E. B. Fernandez and B. Bussell, IEEE Trans. Computers 22, 1973).
"""

import msgspec
import numpy as np
import numpy.typing as npt

from dropflow.formatting import format_size, plural
from dropflow.graph.order import longest_before
from dropflow.graph.physical import IntColumn, PhysicalGraph
from dropflow.graph.slices import violations
from translator.plan.judge import Timeline, simulate
from translator.plan.machines import Machines
from translator.plan.task_graph import Floats, GraphWork, TaskGraph, task_graph, work_of

MOST_BOUNDED = 200_000
"""Most drops of graphs that get this bound: it takes several microseconds for each edge."""
_MOST_TAILS = 256
"""Tails, times that must pass after a task, that are tried for the bound."""
_TAIL_BUDGET = 4_000_000
"""Most tasks that are visited for all tails together; for large graphs, fewer tails are tried."""

_Wide = npt.NDArray[np.int64]
_SAMPLES = 200
"""Moments of the number of running tasks that are returned."""


def bound_with_moves(tasks: TaskGraph, machines: Machines) -> float:
    """Return seconds that no assignment can beat; moves do not share links.

    Parameters
    ----------
    tasks : TaskGraph
        Tasks without cycles.
    machines : Machines
        Times are those of the fastest node, and moves those of the fastest link.
    """
    if not tasks.tasks:
        return 0.0
    seconds = tasks.seconds / machines.fastest
    order = tasks.topological
    moves = _moves(tasks, tasks.before_data, machines)
    heads = _heads(order, (tasks.before_ptr, tasks.before, moves), seconds, machines)
    moves = _moves(tasks, tasks.after_data, machines)
    tails = _heads(order[::-1], (tasks.after_ptr, tasks.after, moves), seconds, machines)
    longest = float((heads + seconds + tails).max())
    # What asks for more processors than its node has gets all of them.
    fewest = min(node.cores for node in machines.nodes)
    work = tasks.seconds * np.minimum(tasks.cpus, fewest) / machines.power
    return max(longest, _done_between(heads, tails, work))


def _moves(tasks: TaskGraph, data: _Wide, machines: Machines) -> Floats:
    """Return the least seconds of the move for each edge if its ends are on different nodes."""
    links = [machines.links]
    if machines.between_islands is not None and len(machines.islands) > 1:
        links.append(machines.between_islands)
    # A move between islands passes the links of its nodes, too.
    seconds: Floats = min(link.latency for link in links) + tasks.work.volume[data] / machines.links.bandwidth
    return seconds


def _heads(order: tuple[int, ...], edges: tuple[_Wide, _Wide, Floats], seconds: Floats, machines: Machines) -> Floats:
    """Return when each task can start at the earliest, shape (tasks,).

    Parameters
    ----------
    order : tuple of int
        The tasks, predecessors first.
    edges : triple of arrays
        Pointers and predecessors of each task, and the seconds of the moves in between.
    """
    cores = max(node.cores for node in machines.nodes)
    is_alone = len(machines.nodes) == 1
    (first, before, move), run = (column.tolist() for column in edges), seconds.tolist()
    head = [0.0] * len(run)
    for task in order:
        inward = range(first[task], first[task + 1])
        if not inward:
            continue
        if len(inward) == 1:
            head[task] = head[before[inward[0]]] + run[before[inward[0]]]
            continue
        slowest: dict[int, float] = {}
        for edge in inward:
            predecessor = before[edge]
            slowest[predecessor] = max(slowest.get(predecessor, 0.0), move[edge])
        if is_alone:
            slowest = dict.fromkeys(slowest, float("inf"))
        # Arrival from another node, start and end of each predecessor; the last to arrive is first.
        inputs = sorted(
            (
                (head[predecessor] + run[predecessor] + slowest[predecessor], head[predecessor], run[predecessor])
                for predecessor in slowest
            ),
            reverse=True,
        )
        here, begin, work, end = 0.0, float("inf"), 0.0, 0.0
        best = inputs[0][0]
        for number, (_, start, length) in enumerate(inputs):
            begin, work, end = min(begin, start), work + length, max(end, start + length)
            here = max(end, begin + work / cores)
            elsewhere = inputs[number + 1][0] if number + 1 < len(inputs) else 0.0
            best = min(best, max(here, elsewhere))
            if here >= elsewhere:
                break
        head[task] = best
    return np.array(head, dtype=np.float64)


def _done_between(heads: Floats, tails: Floats, work: Floats) -> float:
    """Return the largest sum of a head, the work of all tasks with no shorter head and tail, and a tail."""
    order = np.argsort(heads, kind="stable")
    heads, tails, work = heads[order], tails[order], work[order]
    most = max(min(_MOST_TAILS, _TAIL_BUDGET // max(len(heads), 1)), 8)
    tried = np.unique(tails)
    if len(tried) > most:
        tried = tried[np.unique(np.linspace(0, len(tried) - 1, most).astype(np.int64))]
    best = 0.0
    for tail in tried.tolist():
        has_it = tails >= tail
        rest = np.cumsum(np.where(has_it, work, 0.0)[::-1])[::-1]
        best = max(best, float((heads + rest)[has_it].max()) + tail)
    return best


# The judge: measures an assignment of drops to machines, from the assignment alone.
#
# All algorithms are compared by it. Bytes are those of data drops (`translator.plan.task_graph`), times those of the
# simulated run (`translator.plan.judge`).


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Measures of the quality of an assignment.

    Attributes
    ----------
    parts, nodes_used : int
        Number of machines, and of those that have drops.
    cut_bytes : float
        Sum of the volumes of all edges between nodes.
    bytes_moved : float
        Bytes that nodes receive: each data drop once for each other node.
    bytes_given : float
        Bytes among `bytes_moved` that no application makes. They may be on any node when the graph begins, so plans for
        little movement count the other bytes.
    bytes_between_islands : float
        Bytes among `bytes_moved` that go from one island to another.
    loads : tuple of float
        Core seconds of the work on each node, divided by its cores and speed.
    memory : tuple of float
        Largest sum of memory that the applications of each node declare at a time.
    imbalance : float
        Excess of the heaviest node over its share by cores and speed, in percent.
    island_imbalance : float
        Excess of the heaviest island over the lightest one, each by its cores and speed, in percent.
    memory_imbalance : float
        The same for the sum of declared memory, and the memory of nodes; 0 where none is declared.
    dop : int
        Largest number of applications at a time.
    dop_mean : float
        Number of applications at a time, averaged over the run.
    dop_over_time : tuple of pairs
        Times, and the number of applications that run from then on; at most 200 of them, evenly in time.
    makespan_s : float
        Seconds until the last drop is complete.
    lower_bound_s : float
        No assignment is faster; see `lower_bound`.
    bound_with_moves_s : float
        A bound that is at least as large, because it counts moves of any assignment. Only `judge` computes it, and not
        for large graphs; otherwise it is `lower_bound_s`.
    violations : tuple of str
        Constraints that the assignment does not keep: drops that must share a node, or must have one alone;
        applications on nodes without the processors, the memory or the GPUs for them; and a requested balance.
    """

    parts: int
    nodes_used: int
    cut_bytes: float
    bytes_moved: float
    bytes_given: float = 0.0
    bytes_between_islands: float = 0.0
    loads: tuple[float, ...] = ()
    memory: tuple[float, ...] = ()
    imbalance: float = 0.0
    island_imbalance: float = 0.0
    memory_imbalance: float = 0.0
    dop: int = 0
    dop_mean: float = 0.0
    dop_over_time: tuple[tuple[float, int], ...] = ()
    makespan_s: float
    lower_bound_s: float
    bound_with_moves_s: float = 0.0
    violations: tuple[str, ...] = ()


def judge(
    graph: PhysicalGraph,
    machines: Machines,
    *,
    part: IntColumn | None = None,
    priority: IntColumn | None = None,
    imbalance: float | None = None,
) -> Verdict:
    """Return the measures of an assignment; by default that of the graph.

    Parameters
    ----------
    imbalance : float, optional
        Largest imbalance of the assignment, in percent; by default there is no limit.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    ValueError
        There are more parts than machines.
    """
    work = work_of(graph)
    column = graph.part if part is None else part
    if int(column.max(initial=0)) >= len(machines.nodes):
        raise ValueError(f"{int(column.max()) + 1} parts cannot be on {len(machines.nodes)} nodes")
    bound = lower_bound(graph, work, machines)
    order = graph.priority if priority is None and part is None else priority
    verdict = verdict_of(work, machines, column, simulate(work, machines, column, order), bound)
    if graph.drops <= MOST_BOUNDED:
        bound = max(bound, bound_with_moves(task_graph(work), machines))
    broken = [*violations(graph, column), *_misplaced(graph, work, machines, column)]
    if imbalance is not None:
        broken += _unbalanced(graph, work, machines, verdict, imbalance)
    return msgspec.structs.replace(verdict, bound_with_moves_s=bound, violations=tuple(broken))


def _misplaced(graph: PhysicalGraph, work: GraphWork, machines: Machines, part: IntColumn) -> list[str]:
    """Return texts about applications that need more than their node has, one for each template and node."""
    wrong = np.flatnonzero(work.exceeds(machines, part))
    if not len(wrong):
        return []
    texts = []
    key = graph.template[wrong].astype(np.int64) * len(machines.nodes) + part[wrong]
    pairs, first, count = np.unique(key, return_index=True, return_counts=True)
    for pair, row, number in zip(pairs.tolist(), wrong[first].tolist(), count.tolist(), strict=True):
        template, node = graph.templates[pair // len(machines.nodes)], machines.nodes[pair % len(machines.nodes)]
        wants = [f"{work.cpus[row]} processors"] if work.cpus[row] > node.cores else []
        wants += [f"{format_size(float(work.memory[row]))} of memory"] if work.memory[row] > node.memory else []
        wants += [plural(int(work.gpus[row]), "GPU")] if work.gpus[row] > node.gpus else []
        has = [f"{node.cores} processors"]
        has += [format_size(node.memory)] if np.isfinite(node.memory) else []
        has += [plural(int(node.gpus), "GPU")] if work.gpus[row] > node.gpus else []
        text = f"asks for {' and '.join(wants)}, its node {node.name} has {' and '.join(has)}"
        texts.append(f"{template.name!r} ({number} times) {text}")
    return texts


def _unbalanced(
    graph: PhysicalGraph, work: GraphWork, machines: Machines, verdict: Verdict, allowed: float
) -> list[str]:
    """Return texts about loads that exceed an imbalance in percent, and whether a single application is the reason."""
    texts, almost = [], 1e-6 * (100 + allowed)
    if verdict.imbalance > allowed + almost:
        text = f"the imbalance is {_above(verdict.imbalance, allowed)} %, more than {allowed:g} %"
        heaviest = int(work.work.argmax())
        share = float(work.work.sum()) * max(node.cores * node.speed for node in machines.nodes) / machines.power
        alone = 100 * (float(work.work[heaviest]) / share - 1) if share else 0.0
        if alone > allowed:
            name = graph.templates[graph.template[heaviest]].name
            text += f": {name!r} alone is {alone:.3g} % above the share of a node"
        texts.append(text)
    if verdict.island_imbalance > allowed + almost:
        differ = _above(verdict.island_imbalance, allowed)
        texts.append(f"the loads of two islands differ by {differ} %, more than {allowed:g} %")
    return texts


def _above(value: float, limit: float) -> str:
    """Return a number in at least three digits, and in as many as it takes to be above a limit in a text with both."""
    texts = (f"{value:.{digits}g}" for digits in range(3, 18))
    return next((text for text in texts if float(text) > float(f"{limit:g}")), f"{value!r}")


def verdict_of(work: GraphWork, machines: Machines, part: IntColumn, run: Timeline, bound: float) -> Verdict:
    """Return the measures of a run, without the constraints of its graph."""
    nodes, events = len(machines.nodes), run.events
    islands = np.array([machines.islands.index(node.island) for node in machines.nodes], dtype=np.int64)
    crosses = part[work.source] != part[work.target]
    volumes = np.maximum(work.volume[work.source], work.volume[work.target])
    apps = work.apps
    begin, end = run.start[apps], run.end[apps]
    times, running = _steps(begin, end)
    length = run.completion
    speed = np.array([node.speed for node in machines.nodes], dtype=np.float64)
    loads = _sums(part, work.work, nodes) / speed
    return Verdict(
        parts=nodes,
        nodes_used=int(np.count_nonzero(np.bincount(part, minlength=nodes))),
        cut_bytes=float(volumes[crosses].sum()),
        bytes_moved=float(events.volume.sum()),
        bytes_given=float(events.volume[~work.is_made[events.move_drop]].sum()),
        bytes_between_islands=float(events.volume[islands[events.move_from] != islands[events.move_to]].sum()),
        loads=tuple(loads.tolist()),
        memory=_peaks(work, part, run, nodes),
        imbalance=imbalance_of(work, machines, part),
        island_imbalance=_island_imbalance(work, machines, part, islands),
        memory_imbalance=_memory_imbalance(work, machines, part),
        dop=int(running.max(initial=0)),
        dop_mean=float((end - begin).sum()) / length if length > 0 else 0.0,
        dop_over_time=_sampled(times, running),
        makespan_s=length,
        lower_bound_s=bound,
        bound_with_moves_s=bound,
    )


def lower_bound(graph: PhysicalGraph, work: GraphWork, machines: Machines) -> float:
    """Return seconds that no assignment can beat.

    It is the larger of two times: the critical path on the fastest node, without moves; and all work divided by all
    cores.

    Raises
    ------
    BadGraphError
        The graph has a cycle.
    """
    before = longest_before(graph, work.seconds)
    path = float((before + work.seconds).max(initial=0.0)) / machines.fastest
    # What asks for more processors than its node has gets all of them.
    fewest = min(node.cores for node in machines.nodes)
    total = float((work.seconds * np.minimum(work.cpus, fewest)).sum())
    return max(path, total / machines.power)


def imbalance_of(work: GraphWork, machines: Machines, part: IntColumn) -> float:
    """Return the excess of the heaviest node over its share of the work by cores and speed, in percent.

    If no application takes time, all drops count equally.
    """
    load = work.work if work.work.any() else np.ones(work.drops)
    capacity = np.array([node.cores * node.speed for node in machines.nodes], dtype=np.float64)
    return balance_of(_sums(part, load, len(capacity)), capacity)


def balance_of(load: Floats, capacity: Floats) -> float:
    """Return the excess of the largest load over its share by capacity, in percent."""
    total = float(load.sum())
    if total <= 0:
        return 0.0
    return 100.0 * (float((load / capacity).max()) * float(capacity.sum()) / total - 1.0)


def _island_imbalance(work: GraphWork, machines: Machines, part: IntColumn, islands: npt.NDArray[np.int64]) -> float:
    if not islands.any():
        return 0.0
    load = work.work if work.work.any() else np.ones(work.drops)
    power = np.array([node.cores * node.speed for node in machines.nodes], dtype=np.float64)
    filled = np.bincount(islands, weights=_sums(part, load, len(power))) / np.bincount(islands, weights=power)
    return 100.0 * (float(filled.max()) / float(filled.min()) - 1.0) if filled.min() > 0 else np.inf


def _sums(part: IntColumn, values: Floats, parts: int) -> Floats:
    return np.bincount(part, weights=values, minlength=parts).astype(np.float64)


def _memory_imbalance(work: GraphWork, machines: Machines, part: IntColumn) -> float:
    memory = np.array([node.memory for node in machines.nodes], dtype=np.float64)
    capacity = memory if np.isfinite(memory).all() else np.ones(len(memory))
    return balance_of(_sums(part, work.memory, len(memory)), capacity)


def _steps(begin: Floats, end: Floats) -> tuple[Floats, IntColumn]:
    """Return the times at which the number of running applications changes, and the number from then on."""
    takes_time = end > begin
    if not takes_time.any():
        return np.zeros(0), np.zeros(0, dtype=np.int32)
    times = np.concatenate([begin[takes_time], end[takes_time]])
    change = np.repeat(np.array([1, -1], dtype=np.int64), int(takes_time.sum()))
    order = np.argsort(times, kind="stable")
    moments, first = np.unique(times[order], return_index=True)
    running = np.cumsum(change[order])
    last = np.append(first[1:], len(running)) - 1
    return moments, running[last].astype(np.int32)


def _sampled(times: Floats, running: IntColumn) -> tuple[tuple[float, int], ...]:
    if len(times) > _SAMPLES:
        wanted = np.linspace(times[0], times[-1], _SAMPLES)
        at = np.searchsorted(times, wanted, side="right") - 1
        times, running = wanted, running[at]
    return tuple(zip(times.tolist(), running.tolist(), strict=True))


def _peaks(work: GraphWork, part: IntColumn, run: Timeline, nodes: int) -> tuple[float, ...]:
    """Return the largest sum of declared memory of running applications, for each node."""
    apps = np.flatnonzero(work.memory > 0)
    if not len(apps):
        return (0.0,) * nodes
    peaks = []
    for node in range(nodes):
        here = apps[part[apps] == node]
        times = np.concatenate([run.start[here], run.end[here]])
        change = np.concatenate([work.memory[here], -work.memory[here]])
        # If one ends when another begins, its memory is freed first.
        order = np.lexsort((change, times))
        peaks.append(max(float(np.cumsum(change[order]).max(initial=0.0)), 0.0))
    return tuple(peaks)
