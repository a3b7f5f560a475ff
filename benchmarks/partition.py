"""Plans of all algorithms, measured by the judge; prints one JSON object, or Markdown tables.

Graphs are synthetic workflows of WfCommons (``pip install wfcommons``; left out without it), and scatters with
gathers, corner turns and chains of several sizes. Figures are ratios to something measured in the same run: completion
time to the lower bound, bytes moved to those of ``metis``, and processor time of planning in microseconds per drop.
Nodes are equal, have one core, and links of 128 MiB/s that moves do not share, as in the papers that the algorithms are
from. ``bound`` in the table is the bound that counts moves, as a ratio to the other one.

    python benchmarks/partition.py [--nodes 4 8 32] [--sizes 1000 10000 100000] [--no-workflows] [--table]
                                   [--algorithms NAME...] [--shapes NAME...]
"""

import argparse
import contextlib
import io
import json
import logging
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dropflow.graph.build import from_columns
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Axis, Kind, Link, Template
from translator.options import PartitionOptions
from translator.pipeline import translate
from translator.plan.kahypar import has_kahypar
from translator.plan.machines import equal_machines
from translator.plan.move_bound import judge
from translator.plan.registry import ALGORITHMS, plan

WORKFLOWS = {
    "Montage": 310,
    "Epigenomics": 347,
    "Genome": 364,
    "Soykb": 336,
    "Cycles": 399,
    "Bwa": 106,
    "Seismology": 105,
    "Srasearch": 104,
    "Blast": 105,
    "Rnaseq": 180,
}
MOST_DROPS = {"heft": 150_000, "lookahead": 20_000, "min_parts": 20_000, "kahypar": 200_000}
MOST_DROPS |= {"breadth_first": 200_000}
LEFT_OUT = ("none",)
MEGABYTE = 1 << 20


def workflows(seed: int) -> Iterator[tuple[str, PhysicalGraph]]:
    """Yield the workflows of WfCommons that can be generated here."""
    try:
        from wfcommons import WorkflowGenerator  # noqa: PLC0415 - optional
        from wfcommons.wfchef import recipes  # noqa: PLC0415
    except ImportError:
        return
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        for name, tasks in WORKFLOWS.items():
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - the generator of WfCommons uses the global one
            recipe = getattr(recipes, f"{name}Recipe")
            file = Path(folder) / f"{name}.json"
            with contextlib.redirect_stdout(io.StringIO()):
                WorkflowGenerator(recipe.from_num_tasks(tasks)).build_workflow().write_json(file)
            yield name.lower(), translate(file).graph


def _graph(
    name: str, templates: list[Template], counts: list[int], edges: list[tuple[int, int, Any, Any]]
) -> PhysicalGraph:
    first = np.concatenate([[0], np.cumsum(counts)])
    links = [Link(source=source, target=target) for source, target, _, _ in edges]
    return from_columns(
        name=name,
        prefix=name,
        templates=templates,
        links=links,
        template=np.repeat(np.arange(len(counts)), counts).astype(np.int32),
        instance=np.concatenate([np.arange(count) for count in counts]).astype(np.int32),
        source=np.concatenate([first[source] + rows for source, _, rows, _ in edges]).astype(np.int32),
        target=np.concatenate([first[target] + rows for _, target, _, rows in edges]).astype(np.int32),
        link=np.repeat(np.arange(len(edges)), [len(rows) for _, _, rows, _ in edges]).astype(np.int32),
    )


def _template(name: str, kind: Kind, count: int, weight: float) -> Template:
    return Template(key=name, name=name, kind=kind, axes=(Axis(name, name, "scatter", count),), weight=weight)


