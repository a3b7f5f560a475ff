"""Virtual time: order of events, pauses, crashes and determinism."""

import os
import subprocess
import sys

import pytest

from dropflow.errors import InternalError
from managers.simulation import SimulatedProcess, Simulation

_RUN = """
from managers.messages import StopSession
from managers.simulation import DisturbanceRates, Disturbances, NetworkFaults
from managers.simulation import SimulatedLinks, SimulatedNetwork, Simulation

simulation = Simulation(7, keep_trace=True)
network = SimulatedNetwork(simulation, NetworkFaults(lose=0.05, duplicate=0.1, reorder=0.1, cut=0.01))
nodes = {name: SimulatedLinks(name, network, on_message=lambda _: None) for name in ("a", "b", "c")}
for one in nodes.values():
    for other in nodes.values():
        if one is not other:
            one.connect(other.name, other.address)
rates = DisturbanceRates(cuts=2.0, blocks=1.0, pauses=1.0, crashes=1.0)
Disturbances(network, [links.process for links in nodes.values()], rates, may_crash=lambda process: process.name == "c")
for number in range(100):
    for name in simulation.random.sample(["b", "c"], 2):
        nodes["a"].send(name, StopSession("s", 1, str(number)), [bytes(simulation.random.randrange(1000))])
    simulation.wait(0.1)
print("\\n".join(simulation.trace))
"""


def test_events_happen_in_the_order_of_their_times() -> None:
    """Events at the same time happen in the order in which they were scheduled; cancelled ones do not happen."""
    simulation, seen = Simulation(1), []
    simulation.call_at(2.0, lambda: seen.append("b"))
    simulation.call_later(1.0, lambda: simulation.call_later(1.0, lambda: seen.append("c")))
    simulation.call_at(1.0, lambda: seen.append("a"))
    simulation.call_at(1.5, lambda: seen.append("x")).cancel()
    simulation.wait(5.0)

    assert seen == ["a", "b", "c"]
    assert simulation.now() == simulation.monotonic() == 5.0


def test_nothing_happens_after_the_end_of_a_wait() -> None:
    """An event that was cancelled before the end does not make a later one happen early."""
    simulation, seen = Simulation(1), []
    process = SimulatedProcess(simulation, "p")
    simulation.call_at(1.0, lambda: seen.append("x")).cancel()
    process.call_at(1.5, lambda: seen.append("y")).cancel()
    process.call_at(9.0, lambda: seen.append("a"))
    simulation.wait(5.0)
    assert (seen, simulation.now()) == ([], 5.0)

    simulation.wait(5.0)
    assert (seen, simulation.now()) == (["a"], 10.0)


def test_a_paused_process_handles_its_events_later() -> None:
    """Its events happen in order when it resumes; those of other processes are not delayed."""
    simulation, seen = Simulation(1), []
    paused, other = SimulatedProcess(simulation, "paused"), SimulatedProcess(simulation, "other")
    for number, process in enumerate((paused, other, paused)):
        process.call_at(1.0 + number, lambda number=number: seen.append((number, simulation.time)))  # type: ignore[misc]
    paused.pause()
    simulation.call_at(9.0, paused.resume)
    simulation.wait(10.0)

    assert seen == [(1, 2.0), (0, 9.0), (2, 9.0)]


def test_nothing_happens_in_a_process_that_crashed() -> None:
    """Its events do not happen, including those delayed by a pause; the functions for its end are called once."""
    simulation, seen = Simulation(1), []
    process = SimulatedProcess(simulation, "a")
    process.on_crash(lambda: seen.append("crash"))
    process.call_later(1.0, lambda: seen.append("event"))
    process.pause()
    simulation.wait(2.0)
    process.crash()
    process.crash()
    process.resume()
    simulation.wait(2.0)

    assert seen == ["crash"]


def test_a_run_that_does_not_reach_its_end_is_an_error() -> None:
    """When no event is left, or too many happened, the error names the seed."""
    with pytest.raises(InternalError, match=r"seed=3"):
        Simulation(3).run(lambda: False)


def test_the_same_seed_gives_the_same_run() -> None:
    """Two processes with different hash seeds write the same trace, byte by byte."""
    traces = [
        subprocess.run(
            [sys.executable, "-c", _RUN],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert traces[0] == traces[1]
    for word in (b" open a b ", b" packet ", b" lose ", b" break ", b" block ", b" pause ", b" resume ", b" crash c"):
        assert word in traces[0]
