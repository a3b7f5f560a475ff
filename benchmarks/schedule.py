"""The planned times that a graph is submitted with; prints a Markdown table.

Measured is processor time, so that other programs of the machine disturb little: of unrolling, of the plan, of the
simulation that gives each application its planned begin and end, and of packing the graph. The share is that of the
simulation in all of them, best of `--repeats`. Sending the graph and deploying it come on top, which makes the share
smaller. The graph is that of `unroll.py`, with times and volumes, on four nodes.

    python benchmarks/schedule.py [--sizes 1000 10000 100000] [--algorithms auto metis] [--repeats 3]
"""

import argparse
import time
from dataclasses import replace
from itertools import pairwise

import msgspec
from unroll import drawn

from dropflow.graph.codec import dump
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind
from translator.options import PartitionOptions
from translator.plan.judge import with_schedule
from translator.plan.machines import Machines, NodeCapacity
from translator.plan.registry import partition
from translator.unroll import outline_of, unroll

NODES = 4
MACHINES = Machines(nodes=tuple(NodeCapacity(name=f"#{number}", cores=4) for number in range(NODES)))
STEPS = ("unroll", "plan", "simulate", "pack")


def timed(graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with declared times and volumes: without them nothing is simulated."""
    templates = [
        msgspec.structs.replace(one, weight=10.0 + row if one.kind is Kind.APP else 1e6)
        for row, one in enumerate(graph.templates)
    ]
    return replace(graph, templates=tuple(templates))


def measured(size: int, algorithm: str) -> dict[str, float]:
    """Return the processor seconds of each step."""
    logical, marks = drawn(size), [time.process_time()]
    graph = timed(unroll(outline_of(logical)))
    marks.append(time.process_time())
    parted = partition(graph, PartitionOptions(algorithm=algorithm, parts=NODES), MACHINES)
    marks.append(time.process_time())
    scheduled = with_schedule(parted, MACHINES)
    marks.append(time.process_time())
    if scheduled.planned is None:
        raise SystemExit("nothing was simulated")
    dump(scheduled)
    marks.append(time.process_time())
    return dict(zip(STEPS, (after - before for before, after in pairwise(marks)), strict=True))


def main() -> None:
    """Print a row for each size and algorithm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--algorithms", nargs="+", default=["auto", "metis"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print("| drops | algorithm | " + " | ".join(f"{step}, s" for step in STEPS) + " | share |")
    print("|---|---|" + "---|" * (len(STEPS) + 1))
    for size in options.sizes:
        for algorithm in options.algorithms:
            runs = [measured(size, algorithm) for _ in range(options.repeats)]
            best = {step: min(run[step] for run in runs) for step in STEPS}
            share = best["simulate"] / sum(best.values())
            cells = [f"{size:,}", algorithm, *(f"{best[step]:.3f}" for step in STEPS), f"{share:.0%}"]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
