"""The load of a node over time."""

import threading

from dropflow.api.records import LoadSample
from managers.node.resources import LoadHistory


def test_samples_are_kept_in_a_ring() -> None:
    """The oldest samples go, an error while sampling is survived, and nothing is sampled after the end."""
    taken, enough = [], threading.Event()

    def sample() -> LoadSample:
        taken.append(len(taken))
        if len(taken) == 2:
            raise OSError("the disk is gone")
        if len(taken) >= 8:
            enough.set()
        return LoadSample(float(len(taken)), 0.0, 0, 0, 0, 0, 0, 0)

    history = LoadHistory("n", sample, every=0.001, kept=3)
    history.start()
    assert enough.wait(20)
    history.close()
    history.close()
    found = history.read()

    assert (found.node, len(found.samples)) == ("n", 3)
    times = [one.time for one in found.samples]
    assert times == sorted(times)
    assert times[-1] == len(taken)
