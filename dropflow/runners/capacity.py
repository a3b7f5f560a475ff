"""The processors, the memory and the GPUs that the attempts of a runner, or of all runners of a pool, share.

An attempt begins when the resources that it declares are free. If it declares more than exist, it runs when all are
free: alone. Libraries that compute in threads get as many threads as the attempt declares processors.

GPUs are given to attempts by name, in worker processes only (`dropflow.runners.dispatcher`).
"""

import fcntl
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec

from dropflow.errors import MissingDependencyError
from dropflow.execution.executor_spec import ExecutorSpec
from dropflow.execution.host_memory import host_memory
from dropflow.execution.tasks import Task
from dropflow.failure import Failure
from dropflow.formatting import format_size, plural
from dropflow.graph.templates import ResourceNeeds, Template, needs_of, unreadable_memory
from dropflow.ids import safe_name
from dropflow.session_options import usable_cores

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


GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the GPUs that a process may use, separated by commas; all if it is not set."""
_GPU_SECONDS = 20.0


@cache
def host_gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that this process may give to attempts.

    The names come from ``CUDA_VISIBLE_DEVICES`` if it is set, otherwise from ``nvidia-smi -L``.
    """
    given = os.environ.get(GPU_VARIABLE)
    if given is not None:
        names = [name.strip() for name in given.split(",")]
        return tuple(names[: names.index("-1")] if "-1" in names else filter(None, names))
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        command = [program, "-L"]
        found = subprocess.run(command, capture_output=True, timeout=_GPU_SECONDS, check=True, text=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):  # a driver that does not answer, or is not loaded
        return ()
    return tuple(re.findall(r"^GPU (\d+):", found.stdout, re.MULTILINE))


def lack_of_gpus(wanted: int, there: int, where: str = "") -> MissingDependencyError:
    """Return the error of an application that needs more GPUs than this host gives to attempts."""
    return MissingDependencyError(
        f"it needs {plural(wanted, 'GPU')}, and this host has {there or 'none'}",
        where=where,
        hint=f"run it on a host whose 'nvidia-smi -L' or {GPU_VARIABLE} names as many, or lower 'num_gpus'",
        of_host=True,
    )


def restrict_gpus(names: str) -> None:
    """Let this process and its child processes give only these GPUs to attempts; separated by commas."""
    os.environ[GPU_VARIABLE] = names
    host_gpus.cache_clear()


@contextmanager
def claimed_gpus() -> Iterator[tuple[str, ...]]:
    """Claim the GPUs of this process until the end of the context. Yield those claimed by other processes of the user.

    A claim is a lock of a file, which the system releases when the process ends. It does not prevent the use of a GPU.
    """
    with ExitStack() as stack:
        others = []
        for name in host_gpus():
            path = Path(tempfile.gettempdir()) / f"dropflow-gpu-{os.getuid()}-{safe_name(name)}.lock"
            with suppress(OSError):  # without locks on this file system, the claims of other processes are unknown
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                stack.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    others.append(name)
        yield tuple(others)


class Capacity:
    """The free processors and memory. Used by one thread, or under one lock.

    Parameters
    ----------
    cpus : int
        Number of all processors.
    memory : float
        Bytes of all memory.
    """

    def __init__(self, cpus: int, memory: float = math.inf) -> None:
        self.cpus = cpus
        self.memory = memory
        self._taken = ResourceNeeds(0)

    def admitted(self, needs: ResourceNeeds) -> ResourceNeeds:
        """Return the resources that an attempt takes: those that it needs, or all if it needs more than exist."""
        if needs.cpus > self.cpus or needs.memory > self.memory:
            return ResourceNeeds(self.cpus, min(needs.memory, self.memory))
        return needs

    def fits(self, needs: ResourceNeeds) -> bool:
        """Return whether these resources are free."""
        taken = self._taken
        return taken.cpus + needs.cpus <= self.cpus and (not needs.memory or taken.memory + needs.memory <= self.memory)

    def take(self, needs: ResourceNeeds) -> None:
        """Take the resources of an attempt that begins."""
        self._taken = ResourceNeeds(self._taken.cpus + needs.cpus, self._taken.memory + needs.memory)

    def free(self, needs: ResourceNeeds) -> None:
        """Free the resources of an attempt that has ended."""
        self._taken = ResourceNeeds(self._taken.cpus - needs.cpus, self._taken.memory - needs.memory)


def thread_variables(cpus: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let libraries use as many threads as an attempt declares processors.

    Variables that are set in `environment` are left out. If ``OMP_NUM_THREADS`` is set, all are left out: most of the
    libraries read it if their own variable is not set.
    """
    if "OMP_NUM_THREADS" in environment:
        return {}
    threads = str(max(1, min(cpus, usable_cores())))
    return {name: threads for name in THREAD_VARIABLES if name not in environment}


def judge_memory(failure: Failure, task: Task, spec: ExecutorSpec) -> Failure:
    """Return the failure of an attempt that had too little memory: it is repeated if the next attempt gets more."""
    declared = needs_of(spec.templates[task.template]).memory
    has_more = bool(spec.retry_memory) and (task.memory or declared) < host_memory().limit.bytes
    return msgspec.structs.replace(failure, infrastructure=has_more)


def unusual_needs(templates: Sequence[Template], cpus: int, memory: float) -> tuple[str, ...]:
    """Return a note on each application that declares more resources than exist, or memory that is no size."""
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
