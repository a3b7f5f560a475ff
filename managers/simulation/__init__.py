"""Processes, links and faults in one thread on virtual time, for tests. Product code does not import this package.

`virtual_time` has the clock and the events, `network` carries packets between the `simulated_links` of processes,
`disturbances` draws cuts, pauses and crashes, `session_driver` runs a session, `simulated_node` and
`simulated_composite` run managers, and `cluster` puts a master, islands and nodes together. Everything is drawn from
one seed: the same seed gives the same run, byte by byte.
"""

from managers.simulation.cluster import SimulatedCluster
from managers.simulation.disturbances import DisturbanceRates, Disturbances
from managers.simulation.network import NetworkFaults, SimulatedNetwork
from managers.simulation.session_driver import SessionDriver, SessionInbox
from managers.simulation.simulated_links import SimulatedFetchPool, SimulatedLinks
from managers.simulation.simulated_node import Workload
from managers.simulation.virtual_time import SimulatedProcess, Simulation

__all__ = [
    "DisturbanceRates",
    "Disturbances",
    "NetworkFaults",
    "SessionDriver",
    "SessionInbox",
    "SimulatedCluster",
    "SimulatedFetchPool",
    "SimulatedLinks",
    "SimulatedNetwork",
    "SimulatedProcess",
    "Simulation",
    "Workload",
]
