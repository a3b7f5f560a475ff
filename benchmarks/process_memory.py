"""Memory of a process and all that it has started, sampled by another process."""

import re
import threading
from pathlib import Path
from typing import Self

import psutil

__all__ = ["MemorySampler"]

_SHARED = Path("/dev/shm")  # noqa: S108 - shared memory
_OWNER = re.compile(r"dropflow-\d+-(\d+)-")
"""Name of a directory of dropflow in shared memory: its process."""


class MemorySampler:
    """Samples the memory of a process tree, with PSS: a page that n processes have counts as 1/n for each of them.

    Files of dropflow in shared memory count, too, if no process has mapped them at the moment.

    Parameters
    ----------
    root : int
        Process at the root of the tree.
    every : float
        Seconds between two samples.
    """

    def __init__(self, root: int, every: float = 0.1) -> None:
        self._root = root
        self._every = every
        self._stopped = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._peak = self.sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def peak(self) -> int:
        """Bytes of the largest sample."""
        return self._peak

    def sample(self) -> int:
        """Return the bytes of the tree now."""
        pids = _tree(self._root)
        private = shared = 0
        for pid in pids:
            total, shm = _pss(pid)
            private, shared = private + total - shm, shared + shm
        return private + max(shared, _files(set(pids)))

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            self._peak = max(self._peak, self.sample())


def _tree(root: int) -> list[int]:
    try:
        process = psutil.Process(root)
        return [root, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _pss(pid: int) -> tuple[int, int]:
    """Return the bytes of a process, and how many of them are shared memory."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0, 0
    found = {line.partition(":")[0]: line.split()[1] for line in lines[1:]}
    return int(found.get("Pss", 0)) * 1024, int(found.get("Pss_Shmem", 0)) * 1024


def _files(pids: set[int]) -> int:
    """Return the bytes of the files of these processes in shared memory."""
    total = 0
    for folder in _SHARED.glob("dropflow-*"):
        owner = _OWNER.match(folder.name)
        if owner is None or int(owner[1]) not in pids:
            continue
        for path in folder.rglob("*"):
            try:
                total += path.stat().st_blocks * 512
            except OSError:  # it has been removed meanwhile
                continue
    return total
