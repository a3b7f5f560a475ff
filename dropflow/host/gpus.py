"""The GPUs that this process may give to attempts, and those that others of this user have claimed."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from dropflow.errors import MissingDependencyError
from dropflow.formatting import plural
from dropflow.ids import safe_name

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the GPUs that a process may use, separated by commas; all if it is not set."""
_LIST_SECONDS = 20.0
"""Seconds in which the driver must list the GPUs; then there are none."""


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
        output = subprocess.run(command, capture_output=True, timeout=_LIST_SECONDS, check=True, text=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):  # a driver that does not answer, or is not loaded
        return ()
    return tuple(re.findall(r"^GPU (\d+):", output.stdout, re.MULTILINE))


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
