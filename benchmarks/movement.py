"""Bytes that plans for least movement move, beside METIS, Mt-KaHyPar and KaHyPar alone; prints a Markdown table.

METIS is called with both of its methods on the graph of applications, with four seeds for small graphs. Mt-KaHyPar
(``pip install mtkahypar``) and KaHyPar (``pip install kahypar``) partition the hypergraph of data, with
three seeds. All have the same allowed imbalance as `auto --objective movement`. Of what each finds, the partition that
moves the least counts, among those that keep the imbalance and, as ours, leave no part empty. Where no partition of a
graph keeps it, the limit is that of the plan of `auto`. One judge counts for all: a data drop that an application makes
moves once to each part that reads it, and other data do not count. The package of KaHyPar has no configuration; its
repository has, as ``config/km1_kKaHyPar_sea20.ini``.

    python benchmarks/movement.py [--nodes 4 8 32] [--sizes 1000 10000] [--no-workflows] [--kahypar CONFIGURATION]
                                  [--graphs FILE...]
"""

import argparse
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from partition import chains, corner_turn, scatter_gather, workflows

from dropflow.graph.physical import PhysicalGraph
from translator.options import PartitionOptions
from translator.pipeline import translate
from translator.plan.kahypar import has_kahypar, kahypar_cuts
from translator.plan.machines import equal_machines
from translator.plan.metis import metis_cuts
from translator.plan.move_bound import judge
from translator.plan.planner import scaled
from translator.plan.refine import limits_for, moved_bytes
from translator.plan.registry import plan
from translator.plan.task_graph import TaskGraph, task_graph, work_of

IMBALANCE = 3.0
ALMOST = 1e-6
SEEDS = 3

_Parts = npt.NDArray[np.int64]


def alone(tasks: TaskGraph, parts: int, configuration: str = "") -> dict[str, list[_Parts]]:
    """Return the partitions of the tools; those of KaHyPar if its configuration is given."""
    options = PartitionOptions(parts=parts, imbalance=IMBALANCE)
    found = {"METIS": metis_cuts(tasks, options, equal_machines(parts))}
    can_be_cut = len(tasks.nets.volume) > 0 and tasks.tasks > parts
    if has_kahypar():
        limits = limits_for(tasks, equal_machines(parts), IMBALANCE)
        found["Mt-KaHyPar"] = kahypar_cuts(tasks, limits, seed=100) if can_be_cut else []
    if configuration:
        found["KaHyPar"] = _kahypar_itself(tasks, parts, configuration) if can_be_cut else []
    return found


def _kahypar_itself(tasks: TaskGraph, parts: int, configuration: str) -> list[_Parts]:
    """Return what KaHyPar finds in a process of its own, since an assertion of it would end this one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_kahypar_process, args=(theirs, tasks, parts, configuration))
    process.start()
    theirs.close()
    found = []
    try:
        while True:
            found.append(np.array(ours.recv(), dtype=np.int64))
    except EOFError:
        process.join()
    return found


def _kahypar_process(pipe: Any, tasks: TaskGraph, parts: int, configuration: str) -> None:
    import kahypar  # noqa: PLC0415 - only if it is asked for

    nets = tasks.nets.made
    volumes = scaled(nets.volume, least=1, most=1_000_000).tolist()
    weights = scaled(_loads(tasks), least=0, most=1_000_000).tolist()
    for seed in range(100, 100 + SEEDS):
        context = kahypar.Context()
        context.loadINIconfiguration(configuration)
        context.setK(parts)
        context.setEpsilon(IMBALANCE / 100.0)
        context.setSeed(seed)
        context.suppressOutput(True)
        given = kahypar.Hypergraph(
            len(weights),
            len(volumes),
            nets.ptr.tolist(),
            nets.task.tolist(),
            parts,
            volumes,
            weights,
        )
        kahypar.partition(given, context)
        pipe.send([given.blockID(task) for task in range(len(weights))])


def _loads(tasks: TaskGraph) -> npt.NDArray[np.float64]:
    return tasks.load if tasks.load.any() else np.ones(tasks.tasks)


def _imbalance(tasks: TaskGraph, part: _Parts, parts: int) -> float:
    sums = np.bincount(part, weights=_loads(tasks), minlength=parts)
    return float(100.0 * (sums.max() / sums.mean() - 1.0))


def row(name: str, graph: PhysicalGraph, parts: int, configuration: str) -> str:
    """Return one row of the table."""
    options = PartitionOptions(algorithm="auto", objective="movement", parts=parts, imbalance=IMBALANCE)
    begun = sum(os.times()[:4])
    made = plan(graph, options).graph
    seconds = sum(os.times()[:4]) - begun
    verdict = judge(made, equal_machines(parts))
    moved = verdict.bytes_moved - verdict.bytes_given
    tasks = task_graph(work_of(graph))
    most = max(IMBALANCE, verdict.imbalance) + ALMOST
    whole = min(parts, tasks.tasks)
    cells = []
    for found in alone(tasks, parts, configuration).values():
        kept = [
            moved_bytes(tasks.nets.made, part)
            for part in found
            if _imbalance(tasks, part, parts) <= most and len(np.unique(part)) >= whole
        ]
        if not kept:
            cells.append("none keeps it" if found else "")
        elif not min(kept):
            cells.append("1.000" if not moved else "inf")
        else:
            cells.append(f"{moved / min(kept):.3f}")
    figures = f"{moved:.4g} | {verdict.imbalance:.1f} | {' | '.join(cells)} | {seconds:.1f}"
    return f"| {name} | {graph.drops:,} | {parts} | {figures} |"


def table(graphs: list[tuple[str, PhysicalGraph]], nodes: list[int], configuration: str) -> Iterator[str]:
    """Yield the lines of the table."""
    tools = ["METIS", *(["Mt-KaHyPar"] if has_kahypar() else []), *(["KaHyPar"] if configuration else [])]
    yield f"| graph | drops | parts | bytes moved | imbalance, % | {' | '.join(f'by {tool}' for tool in tools)} | s |"
    yield f"|---|---:|---:|---:|---:|{'---:|' * len(tools)}---:|"
    for name, graph in graphs:
        for parts in nodes:
            if graph.drops > parts:
                yield row(name, graph, parts, configuration)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8, 32])
    parser.add_argument("--no-workflows", action="store_true", help="leave out the workflows of WfCommons")
    parser.add_argument("--kahypar", default="", metavar="CONFIGURATION", help="compare with KaHyPar, too")
    parser.add_argument("--graphs", type=Path, nargs="*", default=[], help="files of graphs to measure, too")
    given = parser.parse_args()
    graphs = [] if given.no_workflows else list(workflows(1))
    for size in given.sizes:
        graphs += [(made.name, made) for made in (scatter_gather(size), corner_turn(size), chains(size))]
    graphs += [(path.stem, translate(path).graph) for path in given.graphs]
    for line in table(graphs, given.nodes, given.kahypar):
        print(line, flush=True)


if __name__ == "__main__":
    main()