def scatter_gather(drops: int) -> PhysicalGraph:
    """One data drop, copies of app -> data -> app -> data, and an app that gathers sixteen of them."""
    copies = max(drops // 4 // 16 * 16, 16)
    row, groups = np.arange(copies), copies // 16
    return _graph(
        "scatter-gather",
        [
            _template("in", Kind.DATA, 1, 64.0 * MEGABYTE),
            _template("first", Kind.APP, copies, 2.0),
            _template("middle", Kind.DATA, copies, 32.0 * MEGABYTE),
            _template("second", Kind.APP, copies, 3.0),
            _template("out", Kind.DATA, copies, 8.0 * MEGABYTE),
            _template("gather", Kind.APP, groups, 4.0),
        ],
        [1, copies, copies, copies, copies, groups],
        [
            (0, 1, np.zeros(copies, dtype=np.int64), row),
            (1, 2, row, row),
            (2, 3, row, row),
            (3, 4, row, row),
            (4, 5, row, row // 16),
        ],
    )


def corner_turn(drops: int) -> PhysicalGraph:
    """Rows that write a tile for each column; each column reads its tiles."""
    side = max(int(drops**0.5), 2)
    tile = np.arange(side * side)
    return _graph(
        "corner-turn",
        [
            _template("row", Kind.APP, side, 20.0),
            _template("tile", Kind.DATA, side * side, 1.0 * MEGABYTE),
            _template("column", Kind.APP, side, 20.0),
        ],
        [side, side * side, side],
        [(0, 1, tile // side, tile), (1, 2, tile, tile % side)],
    )


def chains(drops: int) -> PhysicalGraph:
    """Many chains of ten applications with data between them."""
    count, length = max(drops // 20, 2), 10
    templates, counts, edges = [], [], []
    row = np.arange(count)
    for step in range(length):
        templates += [
            _template(f"app{step}", Kind.APP, count, 1.0 + step % 3),
            _template(f"data{step}", Kind.DATA, count, 16.0 * MEGABYTE),
        ]
        counts += [count, count]
        edges.append((2 * step, 2 * step + 1, row, row))
        if step:
            edges.append((2 * step - 1, 2 * step, row, row))
    return _graph("chains", templates, counts, edges)


def _processor_seconds() -> float:
    """Return the processor time of this process and of those that it has waited for: elapsed time depends on others."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measured(graph: PhysicalGraph, nodes: int, name: str) -> dict[str, Any]:
    """Return the figures of one algorithm."""
    machines = msgspec.structs.replace(equal_machines(nodes), contention=False)
    options = PartitionOptions(algorithm=name, parts=nodes, imbalance=3.0)
    begun = _processor_seconds()
    made = plan(graph, options, machines)
    seconds = _processor_seconds() - begun
    verdict = judge(made.graph, machines)
    return {
        "completion": round(verdict.makespan_s / max(verdict.lower_bound_s, 1e-9), 4),
        "bound": round(verdict.bound_with_moves_s / max(verdict.lower_bound_s, 1e-9), 4),
        "moved": verdict.bytes_moved,
        "imbalance": round(verdict.imbalance, 1),
        "microseconds_per_drop": round(1e6 * seconds / graph.drops, 1),
    }


SHAPES = {"scatter-gather": scatter_gather, "corner-turn": corner_turn, "chains": chains}


def run(graphs: list[tuple[str, PhysicalGraph]], nodes: list[int], algorithms: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the figures of all graphs, numbers of nodes and algorithms."""
    for name, graph in graphs:
        for count in nodes:
            figures = {
                algorithm: measured(graph, count, algorithm)
                for algorithm in algorithms
                if graph.drops <= MOST_DROPS.get(algorithm, graph.drops) and (algorithm != "kahypar" or has_kahypar())
            }
            yield {"graph": name, "drops": graph.drops, "nodes": count, "algorithms": figures}


def table(found: Iterator[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """Yield Markdown: completion time by the lower bound, bytes moved by those of metis, microseconds per drop."""
    yield f"| graph | drops | nodes | bound | {' | '.join(names)} |"
    yield f"|---|---:|---:|---:|{'---:|' * len(names)}"
    for entry in found:
        figures = entry["algorithms"]
        base = figures["metis"]["moved"]
        cells = []
        for name in names:
            one = figures.get(name)
            if one is None:
                cells.append("")
                continue
            ratio = one["moved"] / base if base else (1.0 if not one["moved"] else float("inf"))
            cells.append(f"{one['completion']:.3f}, {ratio:.2f}, {one['microseconds_per_drop']:,.0f}")
        bound = figures["metis"]["bound"]
        yield f"| {entry['graph']} | {entry['drops']:,} | {entry['nodes']} | {bound:.3f} | {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    names = [name for name in ALGORITHMS if name not in LEFT_OUT]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8, 32])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-workflows", action="store_true", help="leave out the workflows of WfCommons")
    parser.add_argument("--algorithms", nargs="+", default=names, choices=names, help="those to measure, and metis")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES), help="generated graphs")
    parser.add_argument("--table", action="store_true", help="print Markdown instead of JSON")
    given = parser.parse_args()
    graphs = [] if given.no_workflows else list(workflows(given.seed))
    for size in given.sizes:
        graphs += [(f"{shape} {size}", SHAPES[shape](size)) for shape in given.shapes]
    wanted = [name for name in names if name in given.algorithms or name == "metis"]
    found = run(graphs, given.nodes, wanted)
    if given.table:
        for line in table(found, wanted):
            print(line, flush=True)
    else:
        print(json.dumps(list(found), indent=1))


if __name__ == "__main__":
    main()
