"""Plans carried out on four node managers, beside what was simulated; prints a Markdown table.

Each application sleeps for its time, scaled so that the lower bound of the graph is `--seconds`. The nodes have 1, 1, 2
and 4 worker processes; these are their processors in the plan. Data are empty, and the plan counts nothing for moving
them, so that both columns mean the same: what the order and the assignment of the applications cost. Measured is the
time from the start of the session until its end, without its deployment, best of `--repeats`.

``random`` assigns each application to a node by chance, in proportion to the processors.

With ``--drill``, two nodes of ``dropflow up`` with two workers each carry out plans with and without a SIGKILL of one
node manager at half of the planned time, beside what ``dropflow drill`` says of the same plan and the same loss (its
median of 20 trials). Measured is from the start of the session until its end; each repeat has new nodes.

    python benchmarks/executed.py [--seconds 10] [--repeats 2] [--graphs montage chains ...] [--drill]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import psutil
from cluster import up
from cluster_nodes import Nodes, nodes
from partition import chains, corner_turn, scatter_gather, workflows

from dropflow.graph.codec import dump
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


DRILLED = msgspec.structs.replace(
    MACHINES, nodes=tuple(NodeCapacity(name=f"#{number}", cores=2) for number in range(2))
)


def asleep(graph: PhysicalGraph, seconds: float, machines: Machines = MACHINES) -> PhysicalGraph:
    """Return the graph with applications that sleep, and a lower bound of so many seconds."""
    scale = seconds / lower_bound(graph, work_of(graph), machines)
    templates = []
    for template in graph.templates:
        if template.kind is Kind.APP:
            time = Argument(name="sleep_time", value=template.weight * scale, type="Float")
            templates.append(
                msgspec.structs.replace(
                    template, component="dlg.apps.simple.SleepApp", weight=template.weight * scale, arguments=(time,)
                )
            )
        else:
            memory = "dlg.data.drops.memory.InMemoryDROP"
            templates.append(msgspec.structs.replace(template, component=memory, arguments=()))
    return replace(graph, templates=tuple(templates))


def planned(graph: PhysicalGraph, algorithm: str, machines: Machines = MACHINES) -> PhysicalGraph:
    """Return the graph with parts and priorities."""
    if algorithm != "random":
        options = PartitionOptions(algorithm=algorithm, parts=len(machines.nodes), imbalance=3.0)
        return plan(graph, options, machines).graph
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


# Beside ``dropflow drill``, with and without a loss -------------------------------------------------------------------


def foreseen(graph: PhysicalGraph, *arguments: str) -> tuple[float, float]:
    """Return the planned seconds of a placed graph, and the median of the ends that ``dropflow drill`` finds."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "placed.dfg"
        with path.open("wb") as stream:
            stream.writelines(dump(graph))
        command = [sys.executable, "-m", "dropflow", "drill", str(path), "--nodes", "2x2", "--seeds", "20"]
        answer = subprocess.run([*command, *arguments, "--output", "json"], stdout=subprocess.PIPE, check=True)
    found = json.loads(answer.stdout)
    return found["planned_s"], found["end_s"]["median"]


def carried_out(graph: PhysicalGraph, kill_after: float | None) -> float:
    """Return the seconds of a session on two new nodes; the second one is killed so long after its start."""
    with up(2, workers=2) as (client, process):
        names = tuple(sorted(node.name for node in client.nodes()))
        deque(client.events(client.submit(planned(asleep(chains(40), 0.5, DRILLED), "blocks", DRILLED)).session), 0)
        session = client.submit(replace(graph, places=names)).session
        if kill_after is not None:
            start = client.session(session).started
            time.sleep(max(0.0, start + kill_after - time.time()))  # noqa: TID251 - the moment is what is measured
            os.kill(_manager(process, names[1]), signal.SIGKILL)
        deque(client.events(session), maxlen=0)
        detail = client.session(session)
        if detail.status != "FINISHED":
            raise SystemExit(f"the session ended {detail.status}: {detail.text}")
        return detail.seconds


def _manager(process: subprocess.Popen[bytes], node: str) -> int:
    """Return the process of the manager of a node."""
    found = [child.pid for child in psutil.Process(process.pid).children() if node in child.cmdline()]
    if len(found) != 1:
        raise SystemExit(f"the manager of {node} is not found")
    return found[0]


def drilled(seconds: float, repeats: int, wanted: list[str]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| graph | drops | loss | planned | drill | executed | by drill |"
    yield "|---|---:|---|---:|---:|---|---|"
    for name, make in (("scatter-gather", scatter_gather), ("corner-turn", corner_turn), ("chains", chains)):
        if wanted and name not in wanted:
            continue
        graph = planned(asleep(make(DROPS), seconds, DRILLED), "auto", DRILLED)
        for loss in ((), ("--lose", "#1@50%")):
            plan_seconds, end = foreseen(graph, *loss)
            took = [carried_out(graph, plan_seconds / 2 if loss else None) for _ in range(repeats)]
            ratios = ", ".join(f"{one / end:.3f}" for one in took)
            executed = ", ".join(f"{one:.1f}" for one in took)
            word = "one node at 50 %" if loss else "none"
            yield f"| {name} | {graph.drops:,} | {word} | {plan_seconds:.1f} | {end:.1f} | {executed} | {ratios} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="lower bound of each graph")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--graphs", nargs="*", default=[], help="names of graphs; all by default")
    parser.add_argument(
        "--drill", action="store_true", help="two nodes, with and without a loss, beside dropflow drill"
    )
    given = parser.parse_args()
    measure = drilled if given.drill else table
    for line in measure(given.seconds, given.repeats, given.graphs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
