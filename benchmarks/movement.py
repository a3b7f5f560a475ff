"""Bytes that plans for least movement move, beside METIS and Mt-KaHyPar alone; prints a Markdown table.

METIS is called with both of its methods on the graph of applications, Mt-KaHyPar (``pip install mtkahypar``) with two
presets on the hypergraph of data, both with the same allowed imbalance as `auto --objective movement` and three seeds.
Of what each finds, the partition that moves the least counts, among those that keep the imbalance. Where no partition
of a graph keeps it, the limit is that of the plan of `auto`. One judge counts for all: a data drop moves once to each
part that reads it.

    python benchmarks/movement.py [--nodes 4 8 32] [--sizes 1000 10000] [--no-workflows]
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from partition import chains, corner_turn, scatter_gather, workflows

from dropflow.graph.physical import PhysicalGraph
from translator.partition.kahypar import has_kahypar
from translator.partition.kahypar_process import Hypergraph, kahypar_cuts
from translator.partition.metis import metis_cuts
from translator.partition.refinement import moved_bytes
from translator.partition.registry import plan
from translator.partition.weights import scaled
from translator.planning.graph_work import work_of
from translator.planning.judge import judge
from translator.planning.machines import equal_machines
from translator.planning.task_graph import TaskGraph, task_graph
from translator.stage_options import PartitionOptions

IMBALANCE = 3.0
ALMOST = 1e-6
SEEDS = 3

_Parts = npt.NDArray[np.int64]


def alone(tasks: TaskGraph, parts: int) -> dict[str, list[_Parts]]:
    """Return the partitions of the tools."""
    options = PartitionOptions(parts=parts, imbalance=IMBALANCE)
    found = {"METIS": metis_cuts(tasks, options, equal_machines(parts))}
    nets = tasks.nets
    if has_kahypar() and len(nets.volume):
        graph = Hypergraph(
            ptr=nets.ptr,
            task=nets.task,
            volumes=scaled(nets.volume, least=1, most=1_000_000),
            weights=scaled(_loads(tasks), least=0, most=1_000_000),
        )
        none = np.zeros(0, dtype=np.int64)
        found["Mt-KaHyPar"] = kahypar_cuts(graph, parts, imbalance=IMBALANCE, most=none, seed=100, tries=SEEDS)
    return found


def _loads(tasks: TaskGraph) -> npt.NDArray[np.float64]:
    return tasks.load if tasks.load.any() else np.ones(tasks.tasks)


def _imbalance(tasks: TaskGraph, part: _Parts, parts: int) -> float:
    sums = np.bincount(part, weights=_loads(tasks), minlength=parts)
    return float(100.0 * (sums.max() / sums.mean() - 1.0))


def row(name: str, graph: PhysicalGraph, parts: int) -> str:
    """Return one row of the table."""
    options = PartitionOptions(algorithm="auto", objective="movement", parts=parts, imbalance=IMBALANCE)
    begun = time.process_time()
    made = plan(graph, options).graph
    seconds = time.process_time() - begun
    verdict = judge(made, equal_machines(parts))
    tasks = task_graph(work_of(graph))
    most = max(IMBALANCE, verdict.imbalance) + ALMOST
    cells = []
    for found in alone(tasks, parts).values():
        kept = [moved_bytes(tasks.nets, part) for part in found if _imbalance(tasks, part, parts) <= most]
        if not kept:
            cells.append("none keeps it")
        elif not min(kept):
            cells.append("1.000" if not verdict.bytes_moved else "inf")
        else:
            cells.append(f"{verdict.bytes_moved / min(kept):.3f}")
    figures = f"{verdict.bytes_moved:.4g} | {verdict.imbalance:.1f} | {' | '.join(cells)} | {seconds:.1f}"
    return f"| {name} | {graph.drops:,} | {parts} | {figures} |"


def table(sizes: list[int], nodes: list[int], *, has_workflows: bool) -> Iterator[str]:
    """Yield the lines of the table."""
    tools = ["METIS", "Mt-KaHyPar"] if has_kahypar() else ["METIS"]
    yield f"| graph | drops | parts | bytes moved | imbalance, % | {' | '.join(f'by {one}' for one in tools)} | s |"
    yield f"|---|---:|---:|---:|---:|{'---:|' * len(tools)}---:|"
    graphs = list(workflows(1)) if has_workflows else []
    for size in sizes:
        graphs += [(made.name, made) for made in (scatter_gather(size), corner_turn(size), chains(size))]
    for name, graph in graphs:
        for parts in nodes:
            yield row(name, graph, parts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8, 32])
    parser.add_argument("--no-workflows", action="store_true", help="leave out the workflows of WfCommons")
    given = parser.parse_args()
    for line in table(given.sizes, given.nodes, has_workflows=not given.no_workflows):
        print(line, flush=True)


if __name__ == "__main__":
    main()
