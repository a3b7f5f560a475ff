"""How busy a host was during the last hour: a sample every few seconds, in a ring."""

import logging
import threading
from collections import deque
from collections.abc import Callable

import psutil

from dropflow.rest.manager_records import NodeInfo
from dropflow.rest.node_history import LoadSample, NodeHistory

__all__ = ["LoadHistory", "sample_of"]

_log = logging.getLogger(__name__)

EVERY = 5.0
_KEPT = 720


class LoadHistory:
    """Samples the load of a node in a thread of its own. It may be asked from any thread.

    Parameters
    ----------
    node : str
        Name of the node.
    sample : callable
        Returns the load now.
    every : float
        Seconds between two samples.
    kept : int
        How many samples are kept.
    """

    def __init__(self, node: str, sample: Callable[[], LoadSample], *, every: float = EVERY, kept: int = _KEPT) -> None:
        self._node = node
        self._sample = sample
        self._every = every
        self._samples: deque[LoadSample] = deque(maxlen=kept)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load of {node}", daemon=True)

    def start(self) -> None:
        """Take the first sample soon, and then one every few seconds."""
        self._thread.start()

    def read(self) -> NodeHistory:
        """Return the samples, the oldest one first."""
        return NodeHistory(node=self._node, every=self._every, samples=tuple(self._samples))

    def close(self) -> None:
        """Take no more samples. Idempotent."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(self._every if self._samples else 0.0):
            try:
                self._samples.append(self._sample())
            except OSError as error:  # the disk of the sessions is gone, for example
                _log.warning("the load of this host cannot be measured: %s", error)


def sample_of(node: NodeInfo, now: float) -> LoadSample:
    """Return the load of this host, whose other figures `node` has."""
    counters = psutil.net_io_counters(pernic=True)
    network = [counter for name, counter in counters.items() if not name.startswith("lo")]
    return LoadSample(
        time=now,
        processor=node.load.processor,
        memory=node.load.memory - node.load.memory_free,
        disk=node.load.disk - node.load.disk_free,
        received=sum(counter.bytes_recv for counter in network),
        sent=sum(counter.bytes_sent for counter in network),
        sessions=node.sessions,
        running=node.load.busy,
    )
