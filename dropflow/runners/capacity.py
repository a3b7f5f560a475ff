"""The processors and the memory that the attempts of a runner, or of all runners of a pool, share.

An attempt begins when what it declares is free. One that declares more than there is runs when all is free: alone.
Libraries that compute in threads of their own are limited to as many as the attempt declares processors.
"""

import math
import os
from collections.abc import Mapping, Sequence

from dropflow.formatting import format_size, plural
from dropflow.graph.templates import ResourceNeeds, Template, needs_of, unreadable_memory

__all__ = [
    "THREAD_VARIABLES",
    "Capacity",
    "thread_variables",
    "unusual_needs",
]


THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
"""Environment variables with which libraries are told how many threads they may use, at the latest when they are
loaded. Without them, each process uses one for each core."""


class Capacity:
    """What is free. Used by one thread, or under one lock.

    Parameters
    ----------
    cpus : int
        Processors in all.
    memory : float
        Bytes of memory in all.
    """

    def __init__(self, cpus: int, memory: float = math.inf) -> None:
        self.cpus = cpus
        self.memory = memory
        self._taken = ResourceNeeds(0)

    def admitted(self, needs: ResourceNeeds) -> ResourceNeeds:
        """Return what an attempt takes: what it needs, or all there is if it needs more than that."""
        if needs.cpus > self.cpus or needs.memory > self.memory:
            return ResourceNeeds(self.cpus, min(needs.memory, self.memory))
        return needs

    def fits(self, needs: ResourceNeeds) -> bool:
        """Return whether as much is free."""
        taken = self._taken
        return taken.cpus + needs.cpus <= self.cpus and (not needs.memory or taken.memory + needs.memory <= self.memory)

    def take(self, needs: ResourceNeeds) -> None:
        """Note that an attempt begins."""
        self._taken = ResourceNeeds(self._taken.cpus + needs.cpus, self._taken.memory + needs.memory)

    def free(self, needs: ResourceNeeds) -> None:
        """Note that an attempt has ended."""
        self._taken = ResourceNeeds(self._taken.cpus - needs.cpus, self._taken.memory - needs.memory)


def thread_variables(cpus: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let libraries use as many threads as an attempt declares processors.

    Those that are set in `environment` are left out, and all of them if it has ``OMP_NUM_THREADS``: most of the
    libraries read it if their own variable is not set.
    """
    if "OMP_NUM_THREADS" in environment:
        return {}
    threads = str(max(1, min(cpus, len(os.sched_getaffinity(0)))))
    return {name: threads for name in THREAD_VARIABLES if name not in environment}


def unusual_needs(templates: Sequence[Template], cpus: int, memory: float) -> tuple[str, ...]:
    """Return a note on each application that declares more than there is, or memory that cannot be read."""
    found = []
    for template in templates:
        if text := unreadable_memory(template):
            found.append(f"{template.name}: {text!r} is not a size, so its memory is not limited; write it as '2 GiB'")
        needs = needs_of(template)
        wanted = [plural(needs.cpus, "processor")] if needs.cpus > cpus else []
        wanted += [format_size(int(needs.memory))] if needs.memory > memory else []
        if wanted:
            there = f"{plural(cpus, 'processor')} and {format_size(int(memory))} of memory"
            text = (
                f"{template.name} asks for {' and '.join(wanted)}, and there are {there}: each of its drops runs alone"
            )
            found.append(text)
    return tuple(found)
