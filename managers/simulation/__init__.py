"""Processes, links and faults in one thread on virtual time: for tests, and for ``dropflow drill``.

No other command and no manager imports this package: what they do is what is simulated here.

Everything is drawn from one seed: the same seed gives the same run, byte by byte.

=====================  ================================================================================================
`virtual_time`         Virtual time: a clock and a heap of events, in one thread
`network`              A simulated network: connections between processes, with delays and faults drawn from a seed
`simulated_links`      Links over a simulated network: the state machines of the product, without sockets, threads and
                       waiting
`simulated_node`       A node manager on virtual time: the machine, sessions, exchange and recovery of the product, on
                       simulated links
`simulated_disks`      Disks of simulated nodes: full, and after a loss of power, which keeps only what was forced to
                       the disk
`cluster`              A whole cluster on virtual time: a master, islands and nodes, and a client that submits graphs
                       to them
`faults`               Faults of a simulated cluster as data: drawn from a seed, so that a trial can be repeated
                       without some of them
`fault_injector`       Carries out the faults of a trial in a simulated cluster
`history`              Histories of sessions: what was committed, read and acknowledged, when and in which view; and a
                       checker
`random_losses`        One run of sessions in a cluster with faults, drawn from a seed, and what must hold when it is
                       over
`trial_checks`         What must hold when a trial is over: how each session has ended, what is left, and what its
                       history says
`loss_sweep`           Run trials of `managers.simulation.random_losses` with many seeds: ``python -m
                       managers.simulation.loss_sweep``
`drill`                Runs of one graph on a simulated cluster with faults: when it ends, what is repeated, and what
                       would help
`simulated_composite`  An island or master on virtual time: the state machine of the product, with simulated calls
=====================  ================================================================================================
"""

from managers.simulation.cluster import SimulatedCluster
from managers.simulation.faults import DisturbanceRates, Disturbances
from managers.simulation.network import NetworkFaults, SimulatedNetwork
from managers.simulation.simulated_links import SimulatedFetchPool, SimulatedLinks
from managers.simulation.simulated_node import SessionDriver, SessionInbox, Workload
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
