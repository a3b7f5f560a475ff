"""The processors that this process may use, and the variables that tell libraries how many threads to use."""

import os
from collections.abc import Mapping

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
"""Environment variables with the number of threads for libraries, which read them when they are loaded or before.
Without them, each process uses one thread for each core."""


def usable_cores() -> int:
    """Return how many cores this process may use: the number of its workers, if no option has another."""
    return len(os.sched_getaffinity(0))


def thread_variables(cpus: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let libraries use as many threads as an attempt declares processors.

    Variables that are set in `environment` are left out. If ``OMP_NUM_THREADS`` is set, all are left out: most of the
    libraries read it if their own variable is not set.
    """
    if "OMP_NUM_THREADS" in environment:
        return {}
    threads = str(max(1, min(cpus, usable_cores())))
    return {name: threads for name in THREAD_VARIABLES if name not in environment}
