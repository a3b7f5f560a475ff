"""The process in which Mt-KaHyPar runs: it reads a hypergraph from standard input and writes partitions.

Mt-KaHyPar carries random state from one call to the next, so that only in a fresh process a seed decides its results.
It also prints to standard output, where answers go, and ends the whole process if an assertion of it fails.
"""

import io
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dropflow.errors import WorkerDiedError

__all__ = ["Hypergraph", "kahypar_cuts"]

_Wide = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hypergraph:
    """What is partitioned.

    Attributes
    ----------
    ptr, task : int64 arrays
        The tasks of net i are ``task[ptr[i]:ptr[i + 1]]``.
    volumes, weights : int64 arrays
        Of the nets, and of the tasks.
    """

    ptr: _Wide
    task: _Wide
    volumes: _Wide
    weights: _Wide


def kahypar_cuts(graph: Hypergraph, parts: int, *, imbalance: float, most: _Wide, seed: int, tries: int) -> list[_Wide]:
    """Return the partitions that Mt-KaHyPar finds: for each of several seeds, one with each of two presets.

    Parameters
    ----------
    imbalance : float
        Percentage by which a part may exceed the mean.
    most : int64 array, shape (parts,)
        Largest weight of each part; empty if all are equal.

    Raises
    ------
    WorkerDiedError
        The process ended without an answer.
    """
    question = io.BytesIO()
    numbers = np.array([parts, seed, tries], dtype=np.int64)
    np.savez(
        question,
        ptr=graph.ptr,
        task=graph.task,
        volumes=graph.volumes,
        weights=graph.weights,
        most=most,
        numbers=numbers,
        imbalance=np.array(imbalance),
    )
    command = [sys.executable, "-m", "translator.partition.kahypar_process"]
    done = subprocess.run(command, input=question.getvalue(), capture_output=True, check=False)  # noqa: S603 - our own
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        text = f"Mt-KaHyPar ended with exit status {done.returncode}{f': {last[0]}' if last else ''}"
        raise WorkerDiedError(text, hint="partition with metis")
    found: _Wide = np.load(io.BytesIO(done.stdout), allow_pickle=False)
    return list(found)


def _main() -> None:
    # What the library prints goes to standard error.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    given = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
    written = io.BytesIO()
    np.save(written, _partitions(given))
    with answer:
        answer.write(written.getvalue())


def _partitions(given: "np.lib.npyio.NpzFile") -> _Wide:
    import mtkahypar  # noqa: PLC0415 - optional

    parts, first, tries = given["numbers"].tolist()
    library = mtkahypar.initialize(1)
    nets = [one.tolist() for one in np.split(given["task"], given["ptr"][1:-1])]
    weights, volumes, most = (given[name].tolist() for name in ("weights", "volumes", "most"))
    found = []
    for preset in (mtkahypar.PresetType.DEFAULT, mtkahypar.PresetType.QUALITY):
        for seed in range(first, first + tries):
            mtkahypar.set_seed(seed)
            context = library.context_from_preset(preset)
            context.set_partitioning_parameters(
                parts, max(float(given["imbalance"]), 0.1) / 100.0, mtkahypar.Objective.KM1
            )
            context.logging = False
            if most:
                context.set_individual_target_block_weights(most)
            graph = library.create_hypergraph(context, len(weights), len(volumes), nets, weights, volumes)
            cut = graph.partition(context)
            found.append([cut.block_id(task) for task in range(len(weights))])
    return np.array(found, dtype=np.int64)


if __name__ == "__main__":
    _main()
