"""Partition of the hypergraph of data with Mt-KaHyPar (L. Gottesbueren et al., ACM J. Exp. Algorithmics 2021).

A data drop that is read in ten parts moves nine or ten times, for any number of readers. METIS counts edges. Here each
data drop is a net, and its cost, connectivity minus one, is the number of its moves. The partitions of METIS are
refined along with those of Mt-KaHyPar, so that the result moves no more than either.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dropflow.errors import MissingDependencyError, WorkerDiedError, install_hint
from dropflow.graph.order import topological_order
from dropflow.graph.physical import PhysicalGraph
from translator.options import PartitionOptions
from translator.plan import kahypar_process
from translator.plan.machines import Machines
from translator.plan.metis import feasible_limits, filled, least_movement, metis_cuts, numbered
from translator.plan.planner import PlannedParts, scaled
from translator.plan.refine import PartLimits
from translator.plan.task_graph import TaskGraph, task_graph, work_of

_MOST_SUM = 1_000_000_000
"""Largest sum of all loads, and of all volumes: Mt-KaHyPar has 32 bits for each."""
_SMALL = 5_000
"""Most tasks of graphs that get several seeds, and whose partitions are improved in several cycles."""
_SEEDS, _CYCLES = 3, 3


def has_kahypar() -> bool:
    """Return whether Mt-KaHyPar is installed."""
    return find_spec("mtkahypar") is not None


def kahypar(graph: PhysicalGraph, options: PartitionOptions, machines: Machines) -> PlannedParts:
    """Return parts between which the least bytes move.

    Raises
    ------
    MissingDependencyError
        Mt-KaHyPar is not installed.
    WorkerDiedError
        It ended without an answer.
    """
    if not has_kahypar():
        hint = f"{install_hint('kahypar')}, or use metis"
        raise MissingDependencyError("the partitioner kahypar needs the package mtkahypar", hint=hint)
    tasks = task_graph(work_of(graph))
    order = topological_order(graph)
    part = np.arange(graph.drops, dtype=np.int32)
    if options.parts < graph.drops:
        limits = feasible_limits(tasks, options, machines)
        partitions = metis_cuts(tasks, options, machines)
        if tasks.tasks > options.parts and len(tasks.nets.volume):
            partitions += kahypar_cuts(tasks, limits, seed=options.seed)
        part = tasks.expanded(least_movement(tasks, options, limits, partitions, tries=2))
        part = filled(graph, part, options.parts, order)
    return PlannedParts(numbered(part, order, machines))


def kahypar_cuts(tasks: TaskGraph, limits: PartLimits, *, seed: int) -> list[npt.NDArray[np.int64]]:
    """Return the partitions of Mt-KaHyPar; for small graphs from several seeds.

    Raises
    ------
    WorkerDiedError
        It ended without an answer.
    """
    weights = scaled(limits.load, least=0, most=max(_MOST_SUM // max(len(limits.load), 1), 1))
    mean = limits.most.mean()
    shares = limits.most / limits.most.sum()
    is_even = np.allclose(limits.most, mean)
    nets, is_small = tasks.nets.made, tasks.tasks <= _SMALL
    volumes = scaled(nets.volume, least=1, most=max(_MOST_SUM // max(len(nets.volume), 1), 1))
    question = {
        "parts": len(limits.most),
        "imbalance": 100.0 * (float(mean) * len(shares) / float(limits.load.sum()) - 1),
        "most": [] if is_even else (np.ceil(weights.sum() / limits.load.sum() * limits.most) + 1).astype(int).tolist(),
        "nets": [word.tolist() for word in np.split(nets.task, nets.ptr[1:-1])],
        "volumes": volumes.tolist(),
        "weights": weights.tolist(),
        "seeds": [(seed + number) % 2**31 for number in range(_SEEDS if is_small else 1)],
        "cycles": _CYCLES if is_small else 0,
    }
    command = [sys.executable, str(Path(kahypar_process.__file__))]
    done = subprocess.run(command, input=json.dumps(question).encode(), capture_output=True, check=False)  # noqa: S603 - our own
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        text = f"Mt-KaHyPar ended with exit status {done.returncode}{f': {last[0]}' if last else ''}"
        raise WorkerDiedError(text, hint="partition with metis")
    return [np.array(load, dtype=np.int64) for load in json.loads(done.stdout)]
