"""Processes, links and faults in one thread on virtual time: for tests, and for ``dropflow drill``.

No other command and no manager imports this package: what they do is what is simulated here. Faults at random, and what
must hold when they are over, are in ``tests/managers/simulation``.

Everything is drawn from one seed: the same seed gives the same run, byte by byte.

=====================  ================================================================================================
`virtual_time`         Virtual time: a clock and a heap of events, in one thread
`network`              A simulated network: connections between processes, with delays and faults drawn from a seed
`simulated_links`      Links over a simulated network: the state machines of the product, without sockets, threads and
                       waiting
`simulated_node`       A node manager on virtual time: the machine, sessions, exchange and recovery of the product, on
                       simulated links
`simulated_runner`     A runner whose attempts take virtual time: no thread, no process, no waiting
`cluster`              A whole cluster on virtual time: a master, islands and nodes, and a client that submits graphs
                       to them
`history`              Histories of sessions: what was committed and read, when and in which view
`drill`                Runs of one graph on a simulated cluster with faults: when it ends, what is repeated, and what
                       would help
`simulated_composite`  An island or master on virtual time: the state machine of the product, with simulated calls
=====================  ================================================================================================
"""

from managers.simulation.cluster import SimulatedCluster
from managers.simulation.network import NetworkFaults, SimulatedNetwork
from managers.simulation.simulated_links import SimulatedFetchPool, SimulatedLinks
from managers.simulation.simulated_node import SessionDriver, SessionInbox, Workload
from managers.simulation.virtual_time import SimulatedProcess, Simulation

__all__ = [
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
