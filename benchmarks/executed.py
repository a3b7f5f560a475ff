"""Plans carried out on four node managers, beside what was simulated; prints a Markdown table.

Each application sleeps for its time, scaled so that the lower bound of the graph is `--seconds`. The nodes have 1, 1, 2
and 4 worker processes; these are their processors in the plan. Data are empty, and the plan counts nothing for moving
them, so that both columns mean the same: what the order and the assignment of the applications cost. Measured is the
time from the start of the session until its end, without its deployment, best of `--repeats`.

``random`` assigns each application to a node by chance, in proportion to the processors.

    python benchmarks/executed.py [--seconds 10] [--repeats 2] [--graphs montage chains ...]
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import numpy as np
from cluster_nodes import Nodes, nodes
from partition import chains, corner_turn, scatter_gather, workflows

from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Argument, Kind
from translator.options import PartitionOptions
from translator.plan.heft import priorities, upward_ranks
from translator.plan.machines import LinkSpeed, Machines, NodeCapacity
from translator.plan.move_bound import Verdict, judge, lower_bound
from translator.plan.registry import plan
from translator.plan.task_graph import task_graph, work_of

WORKERS = (1, 1, 2, 4)
ALGORITHMS = ("auto", "heft", "metis", "blocks", "random")
DROPS = 400
MACHINES = Machines(
    nodes=tuple(NodeCapacity(name=f"#{number}", cores=cores) for number, cores in enumerate(WORKERS)),
    links=LinkSpeed(bandwidth=float("inf")),
    contention=False,
)


def asleep(graph: PhysicalGraph, seconds: float) -> PhysicalGraph:
    """Return the graph with applications that sleep, and a lower bound of so many seconds."""
    scale = seconds / lower_bound(graph, work_of(graph), MACHINES)
    templates = []
    for one in graph.templates:
        if one.kind is Kind.APP:
            time = Argument(name="sleep_time", value=one.weight * scale, type="Float")
            templates.append(
                msgspec.structs.replace(
                    one, component="dlg.apps.simple.SleepApp", weight=one.weight * scale, arguments=(time,)
                )
            )
        else:
            memory = "dlg.data.drops.memory.InMemoryDROP"
            templates.append(msgspec.structs.replace(one, component=memory, arguments=()))
    return replace(graph, templates=tuple(templates))


def planned(graph: PhysicalGraph, algorithm: str) -> PhysicalGraph:
    """Return the graph with parts and priorities."""
    if algorithm != "random":
        options = PartitionOptions(algorithm=algorithm, parts=len(WORKERS), imbalance=3.0)
        return plan(graph, options, MACHINES).graph
    work = work_of(graph)
    tasks = task_graph(work)
    shares = np.array(WORKERS) / sum(WORKERS)
    part = tasks.expanded(np.random.default_rng(1).choice(len(WORKERS), size=tasks.tasks, p=shares))
    ranks = upward_ranks(graph, work, MACHINES, part)
    return replace(graph, part=part, places=(), priority=priorities(ranks, work))


def row(name: str, graph: PhysicalGraph, cluster: Nodes, repeats: int) -> str:
    """Return one row of the table: simulated, executed, and their ratio."""
    cells = []
    for algorithm in ALGORITHMS:
        made = planned(graph, algorithm)
        verdict: Verdict = judge(made, MACHINES)
        took = min(cluster.run(made).seconds for _ in range(repeats))
        cells.append(f"{verdict.makespan_s:.2f}, {took:.2f} ({took / verdict.makespan_s:.3f})")
    return f"| {name} | {graph.drops:,} | {' | '.join(cells)} |"


def table(seconds: float, repeats: int, wanted: list[str]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| graph | drops | {' | '.join(ALGORITHMS)} |"
    yield f"|---|---:|{'---:|' * len(ALGORITHMS)}"
    graphs = [*workflows(1), *((one.name, one) for one in (scatter_gather(DROPS), corner_turn(DROPS), chains(DROPS)))]
    with nodes(len(WORKERS), None, workers=WORKERS) as cluster:
        warm = asleep(chains(100), 0.5)
        cluster.run(planned(warm, "blocks"))  # starts the worker processes
        for name, graph in graphs:
            if not wanted or name in wanted:
                yield row(name, asleep(graph, seconds), cluster, repeats)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="lower bound of each graph")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--graphs", nargs="*", default=[], help="names of graphs; all by default")
    given = parser.parse_args()
    for line in table(given.seconds, given.repeats, given.graphs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
