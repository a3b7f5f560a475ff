"""The process in which Mt-KaHyPar runs: it reads a hypergraph from standard input and writes partitions, as JSON.

Mt-KaHyPar keeps random state between calls, so its results are determined by a seed only in a fresh process. It also
prints to standard output, where answers go, and ends the whole process if one of its assertions fails. The process
imports nothing else, because starting it costs as much as partitioning a few hundred tasks.
"""

import json
import os
import sys
from typing import Any


def _main() -> None:
    # The output of the library goes to standard error.
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        json.dump(_partitions(json.load(sys.stdin)), answer)


def _partitions(given: dict[str, Any]) -> list[list[int]]:
    import mtkahypar  # noqa: PLC0415 - optional

    library = mtkahypar.initialize(1)
    weights, volumes = given["weights"], given["volumes"]
    partitions = []
    for seed in given["seeds"]:
        mtkahypar.set_seed(seed)
        context = library.context_from_preset(mtkahypar.PresetType.QUALITY)
        context.set_partitioning_parameters(
            given["parts"], max(given["imbalance"], 0.1) / 100.0, mtkahypar.Objective.KM1
        )
        context.num_vcycles = given["cycles"]
        context.logging = False
        if given["most"]:
            context.set_individual_target_block_weights(given["most"])
        graph = library.create_hypergraph(context, len(weights), len(volumes), given["nets"], weights, volumes)
        cut = graph.partition(context)
        partitions.append([cut.block_id(task) for task in range(len(weights))])
    return partitions


if __name__ == "__main__":
    _main()
