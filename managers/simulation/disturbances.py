"""Faults that last: cuts of connections, blocked connections, pauses and crashes of processes, drawn from a seed."""

import math
from collections.abc import Callable

import msgspec

from managers.simulation.network import SimulatedNetwork
from managers.simulation.virtual_time import SimulatedProcess

__all__ = ["DisturbanceRates", "Disturbances"]


class DisturbanceRates(msgspec.Struct, frozen=True, kw_only=True):
    """How often disturbances happen, and how long they last.

    Attributes
    ----------
    cuts, blocks, pauses, crashes : float
        Mean number per second of virtual time, in the whole cluster.
    longest : float
        Seconds; blocks and pauses last up to this long.
    """

    cuts: float = 0.0
    blocks: float = 0.0
    pauses: float = 0.0
    crashes: float = 0.0
    longest: float = 1.0


class Disturbances:
    """Disturbs processes and their connections, at times and places drawn from the seed of the simulation.

    Parameters
    ----------
    network : SimulatedNetwork
        The network.
    processes : list of SimulatedProcess
        What may be disturbed; processes can be added while the simulation runs.
    rates : DisturbanceRates
        How often.
    may_crash : callable
        Whether a process may crash now.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        processes: list[SimulatedProcess],
        rates: DisturbanceRates,
        *,
        may_crash: Callable[[SimulatedProcess], bool] = lambda _: True,
    ) -> None:
        self._network = network
        self._simulation = network.simulation
        self._processes = processes
        self._longest = rates.longest
        self._may_crash = may_crash
        self._is_over = False
        kinds = (
            (rates.cuts, self._cut),
            (rates.blocks, self._block),
            (rates.pauses, self._pause),
            (rates.crashes, self._crash),
        )
        for rate, disturb in kinds:
            self._schedule(rate, disturb)

    def stop(self) -> None:
        """Begin no more disturbances; those that last end by themselves."""
        self._is_over = True

    def _schedule(self, rate: float, disturb: Callable[[], None]) -> None:
        if rate <= 0:
            return
        pause = -math.log(1.0 - self._simulation.random.random()) / rate
        self._simulation.call_later(pause, lambda: self._happen(rate, disturb))

    def _happen(self, rate: float, disturb: Callable[[], None]) -> None:
        if not self._is_over:
            disturb()
            self._schedule(rate, disturb)

    def _draw(self, count: int) -> list[SimulatedProcess]:
        alive = [process for process in self._processes if process.is_alive]
        return self._simulation.random.sample(alive, count) if len(alive) >= count else []

    def _duration(self) -> float:
        return self._simulation.random.random() * self._longest

    def _cut(self) -> None:
        names = [process.name for process in self._draw(2)]
        if names:
            self._network.cut(*names)

    def _block(self) -> None:
        names = [process.name for process in self._draw(2)]
        if names:
            a, b = names
            self._simulation.record(f"block {a} {b}")
            self._network.block(a, b)
            self._simulation.call_later(self._duration(), lambda: self._network.unblock(a, b))

    def _pause(self) -> None:
        for process in self._draw(1):
            process.pause()
            self._simulation.call_later(self._duration(), process.resume)

    def _crash(self) -> None:
        for process in self._draw(1):
            if self._may_crash(process):
                process.crash()
